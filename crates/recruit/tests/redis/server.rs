//! A real Redis server with its own port and no data, which ends with the test.

use std::env;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Client, Connection};
use tempfile::TempDir;

/// Longer than any step takes, even on a very busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The first that is installed is used, unless the variable names another.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
const PROGRAM_VARIABLE: &str = "FILCH_REDIS_SERVER";

/// The name of the Unix socket in the server's folder.
const SOCKET: &str = "redis.sock";

pub(crate) struct Server {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder can be created");
        let (child, port) = run(&folder);
        Self { child, port, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.url()).expect("it is an address")
    }

    /// A client that uses the Unix socket, whose address stays the same after a restart.
    pub(crate) fn socket_client(&self) -> Client {
        let path = self.folder.path().join(SOCKET);
        Client::open(format!("redis+unix://{}", path.display())).expect("it is an address")
    }

    pub(crate) fn connect(&self) -> Connection {
        self.client().get_connection().expect("it answers")
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Sends a signal, to stop or continue the server.
    pub(crate) fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        let status = kill.args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(status.expect("the program `kill` exists").success());
    }

    /// Starts it with the same Unix socket and another port, without data.
    pub(crate) fn start_again(&mut self) {
        (self.child, self.port) = run(&self.folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that answers, and its port.
fn run(folder: &TempDir) -> (Child, u16) {
    // Another process may take the free port before the server binds it.
    let tries = (0..20).find_map(|_| {
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        run_on(port, folder).map(|child| (child, port))
    });
    tries.expect("one of twenty ports is free")
}

/// A server that answers, or `None` if its port was taken.
fn run_on(port: u16, folder: &TempDir) -> Option<Child> {
    let mut child = spawn(port, folder);
    let client = Client::open(("127.0.0.1", port)).expect("it is an address");
    let begun = Instant::now();
    loop {
        if child.try_wait().expect("it is ours").is_some() {
            return None;
        }
        let pid = client.get_connection().and_then(|mut connection| {
            let text: String = redis::cmd("INFO").arg("server").query(&mut connection)?;
            Ok(text)
        });
        // Another server may have taken the port.
        let wanted = format!("process_id:{}\r\n", child.id());
        if pid.is_ok_and(|text| text.contains(&wanted)) {
            return Some(child);
        }
        assert!(begun.elapsed() < LONG, "the server does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn spawn(port: u16, folder: &TempDir) -> Child {
    let start = |program: &OsStr| {
        Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--unixsocket", SOCKET, "--save", "", "--appendonly", "no"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
    };
    if let Some(program) = env::var_os(PROGRAM_VARIABLE) {
        let named = start(&program);
        return named.unwrap_or_else(|error| panic!("{PROGRAM_VARIABLE}: {program:?}: {error}"));
    }
    for program in PROGRAMS {
        match start(program.as_ref()) {
            Ok(child) => return child,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => panic!("cannot start {program}: {error}"),
        }
    }
    panic!("no redis-server found: apt-get install redis-server");
}
