//! TLS: encrypted connections, trusted servers and client certificates.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::certificates::{Authority, Signed};
use crate::server::end;
use crate::token::TokenEnv;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The arguments that start a server with TLS.
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
fn clients_and_workers_connect_only_to_trusted_servers() {
    let mut env = TokenEnv::new();
    let authority = Authority::new(&env.path(""), "authority");
    let stranger = Authority::new(&env.path(""), "stranger");
    let signed = authority.sign("server");
    let admin = env.make(None, "admin.token", &["--role", "admin"]);
    let url = env.serve(&serving(&signed, &[]));
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");

    let list = ["job", "list"];
    let untrusted = env.filch(Some(&admin), &list).refused(6, "no secure connection");
    assert!(untrusted.stderr.contains("--tls-ca"), "{untrusted:?}");
    let mut strange = env.command(Some(&admin), &list);
    let strange = env.note(end(with_ca(&mut strange, &stranger.certificate), ""));
    strange.refused(6, "no secure connection");
    let mut trusted = env.command(Some(&admin), &list);
    env.note(end(with_ca(&mut trusted, &authority.certificate), "")).fine();
    let plain = url.replacen("https", "http", 1);
    let mut plain = env.command(Some(&admin), &["job", "list", "--server", &plain]);
    assert_ne!(env.note(end(&mut plain, "")).code, 0, "it rejects plaintext");

    // The connection of a worker is encrypted, too.
    let words = ["worker", "start", "--server", &url, "--slots", "1"];
    let mut worker = env.command(Some(&admin), &words);
    env.start("worker", with_ca(&mut worker, &authority.certificate));
    let mut run = env.command(Some(&admin), &["run", "--", "echo", "encrypted"]);
    let ran = env.note(end(with_ca(&mut run, &authority.certificate), "")).fine();
    assert_eq!(ran.stdout, "encrypted\n");

    // A worker that does not trust the server reports it and keeps trying.
    let mut doubter = env.command(Some(&admin), &words);
    env.start("doubter", with_ca(&mut doubter, &stranger.certificate));
    crate::server::until("it says why", || env.said("doubter.err").contains("no secure"));
}

#[test]
fn a_server_with_a_client_ca_requires_client_certificates() {
    let mut env = TokenEnv::new();
    let authority = Authority::new(&env.path(""), "authority");
    let stranger = Authority::new(&env.path(""), "stranger");
    let (server, client) = (authority.sign("server"), authority.sign("client"));
    let other = stranger.sign("other");
    let url = env.serve(&serving(&server, &["--tls-client-ca", text(&authority.certificate)]));

    let mut without = env.command(None, &["job", "list"]);
    env.note(end(with_ca(&mut without, &authority.certificate), "")).refused(6, "secure");
    let shown = |words: &[&str], signed: &Signed| {
        let mut command = env.command(None, words);
        with_ca(&mut command, &authority.certificate)
            .env("FILCH_TLS_CLIENT_CERT", &signed.certificate)
            .env("FILCH_TLS_CLIENT_KEY", &signed.key);
        command
    };
    env.note(end(&mut shown(&["job", "list"], &other), "")).refused(6, "secure");
    env.note(end(&mut shown(&["job", "list"], &client), "")).fine();
    let half = ["job", "list", "--tls-client-cert", text(&client.certificate)];
    env.filch(None, &half).refused(2, "must be given together");

    let mut worker = shown(&["worker", "start", "--server", &url, "--slots", "1"], &client);
    let run = shown(&["run", "--", "true"], &client);
    env.start("worker", &mut worker);
    let mut run = run;
    env.note(end(&mut run, "")).fine();
}

#[test]
fn a_worker_with_a_missing_ca_file_does_not_start() {
    let env = TokenEnv::new();
    let none = env.path("none.pem");
    // Also if no connection needs the file: it was given for a reason.
    for url in ["https://127.0.0.1:1", "http://127.0.0.1:1"] {
        let words = ["worker", "start", "--server", url, "--tls-ca", text(&none)];
        env.filch(None, &words).refused(2, "cannot use the certificates in");
    }
}

#[test]
fn invalid_tls_files_are_rejected_before_anything_is_created() {
    let env = TokenEnv::new();
    let authority = Authority::new(&env.path(""), "authority");
    let (one, two) = (authority.sign("one"), authority.sign("two"));
    let none = env.path("none.pem");
    let letter = env.path("letter.pem");
    std::fs::write(&letter, "Dear reader").unwrap();
    std::fs::set_permissions(&letter, PermissionsExt::from_mode(0o600)).unwrap();
    let refused = |certificate: &Path, key: &Path, more: &[&str], why: &str| {
        let signed = Signed { certificate: certificate.to_owned(), key: key.to_owned() };
        let words =
            serving(&signed, &[&["--listen", "127.0.0.1:0", "--data", "new"], more].concat());
        env.filch(None, &words).refused(2, why);
        assert!(!env.path("new").exists(), "nothing is created");
    };
    refused(&none, &one.key, &[], "none.pem");
    refused(&none, &one.key, &[], "  help: name a file that can be read and holds certificates");
    refused(&one.certificate, &none, &[], "cannot read the key in");
    refused(&one.certificate, &none, &[], "  help: name a file that can be read and holds the");
    refused(&letter, &one.key, &[], "no PEM certificate found");
    refused(&one.certificate, &letter, &[], "cannot read the key in");
    refused(&one.certificate, &two.key, &[], "do not match");
    refused(
        &one.certificate,
        &one.key,
        &["--tls-client-ca", text(&letter)],
        "no PEM certificate found",
    );
    std::fs::set_permissions(&one.key, PermissionsExt::from_mode(0o644)).unwrap();
    refused(&one.certificate, &one.key, &[], "chmod 600");
    let words = ["server", "start", "--tls-cert", text(&one.certificate)];
    env.filch(None, &words).refused(2, "--tls-key");
    let words = ["server", "start", "--tls-client-ca", text(&one.certificate)];
    env.filch(None, &words).refused(2, "--tls-cert");
    // A key without a certificate, from a variable.
    let mut half = env.command(None, &["server", "start"]);
    env.note(end(half.env("FILCH_TLS_KEY", &one.key), "")).refused(2, "give --tls-cert and");
}
