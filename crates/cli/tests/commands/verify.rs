//! `server verify` and `server backup`: a file that can be believed, beside a server at work, a copy of it, and one
//! that cannot.

use std::path::PathBuf;

use crate::server::{DATA, Server, filch, until};

fn file(server: &Server) -> PathBuf {
    server.folder().join(DATA).join("filch.db")
}

#[test]
fn a_server_at_work_can_be_believed_and_goes_on() {
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
    assert_eq!(proved.fact("kept"), "40: 0 unfinished, 32 succeeded, 8 dead, 0 cancelled");
    assert_eq!(proved.fact("attempts"), "16 that did not succeed");
    assert!(proved.fact("S2").starts_with("holds: "), "{proved:?}");
}

#[test]
fn where_there_is_nothing_there_is_nothing_to_prove() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let nowhere = folder.path().to_str().expect("a path of ours");
    filch(&["server", "verify", "--data", nowhere]).refused(3, "there is no file");
    let letter = folder.path().join("letter");
    std::fs::write(&letter, "Dear reader, this is no database.".repeat(99)).expect("room");
    let letter = letter.to_str().expect("a path of ours");
    filch(&["server", "verify", letter]).refused(1, "is not a file of filch");
}

#[test]
fn a_copy_is_made_while_the_server_works_and_can_take_its_place() {
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
    assert_eq!(mode & 0o777, 0o600, "it is nobody else's business");
    let names = |folder: &std::path::Path| {
        let entries = std::fs::read_dir(folder).expect("it is there");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("readable").file_name();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    };
    assert_eq!(names(server.folder()), ["copy.db", DATA, "server.log"], "and nothing is beside it");
    let before = std::fs::read(&copy).expect("it is there");
    backup().refused(4, "is there already");
    assert_eq!(std::fs::read(&copy).expect("it is there"), before, "not overwritten");
    let document = filch(&["server", "verify", "--json", path]).fine().json();
    assert_eq!((&document["holds"], &document["counts"]["submitted"]), (&true.into(), &102.into()));
    assert_eq!(
        names(server.folder()),
        ["copy.db", DATA, "server.log"],
        "a look leaves nothing behind"
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
    filch(&["server", "backup", "--data", nowhere, other]).refused(3, "there is no file");
    let deep = format!("{nowhere}/copy.db");
    server.filch(&["server", "backup", "--data", DATA, &deep]).refused(1, "help: name a file in a");
}

#[test]
fn what_cannot_be_believed_is_shown_with_its_evidence() {
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
    std::fs::write(&copy, bytes).expect("there is room");
    let broken = filch(&["server", "verify", "--json", path]).refused(1, "every promise was kept");
    let document = broken.json();
    assert_eq!(document["holds"], false);
    let findings = document["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|finding| finding["rule"] == "file"), "{document}");
    let broken = filch(&["server", "verify", path]).refused(1, "findings");
    assert!(broken.fact("file").starts_with("DOES NOT HOLD"), "{broken:?}");
    assert!(broken.fact("evidence").contains(": "), "{broken:?}");
}
