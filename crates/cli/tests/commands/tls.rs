//! Servers that encrypt what is said, and clients and workers that know whom they talk to.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::certificates::{Authority, Signed};
use crate::server::end;
use crate::token::Watched;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The words that start a server which encrypts.
fn serving<'a>(signed: &'a Signed, more: &[&'a str]) -> Vec<&'a str> {
    let words = [
        "server",
        "start",
        "--tls-cert",
        text(&signed.certificate),
        "--tls-key",
        text(&signed.key),
    ];
    [&words[..], more].concat()
}

fn with_ca<'a>(command: &'a mut Command, ca: &Path) -> &'a mut Command {
    command.env("FILCH_TLS_CA", ca)
}

#[test]
fn clients_and_workers_talk_to_a_server_that_they_trust_and_to_no_other() {
    let mut watched = Watched::new();
    let authority = Authority::new(&watched.path(""), "authority");
    let stranger = Authority::new(&watched.path(""), "stranger");
    let signed = authority.sign("server");
    let admin = watched.make(None, "admin.token", &["--role", "admin"]);
    let url = watched.serve(&serving(&signed, &[]));
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");

    let list = ["job", "list"];
    let untrusted = watched.filch(Some(&admin), &list).refused(6, "no secure connection");
    assert!(untrusted.stderr.contains("--tls-ca"), "{untrusted:?}");
    let mut strange = watched.command(Some(&admin), &list);
    let strange = watched.note(end(with_ca(&mut strange, &stranger.certificate), ""));
    strange.refused(6, "no secure connection");
    let mut trusted = watched.command(Some(&admin), &list);
    watched.note(end(with_ca(&mut trusted, &authority.certificate), "")).fine();
    let plain = url.replacen("https", "http", 1);
    let mut plain = watched.command(Some(&admin), &["job", "list", "--server", &plain]);
    assert_ne!(watched.note(end(&mut plain, "")).code, 0, "it does not talk in the open");

    // A worker's socket is encrypted like all else.
    let words = ["worker", "start", "--server", &url, "--slots", "1"];
    let mut worker = watched.command(Some(&admin), &words);
    watched.start("worker", with_ca(&mut worker, &authority.certificate));
    let mut run = watched.command(Some(&admin), &["run", "--", "echo", "encrypted"]);
    let ran = watched.note(end(with_ca(&mut run, &authority.certificate), "")).fine();
    assert_eq!(ran.stdout, "encrypted\n");

    // One that does not trust the server says so, and goes on trying.
    let mut doubter = watched.command(Some(&admin), &words);
    watched.start("doubter", with_ca(&mut doubter, &stranger.certificate));
    crate::server::until("it says why", || watched.said("doubter.err").contains("no secure"));
}

#[test]
fn a_server_that_wants_certificates_lets_nobody_in_without_one() {
    let mut watched = Watched::new();
    let authority = Authority::new(&watched.path(""), "authority");
    let stranger = Authority::new(&watched.path(""), "stranger");
    let (server, client) = (authority.sign("server"), authority.sign("client"));
    let other = stranger.sign("other");
    let url = watched.serve(&serving(&server, &["--tls-client-ca", text(&authority.certificate)]));

    let mut without = watched.command(None, &["job", "list"]);
    watched.note(end(with_ca(&mut without, &authority.certificate), "")).refused(6, "secure");
    let shown = |words: &[&str], signed: &Signed| {
        let mut command = watched.command(None, words);
        with_ca(&mut command, &authority.certificate)
            .env("FILCH_TLS_CLIENT_CERT", &signed.certificate)
            .env("FILCH_TLS_CLIENT_KEY", &signed.key);
        command
    };
    watched.note(end(&mut shown(&["job", "list"], &other), "")).refused(6, "secure");
    watched.note(end(&mut shown(&["job", "list"], &client), "")).fine();
    let half = ["job", "list", "--tls-client-cert", text(&client.certificate)];
    watched.filch(None, &half).refused(2, "of no use without its key");

    let mut worker = shown(&["worker", "start", "--server", &url, "--slots", "1"], &client);
    let run = shown(&["run", "--", "true"], &client);
    watched.start("worker", &mut worker);
    let mut run = run;
    watched.note(end(&mut run, "")).fine();
}

#[test]
fn files_that_do_not_do_are_refused_before_anything_is_made() {
    let watched = Watched::new();
    let authority = Authority::new(&watched.path(""), "authority");
    let (one, two) = (authority.sign("one"), authority.sign("two"));
    let none = watched.path("none.pem");
    let letter = watched.path("letter.pem");
    std::fs::write(&letter, "Dear reader").unwrap();
    std::fs::set_permissions(&letter, PermissionsExt::from_mode(0o600)).unwrap();
    let refused = |certificate: &Path, key: &Path, more: &[&str], why: &str| {
        let signed = Signed { certificate: certificate.to_owned(), key: key.to_owned() };
        let words =
            serving(&signed, &[&["--listen", "127.0.0.1:0", "--data", "new"], more].concat());
        watched.filch(None, &words).refused(2, why);
        assert!(!watched.path("new").exists(), "nothing is made");
    };
    refused(&none, &one.key, &[], "none.pem");
    refused(&none, &one.key, &[], "  help: name a file that can be read and holds certificates");
    refused(&one.certificate, &none, &[], "cannot read the key in");
    refused(&one.certificate, &none, &[], "  help: name a file that can be read and holds the");
    refused(&letter, &one.key, &[], "there is none in it");
    refused(&one.certificate, &letter, &[], "cannot read the key in");
    refused(&one.certificate, &two.key, &[], "do not go together");
    refused(&one.certificate, &one.key, &["--tls-client-ca", text(&letter)], "there is none in it");
    std::fs::set_permissions(&one.key, PermissionsExt::from_mode(0o644)).unwrap();
    refused(&one.certificate, &one.key, &[], "chmod 600");
    let words = ["server", "start", "--tls-cert", text(&one.certificate)];
    watched.filch(None, &words).refused(2, "--tls-key");
    let words = ["server", "start", "--tls-client-ca", text(&one.certificate)];
    watched.filch(None, &words).refused(2, "--tls-cert");
    // Half of it in a variable is half of it.
    let mut half = watched.command(None, &["server", "start"]);
    watched.note(end(half.env("FILCH_TLS_KEY", &one.key), "")).refused(2, "give --tls-cert and");
}
