//! Access tokens. The output of every program is searched for tokens at the end: none may be
//! printed except by `token create`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use filch_api::token::is_in;
use tempfile::TempDir;

use crate::server::{Ended, end, program, until};

/// A data directory, and all output about it.
pub(crate) struct TokenEnv {
    folder: TempDir,
    children: Vec<Child>,
}

impl TokenEnv {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory can be created");
        std::fs::create_dir(folder.path().join("logs")).expect("a directory can be created");
        Self { folder, children: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program in this folder, with the token of this file.
    pub(crate) fn command(&self, token: Option<&Path>, words: &[&str]) -> Command {
        let mut command = program();
        command.args(words).current_dir(self.folder.path());
        for name in ["FILCH_TOKEN", "FILCH_TOKEN_FILE"] {
            command.env_remove(name);
        }
        if let Some(token) = token {
            command.env("FILCH_TOKEN_FILE", token);
        }
        command
    }

    /// Runs the program to its end, and records its output.
    pub(crate) fn filch(&self, token: Option<&Path>, words: &[&str]) -> Ended {
        self.note(end(&mut self.command(token, words), ""))
    }

    pub(crate) fn note(&self, ended: Ended) -> Ended {
        let path = self.path("logs/commands");
        let mut log = OpenOptions::new().create(true).append(true).open(path).expect("a file");
        writeln!(log, "{}\n{}", ended.stdout, ended.stderr).expect("it is writable");
        ended
    }

    /// Creates a token in a file that only its owner can read.
    #[track_caller]
    pub(crate) fn make(&self, token: Option<&Path>, name: &str, words: &[&str]) -> PathBuf {
        let words = [&["token", "create"], words].concat();
        // The only output that may contain a token.
        let ended = end(&mut self.command(token, &words), "").fine();
        assert!(is_in(&ended.stdout) && !is_in(&ended.stderr), "it is shown once");
        let path = self.path(name);
        std::fs::write(&path, &ended.stdout).expect("a file can be written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
        path
    }

    /// Starts the program in the background. Its output goes to files with this name.
    pub(crate) fn start(&mut self, name: &str, command: &mut Command) -> usize {
        let file = |ending: &str| {
            File::create(self.path(&format!("logs/{name}.{ending}"))).expect("it is writable")
        };
        let command = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        self.children.push(command.spawn().expect("the program was built for this test"));
        self.children.len() - 1
    }

    /// Starts a server, and waits until it is ready.
    pub(crate) fn serve(&mut self, words: &[&str]) -> String {
        let words = [words, &["--listen", "127.0.0.1:0"]].concat();
        let mut command = self.command(None, &words);
        self.start("server", &mut command);
        let mut url = String::new();
        until("the server serves", || {
            let text = self.said("server.out");
            url = text.lines().next().unwrap_or_default().to_owned();
            text.contains('\n')
        });
        url
    }

    pub(crate) fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("logs").join(name)).unwrap_or_default()
    }

    pub(crate) fn code(&mut self, child: usize) -> Option<i32> {
        self.children[child].wait().expect("it was started").code()
    }
}

impl Drop for TokenEnv {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            return;
        }
        let logs = std::fs::read_dir(self.path("logs")).expect("it was made");
        for log in logs {
            let path = log.expect("it can be read").path();
            let text = std::fs::read(&path).expect("it can be read");
            assert!(!is_in(&String::from_utf8_lossy(&text)), "a token is in {}", path.display());
        }
    }
}

/// The id in a file with a token.
fn id(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it was written")[6..14].to_owned()
}

