//! What running jobs print, for whoever watches. It lives in memory and is bounded; what is kept for
//! later comes with the report of the attempt's end.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use filch_api::session::{Output, Stream};
use tokio::sync::watch;

/// Bytes of one job's output that are held.
const JOB_BYTES: usize = 256 << 10;

/// Jobs whose output is held; beyond them the one that was printed to first is let go.
const JOBS: usize = 10_000;

#[derive(Default)]
pub(crate) struct Logs {
    jobs: Mutex<Jobs>,
}

#[derive(Default)]
struct Jobs {
    by_seq: HashMap<u64, Log>,
    order: VecDeque<u64>,
}

struct Log {
    fence: u64,
    /// What is held, and how many bytes came before it.
    pieces: VecDeque<(Stream, String)>,
    before: u64,
    bytes: usize,
    /// How many bytes there are altogether.
    end: watch::Sender<u64>,
}

/// A part of a job's output.
pub(crate) struct Piece {
    pub(crate) stream: Stream,
    pub(crate) text: String,
}

impl Logs {
    pub(crate) fn print(&self, output: Output) {
        let mut jobs = self.jobs.lock().expect("nobody panics while printing");
        let seq = output.job.0;
        let fence = output.job.1;
        if jobs.by_seq.get(&seq).is_some_and(|log| log.fence > fence) {
            return;
        }
        if !jobs.by_seq.contains_key(&seq) {
            if jobs.order.len() >= JOBS
                && let Some(oldest) = jobs.order.pop_front()
            {
                jobs.by_seq.remove(&oldest);
            }
            jobs.order.push_back(seq);
        }
        let log = jobs.by_seq.entry(seq).or_insert_with(|| Log::new(fence));
        if log.fence < fence {
            *log = Log::new(fence);
        }
        log.bytes += output.text.len();
        let end = log.before + log.bytes as u64;
        log.pieces.push_back((output.stream, output.text));
        while log.bytes > JOB_BYTES
            && let Some((_, text)) = log.pieces.pop_front()
        {
            log.bytes -= text.len();
            log.before += text.len() as u64;
        }
        log.end.send_replace(end);
    }

    /// What was printed after so many bytes, under which fence, and how many bytes there are then.
    pub(crate) fn read(&self, seq: u64, fence: u64, after: u64) -> Option<(Vec<Piece>, u64, u64)> {
        let jobs = self.jobs.lock().expect("nobody panics while printing");
        let log = jobs.by_seq.get(&seq)?;
        let after = if log.fence == fence { after } else { 0 };
        let mut at = log.before;
        let mut pieces = Vec::new();
        for (stream, text) in &log.pieces {
            let start = at;
            at += text.len() as u64;
            if at > after {
                let skip = after.saturating_sub(start) as usize;
                let text = text.get(skip..).unwrap_or(text).to_owned();
                pieces.push(Piece { stream: *stream, text });
            }
        }
        Some((pieces, log.fence, at))
    }

    /// Says when more is printed. The job need not have printed anything yet.
    pub(crate) fn watch(&self, seq: u64) -> watch::Receiver<u64> {
        let mut jobs = self.jobs.lock().expect("nobody panics while printing");
        if !jobs.by_seq.contains_key(&seq) {
            jobs.order.push_back(seq);
        }
        jobs.by_seq.entry(seq).or_insert_with(|| Log::new(0)).end.subscribe()
    }
}

impl Log {
    fn new(fence: u64) -> Self {
        Self { fence, pieces: VecDeque::new(), before: 0, bytes: 0, end: watch::Sender::new(0) }
    }
}
