//! The stage of one test: a folder of its own, and the servers and workers that play on it.
//!
//! Only one stage stands at a time on a machine, however many tests are run at once: leases of a second
//! need their share of the processor.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use filch_api::client::Client;
use filch_api::cluster::QueueUpdate;
use filch_api::job::Receipt;
use filch_api::submission::{Growth, RetryPolicy, Span, Submission};
use filch_scheduler::time::Millis;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::clients::Clients;
use crate::judge::{self, Judged};
use crate::process::{Process, Start};
use crate::program;
use crate::terms::Terms;
use crate::until::until;

/// One test's folder and programs.
pub struct Stage {
    /// What clients were told.
    pub clients: Arc<Clients>,
    /// What was set before.
    pub terms: Terms,
    folder: TempDir,
    filch: PathBuf,
    job: PathBuf,
    count: AtomicU32,
    turn: Arc<File>,
}

impl Stage {
    /// Waits for its turn. `job` is what jobs run: the program of this crate.
    ///
    /// # Panics
    /// If there is nothing to test.
    #[must_use]
    pub fn new(job: &str) -> Self {
        let path = program::target().join("filch-e2e.lock");
        let turn = File::create(path).expect("the target folder can be written");
        turn.lock().expect("a lock can be taken");
        Self::in_turn(job.into(), Arc::new(turn))
    }

