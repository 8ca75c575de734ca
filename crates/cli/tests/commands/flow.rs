//! `filch flow`: job graphs from files.

use crate::server::{Server, filch};

const TOML: &str = r#"
name = "report"
[defaults]
retry = { max = 2, backoff = "none" }
[job.fetch]
run = ["sh", "-c", "echo 1 > n"]
[job.left]
run = ["sh", "-c", "echo 2 >> n"]
after = ["fetch"]
[job.join]
run = ["cat", "n"]
after = ["fetch", "left"]
"#;

const YAML: &str = "
name: report
defaults:
  retry: {max: 2, backoff: none}
job:
  fetch: {run: [sh, -c, 'echo 1 > n']}
  left:
    run: [sh, -c, 'echo 2 >> n']
    after: fetch
  join:
    run: [cat, n]
    after: [fetch, left]
";

const JSON: &str = r#"{"name": "report", "defaults": {"retry": {"max": 2, "backoff": "none"}}, "job": {
  "fetch": {"run": ["sh", "-c", "echo 1 > n"]},
  "left": {"run": ["sh", "-c", "echo 2 >> n"], "after": ["fetch"]},
  "join": {"run": ["cat", "n"], "after": ["fetch", "left"]}}}"#;

const DRAWN: &str = "\
report: 3 jobs

fetch: sh -c 'echo 1 > n'
├─ left: sh -c 'echo 2 >> n'
│  └─ join: cat n  (all-succeeded: fetch, left)
└─ join (above)
";

#[test]
fn the_same_flow_in_three_formats_runs_in_order() {
    let server = Server::up();
    for (name, text) in [("a.toml", TOML), ("b.yaml", YAML), ("c.json", JSON)] {
        let path = server.file(name, text);
        let path = path.to_str().unwrap();
        assert_eq!(filch(&["flow", "show", path]).fine().stdout, DRAWN, "{name}");
        let ended = server.filch(&["flow", "run", "--wait", path]).fine();
        let rows: Vec<Vec<&str>> =
            ended.lines().iter().map(|line| line.split('\t').collect()).collect();
        let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(names, ["fetch", "left", "join"], "as they were written: {name}");
        assert!(rows.iter().all(|row| row[2] == "succeeded"), "{ended:?}");
        assert_eq!(server.filch(&["logs", rows[2][1]]).fine().stdout, "1\n2\n", "{name}");
        assert_eq!(server.job(rows[0][1])["retry"]["max"], 2);
    }
}

#[test]
fn ids_are_printed_and_the_same_key_is_the_same_flow() {
    let server = Server::idle();
    let path = server.file("a.toml", TOML);
    let path = path.to_str().unwrap();
    let words = ["flow", "run", "--key", "k", path];
    let first = server.filch(&words).fine();
    assert_eq!(first.lines()[0], "job\tid");
    assert_eq!(first.rows()[1][0], "left");
    assert_eq!(server.job(first.rows()[1][1])["after"][0], first.rows()[0][1]);
    let again = server.filch(&words).fine();
    assert_eq!(first.stdout, again.stdout);
    assert!(again.stderr.contains("already exists"), "{again:?}");
    let document = server.filch(&["flow", "run", "--json", path]).fine().json();
    assert_eq!(
        (&document["name"], &document["jobs"]["join"]["new"]),
        (&"report".into(), &true.into())
    );
    server
        .filch(&["flow", "run", "--wait", "--timeout", "50ms", path])
        .refused(124, "timed out waiting for fetch");
}

