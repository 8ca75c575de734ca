//! The environment of one test: its own folder, and the servers and workers that run in it.
//!
//! Environments share nothing: each has its own files, processes and addresses, so tests run in
//! parallel. Only tests that measure take turns: see [`TestEnv::measuring`].

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

use crate::check::{self, CheckedHistories};
use crate::client_log::ClientLog;
use crate::constraints::Constraints;
use crate::process::{Process, ProcessSpec};
use crate::program;
use crate::until::until;

/// The lease for tests in which no lease should end. A worker stops its jobs after seven tenths of
/// a lease without an answer, so it would have to be starved for more than a minute to lose one.
pub const LONG_LEASE: &str = "2m";

/// One test's folder and programs.
pub struct TestEnv {
    /// What the server has confirmed to clients.
    pub client_log: Arc<ClientLog>,
    /// Limits and settings that every run must respect.
    pub constraints: Constraints,
    folder: TempDir,
    filch: PathBuf,
    job: PathBuf,
    count: AtomicU32,
    /// Held by tests that measure.
    turn: Option<Arc<File>>,
}

impl TestEnv {
    /// A new environment. `job` is the program that jobs run: the one of this crate.
    ///
    /// # Panics
    /// If there is no `filch` to test, or no folder can be made.
    #[must_use]
    pub fn new(job: &str) -> Self {
        Self::make(job.into(), None)
    }

    /// The same for a test that measures. Such tests run one at a time on a machine, in any
    /// process: this waits until the others have ended.
    ///
    /// # Panics
    /// If there is no `filch` to test, or no folder can be made.
    #[must_use]
    pub fn measuring(job: &str) -> Self {
        let path = program::target().join("filch-e2e-measuring.lock");
        let turn = File::create(path).expect("the target folder can be written");
        turn.lock().expect("a lock can be taken");
        Self::make(job.into(), Some(Arc::new(turn)))
    }

