//! The stage of one test: a folder of its own, and the servers and workers that play on it.
//!
//! Only one stage stands at a time on a machine, however many tests are run at once: leases of a second
//! need their share of the processor.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use filch_api::client::Client;
use filch_api::submission::{Growth, Retry, Span, Submission};
use filch_scheduler::time::Millis;
use tempfile::TempDir;

use crate::process::{Process, Start};
use crate::program;
use crate::until::until;

/// One test's folder and programs.
pub struct Stage {
    folder: TempDir,
    filch: PathBuf,
    job: PathBuf,
    count: AtomicU32,
    _turn: File,
}

impl Stage {
    /// Waits for its turn. `job` is what jobs run: the program of this crate.
    ///
    /// # Panics
    /// If there is nothing to test.
    #[must_use]
    pub fn new(job: &str) -> Self {
        let filch = program::filch();
        let path = program::target().join("filch-e2e.lock");
        let turn = File::create(path).expect("the target folder can be written");
        turn.lock().expect("a lock can be taken");
        let folder = tempfile::Builder::new().prefix("filch-e2e-").tempdir();
        let folder = folder.expect("a folder for the test can be made");
        for name in ["data", "runs", "ledger"] {
            std::fs::create_dir(folder.path().join(name)).expect("the folder can be written");
        }
        let (job, count) = (PathBuf::from(job), AtomicU32::new(0));
        Self { folder, filch, job, count, _turn: turn }
    }

    /// A place in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where executions write themselves down.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.path("runs")
    }

    /// Starts `filch` with these arguments in a folder.
    pub fn filch(&self, folder: &Path, arguments: &[&str]) -> Program {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number}: filch {}", arguments.join(" "));
        let (data, talk) =
            (self.path(&format!("{number}.out")), self.path(&format!("{number}.err")));
        let process = Process::start(Start {
            name: &name,
            leash: &self.job,
            program: &self.filch,
            arguments,
            folder,
            data: &data,
            talk: &talk,
        });
        Program { process, data, talk }
    }

    /// Starts a server on a free port; with a lease like `1s`, or the usual one.
    pub async fn server(&self, lease: Option<&str>) -> Server {
        let data = self.path("data");
        let data = data.to_str().expect("the folder for temporary files has a name in UTF-8");
        let mut arguments: Vec<String> =
            ["server", "start", "--data", data].map(str::to_owned).into();
        arguments.extend(lease.into_iter().flat_map(|lease| ["--lease".into(), lease.to_owned()]));
        Server::start(self, arguments, "127.0.0.1:0").await
    }

    /// Starts a worker.
    #[must_use]
    pub fn worker(&self, server: &Server, slots: u32, more: &[&str]) -> Process {
        let slots = slots.to_string();
        let arguments = ["worker", "start", "--server", &server.url, "--slots", &slots];
        self.filch(self.folder.path(), &[&arguments, more].concat()).process
    }

    /// Makes jobs.
    #[must_use]
    pub fn maker(&self) -> Maker {
        Maker { program: self.job.clone(), runs: self.runs() }
    }

    /// A job that runs our program.
    #[must_use]
    pub fn job(&self, words: &[&str]) -> Submission {
        self.maker().job(words)
    }
}

/// Makes jobs that run our program.
#[derive(Clone, Debug)]
pub struct Maker {
    program: PathBuf,
    runs: PathBuf,
}

impl Maker {
    /// One with these words, the first of which says what it does. It may be repeated often and soon.
    #[must_use]
    pub fn job(&self, words: &[&str]) -> Submission {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let mut run = vec![text(&self.program), words[0].to_owned(), text(&self.runs)];
        run.extend(words[1..].iter().map(|&word| word.to_owned()));
        Submission {
            id: Some(filch_api::id::job(filch_api::id::new_job())),
            run: Some(run),
            retry: Some(retry(100)),
            ..Submission::default()
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("what is left of the test is in {}", self.folder.path().display());
        }
    }
}

/// So many attempts, soon after one another.
#[must_use]
pub fn retry(max: u16) -> Retry {
    let soon = Span(Millis(20));
    Retry { max, backoff: Growth::Fixed, base: soon, cap: soon, ..Retry::default() }
}

/// A program that was started, and where its output goes.
pub struct Program {
    /// The process.
    pub process: Process,
    /// Its stdout.
    pub data: PathBuf,
    /// Its stderr.
    pub talk: PathBuf,
}

impl Program {
    /// What it has printed so far.
    #[must_use]
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.data).unwrap_or_default()
    }

    /// What it has said so far on stderr.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.talk).unwrap_or_default()
    }

    /// Waits for its end and the code it ends with.
    pub async fn code(&mut self) -> Option<i32> {
        self.process.end().await.code()
    }

    /// The first line it prints.
    pub async fn first_line(&mut self) -> String {
        until("a first line on stdout", async || {
            if let Some(status) = self.process.ended() {
                panic!("it ended too early: {status}: {}", self.said());
            }
            let text = self.printed();
            text.split_once('\n').map(|(line, _)| line.to_owned())
        })
        .await
    }
}

/// A server, and its successors on the same port and data.
pub struct Server {
    /// Its process.
    pub process: Process,
    /// Where it listens.
    pub url: String,
    /// The way to it.
    pub client: Client,
    arguments: Vec<String>,
}

impl Server {
    async fn start(stage: &Stage, arguments: Vec<String>, listen: &str) -> Self {
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        words.extend(["--listen", listen]);
        let mut program = stage.filch(stage.folder.path(), &words);
        let url = program.first_line().await;
        let client = Client::new(&url).expect("a client can be made");
        Self { process: program.process, url, client, arguments }
    }

    /// Starts it anew where it was, after it has died.
    pub async fn restart(&mut self, stage: &Stage) {
        let address = self.url.strip_prefix("http://").expect("a server's URL").to_owned();
        *self = Self::start(stage, self.arguments.clone(), &address).await;
    }
}
