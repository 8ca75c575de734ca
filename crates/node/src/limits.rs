//! The limits of a node. Requests beyond them are refused, so that its memory is bounded no matter
//! what it receives.

/// Bytes of one message.
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;

/// Nesting depth of arrays and objects.
pub(crate) const DEPTH: u8 = 128;

pub(crate) const WORKERS: usize = 10_000;

/// Jobs that are queued or in flight.
pub(crate) const JOBS: usize = 1_000_000;

/// Total bytes of the ids of pushed jobs. Dealt jobs are stored as numbers.
pub(crate) const JOB_ID_BYTES: usize = 64 << 20;

/// A day.
pub(crate) const DURATION_MS: u64 = 86_400_000;
