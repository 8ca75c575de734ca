//! Settings from flags, variables and files: their precedence, and the errors.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Ended, Server, end, program};

/// Three values for each setting, as flags accept them. A setting without values fails the tests
/// below.
const EXAMPLES: &[(&str, [&str; 3])] = &[
    ("url", ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]),
    ("token_file", ["/one", "/two", "/three"]),
    ("tls_ca", ["/one", "/two", "/three"]),
    ("tls_client_cert", ["/one", "/two", "/three"]),
    ("tls_client_key", ["/one", "/two", "/three"]),
    ("data", ["/one", "/two", "/three"]),
    ("color", ["always", "never", "auto"]),
    ("listen", ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]),
    ("tls_cert", ["/one", "/two", "/three"]),
    ("tls_key", ["/one", "/two", "/three"]),
    ("tls_client_ca", ["/one", "/two", "/three"]),
    ("allow_host", ["one", "two,three", "four"]),
    ("lease", ["1s", "2s", "3s"]),
    ("retention", ["1d", "2d", "3d"]),
    ("slots", ["1", "2", "3"]),
    ("queues", ["one", "two,three", "four"]),
    ("reserve", ["1", "2", "3"]),
    ("log", ["debug", "trace", "warn"]),
    ("log_format", ["json", "text", "json"]),
    ("submit.queue", ["one", "two", "three"]),
    ("submit.priority", ["1", "-2", "3"]),
    ("submit.retry", ["1", "2", "3"]),
    ("submit.timeout", ["1s", "2s", "3s"]),
];

/// A working directory and a user configuration directory.
struct SettingsDir(TempDir);

impl SettingsDir {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory can be created");
        std::fs::create_dir_all(folder.path().join("here")).expect("a directory can be created");
        std::fs::create_dir_all(folder.path().join("user/filch"))
            .expect("a directory can be created");
        Self(folder)
    }

    fn here(&self) -> std::path::PathBuf {
        self.0.path().join("here")
    }

    fn user_file(&self) -> std::path::PathBuf {
        self.0.path().join("user/filch/config.toml")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.args(words).current_dir(self.here());
        command.env("XDG_CONFIG_HOME", self.0.path().join("user"));
        command
    }

    fn filch(&self, words: &[&str]) -> Ended {
        end(&mut self.command(words), "")
    }
}

/// A setting as a line of a file.
fn line(key: &str, value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok();
    if is_number { format!("{key} = {value}\n") } else { format!("{key} = \"{value}\"\n") }
}

fn all(form: impl Fn(&str, &str) -> String, dir: usize) -> String {
    EXAMPLES.iter().map(|(key, values)| form(key, values[dir])).collect()
}

/// The document of a setting, out of all of them.
fn shown<'a>(document: &'a Value, key: &str) -> &'a Value {
    let settings = document["settings"].as_array().expect("a list");
    settings.iter().find(|setting| setting["key"] == key).expect("it is in the list")
}

#[test]
fn every_setting_is_read_from_each_source_in_order_of_precedence() {
    let dir = SettingsDir::new();
    let document = dir.filch(&["config", "show", "--json"]).fine().json();
    let settings = document["settings"].as_array().unwrap();
    let keys: Vec<&str> = settings.iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(keys, EXAMPLES.map_keys(), "each setting has its examples");
    assert!(settings.iter().all(|setting| setting["origin"] == "default"), "{document}");

    let check = |command: &mut Command, origin: &str, values: usize, file: Option<&Path>| {
        let document = end(command, "").fine().json();
        for (at, (key, examples)) in EXAMPLES.iter().enumerate() {
            let setting = shown(&document, key);
            assert_eq!(setting["value"], examples[values], "{key} by {origin}: {setting}");
            assert_eq!(setting["origin"], origin, "{key}: {setting}");
            if let Some(file) = file {
                assert_eq!(setting["file"], file.to_str().unwrap(), "{key}");
                assert_eq!(setting["line"], at + 1, "{key}");
            }
        }
    };
    let words = ["config", "show", "--json"];
    std::fs::write(dir.user_file(), all(line, 0)).unwrap();
    check(&mut dir.command(&words), "file", 0, Some(&dir.user_file()));

    std::fs::write(dir.here().join("filch.toml"), all(line, 1)).unwrap();
    check(&mut dir.command(&words), "file", 1, Some(Path::new("filch.toml")));

    let with_variables = |words: &[&str]| {
        let mut command = dir.command(words);
        for (key, values) in EXAMPLES {
            let variable = shown(&document, key)["variable"].as_str().unwrap();
            assert_eq!(variable, format!("FILCH_{}", key.replace('.', "_").to_uppercase()));
            command.env(variable, values[2]);
        }
        command
    };
    check(&mut with_variables(&words), "variable", 2, None);

    // The flag of each setting, one after the other.
    for (key, values) in EXAMPLES {
        let flag = shown(&document, key)["flag"].as_str().unwrap();
        let given = format!("{flag}={}", values[0]);
        let ended = end(&mut with_variables(&["config", "show", "--json", &given]), "").fine();
        let setting = shown(&ended.json(), key).clone();
        assert_eq!((&setting["value"], &setting["origin"]), (&values[0].into(), &"flag".into()));
    }
}

