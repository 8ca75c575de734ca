//! docs/cli.md, the help texts and the man pages: complete, and every example is valid.

use std::collections::BTreeSet;

use clap::Command;

use crate::fixture::runnable_commands;
use crate::server::{filch, program};

const PAGE: &str = include_str!("../../../../docs/cli.md");

/// Every flag of every command, with its dashes.
fn flags(command: &Command, found: &mut BTreeSet<String>) {
    found.extend(command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
    command.get_subcommands().for_each(|inner| flags(inner, found));
}

#[test]
fn every_flag_on_the_page_exists() {
    let mut known = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
    flags(&filch_cli::command(), &mut known);
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let mut count = 0;
    // After ` -- ` comes a command of the user.
    let ours = PAGE.lines().map(|line| line.split(" -- ").next().unwrap_or_default());
    let page = ours.collect::<Vec<_>>().join("\n");
    for (at, _) in page.match_indices("--") {
        let before = page[..at].chars().next_back().unwrap_or(' ');
        let flag: String = page[at..].chars().take_while(|it| is_part(*it)).collect();
        if is_part(before) || before == '|' || flag.len() < 3 || flag.starts_with("---") {
            continue;
        }
        assert!(known.contains(&flag), "{flag} is on the page and nowhere else");
        count += 1;
    }
    assert!(count > 50, "the page has flags");
}

/// clap wraps wider lines of a help text.
const COLUMNS: usize = 100;

fn check_width(command: &Command, path: &str) {
    let path = format!("{path} {}", command.get_name());
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "too wide in the help of{path}:\n{line}");
    }
    command.get_subcommands().for_each(|inner| check_width(inner, &path));
}

#[test]
fn no_line_of_a_help_text_is_wrapped() {
    check_width(&filch_cli::command(), "");
}

#[test]
fn every_command_is_on_the_page() {
    for (path, _) in runnable_commands(&filch_cli::command()) {
        let is_there = PAGE.lines().any(|line| {
            line.match_indices(&format!("filch {path}")).any(|(at, found)| {
                !line[at + found.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
            })
        });
        assert!(is_there, "`filch {path}` is not in docs/cli.md");
    }
}

/// The words of a line as a shell would split them, up to a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut is_word = false;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => word.push(character),
            (None, '\'' | '"') => (quote, is_word) = (Some(character), true),
            (None, ' ') => {
                if is_word || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (None, '#') if word.is_empty() => break,
            (None, _) => word.push(character),
        }
    }
    if is_word || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Every example command on the page and in the help, also within pipes.
fn shown() -> Vec<Vec<String>> {
    let root = filch_cli::command();
    let helps = runnable_commands(&root).into_iter().filter_map(|(_, leaf)| leaf.get_after_help());
    let helps: String = helps.map(|help| format!("{help}\n")).collect();
    let mut shown = Vec::new();
    for line in PAGE.lines().chain(helps.lines()) {
        let line = line.trim_start().trim_start_matches("$ ");
        if !line.split(" | ").any(|part| part.starts_with("filch ")) {
            continue;
        }
        for part in line.split(" | ").filter(|part| part.starts_with("filch ")) {
            let all = words(part);
            let is_theirs = |word: &String| [">", "<", "|"].contains(&word.as_str());
            let end = all.iter().position(is_theirs).unwrap_or(all.len());
            // After several blanks comes an explanation.
            let explained = part.find("   ").map(|at| words(&part[..at]));
            shown.push(explained.unwrap_or_else(|| all[..end].to_vec()));
        }
    }
    shown
}

#[test]
fn every_example_is_a_valid_command() {
    let shown = shown();
    assert!(shown.len() > 80, "{}", shown.len());
    for words in shown {
        let read = filch_cli::command().try_get_matches_from(&words);
        if let Err(error) = read {
            let is_answer = !error.use_stderr();
            assert!(is_answer, "{words:?} is not a valid command: {error}");
        }
    }
}

#[test]
fn every_setting_is_on_the_page() {
    let (_, rest) = PAGE.split_once("## Settings").expect("the page has the settings");
    let (_, rest) = rest.split_once("```toml\n").expect("they are shown as a file");
    let (text, _) = rest.split_once("```").expect("the file ends");
    let folder = tempfile::tempdir().expect("a directory can be created");
    std::fs::write(folder.path().join("filch.toml"), text).unwrap();
    let mut command = program();
    command.args(["config", "show", "--json"]).current_dir(folder.path());
    let document = crate::server::end(&mut command, "").fine().json();
    for setting in document["settings"].as_array().unwrap() {
        assert_eq!(setting["origin"], "file", "{} is not on the page", setting["key"]);
    }
}

#[test]
fn every_command_has_an_example() {
    for (path, leaf) in runnable_commands(&filch_cli::command()) {
        let help = leaf.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains(&format!("filch {path}")), "`filch {path} --help` has no example");
        assert!(leaf.get_about().is_some(), "`filch {path}` does not say what it does");
    }
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let pages = folder.path().join("man1");
    filch(&["man", pages.to_str().unwrap()]).fine();
    for (path, _) in runnable_commands(&filch_cli::command()) {
        let page = pages.join(format!("filch-{}.1", path.replace(' ', "-")));
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{page:?}: {error}"));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page:?}");
        assert!(text.contains("Example"), "{page:?}");
    }
    assert!(filch(&["man"]).fine().stdout.contains(".TH filch 1"));
}
