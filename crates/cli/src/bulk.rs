//! Many jobs at once: sent as lines while they are being read, printed as they become durable. Only what
//! is on its way is held in memory.
//!
//! Ids are made here, so that they are known without an answer for each. With a key they are a hash of the
//! key and the line's number, as the server makes them: the same lines once more are the same jobs.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Result;
use filch_api::client::Client;
use filch_api::id;
use filch_api::job::Chunk;
use filch_api::submission::Submission;
use filch_scheduler::id::JobId;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::confirm::count_jobs;
use crate::document::{self, JsonOrLines};
use crate::output::{data, message};
use crate::progress::Progress;

/// What is sent together.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait to be sent.
const PIECES: usize = 4;

/// How jobs are numbered and shown.
pub(crate) struct Bulk<'a> {
    pub(crate) client: &'a Client,
    pub(crate) key: Option<String>,
    pub(crate) total: Option<u64>,
    pub(crate) form: JsonOrLines,
}

/// What the thread that reads and the one that prints both look at.
#[derive(Default)]
struct Shared {
    /// One for each line that was sent and not acknowledged yet; blank lines have no job.
    ids: VecDeque<Option<JobId>>,
    /// Why no more lines come.
    broken: Option<anyhow::Error>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("nobody panics with the ids in hand")
}

impl Bulk<'_> {
    /// Submits a job for each line that is not blank (`None`). A line that cannot be read ends it; what
    /// came before is kept.
    pub(crate) async fn send<J>(self, lines: J) -> Result<ExitCode>
    where
        J: Iterator<Item = Result<Option<Submission>>> + Send + 'static,
    {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (pieces, waiting) = mpsc::channel(PIECES);
        let reader = Reader { key: self.key.clone(), shared: Arc::clone(&shared), pieces };
        // Whoever reads may wait for a person at a terminal: on a thread of its own.
        std::thread::spawn(move || reader.read(lines));
        let body = futures_util::stream::unfold(waiting, |mut waiting| async move {
            waiting.recv().await.map(|piece| (Ok(piece), waiting))
        });

        let mut printer = Printer::new(self.form, self.total);
        let (mut known, mut failed) = (0, None);
        let sent = self.client.submit_lines(body, None, |Chunk { lines, new }| {
            let ids = lock(&shared).acknowledged(lines.saturating_sub(printer.lines));
            printer.lines = lines;
            known += (ids.len() as u64).saturating_sub(new);
            if let Err(error) = printer.print(ids) {
                failed.get_or_insert(error);
            }
        });
        let sent = sent.await;
        printer.progress.end();
        report_existing(known, printer.count);
        let broken = lock(&shared).broken.take();
        let ended = match (failed, broken) {
            (Some(error), _) | (None, Some(error)) => Err(error),
            (None, None) => sent.map_err(anyhow::Error::from),
        };
        if ended.is_err() {
            let again = match &self.key {
                Some(_) => "; repeat it with the same --key, and they are recognised",
                None => "",
            };
            message(format_args!(
                "{} submitted before it went wrong{again}",
                count_jobs(printer.count)
            ));
        }
        printer.close()?;
        ended?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Shared {
    /// The jobs of the next lines.
    fn acknowledged(&mut self, lines: u64) -> Vec<JobId> {
        let count = usize::try_from(lines).unwrap_or(usize::MAX).min(self.ids.len());
        self.ids.drain(..count).flatten().collect()
    }
}

/// Turns jobs into lines.
struct Reader {
    key: Option<String>,
    shared: Arc<Mutex<Shared>>,
    pieces: mpsc::Sender<Vec<u8>>,
}

impl Reader {
    fn read(self, lines: impl Iterator<Item = Result<Option<Submission>>>) {
        let mut piece = Vec::new();
        for (index, line) in (0..).zip(lines) {
            let job = match line {
                Ok(job) => job,
                Err(error) => {
                    lock(&self.shared).broken = Some(error);
                    break;
                }
            };
            let job = job.map(|job| self.identify(index, job));
            lock(&self.shared).ids.push_back(job.as_ref().map(|(id, _)| *id));
            if let Some((_, job)) = job {
                serde_json::to_writer(&mut piece, &job).expect("a job can be written as JSON");
            }
            piece.push(b'\n');
            // At the end of the input nobody may be there any more: the answer says why.
            if piece.len() >= PIECE_BYTES
                && self.pieces.blocking_send(std::mem::take(&mut piece)).is_err()
            {
                return;
            }
        }
        if !piece.is_empty() {
            let _ = self.pieces.blocking_send(piece);
        }
    }

    fn identify(&self, index: u64, job: Submission) -> (JobId, Submission) {
        let key = self.key.as_deref();
        let id = key.map_or_else(id::new_job, |key| id::keyed_job(key, index));
        (id, Submission { id: Some(id::job(id)), key: None, ..job })
    }
}

/// Says how many of these jobs were there already, if any were.
pub(crate) fn report_existing(known: u64, count: u64) {
    match known {
        0 => {}
        1 if count == 1 => message(format_args!("this job was there already")),
        _ if known == count => message(format_args!("all {count} jobs were there already")),
        _ => message(format_args!("{known} of {count} jobs were there already")),
    }
}

#[derive(Serialize)]
struct Line {
    v: u8,
    id: String,
}

#[derive(Serialize)]
struct Document {
    count: u64,
    ids: Vec<String>,
}

/// Prints what is durable.
pub(crate) struct Printer {
    form: JsonOrLines,
    progress: Progress,
    lines: u64,
    count: u64,
    /// For the one document, which cannot be printed before its end.
    ids: Vec<String>,
}

impl Printer {
    pub(crate) fn new(form: JsonOrLines, total: Option<u64>) -> Self {
        Self {
            form,
            progress: Progress::of(total, "submitted"),
            lines: 0,
            count: 0,
            ids: Vec::new(),
        }
    }

    pub(crate) fn print(&mut self, ids: Vec<JobId>) -> Result<()> {
        self.count += ids.len() as u64;
        self.progress.show(self.count);
        let ids = ids.into_iter().map(id::job);
        if self.form.json {
            self.ids.extend(ids);
            return Ok(());
        }
        let mut text = String::new();
        for id in ids {
            if self.form.jsonl {
                text.push_str(&serde_json::to_string(&Line { v: 1, id })?);
            } else {
                text.push_str(&id);
            }
            text.push('\n');
        }
        data(&text)
    }

    pub(crate) fn close(self) -> Result<()> {
        if self.form.json {
            document::print(Document { count: self.count, ids: self.ids })?;
        }
        Ok(())
    }
}
