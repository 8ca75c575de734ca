//! The bounds on requests. Each has its own error, and a request beyond it changes nothing.

/// Bytes in the body of a request that is not a list.
pub const BODY_BYTES: usize = 1 << 20;

/// Bytes in an array of jobs, or in a flow.
pub const LIST_BYTES: usize = 128 << 20;

/// Bytes in one line of JSON lines.
pub const LINE_BYTES: usize = 1 << 20;

/// Bytes of the payload of one job: its arguments, or its command.
pub const PAYLOAD_BYTES: usize = 256 << 10;

/// Bytes of a result.
pub const RESULT_BYTES: usize = 256 << 10;

/// Bytes of a stored log.
pub const LOG_BYTES: usize = 256 << 10;

/// Bytes of the error of a failed attempt.
pub const ERROR_BYTES: usize = 64 << 10;

/// Bytes in a name: of a queue, a kind, a key.
pub const NAME_BYTES: usize = 200;

/// Jobs in one array.
pub const ARRAY_JOBS: usize = 10_000;

/// Jobs in one flow.
pub const FLOW_JOBS: usize = 100_000;

/// Dependencies between the jobs of one flow.
pub const FLOW_EDGES: usize = 1_000_000;

/// Levels of nested arrays and objects.
pub const JSON_DEPTH: usize = 64;

/// Jobs in one chunk of JSON lines.
pub const CHUNK_JOBS: usize = 4_096;

/// Bytes in one chunk of JSON lines.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Bytes in one frame that a worker sends: many results at once.
pub const FRAME_BYTES: usize = 16 << 20;

/// Messages in one frame that a worker sends, reports and jobs in their lists included. A worker
/// that owns as many jobs as it can, and has as many reports to repeat, stays below.
pub const FRAME_ITEMS: usize = 65_536;

/// Characters in the instance of a worker that works over plain HTTP.
pub const INSTANCE_CHARACTERS: usize = 64;

/// Slots of a worker that works over plain HTTP.
pub const PLAIN_SLOTS: u32 = 1_000;

/// Queues that a worker over plain HTTP may name.
pub const PLAIN_QUEUES: usize = 1_000;

/// Kinds that a worker may announce.
pub const WORKER_KINDS: usize = 1_000;

/// Jobs, or ids of jobs, in one request about several jobs.
pub const REQUEST_JOBS: usize = 10_000;

/// Jobs in one page of a list.
pub const PAGE_JOBS: usize = 1_000;
