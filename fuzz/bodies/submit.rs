//! Request bodies that submit a job: an accepted job stays the same when it is written and read
//! again, and a refusal gives its reason. A single job and a job in a flow are read by different
//! code, which must agree.

use filch_api::flow::Flow;
use filch_api::json::check_depth;
use filch_api::limits;
use filch_api::problem::Problem;
use filch_api::submission::{Submission, Work};
use filch_scheduler::id::JobId;
use filch_scheduler::spec::JobSpec;
use serde_json::value::RawValue;

pub(crate) fn run(body: &[u8]) {
    if let Err(problem) = check_depth(body) {
        return explained(&problem);
    }
    // Text that is more than one JSON value could mean something else inside a flow.
    if serde_json::from_slice::<&RawValue>(body).is_err() {
        assert!(serde_json::from_slice::<Submission>(body).is_err());
        return;
    }
    let read = serde_json::from_slice::<Submission>(body);
    let in_flow = [b"{\"name\": \"n\", \"jobs\": {\"a\": ", body, b"}}"].concat();
    let flow = Flow::read(&in_flow);
    let Ok(submission) = read else {
        return explained(&flow.expect_err("an invalid job is also invalid in a flow"));
    };
    let flow = flow.expect("a valid job is also valid in a flow");
    let written = serde_json::to_string(&submission).expect("a job can be written");
    let written_in_flow = serde_json::to_string(&flow.jobs[0].1).expect("a job can be written");
    assert_eq!(written, written_in_flow);

    match validate(submission) {
        Err(problem) => explained(&problem),
        Ok(accepted) => {
            check_limits(&accepted);
            let again = serde_json::from_str(&written).expect("a written job can be read");
            let again = validate(again).expect("an accepted job is accepted again");
            assert_eq!(accepted, again);
        }
    }
}

fn validate(submission: Submission) -> Result<JobSpec, Problem> {
    submission.validate(|| JobId(7))
}

/// An accepted job is within all limits.
fn check_limits(spec: &JobSpec) {
    let payload = spec.payload.as_ref().expect("a job has a payload");
    for name in [Some(&spec.queue), Some(&spec.kind), spec.key.as_ref()].into_iter().flatten() {
        assert!((1..=limits::NAME_BYTES).contains(&name.as_str().len()));
        assert!(!name.as_str().contains(char::is_control));
    }
    assert!(payload.len() <= limits::PAYLOAD_BYTES);
    assert!(spec.retry.max > 0);
    let work: Work = serde_json::from_str(payload).expect("a payload is a work document");
    assert_eq!(work.run.is_some(), spec.kind.as_str() == "command");
}

fn explained(problem: &Problem) {
    assert!((400..500).contains(&problem.status), "{problem:?}");
    assert!(!problem.code.is_empty() && !problem.title.is_empty(), "{problem:?}");
    assert!(problem.at.as_deref().is_none_or(|at| at.starts_with('/')), "{problem:?}");
}
