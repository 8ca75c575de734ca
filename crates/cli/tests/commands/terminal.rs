//! Output on a terminal: tables, colors, confirmation, progress bars.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::server::{Server, program};

/// A pseudo-terminal.
struct Terminal {
    here: File,
    there: OwnedFd,
}

impl Terminal {
    fn new() -> Self {
        let here = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&here).expect("it is ours");
        unlockpt(&here).expect("it is ours");
        let name =
            ptsname(&here, Vec::new()).expect("it has a name").into_string().expect("a path");
        let there = File::options().read(true).write(true).open(name).expect("it can be opened");
        Self { here: File::from(here), there: there.into() }
    }

    fn stdio(&self) -> Stdio {
        self.there.try_clone().expect("there are descriptors").into()
    }

    /// Types this, and reads the output until the program exits.
    fn run(mut self, command: &mut Command, typed: &str) -> (i32, String) {
        command.stdin(self.stdio()).stderr(self.stdio());
        let mut child = command.spawn().expect("the program was built for this test");
        // Close our copies: reading ends when the program has closed the last one.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Self { ref mut here, there } = self;
        here.write_all(typed.as_bytes()).expect("it listens");
        drop(there);
        let mut shown = Vec::new();
        // A terminal ends with an error.
        let _ = here.read_to_end(&mut shown);
        let code = child.wait().expect("it was started").code().expect("it was not killed");
        (code, String::from_utf8(shown).expect("it prints text").replace("\r\n", "\n"))
    }
}

/// Runs a command with all streams on a terminal.
pub(crate) fn on_terminal(command: &mut Command, typed: &str) -> (i32, String) {
    let terminal = Terminal::new();
    command.stdout(terminal.stdio());
    terminal.run(command, typed)
}

#[test]
fn tables_have_columns_and_colors_on_a_terminal() {
    let server = Server::up();
    let id = server.dead(&[]);
    let words = ["job", "list"];
    let (code, plain) = on_terminal(&mut server.command(&words), "");
    assert_eq!(code, 0, "{plain}");
    let short = &id[28..];
    assert!(plain.contains(&format!("\n{short}  dead   default  command  ")), "{plain}");
    assert!(plain.contains("s ago"), "a relative time: {plain}");
    let is_painted = |text: &str| text.contains("\u{1b}[1;31mdead ");
    assert!(!is_painted(&plain), "NO_COLOR is set: {plain}");

    let (_, painted) = on_terminal(server.command(&words).env_remove("NO_COLOR"), "");
    assert!(is_painted(&painted), "{painted:?}");
    let never = ["job", "list", "--color", "never"];
    let (_, plain) = on_terminal(server.command(&never).env_remove("NO_COLOR"), "");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let (_, plain) =
        on_terminal(server.command(&words).env_remove("NO_COLOR").env("FILCH_COLOR", "never"), "");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");

    let (_, painted) = on_terminal(
        server.command(&["--color", "always", "job", "lsit"]).env_remove("NO_COLOR"),
        "",
    );
    assert!(painted.contains("\u{1b}["), "{painted:?}");
    let (_, plain) = on_terminal(
        server.command(&["--color", "never", "job", "lsit"]).env_remove("NO_COLOR"),
        "",
    );
    assert!(!plain.contains('\u{1b}'), "{plain:?}");

    let terminal = Terminal::new();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.here, size).expect("it is ours");
    let long = "x".repeat(100);
    server.id(&["submit", "--at", "1h", "--", "echo", &long]);
    let mut listing = server.command(&words);
    listing.stdout(terminal.stdio());
    let (_, cut) = terminal.run(&mut listing, "");
    let widths: Vec<usize> = cut.lines().map(|line| line.chars().count()).collect();
    assert!(widths.contains(&80) && widths.iter().all(|width| *width <= 80), "{cut}");

    // In a pipe only with --color always.
    let piped = crate::server::end(server.command(&words).env_remove("NO_COLOR"), "").fine();
    assert!(!piped.stdout.contains('\u{1b}'), "{piped:?}");
    let piped = server.filch(&["job", "list", "--color", "always"]).fine();
    assert!(piped.stdout.contains("\t\u{1b}[1;31mdead\u{1b}[0m\t"), "{piped:?}");
    let painted = program().args(["job", "show", "x", "--color", "always"]).output().unwrap();
    let painted = String::from_utf8(painted.stderr).unwrap();
    assert!(painted.starts_with("\u{1b}[1;31merror:\u{1b}[0m "), "{painted:?}");
}

#[test]
fn commands_that_cannot_be_undone_ask_for_confirmation() {
    let server = Server::idle();
    let id = server.id(&["submit", "--at", "1h", "--", "true"]);
    server.id(&["submit", "--", "true"]);
    let question = "cancel 1 job matching `state:scheduled`? [y/N] ";
    for no in ["\n", "n\n", "maybe\n"] {
        let words = ["job", "cancel", "state:scheduled"];
        let (code, shown) = on_terminal(&mut server.command(&words), no);
        assert_eq!(code, 1, "{shown}");
        assert!(shown.contains(question) && shown.contains("nothing was changed"), "{shown}");
        assert_eq!(server.job(&id)["state"], "scheduled");
    }
    let (code, shown) = on_terminal(&mut server.command(&["job", "cancel", &id]), "n\n");
    assert!(code == 1 && shown.contains("cancel 1 job? [y/N] "), "{shown}");
    let (code, shown) =
        on_terminal(&mut server.command(&["job", "cancel", "state:scheduled"]), "y\n");
    assert!(code == 0 && shown.contains(question), "{shown}");
    assert_eq!(server.job(&id)["state"], "cancelled");

    // With --yes there is no question.
    let words = ["job", "cancel", "--yes", "state:queued"];
    let (code, shown) = on_terminal(&mut server.command(&words), "");
    assert!(code == 0 && !shown.contains("[y/N]"), "{shown}");
    assert!(shown.contains("cancel 1 job matching `state:queued`\n"), "{shown}");
}

#[test]
fn long_operations_show_a_progress_bar() {
    let server = Server::idle();
    let words = ["submit", "--array", "1-20000", "--at", "1h", "--", "true"];
    let file = File::create(server.folder().join("ids")).unwrap();
    let (code, shown) =
        Terminal::new().run(server.command(&words).stdout(file).env("TERM", "xterm"), "");
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("of 20,000 jobs submitted"), "{shown:?}");
    let ids = std::fs::read_to_string(server.folder().join("ids")).unwrap();
    assert_eq!(ids.lines().count(), 20_000);
}

/// The line comes after ten seconds.
#[test]
fn long_operations_print_progress_lines_without_a_terminal() {
    let server = Server::idle();
    let id = server.id(&["submit", "--at", "1h", "--", "true"]);
    let mut waiting = server.command(&["wait", &id, "--timeout", "60s"]);
    let mut child =
        waiting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let stderr = child.stderr.take().expect("it is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(line, "0 of 1 job ended\n");
}