    /// A second environment for the same test, to compare two servers on the same machine.
    ///
    /// # Panics
    /// If no folder can be made.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::make(self.job.clone(), self.turn.clone())
    }

    fn make(job: PathBuf, turn: Option<Arc<File>>) -> Self {
        let filch = program::filch();
        let folder = tempfile::Builder::new().prefix("filch-e2e-").tempdir();
        let folder = folder.expect("a folder for the test can be made");
        for name in ["data", "runs", "ledger"] {
            std::fs::create_dir(folder.path().join(name)).expect("the folder can be written");
        }
        let (client_log, constraints) = (Arc::default(), Constraints::default());
        Self { client_log, constraints, folder, filch, job, count: AtomicU32::new(0), turn }
    }

    /// A path in the test's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder in which executions of jobs record themselves.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.path("runs")
    }

    /// Starts `filch` with these arguments in a folder.
    pub fn filch(&self, folder: &Path, arguments: &[&str]) -> StartedProgram {
        self.filch_with(&LaunchOptions::default(), folder, arguments)
    }

    /// The same with launch options.
    pub fn filch_with(
        &self,
        options: &LaunchOptions,
        folder: &Path,
        arguments: &[&str],
    ) -> StartedProgram {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number}: filch {}", arguments.join(" "));
        let stdout = self.path(&format!("{number}.out"));
        let stderr = self.path(&format!("{number}.err"));
        let filch = options.program.as_ref().unwrap_or(&self.filch);
        let filch = filch.to_str().expect("a path in UTF-8");
        let wrapper = options.wrapper.iter().map(String::as_str);
        let words: Vec<&str> = wrapper.chain([filch]).chain(arguments.iter().copied()).collect();
        let process = Process::start(ProcessSpec {
            name: &name,
            launcher: &self.job,
            program: Path::new(words[0]),
            arguments: &words[1..],
            environment: &options.environment,
            folder,
            stdout: &stdout,
            stderr: &stderr,
        });
        StartedProgram { process, stdout, stderr }
    }

    /// Starts a server on a free port, with a lease like `10s` or the default one.
    pub async fn server(&self, lease: Option<&str>) -> TestServer {
        self.server_with(&LaunchOptions::default(), lease).await
    }

    /// The same with launch options, which also apply when it is restarted.
    pub async fn server_with(&self, options: &LaunchOptions, lease: Option<&str>) -> TestServer {
        let data = self.path("data");
        let data = data.to_str().expect("the folder for temporary files has a name in UTF-8");
        let mut arguments: Vec<String> =
            ["server", "start", "--data", data].map(str::to_owned).into();
        arguments.extend(lease.into_iter().flat_map(|lease| ["--lease".into(), lease.to_owned()]));
        TestServer::start(self, options.clone(), arguments, &own_address()).await
    }

    /// Starts a worker for the server at this URL.
    #[must_use]
    pub fn worker(&self, url: &str, slots: u32, more: &[&str]) -> Process {
        self.worker_with(&LaunchOptions::default(), url, slots, more)
    }

    /// The same with launch options.
    #[must_use]
    pub fn worker_with(
        &self,
        options: &LaunchOptions,
        url: &str,
        slots: u32,
        more: &[&str],
    ) -> Process {
        let slots = slots.to_string();
        let arguments = ["worker", "start", "--server", url, "--slots", &slots];
        let worker =
            self.filch_with(options, self.folder.path(), &[&arguments, more].concat()).process;
        if let Some(at) = more.iter().position(|&word| word == "--queues") {
            let queues: Vec<&str> = more[at + 1].split(',').collect();
            self.constraints.serves(worker.pid(), &queues);
        }
        worker
    }

    /// Stops a server, verifies its store, and checks every job's history.
    ///
    /// # Panics
    /// If a rule is broken.
    pub async fn stop_and_check(&self, server: TestServer) -> CheckedHistories {
        self.stop(server).await;
        self.check_data(&self.path("data"))
    }

    /// Checks every job's history against the store in this folder, which no server has open.
    ///
    /// # Panics
    /// If a rule is broken.
    #[must_use]
    pub fn check_data(&self, data: &Path) -> CheckedHistories {
        let (records, constraints) = (self.client_log.records(), self.constraints.set());
        check::check(&data.join("filch.db"), &self.runs(), &records, &constraints)
    }

    /// Stops a server and verifies its store.
    ///
    /// # Panics
    /// If it does not shut down cleanly, or if `filch server verify` finds a violation.
    pub async fn stop(&self, mut server: TestServer) {
        server.process.signal(Signal::TERM);
        let is_clean = server.process.end().await.success();
        assert!(is_clean, "the server did not shut down cleanly on SIGTERM: {}", server.stderr());
        self.verify(&LaunchOptions::default(), &self.path("data")).await;
    }

    /// Runs `filch server verify` on the store in this folder.
    ///
    /// # Panics
    /// If it finds a violation.
    pub async fn verify(&self, options: &LaunchOptions, data: &Path) {
        let data = data.to_str().expect("a path in UTF-8");
        let words = ["server", "verify", "--data", data];
        let mut verify = self.filch_with(options, self.folder.path(), &words);
        let code = verify.code().await;
        assert_eq!(code, Some(0), "{}{}", verify.stdout(), verify.stderr());
    }

    /// Sets the concurrency limit of a queue that has no jobs yet, and records it as a constraint;
    /// a limit of 0 pauses the queue.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn limit(&self, server: &TestServer, queue: &str, limit: u32) {
        let (paused, limit_or_any) = (Some(limit == 0), Some(limit));
        let change = QueueUpdate { paused, limit: limit_or_any, ..QueueUpdate::default() };
        server.client.set_queue(queue, &change).await.expect("the server accepts limits");
        self.constraints.limit(queue, limit);
    }

    /// Submits jobs, all or none, and records that they were acknowledged.
    ///
    /// # Panics
    /// If they are refused.
    pub async fn submit(&self, server: &TestServer, jobs: &[Submission]) -> Vec<Receipt> {
        let receipts = server.client.submit_all(jobs).await.expect("the server accepts jobs");
        for receipt in &receipts {
            self.client_log.acknowledged(&receipt.id);
        }
        receipts
    }

    /// Makes jobs, also after the environment was moved elsewhere.
    #[must_use]
    pub fn maker(&self) -> JobMaker {
        JobMaker { program: self.job.clone(), runs: self.runs() }
    }

    /// A job that runs our program.
    #[must_use]
    pub fn job(&self, words: &[&str]) -> Submission {
        self.maker().job(words)
    }
}

