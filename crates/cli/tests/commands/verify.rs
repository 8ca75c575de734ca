//! `filch server verify` and `filch server backup`: a good store, a backup of it, and a damaged
//! one.

use std::path::PathBuf;

use crate::server::{DATA, Server, filch, until};

fn file(server: &Server) -> PathBuf {
    server.folder().join(DATA).join("filch.db")
}

#[test]
fn a_running_server_is_verified_and_keeps_running() {
    let server = Server::up();
    let words = ["submit", "--array", "1-40", "--retry", "2"];
    let words = [&words[..], &["--", "sh", "-c", "exit $(( $0 % 5 == 0 ))", "{index}"]].concat();
    server.filch(&words).fine();
    let data = file(&server);
    let data = data.to_str().expect("a path of ours");
    let mut succeeded = 0;
    until("all have ended", || {
        let document = server.filch(&["server", "verify", "--json", data]).fine().json();
        assert_eq!(document["holds"], true, "{document}");
        let counts = &document["counts"];
        assert!(counts["succeeded"].as_u64() >= Some(succeeded), "{document}");
        succeeded = counts["succeeded"].as_u64().expect("a number");
        counts["unfinished"] == 0
    });
    let proved = server.filch(&["server", "verify", data]).fine();
    assert_eq!(proved.fact("acknowledged"), "40 jobs");
    assert_eq!(proved.fact("stored"), "40: 0 unfinished, 32 succeeded, 8 dead, 0 cancelled");
    assert_eq!(proved.fact("attempts"), "16 failed");
    assert!(proved.fact("S2").starts_with("ok: "), "{proved:?}");
}

#[test]
fn a_missing_or_foreign_file_is_an_error() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let nowhere = folder.path().to_str().expect("a path of ours");
    filch(&["server", "verify", "--data", nowhere]).refused(3, "no such file");
    let letter = folder.path().join("letter");
    std::fs::write(&letter, "Dear reader, this is no database.".repeat(99))
        .expect("it is writable");
    let letter = letter.to_str().expect("a path of ours");
    filch(&["server", "verify", letter]).refused(1, "is not a filch store");
}

#[test]
fn a_backup_of_a_running_server_can_be_restored() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::up();
    let done = server.id(&["submit", "--", "echo", "7"]);
    server.filch(&["wait", &done]).fine();
    let waits = server.id(&["submit", "--at", "1h", "--", "true"]);
    server.filch(&["submit", "--array", "1-100", "--", "true"]).fine();
    let copy = server.folder().join("copy.db");
    let path = copy.to_str().expect("a path of ours");
    let data = server.folder().join(DATA);
    let data = data.to_str().expect("a path of ours");
    let backup = || server.filch(&["server", "backup", "--data", data, path]);
    assert_eq!(backup().fine().line(), path);
    let mode = copy.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner may read it");
    let names = |folder: &std::path::Path| {
        let entries = std::fs::read_dir(folder).expect("it is there");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("readable").file_name();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    };
    assert_eq!(
        names(server.folder()),
        ["copy.db", DATA, "server.log"],
        "no other files are created"
    );
    let before = std::fs::read(&copy).expect("it is there");
    backup().refused(4, "already exists");
    assert_eq!(std::fs::read(&copy).expect("it is there"), before, "not overwritten");
    let document = filch(&["server", "verify", "--json", path]).fine().json();
    assert_eq!((&document["holds"], &document["counts"]["submitted"]), (&true.into(), &102.into()));
    assert_eq!(
        names(server.folder()),
        ["copy.db", DATA, "server.log"],
        "verifying creates no files"
    );

    let restored = Server::restored(&copy);
    assert_eq!(restored.job(&done)["result"], 7);
    assert_eq!(restored.job(&waits)["state"], "scheduled");
    let new = restored.id(&["submit", "--", "true"]);
    restored.filch(&["wait", &new]).fine();
    let data = file(&restored);
    filch(&["server", "verify", data.to_str().expect("a path of ours")]).fine();

    let nowhere = server.folder().join("nowhere");
    let nowhere = nowhere.to_str().expect("a path of ours");
    let other = server.folder().join("other.db");
    let other = other.to_str().expect("a path of ours");
    filch(&["server", "backup", "--data", nowhere, other]).refused(3, "no such file");
    let deep = format!("{nowhere}/copy.db");
    server
        .filch(&["server", "backup", "--data", DATA, &deep])
        .refused(1, "help: choose a file in an existing");
}

#[test]
fn a_damaged_store_fails_the_integrity_check_with_evidence() {
    let server = Server::up();
    let id = server.id(&["submit", "--", "true"]);
    server.filch(&["wait", &id]).fine();
    let copy = server.folder().join("copy.db");
    let path = copy.to_str().expect("a path of ours");
    let data = file(&server);
    let data = data.parent().and_then(std::path::Path::to_str).expect("a path of ours");
    let document =
        server.filch(&["server", "backup", "--json", "--data", data, path]).fine().json();
    assert_eq!((&document["holds"], &document["jobs"]), (&true.into(), &1.into()));
    let mut bytes = std::fs::read(&copy).expect("it is there");
    let has_payload = |page: &&mut [u8]| page.windows(6).any(|bytes| bytes == b"{\"run\"");
    let page = bytes.chunks_exact_mut(4_096).find(has_payload).expect("it is somewhere");
    page.iter_mut().for_each(|byte| *byte = !*byte);
    std::fs::write(&copy, bytes).expect("it is writable");
    let broken = filch(&["server", "verify", "--json", path]).refused(1, "integrity check failed");
    let document = broken.json();
    assert_eq!(document["holds"], false);
    let findings = document["violations"].as_array().expect("a list");
    assert!(findings.iter().any(|finding| finding["rule"] == "file"), "{document}");
    let broken = filch(&["server", "verify", path]).refused(1, "violations");
    assert!(broken.fact("file").starts_with("VIOLATED"), "{broken:?}");
    assert!(broken.fact("violation").contains(": "), "{broken:?}");
}
