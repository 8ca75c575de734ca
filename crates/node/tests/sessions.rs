//! Sessions with a node: the messages sent to it, and every line of its answers.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    id: String,
    title: String,
    #[serde(default = "default_seed")]
    seed: u64,
    stdin: String,
    stdout: Vec<String>,
}

fn default_seed() -> u64 {
    filch_node::DEFAULT_SEED
}

fn answers(stdin: &str, seed: u64) -> Vec<String> {
    let mut output = Vec::new();
    filch_node::serve(stdin.as_bytes(), &mut output, std::io::sink(), seed)
        .expect("serving does not fail");
    let output = String::from_utf8(output).expect("the answers are ASCII");
    output.lines().map(str::to_owned).collect()
}

#[test]
fn every_vector_gets_exactly_its_answers() {
    let vectors: Vec<Vector> =
        serde_json::from_str(include_str!("vectors.json")).expect("vectors are well-formed");
    for Vector { id, title, seed, stdin, stdout } in vectors {
        assert_eq!(answers(&stdin, seed), stdout, "{id}: {title}");
    }
}

/// In `docs/node.md`, messages follow `> ` and answers follow `< `.
#[test]
fn the_session_in_the_documentation_is_correct() {
    let page = include_str!("../../../docs/node.md");
    let lines = |mark: &str| -> Vec<String> {
        page.lines().filter_map(|line| line.strip_prefix(mark)).map(str::to_owned).collect()
    };
    let (sent, answered) = (lines("> "), lines("< "));
    assert!(sent.len() > 5, "the page has a session");
    assert_eq!(answers(&sent.join("\n"), filch_node::DEFAULT_SEED), answered);
}

#[test]
fn each_of_two_victims_is_chosen_about_half_the_time() {
    let seeds = 10_000;
    let stdin: String = (0..seeds)
        .map(|seed| {
            format!(
                r#"{{"src":"c","dest":"n","body":{{"type":"init","seed":{seed},"workers":["w1","w2","w3"],"jobs_to_distribute":6}}}}
                {{"src":"c","dest":"n","body":{{"type":"steal_job","msg_id":1,"thief_worker":"w3","busy_workers":["w1","w2"]}}}}
                "#
            )
        })
        .collect();
    let answers = answers(&stdin, 0);
    assert_eq!(answers.len(), seeds);
    let first = answers.iter().filter(|line| line.contains(r#""victim": "w1""#)).count();
    assert!((seeds * 45 / 100..=seeds * 55 / 100).contains(&first), "{first} of {seeds}");
}

#[test]
fn the_largest_cluster_drains_its_jobs() {
    let workers: Vec<String> = (1..=10_000).map(|number| format!("\"w{number}\"")).collect();
    let workers = workers.join(",");
    let init = |count: &str, workers: &str| {
        format!(
            r#"{{"src":"c","dest":"n","body":{{"type":"init","msg_id":1,"workers":[{workers}],"jobs_to_distribute":{count},"placement":"single"}}}}"#
        )
    };
    let stdin = [
        &init("1000000", &format!("{workers},\"one more\"")),
        &init("1000001", &workers),
        &init("1000000", &workers),
        r#"{"src":"c","dest":"n","body":{"type":"push_job","msg_id":2,"worker":"w1","job_id":"one more"}}"#,
        r#"{"src":"c","dest":"n","body":{"type":"run_simulation","msg_id":3,"duration_ms":86400000,"report":true}}"#,
        r#"{"src":"c","dest":"n","body":{"type":"check_cluster_state","msg_id":4}}"#,
    ]
    .join("\n");
    let answers = answers(&stdin, 0);
    assert_eq!(answers.len(), 6);
    assert!(answers[0].ends_with(r#""code": 12, "text": "invalid field: workers"}}"#));
    assert!(answers[1].ends_with(r#""code": 12, "text": "invalid field: jobs_to_distribute"}}"#));
    assert!(answers[2].contains(r#""init_ok""#));
    assert!(answers[3].ends_with(r#""code": 12, "text": "invalid field: job_id"}}"#));
    let results = r#""elapsed_ms": 10000, "completed": 1000000, "in_flight": 0, "queued": 0, "steals": 999900,"#;
    assert!(answers[4].contains(results), "{}", &answers[4][..300]);
    assert!(answers[5].ends_with(r#""all_idle": true}}"#));
}
