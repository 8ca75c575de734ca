//! After any sequence of messages, no job is lost and none is duplicated.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

const WORKERS: [&str; 3] = ["a", "b", "c"];

fn message() -> impl Strategy<Value = Value> {
    let worker = || proptest::sample::select(vec!["a", "b", "c", "unknown"]);
    let job = || proptest::sample::select(vec!["job1", "job2", "job5", "job9", "x", "y", "z"]);
    prop_oneof![
        1 => (0_u32..12, proptest::sample::select(vec!["modulo", "blocks", "single"]), 1_u32..90, any::<u64>())
            .prop_map(|(jobs, placement, duration, seed)| json!({
                "type": "init", "workers": WORKERS, "jobs_to_distribute": jobs, "placement": placement,
                "job_duration_ms": duration, "seed": seed,
            })),
        6 => (worker(), proptest::collection::vec(worker(), 0..4)).prop_map(|(thief, busy)| json!({
            "type": "steal_job", "thief_worker": thief, "busy_workers": busy,
        })),
        4 => (worker(), job()).prop_map(|(worker, job)| json!({
            "type": "push_job", "worker": worker, "job_id": job,
        })),
        4 => worker().prop_map(|worker| json!({ "type": "pop_job", "worker": worker })),
        4 => (worker(), job()).prop_map(|(worker, job)| json!({
            "type": "complete_job", "worker": worker, "job_id": job,
        })),
        2 => (0_u32..200).prop_map(|duration| json!({
            "type": "run_simulation", "duration_ms": duration, "report": true,
        })),
    ]
}

/// Messages that make the node name every job it has: those in flight, then those queued, each
/// once.
fn inventory() -> Vec<Value> {
    let pops = WORKERS.map(|worker| json!({ "type": "pop_job", "worker": worker }));
    let steal = |thief, victim| json!({ "type": "steal_job", "thief_worker": thief, "busy_workers": [victim] });
    let gather = [("c", "a"), ("c", "b"), ("a", "c")];
    let thefts = gather.into_iter().flat_map(|(thief, victim)| vec![steal(thief, victim); 30]);
    pops.into_iter().chain(thefts).collect()
}

/// Sends these messages; returns each answer with the state after it.
fn send(bodies: &[Value]) -> Vec<(Value, Value)> {
    let mut input = String::new();
    for (number, body) in bodies.iter().enumerate() {
        let mut body = body.clone();
        body["msg_id"] = json!(number);
        let state = json!({ "type": "check_cluster_state", "msg_id": number });
        for body in [body, state] {
            input += &json!({ "src": "c", "dest": "n", "body": body }).to_string();
        }
    }
    let mut output = Vec::new();
    filch_node::serve(input.as_bytes(), &mut output, std::io::sink(), 1)
        .expect("serving does not fail");
    let mut answers = serde_json::Deserializer::from_slice(&output)
        .into_iter::<Value>()
        .map(|answer| answer.expect("answers are JSON")["body"].take());
    bodies
        .iter()
        .map(|_| {
            let mut next = || answers.next().expect("each message is answered");
            (next(), next())
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

proptest! {
    #[test]
    fn jobs_are_conserved(sent in proptest::collection::vec(message(), 0..60)) {
        let mut bodies =
            vec![json!({ "type": "init", "workers": WORKERS, "jobs_to_distribute": 5 })];
        bodies.extend(sent);
        let sent = bodies.len();
        bodies.extend(inventory());
        let answers = send(&bodies);

        // The jobs that may exist, and how many of them do: a simulation reports only the number of
        // jobs it completed.
        let mut possible = BTreeSet::new();
        let mut count = 0;
        for (body, (answer, state)) in bodies[..sent].iter().zip(&answers) {
            match answer["type"].as_str().expect("a type") {
                "init_ok" => {
                    count = body["jobs_to_distribute"].as_u64().expect("a number");
                    possible = (1..=count).map(|number| format!("job{number}")).collect();
                }
                "push_job_ok" => {
                    possible.insert(text(&body["job_id"]));
                    count += 1;
                }
                "complete_job_ok" => {
                    prop_assert!(possible.remove(&text(&body["job_id"])));
                    count -= 1;
                }
                "simulation_complete" => {
                    let results = &answer["results"];
                    count -= results["completed"].as_u64().expect("a number");
                    let left = |field: &str| results[field].as_u64().expect("a number");
                    prop_assert_eq!(left("queued") + left("in_flight"), count);
                }
                "job_stolen" | "pop_job_ok" | "error" => {}
                other => prop_assert!(false, "{}", other),
            }
            let queued: u64 = WORKERS
                .iter()
                .map(|worker| state["workers"][worker]["queue_size"].as_u64().expect("a number"))
                .sum();
            prop_assert!(queued <= count && count <= queued + 3, "{} of {}", queued, count);
            prop_assert_eq!(state["all_idle"].as_bool(), Some(count == 0));
        }

        let mut found = BTreeSet::new();
        for (index, (answer, _)) in answers[sent..].iter().enumerate() {
            let job = match answer["type"].as_str().expect("a type") {
                "pop_job_ok" => text(&answer["job_id"]),
                // Stolen twice: gathered on one worker, then named.
                "job_stolen" if answer["thief"] == "a" => text(&answer["job_id"]),
                "job_stolen" => continue,
                _ => match text(&answer["text"]).strip_prefix("worker is running: ") {
                    Some(job) if index < WORKERS.len() => job.to_owned(),
                    _ => continue,
                },
            };
            prop_assert!(possible.contains(&job), "{} came from nowhere", job);
            prop_assert!(found.insert(job.clone()), "{} exists twice", job);
        }
        prop_assert_eq!(found.len() as u64, count);
    }
}
