//! Links between our pages are not broken.
//!
//! The linked file or folder must be part of the repository. Links to other sites and to headings
//! within a page are not checked.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_ending(".md") {
        for (line, target) in links(text) {
            match resolved(path, target) {
                Some(file) if tree.has(&file) => {}
                Some(_) => {
                    let message =
                        format!("the link to `{target}` is broken: there is no such file");
                    findings.push(Finding::new(path, line, message));
                }
                None => {
                    let message = format!("the link to `{target}` leads out of the repository");
                    findings.push(Finding::new(path, line, message));
                }
            }
        }
    }
    findings
}

/// The targets of all links to files, with their line numbers. Code is skipped.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        if let Some(mark) = mark {
            match fence {
                None => fence = Some(mark),
                Some(open) if open == mark => fence = None,
                Some(_) => {}
            }
        } else if fence.is_none() {
            let targets = links_in_line(line).into_iter().filter(|target| is_file(target));
            found.extend(targets.map(|target| (index + 1, target)));
        }
    }
    found
}

/// `[text](target "title")`, and the definition `[label]: target` at the start of a line.
fn links_in_line(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let definition = line.strip_prefix('[').filter(|rest| !rest.starts_with('^'));
    if let Some((_, target)) = definition.and_then(|rest| rest.split_once("]: ")) {
        targets.push(target);
    }
    // Every second piece between backticks is code. The text of a link may be code, its target not.
    for piece in line.split('`').step_by(2) {
        let mut rest = piece;
        while let Some((_, target)) = rest.split_once("](") {
            let (target, after) = target.split_once(')').unwrap_or((target, ""));
            targets.push(target);
            rest = after;
        }
    }
    targets.into_iter().map(without_title).collect()
}

fn without_title(target: &str) -> &str {
    let target = target.trim();
    match target.strip_prefix('<').and_then(|inner| inner.split_once('>')) {
        Some((inner, _)) => inner,
        None => target.split_whitespace().next().unwrap_or(""),
    }
}

fn is_file(target: &str) -> bool {
    let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
    let elsewhere =
        !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_alphanumeric());
    !elsewhere && !target.starts_with('#') && !target.starts_with("//")
}

/// Where a link leads, from the root; `None` if that is above it.
fn resolved(page: &str, target: &str) -> Option<String> {
    let file = target.split(['#', '?']).next().unwrap_or(target);
    let mut parts: Vec<&str> = match file.starts_with('/') {
        true => Vec::new(),
        false => page.split('/').collect(),
    };
    // The page itself is not a folder on the way.
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("README.md", ""),
            ("docs/STYLE.md", ""),
            ("docs/decisions/0001-rooms.md", ""),
            ("docs/decisions/page.md", page),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for (page, target) in [
            ("a [link](missing.md)", "missing.md"),
            ("[one](0001-rooms.md), [two](../STILE.md#names)", "../STILE.md#names"),
            ("[`code`](gone.rs)", "gone.rs"),
            ("![picture](<no such.png> \"title\")", "no such.png"),
            ("[label]: nowhere.md", "nowhere.md"),
            ("[root](/STYLE.md)", "/STYLE.md"),
        ] {
            let expected = format!(
                "docs/decisions/page.md:1: the link to `{target}` is broken: there is no such file"
            );
            assert_eq!(found(page), [expected]);
        }
        let above =
            "docs/decisions/page.md:2: the link to `../../../x.md` leads out of the repository";
        assert_eq!(found("\n[above](../../../x.md)"), [above]);
    }

    #[test]
    fn links_that_lead_somewhere_are_not() {
        for page in [
            "[next](0001-rooms.md) [up](../STYLE.md#names) [top](../../README.md) [folder](../)",
            "[root](/docs/STYLE.md) [self](#heading) [home](../..)",
            "[site](https://example.org/x.md) [mail](mailto:somebody@example.org)",
            "`[code](missing.md)` and a[0] (x)",
            "```\n[code](missing.md)\n~~~\n[code](missing.md)\n```\n",
            "[^note]: words about it",
        ] {
            assert_eq!(found(page), [""; 0], "{page}");
        }
    }
}
