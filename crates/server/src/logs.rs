//! The output of running jobs, for readers that follow it. `shell` checks that it comes from a
//! job's owner. It is in memory and bounded; the stored log comes with the report of the attempt's
//! end.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;

use filch_api::session::{Output, OutputStream};
use tokio::sync::watch;

/// Bytes of output that are held per job.
const JOB_BYTES: usize = 256 << 10;

/// Bytes of output that are held altogether.
const ALL_BYTES: usize = 64 << 20;

/// Jobs whose output is held; beyond that, one is dropped.
const JOBS: usize = 10_000;

/// Bytes that a reader gets at once; a single larger piece is not divided.
const READ_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Logs {
    jobs: Mutex<Jobs>,
}

#[derive(Default)]
struct Jobs {
    by_seq: HashMap<u64, Log>,
    /// The order in which logs are dropped: those of jobs that do not run first, then those to
    /// which nothing was added for the longest time.
    order: BTreeMap<(bool, u64), u64>,
    /// The last used number of `order`.
    last: u64,
    bytes: usize,
}

struct Log {
    fence: u64,
    /// Its place in the order: whether its job runs, and when something was added.
    place: (bool, u64),
    /// The held output, and how many bytes came before it.
    pieces: VecDeque<(OutputStream, String)>,
    before: u64,
    bytes: usize,
    /// How many bytes there are altogether.
    end: watch::Sender<u64>,
}

/// A part of a job's output.
pub(crate) struct Piece {
    pub(crate) stream: OutputStream,
    pub(crate) text: String,
}

/// New output since the last read.
pub(crate) struct Part {
    pub(crate) pieces: Vec<Piece>,
    /// Bytes before these that are no longer held.
    pub(crate) missed: u64,
    pub(crate) fence: u64,
    /// How many bytes there are up to the end of these.
    pub(crate) end: u64,
}

impl Logs {
    pub(crate) fn print(&self, output: Output) {
        let mut jobs = self.jobs.lock().expect("no panic while it is locked");
        let seq = output.job.0;
        let fence = output.job.1;
        if jobs.by_seq.get(&seq).is_some_and(|log| log.fence > fence) {
            return;
        }
        let log = jobs.entry(seq, fence, true);
        let before = log.bytes;
        log.add(fence, output.stream, output.text);
        let after = log.bytes;
        jobs.bytes = jobs.bytes + after - before;
        while jobs.bytes > ALL_BYTES && jobs.order.len() > 1 {
            jobs.drop_first();
        }
    }

    /// A job no longer runs. Its output is still held for its readers, but is dropped before that
    /// of running jobs.
    pub(crate) fn finished(&self, seq: u64) {
        let mut jobs = self.jobs.lock().expect("no panic while it is locked");
        if jobs.by_seq.contains_key(&seq) {
            jobs.entry(seq, 0, false);
        }
    }

    /// The output after this many bytes under this fence, or the first part of it.
    pub(crate) fn read(&self, seq: u64, fence: u64, after: u64) -> Option<Part> {
        let jobs = self.jobs.lock().expect("no panic while it is locked");
        let log = jobs.by_seq.get(&seq)?;
        let end = log.before + log.bytes as u64;
        // Under another fence, or if it was dropped and began again, it is another log.
        let after = if log.fence == fence && after <= end { after } else { 0 };
        let missed = log.before.saturating_sub(after);
        let (mut at, mut bytes) = (log.before, 0);
        let mut pieces = Vec::new();
        for (stream, text) in &log.pieces {
            if bytes >= READ_BYTES {
                break;
            }
            let start = at;
            at += text.len() as u64;
            if at > after {
                let skip = after.saturating_sub(start) as usize;
                let text = text.get(skip..).unwrap_or(text).to_owned();
                bytes += text.len();
                pieces.push(Piece { stream: *stream, text });
            }
        }
        Some(Part { pieces, missed, fence: log.fence, end: at })
    }

    /// Notifies about new output. The job need not have printed anything yet.
    pub(crate) fn watch(&self, seq: u64) -> watch::Receiver<u64> {
        let mut jobs = self.jobs.lock().expect("no panic while it is locked");
        if let Some(log) = jobs.by_seq.get(&seq) {
            return log.end.subscribe();
        }
        jobs.entry(seq, 0, false).end.subscribe()
    }
}

impl Jobs {
    /// The job's log, which becomes the newest of the running jobs or of the others. A new log may
    /// take the place of another.
    fn entry(&mut self, seq: u64, fence: u64, is_running: bool) -> &mut Log {
        match self.by_seq.get(&seq) {
            Some(log) => _ = self.order.remove(&log.place),
            None if self.order.len() >= JOBS => self.drop_first(),
            None => {}
        }
        self.last += 1;
        let place = (is_running, self.last);
        self.order.insert(place, seq);
        let log = self.by_seq.entry(seq).or_insert_with(|| Log::new(fence, place));
        log.place = place;
        log
    }

