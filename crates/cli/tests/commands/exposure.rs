//! Where a server may listen: freely on loopback, elsewhere only with a token, and with TLS unless
//! `--insecure-no-tls` is given. All combinations, with the real program.

use std::path::Path;
use std::process::Stdio;

use crate::certificates::Authority;
use crate::server::{Ended, end, until};
use crate::token::TokenEnv;

/// The outcome for each address, with and without token, TLS and `--insecure-no-tls`.
const TABLE: &str = "
    address      nothing  plain  tls    tls+plain  token  token+plain  token+tls  all
    127.0.0.1:0  serves   serves serves serves     serves serves       serves     serves
    [::1]:0      serves   serves serves serves     serves serves       serves     serves
    0.0.0.0:0    token    token  token  token      tls    serves       serves     serves";

#[test]
fn every_combination_of_address_token_and_tls_is_as_in_the_table() {
    let env = TokenEnv::new();
    let signed = Authority::new(&env.path(""), "authority").sign("server");
    let mut cases = 0;
    for line in TABLE.trim().lines().skip(1) {
        let mut words = line.split_whitespace();
        let address = words.next().unwrap();
        for case in 0_u8..8 {
            let expected = words.next().unwrap();
            let data = format!("data-{cases}");
            cases += 1;
            let mut arguments = vec!["server", "start", "--listen", address, "--data", &data];
            if case & 4 > 0 {
                env.make(None, "admin.token", &["--role", "admin", "--data", &data]);
            }
            if case & 2 > 0 {
                let files = [&signed.certificate, &signed.key].map(|path| path.to_str().unwrap());
                arguments.extend(["--tls-cert", files[0], "--tls-key", files[1]]);
            }
            if case & 1 > 0 {
                arguments.push("--insecure-no-tls");
            }
            let before = files(&env.path(&data));
            match expected {
                "serves" => serves(&env, &arguments),
                missing => {
                    let ended = env.note(end(&mut env.command(None, &arguments), ""));
                    refused(ended, missing);
                    assert_eq!(files(&env.path(&data)), before, "{arguments:?}");
                }
            }
        }
    }
    assert_eq!(cases, 24);
}

#[track_caller]
fn refused(ended: Ended, missing: &str) {
    let (why, help) = match missing {
        "token" => ("without a token", "filch token create --role admin"),
        "tls" => ("without TLS", "--tls-cert"),
        other => panic!("what does {other} mean?"),
    };
    let said = ended.refused(2, why);
    assert!(said.stderr.contains(help) && said.stdout.is_empty(), "{said:?}");
}

/// The server prints its URL and keeps running.
fn serves(env: &TokenEnv, arguments: &[&str]) {
    let out = env.path("logs/serves.out");
    let mut command = env.command(None, arguments);
    let file = std::fs::File::create(&out).expect("a file can be written");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built for this test");
    until("the server serves or exits", || {
        let is_said = std::fs::read_to_string(&out).is_ok_and(|text| text.contains('\n'));
        is_said || child.try_wait().is_ok_and(|ended| ended.is_some())
    });
    let url = std::fs::read_to_string(&out).expect("it was made");
    let has_ended = child.try_wait().expect("it was started");
    let _ = child.kill();
    let _ = child.wait();
    let scheme = if arguments.contains(&"--tls-cert") { "https://" } else { "http://" };
    assert!(has_ended.is_none() && url.starts_with(scheme), "{arguments:?}: {has_ended:?} {url}");
}

/// The names and contents of the files in a folder; none if it does not exist.
fn files(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap_or_default()))
        .collect();
    files.sort();
    files
}

/// Unknown `Host` headers are rejected.
#[test]
fn a_server_accepts_only_its_own_host_names() {
    let mut env = TokenEnv::new();
    let admin = env.make(None, "admin.token", &["--role", "admin"]);
    let words = ["server", "start", "--allow-host", "build.example"];
    let url = env.serve(&words);
    let secret = std::fs::read_to_string(admin).unwrap();
    for (host, status) in
        [("build.example", "200"), ("evil.example", "421"), ("build.example.evil", "421")]
    {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &format!("host: {host}")]);
        curl.args(["-H", "@-", &format!("{url}/v1/status")]);
        let ended = end(&mut curl, &format!("authorization: Bearer {}", secret.trim()));
        assert_eq!(ended.stdout, status, "{host}: {ended:?}");
    }
}
