//! Common mistakes: each has a clear error with help, and its exit code.

use std::io::Write as _;
use std::process::Stdio;

use crate::server::{DATA, Running, Server, end, filch, program, until};

#[test]
fn a_data_directory_without_a_server_does_not_fall_back_to_the_default_address() {
    let folder = tempfile::tempdir().unwrap();
    let typo = folder.path().join("typo");
    let said = format!("no server has {} open", typo.join("filch.db").display());
    let typo = typo.to_str().unwrap();
    for words in [
        &["job", "list", "--data", typo][..],
        &["submit", "--data", typo, "--", "true"],
        &["worker", "start", "--data", typo],
    ] {
        let ended = end(program().args(words).current_dir(folder.path()), "");
        let ended = ended.refused(6, &said);
        assert!(ended.stderr.contains(&format!("filch up --data {typo}")), "{ended:?}");
        assert!(!ended.stderr.contains("7420"), "{ended:?}");
    }
    let mut command = program();
    command.args(["job", "list"]).current_dir(folder.path());
    end(command.env("FILCH_DATA", typo), "").refused(6, &said);
    end(program().args(["token", "list", "--data", typo]), "").refused(3, "there is no store in");
    assert!(!folder.path().join("typo").exists(), "reading commands create nothing");

    let server = Server::idle();
    let data = server.folder().join(DATA);
    end(program().args(["job", "list", "--data"]).arg(&data), "").fine();
}

#[test]
fn a_server_without_slots_says_that_it_has_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["up", "--slots", "0", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut up = Running::start(&mut command);
    up.next_line();
    let words = ["worker", "list"];
    let workers = end(program().args(words).current_dir(folder.path()), "").fine();
    assert!(workers.rows().is_empty(), "{workers:?}");
    let said = up.next_stderr_line();
    assert!(said.contains("without a worker"), "{said}");
}

#[test]
fn a_worker_without_slots_is_rejected() {
    let server = Server::idle();
    server.filch(&["worker", "start", "--slots", "0"]).refused(2, "0 is not in 1..");
    let set = server.command(&["worker", "start"]).env("FILCH_SLOTS", "0").output().unwrap();
    assert_eq!(set.status.code(), Some(2), "{set:?}");
}

#[test]
fn blanks_around_commas_are_ignored() {
    let server = Server::idle();
    let words = ["worker", "start", "--slots", "1", "--queues", "img, default"];
    let _worker = Running::start(&mut server.command(&words));
    until("the worker is there", || {
        let workers = server.filch(&["worker", "list"]).fine();
        workers.rows().first().is_some_and(|row| row[6] == "img,default")
    });
    server.id(&["submit", "--at", "1h", "--", "true"]);
    let listed = server.filch(&["job", "list", "--state", "dead, scheduled"]).fine();
    assert_eq!(listed.rows().len(), 1, "{listed:?}");
    let purge = ["queue", "purge", "default", "--dry-run", "--state", "queued, scheduled"];
    let purged = server.filch(&purge).fine();
    assert_eq!(purged.line(), "1");
    let words = ["worker", "start", "--queues", "img,,default"];
    server.filch(&words).refused(2, "write comma-separated names");
}

#[test]
fn empty_names_are_rejected() {
    let server = Server::up();
    for words in [&["job", "show", ""][..], &["wait", ""], &["logs", " "], &["why", ""]] {
        server.filch(words).refused(2, "the job id is empty");
    }
    server.filch(&["job", "cancel", "--yes", ""]).refused(2, "the job id is empty");
    server.filch(&["worker", "drain", ""]).refused(2, "the worker name is empty");
    for words in [&["queue", "pause", ""][..], &["queue", "show", ""], &["token", "revoke", ""]] {
        server.filch(words).refused(2, "a value is required");
    }
}

#[test]
fn a_listen_address_is_an_ip_address_and_a_port() {
    for listen in ["localhost:17555", "127.0.0.1", ":7420"] {
        filch(&["up", "--listen", listen]).refused(2, "write an IP address and a port, like");
    }
}

