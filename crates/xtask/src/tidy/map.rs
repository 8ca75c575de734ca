//! ARCHITECTURE.md names every crate, so that its code map stays complete.

use super::Finding;
use super::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.text(MAP) else {
        return vec![Finding::new(MAP, 1, "missing: this page names every crate")];
    };
    let unnamed = tree.crate_folders().into_iter().filter(|folder| !names(map, folder));
    unnamed
        .map(|folder| {
            Finding::new(
                MAP,
                1,
                format!("crates/{folder} is not mentioned: describe it as `{folder}`"),
            )
        })
        .collect()
}

/// In a form that can only mean the crate: the plain word `store` may be a verb.
fn names(map: &str, folder: &str) -> bool {
    let marked = [format!("`{folder}`"), format!("**{folder}**")];
    let spelled = [format!("crates/{folder}"), format!("filch-{folder}")];
    let is_longer =
        |rest: &str| rest.starts_with(|next: char| next.is_alphanumeric() || next == '-');
    marked.iter().any(|form| map.contains(form))
        || spelled.iter().any(|form| {
            map.match_indices(form).any(|(start, _)| !is_longer(&map[start + form.len()..]))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed(map: &str) -> usize {
        check(&Tree::of(&[(MAP, map), ("crates/store/Cargo.toml", "")])).len()
    }

    #[test]
    fn a_crate_that_is_not_named_is_found() {
        for map in ["", "We store jobs.", "crates/storehouse", "filch-store-tools", "`stores`"] {
            assert_eq!(unnamed(map), 1, "{map}");
        }
        for map in ["`store`", "**store**: keeps", "in crates/store.", "package filch-store"] {
            assert_eq!(unnamed(map), 0, "{map}");
        }
    }

    #[test]
    fn a_missing_map_is_one_finding() {
        let found = check(&Tree::of(&[("crates/store/Cargo.toml", "")]));
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["ARCHITECTURE.md:1: missing: this page names every crate"]);
    }
}
