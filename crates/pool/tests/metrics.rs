//! The metrics, read back by a strict parser of Prometheus' text format.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;

use filch_pool::Pool;

/// Labels and value of each sample, by the name of the metric.
type Page = BTreeMap<String, Vec<(BTreeMap<String, String>, u64)>>;

/// Every metric has its help, then its type, then all its samples, and nothing else.
fn parse(text: &str) -> Page {
    assert!(text.ends_with('\n'));
    let mut page = Page::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
        assert!(!help.is_empty());
        let (named, kind) =
            lines.next().unwrap().strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
        assert_eq!(named, name);
        assert_eq!(kind, if name.ends_with("_total") { "counter" } else { "gauge" });
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let rest = line.strip_prefix(name).unwrap().strip_prefix('{').unwrap();
            let (labels, rest) = parse_labels(rest);
            let value = rest.strip_prefix("} ").unwrap().parse().unwrap();
            assert!(samples.iter().all(|(other, _)| *other != labels), "twice: {line}");
            samples.push((labels, value));
        }
        assert!(!samples.is_empty());
        assert!(page.insert(name.to_owned(), samples).is_none(), "{name} comes twice");
    }
    page
}

/// `a="..",b=".."`, and the rest of the line.
fn parse_labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(name.chars().all(|character| character.is_ascii_lowercase()));
        let mut value = String::new();
        let mut characters = after.chars();
        loop {
            match characters.next().unwrap() {
                '"' => break,
                '\\' => value.push(match characters.next().unwrap() {
                    'n' => '\n',
                    same @ ('\\' | '"') => same,
                    other => panic!("\\{other} means nothing"),
                }),
                other => value.push(other),
            }
        }
        assert!(labels.insert(name.to_owned(), value).is_none());
        rest = characters.as_str();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest),
        }
    }
}

#[test]
fn the_metrics_agree_with_the_stats() {
    let pool = Pool::builder().threads(3).name("numbers").build().unwrap();
    (0..50).for_each(|_| pool.install(|| ()));
    let page = parse(&pool.metrics());
    let executed = &page["filch_pool_executed_total"];
    assert_eq!(executed.len(), 3);
    assert_eq!(executed.iter().map(|(_, value)| value).sum::<u64>(), pool.stats().executed());
    for (index, (labels, _)) in executed.iter().enumerate() {
        assert_eq!(labels["pool"], "numbers");
        assert_eq!(labels["worker"], index.to_string());
    }
    assert_eq!(page["filch_pool_workers"].iter().map(|(_, value)| value).sum::<u64>(), 3);
    assert_eq!(page["filch_pool_queue_length"].len(), 6);
    assert_eq!(page["filch_pool_shared_queue_length"][0].1, 0);
    for name in [
        "steals",
        "stolen",
        "stolen_from",
        "failed_steals",
        "parks",
        "wakes",
        "wasted_wakes",
        "promotions",
        "overflowed",
        "ticks",
    ] {
        assert_eq!(page[&format!("filch_pool_{name}_total")].len(), 3, "{name}");
    }
    assert_eq!(page.len(), 14);
}

#[test]
fn a_strange_name_is_escaped() {
    let name = "a \"quoted\" \\ name\nof two lines, {and} more";
    // The name of a thread may be anything without a zero byte.
    let pool = Pool::builder().threads(1).name(name).build().unwrap();
    let page = parse(&pool.metrics());
    assert!(page.values().flatten().all(|(labels, _)| labels["pool"] == name));
}