#[test]
fn a_lease_that_is_too_short_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["up", "--listen", "127.0.0.1:0", "--lease", "0s"];
    let ended = end(program().args(words).current_dir(folder.path()), "");
    ended.refused(2, "a lease of 0s is too short");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is created");
}

#[test]
fn waiting_for_a_filter_without_matches_is_an_error() {
    let server = Server::up();
    let ended = server.filch(&["wait", "queue:nope"]);
    ended.refused(3, "no job matches `queue:nope`");
}

#[test]
fn a_timeout_of_zero_is_rejected() {
    let server = Server::idle();
    for words in [&["submit", "--timeout", "0s"][..], &["run", "--timeout", "100us"]] {
        let words = [words, &["--", "true"]].concat();
        server.filch(&words).refused(2, "omit --timeout");
    }
    let flow = server.file("flow.toml", "[job.a]\nkind = \"k\"\ntimeout = \"0s\"\n");
    let ended = server.filch(&["flow", "check", flow.to_str().unwrap()]);
    ended.refused(2, "`timeout` must be longer than zero");
    assert!(server.filch(&["job", "list"]).fine().rows().is_empty());
}

#[test]
fn days_weeks_and_dates_are_accepted_everywhere() {
    let server = Server::up();
    server.id(&["submit", "--timeout", "2d", "--at", "1w", "--", "true"]);
    let dated = server.id(&["submit", "--at", "2100-01-31", "--", "true"]);
    assert_eq!(server.job(&dated)["due_at"], "2100-01-31T00:00:00Z");
    for since in ["30d", "1w2d", "2020-01-01"] {
        let listed = server.filch(&["job", "list", "--since", since]).fine();
        assert_eq!(listed.rows().len(), 2, "{since}: {listed:?}");
        server.filch(&["dead", "list", "--since", since]).fine();
    }
    server.filch(&["job", "list", "since:2100-01-01"]).fine();
    server.filch(&["wait", "--timeout", "1d", &server.id(&["submit", "--", "true"])]).fine();
    server.filch(&["job", "list", "--since", "2020-13-01"]).refused(2, "2026-01-31");
}

#[test]
fn run_warns_if_no_worker_serves_the_queue() {
    let server = Server::idle();
    let mut run = Running::start(&mut server.command(&["run", "--queue", "img", "--", "true"]));
    let said = run.next_stderr_line();
    assert!(said.contains("no worker serves queue img"), "{said}");
    assert!(said.contains("filch worker start --queues img"), "{said}");
    let words = ["worker", "start", "--slots", "1", "--queues", "img"];
    let _worker = Running::start(&mut server.command(&words));
    assert_eq!(run.code(), Some(0));
}