/// How a program is started, if not in the default way.
#[derive(Clone, Debug, Default)]
pub struct LaunchOptions {
    /// Another program than the one under test, for instance a modified copy of it.
    pub program: Option<PathBuf>,
    /// A program with arguments that starts the rest of the command line, like `strace`.
    pub wrapper: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
}

/// Makes jobs that run our program.
#[derive(Clone, Debug)]
pub struct JobMaker {
    program: PathBuf,
    runs: PathBuf,
}

impl JobMaker {
    /// A job with these arguments; the first is the command of `filch-e2e-job`. It is retried
    /// often, and soon after it failed.
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

impl Drop for TestEnv {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("the files of the failed test are in {}", self.folder.path().display());
        }
    }
}

/// An address for a server that no other process uses, not even while the server is down: a port
/// that the system chose could be given to another process before a restart. The loopback network
/// has an address for every process id, and connections to it come from 127.0.0.1.
fn own_address() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Process ids have 22 bits.
    let high = 64 | (high & 63);
    let port = 20_000 + COUNT.fetch_add(1, Ordering::Relaxed) % 10_000;
    format!("127.{high}.{middle}.{low}:{port}")
}

/// At most this many attempts, with a short fixed backoff.
#[must_use]
pub fn retry(max: u16) -> RetryPolicy {
    let soon = Span(Millis(20));
    RetryPolicy { max, backoff: Growth::Fixed, base: soon, cap: soon, ..RetryPolicy::default() }
}

/// A program that was started, and the files that receive its output.
pub struct StartedProgram {
    /// The process.
    pub process: Process,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl StartedProgram {
    /// What it has printed to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// What it has printed to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until it ends, and returns its exit code.
    pub async fn code(&mut self) -> Option<i32> {
        self.process.end().await.code()
    }

    /// The first line that it prints to stdout.
    pub async fn first_line(&mut self) -> String {
        until("a first line on stdout", async || {
            if let Some(status) = self.process.ended() {
                panic!("it ended before it printed a line: {status}: {}", self.stderr());
            }
            let text = self.stdout();
            text.split_once('\n').map(|(line, _)| line.to_owned())
        })
        .await
    }
}

/// A server; after a restart, its successor on the same port and data.
pub struct TestServer {
    /// Its process.
    pub process: Process,
    /// Where it listens.
    pub url: String,
    /// A client of it.
    pub client: Client,
    options: LaunchOptions,
    arguments: Vec<String>,
    stderr: PathBuf,
}

impl TestServer {
    async fn start(
        env: &TestEnv,
        options: LaunchOptions,
        arguments: Vec<String>,
        listen: &str,
    ) -> Self {
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        words.extend(["--listen", listen]);
        let mut program = env.filch_with(&options, env.folder.path(), &words);
        let url = program.first_line().await;
        let client = Client::new(&url).expect("a client can be made");
        let StartedProgram { process, stderr, .. } = program;
        Self { process, url, client, options, arguments, stderr }
    }

    /// What it has printed to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The address at which it listens, without `http://`.
    ///
    /// # Panics
    /// If its URL is not one of a plain HTTP server.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("a server's URL")
    }

    /// Starts it again on the same address and data, after it was killed.
    pub async fn restart(&mut self, env: &TestEnv) {
        let address = self.address().to_owned();
        let (options, arguments) = (self.options.clone(), self.arguments.clone());
        *self = Self::start(env, options, arguments, &address).await;
    }
}