    /// Another stage beside this one, within its turn: to compare two things while the machine is the same.
    ///
    /// # Panics
    /// If there is no room for it.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::in_turn(self.job.clone(), Arc::clone(&self.turn))
    }

    fn in_turn(job: PathBuf, turn: Arc<File>) -> Self {
        let filch = program::filch();
        let folder = tempfile::Builder::new().prefix("filch-e2e-").tempdir();
        let folder = folder.expect("a folder for the test can be made");
        for name in ["data", "runs", "ledger"] {
            std::fs::create_dir(folder.path().join(name)).expect("the folder can be written");
        }
        let (clients, terms) = (Arc::default(), Terms::default());
        Self { clients, terms, folder, filch, job, count: AtomicU32::new(0), turn }
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
        self.filch_in(&Manner::default(), folder, arguments)
    }

    /// The same, in a manner of its own.
    pub fn filch_in(&self, manner: &Manner, folder: &Path, arguments: &[&str]) -> Program {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number}: filch {}", arguments.join(" "));
        let (data, talk) =
            (self.path(&format!("{number}.out")), self.path(&format!("{number}.err")));
        let filch = manner.program.as_ref().unwrap_or(&self.filch);
        let filch = filch.to_str().expect("a path in UTF-8");
        let through = manner.through.iter().map(String::as_str);
        let words: Vec<&str> = through.chain([filch]).chain(arguments.iter().copied()).collect();
        let process = Process::start(Start {
            name: &name,
            leash: &self.job,
            program: Path::new(words[0]),
            arguments: &words[1..],
            environment: &manner.environment,
            folder,
            data: &data,
            talk: &talk,
        });
        Program { process, data, talk }
    }

    /// Starts a server on a free port; with a lease like `1s`, or the usual one.
    pub async fn server(&self, lease: Option<&str>) -> Server {
        self.server_in(&Manner::default(), lease).await
    }

    /// The same, in a manner of its own, which its successors keep to.
    pub async fn server_in(&self, manner: &Manner, lease: Option<&str>) -> Server {
        let data = self.path("data");
        let data = data.to_str().expect("the folder for temporary files has a name in UTF-8");
        let mut arguments: Vec<String> =
            ["server", "start", "--data", data].map(str::to_owned).into();
        arguments.extend(lease.into_iter().flat_map(|lease| ["--lease".into(), lease.to_owned()]));
        Server::start(self, manner.clone(), arguments, "127.0.0.1:0").await
    }

    /// Starts a worker for the server at this URL.
    #[must_use]
    pub fn worker(&self, url: &str, slots: u32, more: &[&str]) -> Process {
        self.worker_in(&Manner::default(), url, slots, more)
    }

    /// The same, in a manner of its own.
    #[must_use]
    pub fn worker_in(&self, manner: &Manner, url: &str, slots: u32, more: &[&str]) -> Process {
        let slots = slots.to_string();
        let arguments = ["worker", "start", "--server", url, "--slots", &slots];
        let worker =
            self.filch_in(manner, self.folder.path(), &[&arguments, more].concat()).process;
        if let Some(at) = more.iter().position(|&word| word == "--queues") {
            let queues: Vec<&str> = more[at + 1].split(',').collect();
            self.terms.serves(worker.pid(), &queues);
        }
        worker
    }

    /// Stops a server, lets what it leaves prove itself, and judges every job's story.
    ///
    /// # Panics
    /// If a rule is broken.
    pub async fn judge(&self, server: Server) -> Judged {
        self.stop(server).await;
        self.judge_kept(&self.path("data"))
    }

    /// Judges every job's story by what is kept in this folder, whose server is gone.
    ///
    /// # Panics
    /// If a rule is broken.
    #[must_use]
    pub fn judge_kept(&self, data: &Path) -> Judged {
        let (heard, terms) = (self.clients.heard(), self.terms.set());
        judge::judge(&data.join("filch.db"), &self.runs(), &heard, &terms)
    }

    /// Stops a server, and lets what it leaves prove itself.
    ///
    /// # Panics
    /// If it does not stop as it should, or if something is wrong with what is kept.
    pub async fn stop(&self, mut server: Server) {
        server.process.signal(Signal::TERM);
        let is_well = server.process.end().await.success();
        assert!(is_well, "a server that is told to stop does: {}", server.said());
        self.verify(&Manner::default(), &self.path("data")).await;
    }

    /// Lets what is kept in this folder prove that it is the ledger of a history in which every promise
    /// was kept.
    ///
    /// # Panics
    /// If it is not.
    pub async fn verify(&self, manner: &Manner, data: &Path) {
        let data = data.to_str().expect("a path in UTF-8");
        let words = ["server", "verify", "--data", data];
        let mut verify = self.filch_in(manner, self.folder.path(), &words);
        let code = verify.code().await;
        assert_eq!(code, Some(0), "{}{}", verify.printed(), verify.said());
    }

    /// Lets so many jobs of a queue run at once, or none, and remembers it: for a queue that has none yet.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn limit(&self, server: &Server, queue: &str, limit: u32) {
        let (paused, limit_or_any) = (Some(limit == 0), Some(limit));
        let change = QueueUpdate { paused, limit: limit_or_any, ..QueueUpdate::default() };
        server.client.set_queue(queue, &change).await.expect("the server takes limits");
        self.terms.limit(queue, limit);
    }

    /// Submits jobs, all or none, and remembers that this was acknowledged.
    ///
    /// # Panics
    /// If they are refused.
    pub async fn submit(&self, server: &Server, jobs: &[Submission]) -> Vec<Receipt> {
        let receipts = server.client.submit_all(jobs).await.expect("the server takes jobs");
        for receipt in &receipts {
            self.clients.acknowledged(&receipt.id);
        }
        receipts
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

/// How a program is started where that is not done as usual.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// Another program than the one that is tested: a spoilt copy of it.
    pub program: Option<PathBuf>,
    /// A program, with arguments, that starts what stands behind them.
    pub through: Vec<String>,
    /// Variables that it finds in its environment.
    pub environment: Vec<(String, String)>,
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
pub fn retry(max: u16) -> RetryPolicy {
    let soon = Span(Millis(20));
    RetryPolicy { max, backoff: Growth::Fixed, base: soon, cap: soon, ..RetryPolicy::default() }
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
    manner: Manner,
    arguments: Vec<String>,
    talk: PathBuf,
}

impl Server {
    async fn start(stage: &Stage, manner: Manner, arguments: Vec<String>, listen: &str) -> Self {
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        words.extend(["--listen", listen]);
        let mut program = stage.filch_in(&manner, stage.folder.path(), &words);
        let url = program.first_line().await;
        let client = Client::new(&url).expect("a client can be made");
        let Program { process, talk, .. } = program;
        Self { process, url, client, manner, arguments, talk }
    }

    /// What it has said so far on stderr.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.talk).unwrap_or_default()
    }

    /// Starts it anew where it was, after it has died.
    pub async fn restart(&mut self, stage: &Stage) {
        let address = self.url.strip_prefix("http://").expect("a server's URL").to_owned();
        let (manner, arguments) = (self.manner.clone(), self.arguments.clone());
        *self = Self::start(stage, manner, arguments, &address).await;
    }
}