#[test]
fn a_line_that_is_not_utf_8_is_named() {
    let server = Server::idle();
    let bytes = b"one\n\xff\xfe\nthree\n";
    let path = server.folder().join("lines");
    std::fs::write(&path, bytes).unwrap();
    let words = ["submit", "--each-line", "lines", "--", "echo", "{line}"];
    server.filch(&words).refused(2, "line 2 of lines is not UTF-8");

    let mut command = server.command(&["enqueue", "resize", "-"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"1\n\xff\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("line 2 of stdin is not UTF-8"), "{said}");
}

#[test]
fn a_misspelt_condition_is_answered_with_the_known_ones() {
    let server = Server::idle();
    let text =
        "[job.a]\nkind = \"k\"\n[job.b]\nkind = \"k\"\nafter = \"a\"\nwhen = \"all-suceeded\"\n";
    let flow = server.file("flow.toml", text);
    let ended = server.filch(&["flow", "check", flow.to_str().unwrap()]);
    let ended = ended.refused(2, "did you mean \"all-succeeded\"?");
    let words = "write all-succeeded, any-succeeded, all-done or any-failed";
    assert!(ended.stderr.contains(words), "{ended:?}");
    assert!(!ended.stderr.contains("variant"), "{ended:?}");
}

#[test]
fn a_job_shows_where_it_runs_and_with_what() {
    let server = Server::idle();
    let words =
        ["submit", "--at", "1h", "--dir", "/srv", "--env", "TOKEN=secret", "--", "./a.sh", "b c"];
    let id = server.id(&words);
    let shown = server.filch(&["job", "show", &id]).fine();
    assert_eq!((shown.fact("dir"), shown.fact("env")), ("/srv", "TOKEN"));
    assert!(!shown.stdout.contains("secret"), "{shown:?}");
    let job = server.job(&id);
    assert_eq!((&job["dir"], &job["env"][0]), (&"/srv".into(), &"TOKEN".into()));

    let listed = server.filch(&["job", "list"]).fine();
    assert_eq!(listed.lines()[0].split('\t').next_back(), Some("command"));
    assert_eq!(listed.rows()[0].last(), Some(&"./a.sh 'b c'"), "{listed:?}");
}

#[test]
fn a_store_that_cannot_be_opened_is_named_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Another version of filch has created it: the version is in the header of the file.
    filch(&["token", "create", "--role", "admin", "--data", &path("other")]).fine();
    let file = path("other/filch.db");
    let mut kept = std::fs::read(&file).unwrap();
    kept[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&file, kept).unwrap();
    // A directory in place of the lock file.
    std::fs::create_dir_all(path("locked/filch.db.lock")).unwrap();
    for (data, code, said) in [
        ("other", 7, format!("error: {file}: schema version 99 is not supported, ")),
        ("locked", 1, format!("error: cannot lock {}: ", path("locked/filch.db.lock"))),
        ("other/filch.db", 2, format!("error: {file} is a file, but --data needs a directory")),
        ("other/filch.db/x", 1, format!("error: cannot create the directory {file}/x: ")),
    ] {
        for words in [&["up", "--listen", "127.0.0.1:0"][..], &["token", "create", "--role=admin"]]
        {
            let ended = filch(&[words, &["--data", &path(data)]].concat()).refused(code, &said);
            assert_eq!(
                ended.stderr.matches("(os error").count(),
                usize::from(code == 1),
                "{ended:?}"
            );
            assert!(code == 7 || ended.stderr.contains("\n  help: "), "{ended:?}");
        }
    }
    let run = filch(&["run", "--data", &path("other"), "--", "true"]);
    run.refused(125, &format!("error: {file}: schema version 99 is not supported, "));
}

#[test]
fn a_limit_of_zero_is_rejected() {
    for words in [["job", "list"], ["dead", "list"], ["dead", "groups"]] {
        let words = [&words[..], &["--limit", "0"]].concat();
        filch(&words).refused(2, "'0' for '--limit <N>'");
    }
}

#[test]
fn a_negative_number_is_an_invalid_value_not_an_option() {
    for (words, said) in [
        (&["submit", "--retry", "-1", "--", "true"][..], "'-1' for '--retry <N>'"),
        (&["submit", "--timeout", "-5", "--", "true"], "'-5' for '--timeout <DURATION>'"),
        (&["queue", "set", "img", "--limit", "-1"], "'-1' for '--limit <N|none>'"),
        (&["up", "--slots", "-1"], "'-1' for '--slots <N>'"),
    ] {
        let ended = filch(words).refused(2, said);
        assert!(!ended.stderr.contains("tip:"), "{ended:?}");
    }
}

#[test]
fn a_command_without_dashes_is_answered_with_help() {
    for verb in ["run", "submit"] {
        filch(&[verb, "--retry", "3", "echo", "hi"])
            .refused(2, "write `--` before the command: -- echo ...");
        let ended = filch(&[verb, "--retyr", "3", "--", "echo"]).refused(2, "'--retry'");
        assert!(!ended.stderr.contains("write `--`"), "{ended:?}");
    }
}

#[test]
fn a_binary_flow_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("flow.toml");
    std::fs::write(&binary, b"\xff\xfe").unwrap();
    for path in [folder.path(), &binary] {
        let ended = filch(&["flow", "check", path.to_str().unwrap()]);
        ended.refused(2, "help: name a text file in TOML, JSON or YAML");
    }
}

#[test]
fn a_port_in_use_is_reported_before_anything_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let ended = filch(&["up", "--listen", &listen, "--data", data.to_str().unwrap()]);
    ended.refused(1, &format!("cannot listen on {listen}: "));
    assert!(!data.exists());
}
