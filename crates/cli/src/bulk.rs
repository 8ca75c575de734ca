//! Bulk submission: jobs are sent while the input is read, and ids are printed as jobs become
//! durable. Only jobs in flight are held in memory.
//!
//! The client makes the ids, so that the server need not return each one. With an idempotency key,
//! an id is a hash of the key and the line number, as on the server: the same lines are the same
//! jobs.

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

/// The size of one chunk of the request body.
const CHUNK_BYTES: usize = 64 << 10;

/// How many chunks may wait to be sent.
const CHUNKS: usize = 4;

/// How to submit and print the jobs.
pub(crate) struct Bulk<'a> {
    pub(crate) client: &'a Client,
    pub(crate) key: Option<String>,
    pub(crate) total: Option<u64>,
    pub(crate) form: JsonOrLines,
}

/// The state shared by the reader thread and the printer.
#[derive(Default)]
struct Shared {
    /// The id of each line that was sent and not acknowledged yet; blank lines have no job.
    ids: VecDeque<Option<JobId>>,
    /// The error that ended the input.
    broken: Option<anyhow::Error>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("no thread panics while it holds this lock")
}

impl Bulk<'_> {
    /// Submits a job for each line that is not blank (`None`). An invalid line ends the submission;
    /// jobs before it are kept.
    pub(crate) async fn send<J>(self, lines: J) -> Result<ExitCode>
    where
        J: Iterator<Item = Result<Option<Submission>>> + Send + 'static,
    {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (chunks, waiting) = mpsc::channel(CHUNKS);
        let reader = Reader { key: self.key.clone(), shared: Arc::clone(&shared), chunks };
        // Reading may block on a terminal, so it has its own thread.
        std::thread::spawn(move || reader.read(lines));
        let body = futures_util::stream::unfold(waiting, |mut waiting| async move {
            waiting.recv().await.map(|chunk| (Ok(chunk), waiting))
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
                Some(_) => "; to continue, run the command again with the same --key",
                None => "",
            };
            message(format_args!(
                "{} submitted before the error{again}",
                count_jobs(printer.count)
            ));
        }
        printer.close()?;
        ended?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Shared {
    /// Removes and returns the jobs of the next acknowledged lines.
    fn acknowledged(&mut self, lines: u64) -> Vec<JobId> {
        let count = usize::try_from(lines).unwrap_or(usize::MAX).min(self.ids.len());
        self.ids.drain(..count).flatten().collect()
    }
}

/// Reads the input and turns jobs into JSON lines.
struct Reader {
    key: Option<String>,
    shared: Arc<Mutex<Shared>>,
    chunks: mpsc::Sender<Vec<u8>>,
}

impl Reader {
    fn read(self, lines: impl Iterator<Item = Result<Option<Submission>>>) {
        let mut chunk = Vec::new();
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
                serde_json::to_writer(&mut chunk, &job).expect("a job can be written as JSON");
            }
            chunk.push(b'\n');
            // If the request has failed, its error is reported by the sender.
            if chunk.len() >= CHUNK_BYTES
                && self.chunks.blocking_send(std::mem::take(&mut chunk)).is_err()
            {
                return;
            }
        }
        if !chunk.is_empty() {
            let _ = self.chunks.blocking_send(chunk);
        }
    }

    fn identify(&self, index: u64, job: Submission) -> (JobId, Submission) {
        let key = self.key.as_deref();
        let id = key.map_or_else(id::new_job, |key| job.keyed_id(key, index));
        (id, Submission { id: Some(id::job(id)), key: None, ..job })
    }
}

/// Prints how many of the jobs existed already, if any.
pub(crate) fn report_existing(known: u64, count: u64) {
    match known {
        0 => {}
        1 if count == 1 => message(format_args!("this job already exists")),
        _ if known == count => message(format_args!("all {count} jobs already exist")),
        _ => message(format_args!("{known} of {count} jobs already exist")),
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

/// Prints the ids of durable jobs.
pub(crate) struct Printer {
    form: JsonOrLines,
    progress: Progress,
    lines: u64,
    count: u64,
    /// Collected for the JSON document, which is printed at the end.
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
