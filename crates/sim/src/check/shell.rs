//! What the engines around the schedulers must keep: S4 reads and waits, S15 the timeout that was
//! submitted, S16 payloads, S17 acts of operators, S18 strangers, L8 renewals.

use std::collections::BTreeMap;

use filch_scheduler::dispatch::{Answer, QueueChange, Request};
use filch_scheduler::id::{CommitNo, JobId, RequestNo, SessionNo, WorkerId};
use filch_scheduler::message::ToWorker;
use filch_scheduler::name::Name;
use filch_scheduler::time::Monotonic;

use super::facts::{Facts, Job};
use super::ownership::who;
use super::{Holds, Rule, ensure};
use crate::log::Observed;
use crate::work;

/// The state of these rules.
#[derive(Default)]
pub(super) struct Shell {
    /// The newest durable commit.
    pub(super) stored: CommitNo,
    /// Changes by operators that are not answered yet.
    acts: BTreeMap<RequestNo, Request>,
    /// The last change of each thing that was asked for: earlier ones may be overwritten by it
    /// before they are answered.
    newest: BTreeMap<Target, RequestNo>,
    /// Renewals that were decided and not sent yet.
    renewals: BTreeMap<WorkerId, (SessionNo, Monotonic)>,
}

impl Shell {
    pub(super) fn time_passes(&self, at: Monotonic) -> Holds {
        let late = self.renewals.iter().find(|&(_, &(_, since))| since < at);
        ensure(late.is_none(), Rule::L8, || {
            let worker = late.map(|(&worker, _)| who(worker)).unwrap_or_default();
            format!("the renewal of {worker} is not sent at once")
        })
    }

    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>, facts: &Facts) -> Holds {
        match *seen {
            Observed::Asked { request, what } => {
                if let Some(target) = Target::of(what) {
                    self.newest.insert(target, request);
                    self.acts.insert(request, what.clone());
                }
            }
            Observed::Answered { request, answer } => {
                let act = self.acts.remove(&request).filter(|_| *answer == Answer::Done);
                let is_newest =
                    |act: &Request| self.newest.get(&Target::of(act)?).map(|it| *it == request);
                let act = act.filter(|act| is_newest(act) == Some(true));
                ensure(act.as_ref().is_none_or(|act| is_stored(act, facts)), Rule::S17, || {
                    format!("{act:?} is acknowledged, but not stored")
                })?;
            }
            Observed::Told { worker, session, messages }
                if messages.iter().any(is_renewal) && facts.sessions.contains_key(&worker) =>
            {
                self.renewals.insert(worker, (session, at));
            }
            Observed::Posted { worker, messages, works } => {
                if messages.iter().any(is_renewal) {
                    self.renewals.remove(&worker);
                }
                let assigned = messages.iter().filter_map(|message| match message {
                    ToWorker::Assign(jobs) => Some(jobs),
                    _ => None,
                });
                let given = works.iter().map(|(hold, _)| *hold);
                let is_each = assigned.flatten().map(|job| job.hold).eq(given);
                ensure(is_each, Rule::S16, || {
                    format!("{} is assigned jobs without their payloads", who(worker))
                })?;
                let wrong = works.iter().find(|(hold, text)| {
                    let job = facts.job(hold.job);
                    job.is_some_and(|job| !work::is_payload(text, job.spec.id))
                });
                ensure(wrong.is_none(), Rule::S16, || {
                    let job = wrong.map_or(0, |(hold, _)| hold.job.0);
                    format!("#{job} is sent with another payload than it was submitted with")
                })?;
            }
            Observed::Closed { worker, session } | Observed::LinkGone { worker, session } => {
                self.renewals.retain(|&it, (of, _)| it != worker || *of != session);
                let is_gone = matches!(seen, Observed::LinkGone { .. });
                let is_open = facts.sessions.get(&worker) == Some(&session);
                ensure(!is_gone || !is_open, Rule::S18, || {
                    format!("the connection of {} is closed, but its session is open", who(worker))
                })?;
            }
            Observed::ServerCrashed => {
                self.acts.clear();
                self.newest.clear();
                self.renewals.clear();
            }
            Observed::Impersonated { worker } => {
                return Err((
                    Rule::S18,
                    format!("a stranger's batch is taken for {}", who(worker)),
                ));
            }
            Observed::Oversized { worker, bytes } => {
                let what = format!("{} is sent {bytes} bytes of payloads at once", who(worker));
                return Err((Rule::S16, what));
            }
            Observed::NotPermitted { place } => {
                return Err((Rule::S18, format!("node {} is refused its own id", place + 1)));
            }
            Observed::ReadReleased { saw } => {
                ensure(saw <= self.stored, Rule::S4, || {
                    format!("a read that saw commit {} is answered before it is stored", saw.0)
                })?;
            }
            Observed::Waited(id) => {
                let job = facts.by_id(id);
                ensure(job.is_none_or(Job::is_ended), Rule::S4, || {
                    format!("the end of {id} is announced before it is stored")
                })?;
            }
            Observed::Started { assignment, .. } => {
                let job = facts.job(assignment.hold.job);
                let is_same = job.is_none_or(|job| job.spec.timeout == assignment.timeout);
                ensure(is_same, Rule::S15, || {
                    format!(
                        "{} starts with another timeout than it was submitted with",
                        assignment.id
                    )
                })?;
            }
            _ => {}
        }
        Ok(())
    }
}

const fn is_renewal(message: &ToWorker) -> bool {
    matches!(message, ToWorker::Renewed(_))
}

/// What a change by an operator changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Pause(Name),
    Limit(Name),
    Priority(JobId),
    Strategy,
}

impl Target {
    /// `None` for requests that change nothing that must hold after a crash.
    fn of(request: &Request) -> Option<Self> {
        match request {
            Request::SetQueue { queue, change } => match change {
                QueueChange::Pause | QueueChange::Resume => Some(Self::Pause(queue.clone())),
                QueueChange::Limit(_) => Some(Self::Limit(queue.clone())),
                QueueChange::Weight(_) => None,
            },
            Request::SetPriority { job, .. } => Some(Self::Priority(*job)),
            Request::SetStrategy(_) => Some(Self::Strategy),
            _ => None,
        }
    }
}

fn is_stored(act: &Request, facts: &Facts) -> bool {
    match act {
        Request::SetQueue { queue, change } => {
            let queue = facts.queues.get(queue);
            match change {
                QueueChange::Pause => queue.is_some_and(|queue| queue.is_paused),
                QueueChange::Resume => queue.is_none_or(|queue| !queue.is_paused),
                QueueChange::Limit(limit) => queue.and_then(|queue| queue.limit) == *limit,
                QueueChange::Weight(_) => true,
            }
        }
        Request::SetPriority { job, priority } => {
            let job = facts.by_id(*job);
            job.is_none_or(|job| job.is_ended() || job.priority == *priority)
        }
        Request::SetStrategy(strategy) => facts.strategy == Some(*strategy),
        _ => true,
    }
}