trait Keys {
    fn map_keys(&self) -> Vec<&str>;
}

impl Keys for [(&str, [&str; 3])] {
    fn map_keys(&self) -> Vec<&str> {
        self.iter().map(|(key, _)| *key).collect()
    }
}

#[test]
fn the_origin_of_a_value_is_shown() {
    let dir = SettingsDir::new();
    std::fs::write(dir.here().join("filch.toml"), "# ours\nslots = 3\n").unwrap();
    let ended = end(dir.command(&["config", "show", "--origin"]).env("FILCH_LEASE", "3s"), "");
    let ended = ended.fine();
    assert_eq!(ended.lines()[0], "key\tvalue\torigin");
    for row in [
        ["slots", "3", "filch.toml:2"],
        ["lease", "3s", "FILCH_LEASE"],
        ["listen", "127.0.0.1:7420", "default"],
        ["queues", "(all)", "default"],
    ] {
        assert!(ended.rows().contains(&row.to_vec()), "{row:?} in {ended:?}");
    }
    assert_eq!(dir.filch(&["config", "show"]).fine().lines()[0], "key\tvalue");
    let lines = dir.filch(&["config", "show", "--jsonl"]).fine().json_lines();
    assert_eq!(lines.len(), EXAMPLES.len());
}

#[test]
fn errors_in_a_file_show_the_line_they_are_about() {
    let dir = SettingsDir::new();
    std::fs::write(dir.here().join("filch.toml"), "url = \"http://127.0.0.1:1\"\nslotz = 4\n")
        .unwrap();
    let said = "\
error: unknown setting \"slotz\"; did you mean \"slots\"?
  filch.toml:2  slotz = 4
                ^^^^^
  help: `filch config show` lists all settings
";
    for words in [&["job", "list"][..], &["config", "show"], &["up"], &["submit", "--", "true"]] {
        let ended = dir.filch(words);
        assert_eq!((ended.code, ended.stderr.as_str()), (2, said), "{words:?}");
    }
    // Commands that use no settings ignore the error.
    dir.filch(&["--help"]).fine();
    dir.filch(&["completions", "bash"]).fine();
    dir.filch(&["node"]).fine();

    std::fs::remove_file(dir.here().join("filch.toml")).unwrap();
    std::fs::write(dir.user_file(), "[submit]\nretry = 0\n").unwrap();
    let ended = dir.filch(&["job", "list"]).refused(2, "config.toml:2  retry = 0\n");
    assert!(ended.stderr.contains("^\n  help: write a number of at least 1"), "{ended:?}");
    let ended = end(dir.command(&["up"]).env("FILCH_SLOTS", "many"), "");
    ended.refused(2, "config.toml:2");
    std::fs::remove_file(dir.user_file()).unwrap();
    let ended = end(dir.command(&["up"]).env("FILCH_SLOTS", "many"), "");
    ended
        .refused(2, "invalid value of FILCH_SLOTS: \"many\"\n  help: write a number of at least 0");
}

#[test]
fn commands_use_the_settings() {
    let server = Server::idle();
    let dir = SettingsDir::new();
    let text = format!("url = \"{}\"\n[submit]\nqueue = \"img\"\nretry = 7\n", server.url);
    std::fs::write(dir.here().join("filch.toml"), text).unwrap();
    let id = dir.filch(&["submit", "--", "true"]).fine().line().to_owned();
    let job = server.job(&id);
    assert_eq!((&job["queue"], &job["retry"]["max"]), (&"img".into(), &7.into()));
    let id = dir.filch(&["submit", "--queue", "a", "--", "true"]).fine().line().to_owned();
    assert_eq!(server.job(&id)["queue"], "a");
    // `submit.queue` does not affect filters.
    assert_eq!(dir.filch(&["job", "list"]).fine().rows().len(), 2);

    std::fs::write(dir.here().join("filch.toml"), "url = \"http://127.0.0.1:1\"\n").unwrap();
    let ended = dir.filch(&["job", "list"]).refused(6, "no server answers");
    assert!(ended.stderr.contains("note: this URL comes from filch.toml:1"), "{ended:?}");
    let ended = dir.filch(&["job", "list", "--server", "http://127.0.0.1:2"]);
    assert!(!ended.stderr.contains("note:"), "{ended:?}");
}

/// A server that is configured by a file only.
#[test]
fn a_server_uses_the_settings() {
    let dir = SettingsDir::new();
    let text = "listen = \"127.0.0.1:0\"\nslots = 3\nqueues = [\"a\", \"b\"]\ndata = \"kept\"\n";
    std::fs::write(dir.here().join("filch.toml"), text).unwrap();
    let mut up = crate::server::Running::start(&mut dir.command(&["up"]));
    let url = up.next_line();
    assert!(!url.ends_with(":7420"), "{url}");
    assert!(dir.here().join("kept/filch.db").exists());
    let workers = dir.filch(&["worker", "list"]).fine();
    assert_eq!(workers.rows()[0][3], "3");
    let id = dir.filch(&["submit", "--queue", "c", "--", "true"]).fine().line().to_owned();
    let why = dir.filch(&["why", &id]).fine();
    assert!(why.stdout.contains("no worker serves queue c"), "{why:?}");
}
