//! `filch demo imbalance`: every task runs once, and idle workers steal.

use serde_json::Value;

use crate::server::filch;

fn numbers(list: &Value) -> Vec<u64> {
    let list = list.as_array().expect("it is a list");
    list.iter().map(|number| number.as_u64().expect("of numbers")).collect()
}

#[test]
fn tasks_of_one_worker_are_stolen_by_the_others() {
    let words = ["demo", "imbalance", "--workers", "2", "--tasks", "200", "--json"];
    let totals = filch(&words).fine().json();
    assert_eq!(
        (&totals["v"], &totals["workers"], &totals["tasks"], &totals["additions"]),
        (&1.into(), &2.into(), &200.into(), &1_000_000.into())
    );
    assert!(totals["cores"].as_u64().unwrap() > 0, "{totals}");
    let runs = totals["runs"].as_array().unwrap();
    let amounts: Vec<&str> = runs.iter().map(|run| run["steal"].as_str().unwrap()).collect();
    assert_eq!(amounts, ["one", "half"]);
    for run in runs {
        let shares = numbers(&run["shares"]);
        assert_eq!(shares.iter().sum::<u64>(), 200, "{run}");
        assert!(shares.len() == 2 && shares[1] > 0, "{run}");
        let (steals, stolen) = (run["steals"].as_u64().unwrap(), run["stolen"].as_u64().unwrap());
        assert!(steals > 0 && stolen >= steals, "{run}");
        assert!(run["overflowed"].is_u64() && run["makespan_us"].is_u64(), "{run}");
        let trace = run["trace"].as_array().unwrap();
        let last = trace.last().unwrap().as_str().unwrap();
        assert!(last.starts_with("SCHED ") && last.contains("ms: workers=2 "), "{last}");
    }
    // With `one`, each steal moves one task.
    assert_eq!(runs[0]["steals"], runs[0]["stolen"]);
}

#[test]
fn it_prints_bars_and_trace_lines() {
    let words = ["demo", "imbalance", "--workers", "3", "--tasks", "20", "--steal", "half"];
    let ended = filch(&words).fine();
    let lines = ended.lines();
    assert!(lines[0].starts_with("20 tasks of 1000000 additions, all on worker 0 of 3; "));
    assert!(lines.contains(&"steal half") && !lines.contains(&"steal one"), "{ended:?}");
    assert!(lines.iter().any(|line| line.starts_with("SCHED ")), "{ended:?}");
    for worker in ["  worker 0  ", "  worker 1  ", "  worker 2  "] {
        assert!(lines.iter().any(|line| line.starts_with(worker)), "{ended:?}");
    }
    assert!(ended.stdout.contains(" steals moved ") && ended.stdout.contains(" ideally: "));
}

#[test]
fn a_single_worker_steals_nothing() {
    let words = ["demo", "imbalance", "--workers", "1", "--tasks", "3", "--steal", "one", "--json"];
    let totals = filch(&words).fine().json();
    let run = &totals["runs"][0];
    assert_eq!((numbers(&run["shares"]), &run["steals"]), (vec![3], &0.into()));
}

#[test]
fn invalid_options_are_rejected() {
    for (words, said) in [
        (["--workers", "0"], "0 is not in 1..=512"),
        (["--workers", "10000"], "10000 is not in 1..=512"),
        (["--tasks", "0"], "0 is not in 1..=1000000"),
        (["--steal", "all"], "one, half"),
    ] {
        filch(&[&["demo", "imbalance"][..], &words].concat()).refused(2, said);
    }
    filch(&["demo", "--seconds", "2", "imbalance"]).refused(2, "cannot be used with");
}
