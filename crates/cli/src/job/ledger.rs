//! The ownership ledger of a job as text: each owner with its fence, how it got the job, the
//! outcome.

use filch_api::job::{Details, Ownership};
use filch_api::time::Moment;

use crate::moment;
use crate::select::short;

/// The history of a job, in order, one sentence per entry.
pub(super) fn sentences(details: &Details) -> Vec<String> {
    let owners = details.ledger.iter().map(|owner| (owner.at, owned(owner)));
    let acts = details.acts.iter().map(|act| (act.at, act.words()));
    let mut all: Vec<(Moment, String)> = owners.chain(acts).collect();
    // The sort is stable: entries of the same time stay in ledger order.
    all.sort_by_key(|(at, _)| at.0);
    all.into_iter().map(|(at, words)| format!("{}: {words}", moment::cell(at))).collect()
}

fn owned(owner: &Ownership) -> String {
    let Ownership { fence, worker, cause, from, outcome, error, ended_at, .. } = owner;
    let name =
        |worker: &Option<String>| worker.as_deref().map_or_else(|| "no worker".into(), short);
    let (worker, from) = (name(worker), name(from));
    let came = match cause.as_str() {
        "claim" => format!("claimed by {worker}"),
        "steal" => format!("stolen from {from} by {worker}"),
        "lost" => format!("reclaimed from lost worker {from}; queued again"),
        "returned" => format!("returned by {from}; queued again"),
        other => format!("{other} by {worker} from {from}"),
    };
    let Some(outcome) = outcome else {
        return format!("{came} (fence {fence})");
    };
    let became = match outcome.as_str() {
        "stolen" => "stolen before it started".to_owned(),
        "returned" => "returned before it started".to_owned(),
        "lost" => "the worker was lost".to_owned(),
        "lost-among-others" => "the worker was lost, possibly because of another job".to_owned(),
        "interrupted" => "interrupted (does not count as an attempt)".to_owned(),
        "unstarted" => {
            "could not be started on this worker (does not count as an attempt)".to_owned()
        }
        "snoozed" => "snoozed".to_owned(),
        other => other.to_owned(),
    };
    let error = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    let at = ended_at.map(|at| format!(", {}", moment::cell(at))).unwrap_or_default();
    format!("{came} (fence {fence}); {became}{error}{at}")
}

#[cfg(test)]
mod tests {
    use filch_api::act::Act;
    use filch_scheduler::time::Wall;

    use super::*;

    #[test]
    fn the_ledger_is_printed_in_order() {
        let moment = |at: u64| Moment(Wall(1_000 * at));
        let owned = |at, fence, cause: &str, worker: Option<&str>, from: Option<&str>| Ownership {
            fence,
            worker: worker.map(str::to_owned),
            cause: cause.to_owned(),
            from: from.map(str::to_owned),
            at: moment(at),
            outcome: None,
            error: None,
            ended_at: None,
        };
        let came = |owner: Ownership, outcome: &str, error: Option<&str>, at| Ownership {
            outcome: Some(outcome.to_owned()),
            error: error.map(str::to_owned),
            ended_at: Some(moment(at)),
            ..owner
        };
        let (one, two) = (Some("00000000aaaaaaaa"), Some("00000000bbbbbbbb"));
        let details = Details {
            ledger: vec![
                came(owned(1, 1, "claim", one, None), "stolen", None, 2),
                came(owned(2, 2, "steal", two, one), "failed", Some("disk full"), 3),
                came(owned(4, 3, "claim", two, None), "lost", None, 5),
                owned(5, 4, "lost", None, two),
                came(owned(7, 5, "claim", one, None), "unstarted", Some("no room in /tmp"), 8),
            ],
            acts: vec![
                Act { act: "retried".to_owned(), at: moment(6), ..Act::default() },
                Act {
                    act: "prioritised".to_owned(),
                    at: moment(6),
                    by: Some("Ada (1a2b3c4d)".to_owned()),
                    to: Some("5".to_owned()),
                    ..Act::default()
                },
            ],
            ..Details::default()
        };
        let at = |second| format!("1970-01-01T00:00:0{second}Z");
        let expected = [
            format!(
                "{}: claimed by aaaaaaaa (fence 1); stolen before it started, {}",
                at(1),
                at(2)
            ),
            format!(
                "{}: stolen from aaaaaaaa by bbbbbbbb (fence 2); failed: disk full, {}",
                at(2),
                at(3)
            ),
            format!("{}: claimed by bbbbbbbb (fence 3); the worker was lost, {}", at(4), at(5)),
            format!("{}: reclaimed from lost worker bbbbbbbb; queued again (fence 4)", at(5)),
            format!("{}: attempts reset by a user", at(6)),
            format!("{}: priority set to 5 by Ada (1a2b3c4d)", at(6)),
            format!(
                "{}: claimed by aaaaaaaa (fence 5); could not be started on this worker \
                 (does not count as an attempt): no room in /tmp, {}",
                at(7),
                at(8)
            ),
        ];
        assert_eq!(sentences(&details), expected);
    }
}