#[test]
fn the_exit_code_is_the_outcome_of_the_flow() {
    let server = Server::up();
    let bad = "[job.a]\nrun = [\"false\"]\nretry = 1\n[job.b]\nrun = [\"true\"]\nafter = [\"a\"]\n";
    let path = server.file("bad.toml", bad);
    let ended = server.filch(&["flow", "run", "--wait", path.to_str().unwrap()]);
    let ended = ended.refused(100, "a: exit code 1");
    assert!(ended.lines()[1].ends_with("\tcancelled"), "{ended:?}");

    // A branch that is not taken is not a failure.
    let fine = "[job.a]\nrun = [\"true\"]\n[job.b]\nrun = [\"true\"]\nafter = \"a\"\nwhen = \"any-failed\"";
    let path = server.file("fine.toml", fine);
    let path = path.to_str().unwrap();
    let document = server.filch(&["flow", "run", "--wait", "--json", path]).fine().json();
    assert_eq!(document["jobs"][1]["state"], "cancelled");
    assert_eq!(document["jobs"][1]["name"], "b");
}

#[test]
fn invalid_flows_are_rejected_without_a_server() {
    let server = Server::idle();
    let cycle =
        "[job.map]\nkind = \"k\"\nafter = [\"join\"]\n[job.join]\nkind = \"k\"\nafter = [\"map\"]";
    let rows = [
        ("a.toml", cycle, "error: the flow has a cycle: map -> join -> map\n"),
        (
            "a.toml",
            "[job.fetch]\nkind = \"k\"\n[job.b]\nkind = \"k\"\nafter = [\"fecth\"]",
            "a.toml:5  after = [\"fecth\"]\n  help: did you mean \"fetch\"?",
        ),
        (
            "a.yaml",
            "job:\n  a:\n    kind: k\n    tiemout: 5s\n",
            "a.yaml:4  tiemout: 5s\n  help: did you mean \"timeout\"?",
        ),
        (
            "a.json",
            "{\"job\": {\n\"a\": {\"kind\": \"k\",\n\"retry\": {\"max\": 0}}}}",
            "a.json:3  \"retry\"",
        ),
        ("a.toml", "[job.a]\nrun = \"x y\"", "write a list of words"),
        ("a.toml", "[job.a\n", "invalid TOML"),
        ("a.yaml", "a: [1,\n", "invalid YAML"),
        ("a.json", "{", "invalid JSON"),
        ("a.txt", "name: x", "add --format toml, json or yaml"),
    ];
    for (name, text, said) in rows {
        let path = server.file(name, text);
        let path = path.to_str().unwrap();
        for verb in ["check", "show", "run"] {
            filch(&["flow", verb, path]).refused(2, said);
        }
    }
    filch(&["flow", "check", "none.toml"]).refused(2, "cannot read none.toml");
    let path = server.file("fine.toml", TOML);
    let path = path.to_str().unwrap();
    let ended = filch(&["flow", "check", path]).fine();
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.as_str()),
        ("", "report is valid: 3 jobs, 3 dependencies\n")
    );
    let document = filch(&["flow", "check", "--json", path]).fine().json();
    assert_eq!((&document["jobs"], &document["edges"]), (&3.into(), &3.into()));
}

#[test]
fn a_flow_is_read_from_stdin_and_drawn_as_dot_and_svg() {
    let server = Server::idle();
    let ended = server.feed(&["flow", "show", "--format", "toml", "-"], TOML).fine();
    assert_eq!(ended.stdout, DRAWN);
    let dot = server.feed(&["flow", "show", "--dot", "--format", "yaml", "-"], YAML).fine().stdout;
    assert!(dot.starts_with("digraph \"report\" {"), "{dot}");
    assert!(dot.contains("  \"left\" -> \"join\";\n"), "{dot}");
    let svg = server.feed(&["flow", "show", "--svg", "--format", "yaml", "-"], YAML).fine().stdout;
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
    assert!(svg.contains("<title>report</title>") && svg.contains(">join</text>"), "{svg}");
    let both = server.feed(&["flow", "show", "--svg", "--dot", "--format", "yaml", "-"], YAML);
    both.refused(2, "cannot be used with");
    let document = server.feed(&["flow", "show", "--json", "-"], JSON).fine().json();
    assert_eq!(document["jobs"]["join"]["after"][1], "left");
}
