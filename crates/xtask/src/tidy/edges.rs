//! Which of our crates may use which, and whether the manifests keep to it.
//!
//! The reasons are in decision 0001 (`docs/decisions`). The dependencies come from cargo itself, so
//! that no spelling of a manifest escapes; all kinds count. Tests may use the same crates as the
//! code that they test, and in a few crates more, as the table says.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Finding;
use super::manifest;
use super::tree::Tree;

/// One crate: its folder under `crates/`, and its allowed dependencies.
struct Crate {
    folder: &'static str,
    may_use: &'static [&'static str],
    /// Our crates that only its tests may use. They may depend on this crate: cargo permits that
    /// cycle, because tests are not part of the library.
    tests_may_use: &'static [&'static str],
    outside: Outside,
}

/// Dependencies that are not ours. Those that only tests use are never restricted.
#[derive(Clone, Copy)]
enum Outside {
    Any,
    Only(&'static [&'static str]),
}

const fn with(folder: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate { folder, may_use, tests_may_use: &[], outside: Outside::Any }
}

/// What the programs at the top may use.
const BELOW_PROGRAMS: &[&str] = &[
    "api",
    "engine",
    "filch",
    "metrics",
    "node",
    "pool",
    "recruit",
    "scheduler",
    "server",
    "sim",
    "store",
    "worker",
];

/// From the leaves up. It also lists crates that do not exist yet: their edges were decided first.
const CRATES: &[Crate] = &[
    // Leaves.
    Crate {
        folder: "scheduler",
        may_use: &[],
        // Its traces are replayed by the simulator, against a store and behind the engine's gate.
        tests_may_use: &["engine", "sim", "store"],
        // It must behave the same everywhere: no clock, no I/O, no source of randomness.
        outside: Outside::Only(&["hashbrown"]),
    },
    with("metrics", &[]),
    with("pool", &["metrics"]),
    with("recruit", &["metrics"]),
    with("node", &[]),
    // Adapters: they use the scheduler's types.
    with("store", &["scheduler"]),
    with("api", &["scheduler"]),
    // Everything between the scheduler and the shells, without I/O.
    with("engine", &["scheduler", "store"]),
    // Shells.
    with("server", &["scheduler", "engine", "store", "api", "metrics", "recruit"]),
    with("worker", &["scheduler", "engine", "api", "pool", "recruit"]),
    with("sim", &["scheduler", "engine", "store"]),
    with("filch", &["api", "server", "worker", "store", "pool", "recruit"]),
    // Programs: no crate uses them.
    with("cli", BELOW_PROGRAMS),
    with("benches", BELOW_PROGRAMS),
    with("e2e", BELOW_PROGRAMS),
    with("xtask", &[]),
];

pub(super) fn check(root: &Path, tree: &Tree) -> Result<Vec<Finding>> {
    Ok(check_packages(&packages(&metadata(root)?)?, tree))
}

struct Package {
    name: String,
    folder: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// The folder under `crates/`, if it is one of ours.
    folder: Option<String>,
    only_for_tests: bool,
}

fn check_packages(packages: &[Package], tree: &Tree) -> Vec<Finding> {
    packages.iter().flat_map(|package| check_package(package, tree)).collect()
}

fn check_package(package: &Package, tree: &Tree) -> Vec<Finding> {
    let Package { name, folder, dependencies } = package;
    let path = format!("crates/{folder}/Cargo.toml");
    let Some(entry) = CRATES.iter().find(|entry| entry.folder == folder) else {
        let table = "crates/xtask/src/tidy/edges.rs";
        let message = format!("`{folder}` is not in the table of crates: add it to {table}");
        return vec![Finding::new(&path, 1, message)];
    };
    let manifest = tree.text(&path).unwrap_or("");
    let mut findings = Vec::new();
    let expected = package_name(folder);
    if *name != expected {
        let line = line_of(manifest, "name");
        let message =
            format!("the package in crates/{folder} is called `{expected}`, not `{name}`");
        findings.push(Finding::new(&path, line, message));
    }
    for dependency in dependencies {
        if let Some(message) = objection(entry, dependency) {
            findings.push(Finding::new(&path, line_of(manifest, &dependency.name), message));
        }
    }
    findings
}

