//! How much is too much. Beyond these the answer is no, so that what the node holds is bounded by the
//! cluster and never by what was sent.

/// Bytes of one message, from its first to its last.
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;

/// Arrays and objects within one another.
pub(crate) const DEPTH: u8 = 128;

pub(crate) const WORKERS: usize = 10_000;

/// Jobs that are queued or in flight.
pub(crate) const JOBS: usize = 1_000_000;

/// Bytes of the ids of pushed jobs, all together. Dealt jobs are numbers and cost no text.
pub(crate) const JOB_ID_BYTES: usize = 64 << 20;

/// A day.
pub(crate) const DURATION_MS: u64 = 86_400_000;
