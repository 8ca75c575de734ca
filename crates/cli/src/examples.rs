//! Examples in the help. A command without examples inherits those of its group that run it.

use clap::Command;

const HEADING: &str = "Examples:";

/// The command tree in which each command has its examples.
pub(crate) fn inherit(root: Command) -> Command {
    let name = root.get_name().to_owned();
    walk(root, &name, &[])
}

fn walk(mut command: Command, path: &str, above: &[String]) -> Command {
    let own = command.get_after_help().map(ToString::to_string);
    let mut lines = above.to_vec();
    match own {
        Some(help) => {
            let examples = help.split_once(HEADING).map_or("", |(_, examples)| examples);
            lines.extend(examples.lines().map(str::to_owned));
        }
        None => {
            let start = format!("{path} ");
            let is_its = |line: &&String| format!("{} ", line.trim()).starts_with(&start);
            let mine: Vec<&str> = lines.iter().filter(is_its).map(String::as_str).collect();
            if !mine.is_empty() && !command.has_subcommands() {
                command = command.after_help(format!("{HEADING}\n{}", mine.join("\n")));
            }
        }
    }
    let inner: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in inner {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |inner| walk(inner, &path, &lines));
    }
    command
}