fn objection(entry: &Crate, dependency: &Dependency) -> Option<String> {
    let Crate { folder, may_use, tests_may_use, outside } = entry;
    let Dependency { name, folder: ours, only_for_tests } = dependency;
    let (name, whose, allowed) = match (ours, outside) {
        (Some(ours), _) if *only_for_tests => {
            (ours, "our crates", [*may_use, *tests_may_use].concat())
        }
        (Some(ours), _) => (ours, "our crates", may_use.to_vec()),
        (None, Outside::Only(names)) if !only_for_tests => (name, "others' crates", names.to_vec()),
        (None, Outside::Only(_) | Outside::Any) => return None,
    };
    if allowed.contains(&name.as_str()) {
        return None;
    }
    let list = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
    Some(match only_for_tests {
        true => format!("tests of `{folder}` may not use `{name}`: of {whose} they may use {list}"),
        false => format!("`{folder}` may not use `{name}`: of {whose} it may use {list}"),
    })
}

fn package_name(folder: &str) -> String {
    match folder {
        // The facade: what users write after `use`.
        "filch" => folder.to_owned(),
        _ => format!("filch-{folder}"),
    }
}

fn line_of(manifest: &str, name: &str) -> usize {
    let about = |entry: &manifest::Entry<'_>| {
        entry.key.split('.').next() == Some(name)
            || (entry.is_header() && entry.table.ends_with(&format!(".{name}")))
    };
    manifest::entries(manifest).iter().find(|entry| about(entry)).map_or(1, |entry| entry.line)
}

fn metadata(root: &Path) -> Result<String> {
    let output = crate::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).context("`cargo metadata` did not print UTF-8")
}

fn packages(metadata: &str) -> Result<Vec<Package>> {
    let document: Value = serde_json::from_str(metadata).context("`cargo metadata`")?;
    let crates = Path::new(string(&document, "workspace_root")?).join("crates");
    let mut packages = Vec::new();
    for package in list(&document, "packages")? {
        let manifest = Path::new(string(package, "manifest_path")?);
        let folder = manifest.parent().and_then(|folder| folder_in(&crates, folder));
        let mut dependencies = Vec::new();
        for dependency in list(package, "dependencies")? {
            let path = dependency["path"].as_str().map(Path::new);
            dependencies.push(Dependency {
                name: string(dependency, "name")?.to_owned(),
                folder: path.and_then(|path| folder_in(&crates, path)),
                only_for_tests: dependency["kind"].as_str() == Some("dev"),
            });
        }
        packages.push(Package {
            name: string(package, "name")?.to_owned(),
            folder: folder.context("a package of the workspace is not in crates/")?,
            dependencies,
        });
    }
    Ok(packages)
}

fn folder_in(crates: &Path, place: &Path) -> Option<String> {
    Some(place.strip_prefix(crates).ok()?.to_str()?.to_owned())
}

fn string<'a>(object: &'a Value, key: &str) -> Result<&'a str> {
    object[key].as_str().with_context(|| format!("`cargo metadata` has no text `{key}`"))
}