#[test]
fn the_first_token_is_created_before_the_first_start_and_enables_authentication() {
    let mut env = TokenEnv::new();
    let first = env.filch(None, &["token", "create", "--role", "view"]);
    first.refused(4, "the first token must have role admin");
    let admin = env.make(None, "admin.token", &["--role", "admin", "--name", "Ada"]);
    env.serve(&["server", "start"]);

    let said = env.filch(None, &["job", "list"]).refused(5, "a token is required");
    assert!(said.stderr.contains("FILCH_TOKEN_FILE"), "{said:?}");
    env.filch(Some(&admin), &["job", "list"]).fine();
    let viewer = env.make(Some(&admin), "view.token", &["--role", "view", "--expires", "30d"]);
    let submitter = env.make(Some(&admin), "submit.token", &["--role", "submit", "--queue", "ci"]);

    let said = env.filch(Some(&submitter), &["job", "list"]);
    let said = said.refused(5, "role view or operate or admin is needed");
    assert!(said.stderr.contains("filch token create --role view"), "{said:?}");
    let submit = ["submit", "--queue", "ci", "--", "true"];
    let job = env.filch(Some(&submitter), &submit).fine().line().to_owned();
    env.filch(Some(&viewer), &["job", "show", &job]).fine();
    // The role submit may name jobs, but not look them up.
    let after = |parent| ["submit", "--queue", "ci", "--after", parent, "--", "true"];
    env.filch(Some(&submitter), &after(&job)).fine();
    let said = env.filch(Some(&submitter), &after("@last"));
    let said = said.refused(5, "cannot look up @last");
    assert!(said.stderr.contains("  help: write the full id"), "{said:?}");
    env.filch(Some(&viewer), &submit).refused(5, "role submit or admin is needed");
    let other = ["submit", "--", "true"];
    env.filch(Some(&submitter), &other).refused(5, "not valid for queue \"default\"");
    env.filch(Some(&viewer), &["token", "list"]).refused(5, "role admin is needed");

    let listed = env.filch(Some(&admin), &["token", "list", "--json"]).fine().json();
    let names: Vec<&str> = listed["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["role"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["admin", "view", "submit"]);
    let rows = env.filch(Some(&admin), &["token", "list"]).fine();
    assert_eq!(rows.rows()[2][..3], [&*id(&submitter), "submit", "ci"]);

    env.filch(Some(&admin), &["token", "revoke", &id(&viewer)]).fine();
    env.filch(Some(&viewer), &["job", "list"]).refused(5, "was revoked");
    env.filch(Some(&admin), &["token", "revoke", &id(&viewer)]).refused(3, "no active token");
}

#[test]
fn a_token_comes_from_a_private_file_or_the_environment_only() {
    let mut env = TokenEnv::new();
    let admin = env.make(None, "admin.token", &["--role", "admin"]);
    let url = env.serve(&["server", "start"]);
    let secret = std::fs::read_to_string(&admin).unwrap();
    let secret = secret.trim();

    let mut by_variable = env.command(None, &["job", "list"]);
    env.note(end(by_variable.env("FILCH_TOKEN", secret), "")).fine();
    let by_flag = ["job", "list", "--token-file", "admin.token"];
    env.filch(None, &by_flag).fine();

    std::fs::set_permissions(&admin, PermissionsExt::from_mode(0o644)).unwrap();
    let said =
        env.filch(Some(&admin), &["job", "list"]).refused(2, "other users can read the token file");
    assert!(said.stderr.contains("chmod 600"), "{said:?}");
    std::fs::set_permissions(&admin, PermissionsExt::from_mode(0o600)).unwrap();
    env.filch(Some(&env.path("none")), &["job", "list"]).refused(2, "cannot read the token");
    let mut broken = env.command(None, &["job", "list"]);
    env.note(end(broken.env("FILCH_TOKEN", &secret[..40]), ""))
        .refused(2, "malformed token in FILCH_TOKEN");

    let address = url.strip_prefix("http://").unwrap();
    for url in [format!("http://x:{secret}@{address}"), format!("{url}/?token={secret}")] {
        for words in [&["job", "list"][..], &["worker", "start"]] {
            let mut command = env.command(None, words);
            let ended = env.note(end(command.env("FILCH_URL", &url), ""));
            ended.refused(2, "set FILCH_TOKEN");
        }
    }
    let revoke = ["token", "revoke", secret];
    env.filch(Some(&admin), &revoke).refused(2, "this is the secret token");
    // Plaintext to another host needs --insecure-no-tls.
    let mut far = env.command(Some(&admin), &["job", "list", "--server", "http://192.0.2.1:1"]);
    env.note(end(&mut far, "")).refused(2, "--insecure-no-tls");
}

#[test]
fn a_worker_hides_its_token_from_jobs_and_exits_when_it_is_revoked() {
    let mut env = TokenEnv::new();
    let admin = env.make(None, "admin.token", &["--role", "admin"]);
    let url = env.serve(&["server", "start"]);
    let viewer = env.make(Some(&admin), "view.token", &["--role", "view"]);
    let worker = env.make(Some(&admin), "work.token", &["--role", "work"]);

    let words = ["worker", "start", "--server", &url, "--slots", "1"];
    let said = env.filch(Some(&viewer), &words).refused(5, "role work or admin is needed");
    assert!(said.stderr.contains("filch token create --role work"), "{said:?}");

    let mut command = env.command(None, &words);
    command.env("FILCH_TOKEN", std::fs::read_to_string(&worker).unwrap().trim());
    let child = env.start("worker", &mut command);
    let shown = env.filch(Some(&admin), &["run", "--", "env"]).fine();
    assert!(
        shown.stdout.contains("FILCH_JOB=") && !shown.stdout.contains("FILCH_TOKEN"),
        "{shown:?}"
    );

    // Its running job is stopped, too.
    let long =
        ["submit", "--", "sh", "-c", "echo $$ > pid.new && mv pid.new pid && exec sleep 1000"];
    env.filch(Some(&admin), &long).fine();
    let pid = env.path("pid");
    until("the job runs", || pid.exists());
    env.filch(Some(&admin), &["token", "revoke", &id(&worker)]).fine();
    assert_eq!(env.code(child), Some(5));
    assert!(env.said("worker.err").contains("revoked"), "{}", env.said("worker.err"));
    let pid = std::fs::read_to_string(pid).unwrap();
    until("the job is gone", || !Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[test]
fn a_worker_without_a_token_exits_with_help_when_the_first_token_is_created() {
    let mut env = TokenEnv::new();
    let url = env.serve(&["server", "start"]);
    let mut command = env.command(None, &["worker", "start", "--server", &url]);
    let child = env.start("worker", &mut command);
    // Then the worker is connected.
    env.filch(None, &["run", "--", "true"]).fine();
    env.make(None, "admin.token", &["--role", "admin"]);
    assert_eq!(env.code(child), Some(5));
    let said = env.said("worker.err");
    assert!(said.contains("a token is required now"), "{said}");
    assert!(said.contains("help: set FILCH_TOKEN"), "{said}");
    assert!(!said.contains("revoked"), "{said}");
}

#[test]
fn a_worker_with_a_restricted_token_serves_only_its_queues() {
    let mut env = TokenEnv::new();
    let admin = env.make(None, "admin.token", &["--role", "admin"]);
    let url = env.serve(&["server", "start"]);
    let worker = env.make(Some(&admin), "work.token", &["--role", "work", "--queue", "ci"]);
    let words = ["worker", "start", "--server", &url, "--queues", "ci,other"];
    env.filch(Some(&worker), &words).refused(5, "not valid for queue \"other\"");

    let elsewhere = env.filch(Some(&admin), &["submit", "--", "true"]).fine();
    let mut command = env.command(Some(&worker), &words[..4]);
    env.start("worker", &mut command);
    env.filch(Some(&admin), &["run", "--queue", "ci", "--", "true"]).fine();
    let job = env.filch(Some(&admin), &["job", "show", "--json", elsewhere.line()]).fine();
    assert_eq!(job.json()["state"], "queued");
}

/// `filch up` and `filch run` need no token for their own server.
#[test]
fn up_and_run_work_without_a_token_on_their_own_server() {
    let mut env = TokenEnv::new();
    let admin = env.make(None, "admin.token", &["--role", "admin"]);
    let hello = env.filch(None, &["run", "--", "echo", "hello"]).fine();
    assert_eq!(hello.stdout, "hello\n");
    env.serve(&["up", "--slots", "1"]);
    let hello = env.filch(Some(&admin), &["run", "--", "echo", "hello"]).fine();
    assert_eq!(hello.stdout, "hello\n");
    env.filch(None, &["run", "--", "echo", "hello"]).refused(125, "a token is required");
}
