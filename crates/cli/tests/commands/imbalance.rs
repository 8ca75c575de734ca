//! `filch demo imbalance`: every task is run once, and whoever had none has stolen.

use serde_json::Value;

use crate::server::filch;

fn numbers(list: &Value) -> Vec<u64> {
    let list = list.as_array().expect("it is a list");
    list.iter().map(|number| number.as_u64().expect("of numbers")).collect()
}

#[test]
fn tasks_that_were_put_on_one_worker_are_shared() {
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
        let (thefts, stolen) = (run["thefts"].as_u64().unwrap(), run["stolen"].as_u64().unwrap());
        assert!(thefts > 0 && stolen >= thefts, "{run}");
        assert!(run["overflowed"].is_u64() && run["makespan_us"].is_u64(), "{run}");
        let trace = run["trace"].as_array().unwrap();
        let last = trace.last().unwrap().as_str().unwrap();
        assert!(last.starts_with("SCHED ") && last.contains("ms: workers=2 "), "{last}");
    }
    // One by one, each theft moves one.
    assert_eq!(runs[0]["thefts"], runs[0]["stolen"]);
}

#[test]
fn it_is_told_in_bars_and_lines_of_the_trace() {
    let words = ["demo", "imbalance", "--workers", "3", "--tasks", "20", "--steal", "half"];
    let ended = filch(&words).fine();
    let lines = ended.lines();
    assert!(lines[0].starts_with("20 tasks of 1000000 additions, all on worker 0 of 3; "));
    assert!(lines.contains(&"steal half") && !lines.contains(&"steal one"), "{ended:?}");
    assert!(lines.iter().any(|line| line.starts_with("SCHED ")), "{ended:?}");
    for worker in ["  worker 0  ", "  worker 1  ", "  worker 2  "] {
        assert!(lines.iter().any(|line| line.starts_with(worker)), "{ended:?}");
    }
    assert!(ended.stdout.contains(" thefts moved ") && ended.stdout.contains(" at least: "));
}

#[test]
fn alone_nobody_steals() {
    let words = ["demo", "imbalance", "--workers", "1", "--tasks", "3", "--steal", "one", "--json"];
    let totals = filch(&words).fine().json();
    let run = &totals["runs"][0];
    assert_eq!((numbers(&run["shares"]), &run["thefts"]), (vec![3], &0.into()));
}

#[test]
fn what_makes_no_sense_is_refused() {
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
