//! Ids as text: jobs as UUIDs, workers as sixteen hexadecimal digits.

use std::sync::atomic::{AtomicU64, Ordering};

use filch_scheduler::id::{JobId, WorkerId};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// A new id for a job. Ids sort by the time of their creation.
#[must_use]
pub fn new_job() -> JobId {
    JobId(Uuid::now_v7().as_u128())
}

/// The id of the `index`th job that is submitted under an idempotency key: the same key gives the
/// same ids in the same queue.
#[must_use]
pub fn keyed_job(queue: &str, key: &str, index: u64) -> JobId {
    let mut hash = Sha256::new();
    hash.update(b"filch idempotency key\0");
    hash.update((queue.len() as u64).to_le_bytes());
    hash.update(queue.as_bytes());
    hash.update(key.as_bytes());
    hash.update(index.to_le_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let bytes = digest[..16].try_into().expect("a digest has more than 16 bytes");
    JobId(Uuid::new_v8(bytes).as_u128())
}

/// A job's id as a UUID.
#[must_use]
pub fn job(id: JobId) -> String {
    Uuid::from_u128(id.0).hyphenated().to_string()
}

/// The same, into a buffer.
pub fn write_job(id: JobId, buffer: &mut [u8; 36]) -> &str {
    Uuid::from_u128(id.0).hyphenated().encode_lower(buffer)
}

/// Reads a whole UUID.
#[must_use]
pub fn read_job(text: &str) -> Option<JobId> {
    Uuid::try_parse(text).ok().map(|id| JobId(id.as_u128()))
}

/// The last eight digits, by which people know a job.
#[must_use]
pub fn short(id: JobId) -> String {
    format!("{:08x}", id.0 as u32)
}

/// A worker's id.
#[must_use]
pub fn worker(id: WorkerId) -> String {
    format!("{:016x}", id.bits())
}

/// Reads a worker's id.
#[must_use]
pub fn read_worker(text: &str) -> Option<WorkerId> {
    let is_written_so = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_written_so.then(|| u64::from_str_radix(text, 16).ok().and_then(WorkerId::new)).flatten()
}

/// A number that, with overwhelming probability, no other call in this or any other process gets:
/// for seeds.
#[must_use]
pub fn seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut hash = Sha256::new();
    hash.update(Uuid::now_v7().as_bytes());
    hash.update(std::process::id().to_le_bytes());
    hash.update(CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes(digest[..8].try_into().expect("a digest has more than 8 bytes"))
}
