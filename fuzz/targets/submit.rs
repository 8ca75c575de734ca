//! Bodies that submit a job: what is taken can be written and taken again, the same; what is refused says
//! why. A job by itself and one in a flow are read by different code, and must agree.

#![no_main]

use filch_api::flow::Flow;
use filch_api::json::check_depth;
use filch_api::limits;
use filch_api::problem::Problem;
use filch_api::submission::{ValidatedJob, Submission, Work};
use filch_scheduler::id::JobId;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|body: &[u8]| {
    if let Err(problem) = check_depth(body) {
        return explained(&problem);
    }
    // What is not one value could be something else within a flow.
    if serde_json::from_slice::<&RawValue>(body).is_err() {
        assert!(serde_json::from_slice::<Submission>(body).is_err());
        return;
    }
    let read = serde_json::from_slice::<Submission>(body);
    let in_flow = [b"{\"name\": \"n\", \"jobs\": {\"a\": ", body, b"}}"].concat();
    let flow = Flow::read(&in_flow);
    let Ok(submission) = read else {
        return explained(&flow.expect_err("what is no job is none in a flow either"));
    };
    let flow = flow.expect("what is a job is one in a flow as well");
    let written = serde_json::to_string(&submission).expect("it can be written");
    let written_in_flow = serde_json::to_string(&flow.jobs[0].1).expect("it can be written");
    assert_eq!(written, written_in_flow);

    match judge(submission) {
        Err(problem) => explained(&problem),
        Ok(judged) => {
            taken(&judged);
            let again = serde_json::from_str(&written).expect("what was written can be read");
            let again = judge(again).expect("what was taken is taken again");
            assert_eq!((&judged.spec, &judged.payload), (&again.spec, &again.payload));
        }
    }
});

fn validate(submission: Submission) -> Result<ValidatedJob, Problem> {
    submission.validate(|| JobId(7))
}

/// What is beyond a bound is not taken.
fn taken(judged: &ValidatedJob) {
    let spec = &judged.spec;
    for name in [Some(&spec.queue), Some(&spec.kind), spec.key.as_ref()].into_iter().flatten() {
        assert!((1..=limits::NAME_BYTES).contains(&name.as_str().len()));
        assert!(!name.as_str().contains(char::is_control));
    }
    assert!(judged.payload.len() <= limits::PAYLOAD_BYTES);
    assert!(spec.retry.max > 0);
    let work: Work = serde_json::from_str(&judged.payload).expect("a payload is work");
    assert_eq!(work.run.is_some(), spec.kind.as_str() == "command");
}

fn explained(problem: &Problem) {
    assert!((400..500).contains(&problem.status), "{problem:?}");
    assert!(!problem.code.is_empty() && !problem.title.is_empty(), "{problem:?}");
    assert!(problem.at.as_deref().is_none_or(|at| at.starts_with('/')), "{problem:?}");
}