fn list<'a>(object: &'a Value, key: &str) -> Result<&'a [Value]> {
    let list = object[key].as_array().map(Vec::as_slice);
    list.with_context(|| format!("`cargo metadata` has no list `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One package with dependencies, each written as its kind (`normal`, `dev` or `build`), its
    /// name, and `ours` if it is in this workspace.
    fn found(folder: &str, name: &str, dependencies: &[&str]) -> Vec<String> {
        let dependencies: Vec<Value> = dependencies.iter().map(|line| dependency(line)).collect();
        let document = serde_json::json!({
            "workspace_root": "/somewhere/main",
            "packages": [{
                "name": name,
                "manifest_path": format!("/somewhere/main/crates/{folder}/Cargo.toml"),
                "dependencies": dependencies,
            }],
        });
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nfilch-store = {}\n";
        let tree = Tree::of(&[(&format!("crates/{folder}/Cargo.toml"), manifest)]);
        let packages = packages(&document.to_string()).unwrap();
        check_packages(&packages, &tree).iter().map(ToString::to_string).collect()
    }

    fn dependency(line: &str) -> Value {
        let words: Vec<&str> = line.split(' ').collect();
        let kind = (words[0] != "normal").then_some(words[0]);
        let folder = words[1].strip_prefix("filch-").unwrap_or(words[1]);
        let path = words.get(2).map(|_| format!("/somewhere/main/crates/{folder}"));
        serde_json::json!({ "name": words[1], "kind": kind, "path": path })
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn edges_of_the_table_are_allowed() {
        assert_eq!(found("store", "filch-store", &["normal filch-scheduler ours"]), NONE);
        assert_eq!(found("worker", "filch-worker", &["dev filch-pool ours", "normal tokio"]), NONE);
        assert_eq!(found("filch", "filch", &["normal filch-server ours"]), NONE);
        assert_eq!(found("cli", "filch-cli", &["normal filch ours"]), NONE);
    }

    #[test]
    fn edges_that_are_not_allowed_are_found_for_every_kind() {
        for (kind, complaint) in [
            ("normal", "`node` may not use `store`: of our crates it may use none"),
            ("build", "`node` may not use `store`: of our crates it may use none"),
            ("dev", "tests of `node` may not use `store`: of our crates they may use none"),
        ] {
            let expected = format!("crates/node/Cargo.toml:5: {complaint}");
            let edge = format!("{kind} filch-store ours");
            assert_eq!(found("node", "filch-node", &[&edge]), [expected]);
        }
        let expected = "crates/sim/Cargo.toml:1: \
                        `sim` may not use `pool`: of our crates it may use scheduler, engine, store";
        assert_eq!(found("sim", "filch-sim", &["normal filch-pool ours"]), [expected]);
    }

    #[test]
    fn tests_of_the_scheduler_may_use_more_than_the_scheduler() {
        let check = |line: &str| found("scheduler", "filch-scheduler", &[line]);
        assert_eq!(check("dev filch-store ours"), NONE);
        assert_eq!(check("dev filch-sim ours"), NONE);
        for kind in ["normal", "build"] {
            let expected = "crates/scheduler/Cargo.toml:5: \
                            `scheduler` may not use `store`: of our crates it may use none";
            assert_eq!(check(&format!("{kind} filch-store ours")), [expected]);
        }
        let expected = "crates/scheduler/Cargo.toml:1: tests of `scheduler` may not use `pool`: \
                        of our crates they may use engine, sim, store";
        assert_eq!(check("dev filch-pool ours"), [expected]);
    }

    #[test]
    fn of_other_crates_the_scheduler_uses_only_its_hash_table() {
        let check = |line| found("scheduler", "filch-scheduler", &[line]);
        assert_eq!(check("normal hashbrown"), NONE);
        assert_eq!(check("dev proptest"), NONE);
        let expected = "crates/scheduler/Cargo.toml:1: \
                        `scheduler` may not use `rand`: of others' crates it may use hashbrown";
        assert_eq!(check("normal rand"), [expected]);
        assert_eq!(check("build rand"), [expected]);
    }

    #[test]
    fn an_unknown_folder_and_a_wrong_name_are_found() {
        let expected = "crates/attic/Cargo.toml:1: `attic` is not in the table of crates: \
                        add it to crates/xtask/src/tidy/edges.rs";
        assert_eq!(found("attic", "filch-attic", &[]), [expected]);
        let expected = "crates/pool/Cargo.toml:2: \
                        the package in crates/pool is called `filch-pool`, not `pool`";
        assert_eq!(found("pool", "pool", &[]), [expected]);
    }

    #[test]
    fn the_table_has_no_cycles() {
        const PROGRAMS: [&str; 4] = ["cli", "benches", "e2e", "xtask"];
        for (index, entry) in CRATES.iter().enumerate() {
            for used in entry.may_use {
                // Each crate uses only crates further up in the table, so there is no cycle, and
                // no crate uses the last four, which are programs.
                let place = CRATES.iter().position(|other| other.folder == *used);
                let place = place.expect("a crate in the table uses crates of the table");
                assert!(place < index, "{} uses {used}", entry.folder);
                assert!(!PROGRAMS.contains(used), "{}", entry.folder);
            }
            for used in entry.tests_may_use {
                // Here a cycle is allowed, but no unknown crate, and still no program.
                let place = CRATES.iter().position(|other| other.folder == *used);
                assert!(place.is_some_and(|place| place != index), "{} uses {used}", entry.folder);
                assert!(!entry.may_use.contains(used), "{} may use {used} anyway", entry.folder);
                assert!(!PROGRAMS.contains(used), "{}", entry.folder);
            }
        }
    }
}