    fn drop_first(&mut self) {
        if let Some((_, first)) = self.order.pop_first()
            && let Some(log) = self.by_seq.remove(&first)
        {
            self.bytes -= log.bytes;
        }
    }
}

impl Log {
    fn new(fence: u64, place: (bool, u64)) -> Self {
        let (pieces, end) = (VecDeque::new(), watch::Sender::new(0));
        Self { fence, place, pieces, before: 0, bytes: 0, end }
    }

    /// The output of a new owner replaces the old one; readers keep following.
    fn add(&mut self, fence: u64, stream: OutputStream, text: String) {
        if self.fence < fence {
            self.fence = fence;
            self.pieces.clear();
            (self.before, self.bytes) = (0, 0);
        }
        self.bytes += text.len();
        self.pieces.push_back((stream, text));
        while self.bytes > JOB_BYTES
            && let Some((_, text)) = self.pieces.pop_front()
        {
            self.bytes -= text.len();
            self.before += text.len() as u64;
        }
        self.end.send_replace(self.before + self.bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use filch_api::session::WireHold;

    use super::*;

    fn print(logs: &Logs, seq: u64, fence: u64, text: &str) {
        let job = WireHold(seq, fence);
        logs.print(Output { job, stream: OutputStream::Stdout, text: text.to_owned() });
    }

    fn read(logs: &Logs, seq: u64, fence: u64, after: u64) -> (String, u64, u64) {
        let part = logs.read(seq, fence, after).expect("something is held");
        (part.pieces.into_iter().map(|piece| piece.text).collect(), part.fence, part.end)
    }

    #[test]
    fn a_reader_that_comes_before_any_output_follows_it() {
        let logs = Logs::default();
        let mut more = logs.watch(7);
        print(&logs, 7, 2, "one ");
        assert!(more.has_changed().expect("the log is still there"));
        more.borrow_and_update();
        print(&logs, 7, 2, "two");
        assert!(more.has_changed().expect("the log is still there"));
        assert_eq!(read(&logs, 7, 2, 4), ("two".into(), 2, 7));
    }

    #[test]
    fn output_of_a_new_owner_replaces_that_of_the_old_one() {
        let logs = Logs::default();
        print(&logs, 7, 2, "old");
        print(&logs, 7, 3, "new");
        print(&logs, 7, 2, "zombie");
        assert_eq!(read(&logs, 7, 2, 3), ("new".into(), 3, 3));
    }

    #[test]
    fn memory_of_output_is_bounded() {
        let logs = Logs::default();
        let piece = "x".repeat(JOB_BYTES / 2);
        for seq in 0..2 * JOBS as u64 {
            logs.watch(seq);
        }
        for seq in 0..1_000 {
            for _ in 0..5 {
                print(&logs, seq, 1, &piece);
            }
        }
        let jobs = logs.jobs.lock().expect("no panic while it is locked");
        assert!(jobs.bytes <= ALL_BYTES && jobs.by_seq.len() <= JOBS);
        let held: usize = jobs.by_seq.values().map(|log| log.bytes).sum();
        assert_eq!((held, jobs.by_seq.len()), (jobs.bytes, jobs.order.len()));
    }

    #[test]
    fn logs_of_finished_jobs_are_dropped_before_those_of_running_ones() {
        let logs = Logs::default();
        print(&logs, 7, 1, "still running");
        let piece = "x".repeat(JOB_BYTES);
        for seq in 100..1_000 {
            print(&logs, seq, 1, &piece);
            logs.finished(seq);
        }
        for seq in 1_000..20_000 {
            logs.watch(seq);
        }
        assert_eq!(read(&logs, 7, 1, 0), ("still running".into(), 1, 13));
        assert!(logs.read(100, 1, 0).is_none(), "the oldest finished one is gone");
    }

    #[test]
    fn a_reader_gets_a_bounded_part_at_once_and_misses_nothing() {
        let logs = Logs::default();
        let piece = "x".repeat(READ_BYTES / 4 + 1);
        for _ in 0..10 {
            print(&logs, 7, 1, &piece);
        }
        let (mut end, mut seen) = (0, 0);
        loop {
            let part = logs.read(7, 1, end).expect("something is held");
            let bytes: usize = part.pieces.iter().map(|piece| piece.text.len()).sum();
            assert!(bytes < READ_BYTES + piece.len() && part.missed == 0);
            (end, seen) = (part.end, seen + bytes);
            if bytes == 0 {
                break;
            }
        }
        assert_eq!(seen, 10 * piece.len());
    }
}
