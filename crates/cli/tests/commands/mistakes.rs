//! What people get wrong at first: each mistake is named, with what to write instead, and has its code.

use std::io::Write as _;
use std::process::Stdio;

use crate::server::{DATA, Running, Server, end, filch, program, until};

#[test]
fn a_folder_that_nobody_serves_is_not_taken_for_another() {
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
    end(program().args(["token", "list", "--data", typo]), "").refused(3, "nothing is kept in");
    assert!(!folder.path().join("typo").exists(), "whoever looks makes nothing");

    let server = Server::idle();
    let data = server.folder().join(DATA);
    end(program().args(["job", "list", "--data"]).arg(&data), "").fine();
}

#[test]
fn a_server_without_slots_says_that_nothing_runs_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["up", "--slots", "0", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut up = Running::start(&mut command);
    up.next_line();
    let words = ["worker", "list"];
    let workers = end(program().args(words).current_dir(folder.path()), "").fine();
    assert!(workers.rows().is_empty(), "{workers:?}");
    let said = up.next_stderr_line();
    assert!(said.contains("no worker") && said.contains("filch worker start"), "{said}");
}

#[test]
fn a_worker_without_slots_is_refused() {
    let server = Server::idle();
    server.filch(&["worker", "start", "--slots", "0"]).refused(2, "0 is not in 1..");
    let set = server.command(&["worker", "start"]).env("FILCH_SLOTS", "0").output().unwrap();
    assert_eq!(set.status.code(), Some(2), "{set:?}");
}

#[test]
fn blanks_around_commas_mean_nothing() {
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
    server.filch(&words).refused(2, "write names with commas between them");
}

#[test]
fn a_name_that_is_empty_names_nothing() {
    let server = Server::up();
    for words in [&["job", "show", ""][..], &["wait", ""], &["logs", " "], &["why", ""]] {
        server.filch(words).refused(2, "the id of the job is empty");
    }
    server.filch(&["job", "cancel", "--yes", ""]).refused(2, "the id of the job is empty");
    server.filch(&["worker", "drain", ""]).refused(2, "the name of the worker is empty");
    for words in [&["queue", "pause", ""][..], &["queue", "show", ""], &["token", "revoke", ""]] {
        server.filch(words).refused(2, "a value is required");
    }
}

#[test]
fn an_address_is_written_in_numbers() {
    for listen in ["localhost:17555", "127.0.0.1", ":7420"] {
        filch(&["up", "--listen", listen])
            .refused(2, "write an address in numbers and a port, like");
    }
}

#[test]
fn a_lease_that_is_too_short_is_a_wrong_value() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["up", "--listen", "127.0.0.1:0", "--lease", "0s"];
    let ended = end(program().args(words).current_dir(folder.path()), "");
    ended.refused(2, "a lease of 0s is too short");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made for it");
}

#[test]
fn what_nobody_fits_is_not_waited_for() {
    let server = Server::up();
    let ended = server.filch(&["wait", "queue:nope"]);
    ended.refused(3, "no job matches `queue:nope`");
}

#[test]
fn an_attempt_needs_time() {
    let server = Server::idle();
    for words in [&["submit", "--timeout", "0s"][..], &["run", "--timeout", "100us"]] {
        let words = [words, &["--", "true"]].concat();
        server.filch(&words).refused(2, "leave --timeout out");
    }
    let flow = server.file("flow.toml", "[job.a]\nkind = \"k\"\ntimeout = \"0s\"\n");
    let ended = server.filch(&["flow", "check", flow.to_str().unwrap()]);
    ended.refused(2, "an attempt that may take no time can never succeed");
    assert!(server.filch(&["job", "list"]).fine().rows().is_empty());
}

#[test]
fn days_weeks_and_dates_are_understood_everywhere() {
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
fn whoever_runs_what_nobody_serves_is_told_so() {
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
fn a_line_that_is_no_text_is_named() {
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
fn a_condition_that_is_misspelt_is_told_from_those_that_there_are() {
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
fn what_is_kept_and_cannot_be_opened_is_named_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Another version of filch has created it: the version is in the header of the file.
    filch(&["token", "create", "--role", "admin", "--data", &path("other")]).fine();
    let file = path("other/filch.db");
    let mut kept = std::fs::read(&file).unwrap();
    kept[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&file, kept).unwrap();
    // Something is where the lock should be.
    std::fs::create_dir_all(path("locked/filch.db.lock")).unwrap();
    for (data, code, said) in [
        ("other", 7, format!("error: {file}: schema version 99 is not supported, ")),
        ("locked", 1, format!("error: cannot lock {}: ", path("locked/filch.db.lock"))),
        ("other/filch.db", 2, format!("error: {file} is a file, where a folder is meant")),
        ("other/filch.db/x", 1, format!("error: cannot make the folder {file}/x: ")),
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
fn a_list_of_nothing_is_a_wrong_value() {
    for words in [["job", "list"], ["dead", "list"], ["dead", "groups"]] {
        let words = [&words[..], &["--limit", "0"]].concat();
        filch(&words).refused(2, "'0' for '--limit <N>'");
    }
}

#[test]
fn a_number_below_zero_is_a_wrong_value_and_no_option() {
    for (words, said) in [
        (&["submit", "--retry", "-1", "--", "true"][..], "'-1' for '--retry <N>'"),
        (&["submit", "--timeout", "-5", "--", "true"], "'-5' for '--timeout <SPAN>'"),
        (&["queue", "set", "img", "--limit", "-1"], "'-1' for '--limit <N|none>'"),
        (&["up", "--slots", "-1"], "'-1' for '--slots <N>'"),
    ] {
        let ended = filch(words).refused(2, said);
        assert!(!ended.stderr.contains("tip:"), "{ended:?}");
    }
}

#[test]
fn a_command_without_dashes_before_it_is_shown_where_they_go() {
    for verb in ["run", "submit"] {
        filch(&[verb, "--retry", "3", "echo", "hi"]).refused(2, "behind `--`, as in: -- echo ...");
        let ended = filch(&[verb, "--retyr", "3", "--", "echo"]).refused(2, "'--retry'");
        assert!(!ended.stderr.contains("behind"), "{ended:?}");
    }
}

#[test]
fn a_flow_that_is_no_text_is_a_wrong_file() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("flow.toml");
    std::fs::write(&binary, b"\xff\xfe").unwrap();
    for path in [folder.path(), &binary] {
        let ended = filch(&["flow", "check", path.to_str().unwrap()]);
        ended.refused(2, "help: name a file that holds text in TOML, JSON or YAML");
    }
}

#[test]
fn a_port_that_is_taken_is_found_out_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let ended = filch(&["up", "--listen", &listen, "--data", data.to_str().unwrap()]);
    ended.refused(1, &format!("cannot listen on {listen}: "));
    assert!(!data.exists());
}
