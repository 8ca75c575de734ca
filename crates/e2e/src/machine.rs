//! Two simulated machines: network namespaces with a link between them, and a shell on each.
//!
//! This needs root and `ip`. Without them the test fails rather than being skipped, so that a
//! passed run always means that two machines have worked together.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Two connected namespaces. Dropping this removes them and kills all processes in them.
pub struct Network {
    names: [String; 2],
}

impl Network {
    /// Makes two machines with these addresses, which can reach only each other.
    ///
    /// # Panics
    /// If that is not permitted here.
    #[must_use]
    pub fn new(addresses: [&str; 2]) -> Self {
        // Unique among all tests that run on this machine.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let names = ["one", "two"].map(|name| format!("filch-{pid}-{number}-{name}"));
        let network = Self { names };
        let [one, two] = &network.names;
        // Device names are short. These exist only inside the namespaces.
        let (left, right) = (format!("fl{pid}"), format!("fr{pid}"));
        for name in &network.names {
            ip(&["netns", "add", name]);
        }
        ip(&[
            "link", "add", &left, "netns", one, "type", "veth", "peer", "name", &right, "netns",
            two,
        ]);
        for ((name, device), address) in [(one, &left), (two, &right)].into_iter().zip(addresses) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", device]);
            ip(&["-n", name, "link", "set", device, "up"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        network
    }

    /// A shell on one of them, in this folder, with these programs in its path.
    #[must_use]
    pub fn shell(&self, which: usize, folder: &Path, programs: &Path) -> Shell {
        Shell::start(&self.names[which], folder, programs)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let pids = Command::new("ip").args(["netns", "pids", name]).output();
            let pids = pids.map(|output| output.stdout).unwrap_or_default();
            for pid in String::from_utf8_lossy(&pids).split_whitespace() {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output();
    let output = output.expect("this test needs `ip`: apt-get install iproute2");
    assert!(
        output.status.success(),
        "this test needs root and the right to make network namespaces: ip {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
}

/// An interactive shell. It ends at the first command that fails.
pub struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Everything that it has printed.
    pub transcript: String,
}

/// What is printed after each block.
const DONE: &str = "-- done --";

impl Shell {
    fn start(namespace: &str, folder: &Path, programs: &Path) -> Self {
        let path = std::env::var("PATH").expect("there is a path");
        let mut child = Command::new("ip")
            // A guide that hangs is ended.
            .args(["netns", "exec", namespace, "timeout", "--foreground", "900", "bash"])
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this test needs `ip` and `bash`");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(b"exec 2>&1; set -eo pipefail\n").expect("the shell reads");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout, transcript: String::new() }
    }

    /// Runs these commands, and returns what they print.
    ///
    /// # Panics
    /// If a command fails.
    pub fn run(&mut self, block: &str) -> String {
        let typed = format!("{block}\necho '{DONE}'\n");
        self.stdin.write_all(typed.as_bytes()).expect("the shell reads");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("it prints text");
            self.transcript.push_str(&line);
            if line.trim_end() == DONE {
                return printed;
            }
            printed.push_str(&line);
            assert!(read > 0, "a command failed:\n{block}\nit printed:\n{printed}");
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A block of commands in a document, ```` ```sh NAME ````, for the machine of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuideBlock {
    /// The machine.
    pub machine: String,
    /// The commands.
    pub text: String,
}

/// The blocks for machines in a document, in order.
#[must_use]
pub fn blocks(document: &str) -> Vec<GuideBlock> {
    let mut blocks = Vec::new();
    for part in document.split("```sh ").skip(1) {
        if let Some((machine, rest)) = part.split_once('\n')
            && let Some((text, _)) = rest.split_once("```")
        {
            blocks.push(GuideBlock { machine: machine.trim().to_owned(), text: text.to_owned() });
        }
    }
    blocks
}

/// The folder of a machine.
#[must_use]
pub fn folder(root: &Path, machine: &str) -> PathBuf {
    let folder = root.join(machine);
    std::fs::create_dir_all(&folder).expect("the folder of the test can be written");
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_machine() {
        let document = "a\n```sh server\none\ntwo\n```\n```\nno\n```\n```sh worker\nthree\n```\n";
        let block = |machine: &str, text: &str| GuideBlock {
            machine: machine.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(blocks(document), [block("server", "one\ntwo\n"), block("worker", "three\n")]);
    }
}
