//! Server-sent events. Each has an id, so that a reader that was disconnected can resume after it;
//! if those events are no longer available, the reader gets an event `reset`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Given;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use filch_api::event::ClusterEvent;
use filch_api::id;
use filch_api::job::attempts_shown;
use filch_api::problem::Problem;
use filch_api::time::Moment;
use filch_scheduler::id::{JobId, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::LeaseCause;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::extract::Params;
use super::{Failure, State, closing};
use crate::events::{EventNo, Happened, Since, What};

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only events of jobs of this queue.
    queue: Option<String>,
    /// Only events of jobs of this kind.
    kind: Option<String>,
    /// Only events of this job (full UUID).
    job: Option<String>,
    /// Only events of this worker.
    worker: Option<String>,
    /// Start with the events since this time.
    since: Option<String>,
    /// Whether to follow new events; if false, the stream ends after the stored ones. True by
    /// default.
    follow: Option<bool>,
}

/// Stream events
///
/// Server-sent events with ids; the data of each is a `ClusterEvent`. To resume after a disconnect,
/// send the id of the last event in the header `last-event-id`. The server keeps the newest 16,384
/// events; if older events are needed, it sends an event `reset`, and the client has to reload its
/// state.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "events",
    tag = "server",
    params(
        ("last-event-id" = Option<String>, Header, description = "The id of the last event seen"),
        EventsQuery
    ),
    responses((status = 200, body = ClusterEvent, content_type = "text/event-stream"))
)]
pub(crate) async fn stream(
    Given(state): Given<State>,
    Params(query): Params<EventsQuery>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Failure> {
    let interest = Interest::read(&query)?;
    let since = query.since.as_deref().map(Moment::read).transpose();
    let since = since.map_err(|why| Problem::invalid(why).at("since"))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let after = match (last, since) {
        // A malformed id is treated like one that is too old.
        (Some(last), _) => read(last).unwrap_or_default(),
        (None, Some(Moment(since))) => state.events.before(since),
        (None, None) => state.events.newest(),
    };
    let follow = query.follow.unwrap_or(true);
    let place = state.place_for_reader()?;
    let newest = state.events.listen();
    // Without data it is not an event, but a reader that is disconnected before the first event
    // knows where to resume.
    let written = VecDeque::from([sse::Event::default().id(write(after))]);
    let reader = Reader { state, interest, after, follow, newest, written, _place: place };
    let stream = futures_util::stream::unfold(reader, |mut reader| async move {
        reader.next().await.map(|event| (Ok::<_, Infallible>(event), reader))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

/// Which events a reader wants; `None` matches all.
struct Interest {
    queue: Option<String>,
    kind: Option<String>,
    job: Option<JobId>,
    worker: Option<WorkerId>,
}

/// Facts about a job that is known by its number.
struct Known {
    id: JobId,
    queue: Name,
    kind: Name,
}

impl Interest {
    fn read(query: &EventsQuery) -> Result<Self, Problem> {
        let bad = |what: &str, text: &str, help: &str| {
            Problem::new(400, "bad-id", format!("{text:?} is not a {what} id")).help(help).at(what)
        };
        let job = query
            .job
            .as_deref()
            .map(|text| id::read_job(text).ok_or_else(|| bad("job", text, "write the whole UUID")));
        let worker = query.worker.as_deref().map(|text| {
            let help =
                "an id has sixteen hexadecimal digits; list workers with `filch worker list`";
            id::read_worker(text).ok_or_else(|| bad("worker", text, help))
        });
        Ok(Self {
            queue: query.queue.clone(),
            kind: query.kind.clone(),
            job: job.transpose()?,
            worker: worker.transpose()?,
        })
    }

    fn wants_all_jobs(&self) -> bool {
        self.queue.is_none() && self.kind.is_none() && self.job.is_none()
    }

    fn wants(&self, id: JobId, queue: &Name, kind: &Name) -> bool {
        self.job.is_none_or(|job| job == id)
            && self.queue.as_ref().is_none_or(|wanted| wanted == queue.as_str())
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind.as_str())
    }

    fn wants_one_of(&self, workers: [Option<WorkerId>; 2]) -> bool {
        self.worker.is_none_or(|worker| workers.contains(&Some(worker)))
    }

    /// The event, if the reader wants it.
    fn event(&self, happened: &Happened, known: &BTreeMap<Seq, Known>) -> Option<ClusterEvent> {
        let at = Moment(happened.at);
        // A purged job belongs to no queue any more.
        let is_wanted = |seq: &Seq| {
            known.get(seq).map_or_else(
                || self.wants_all_jobs(),
                |job| self.wants(job.id, &job.queue, &job.kind),
            )
        };
        match &happened.what {
            What::Submitted { seq, id, queue, kind } => (self.wants(*id, queue, kind)
                && self.worker.is_none())
            .then(|| ClusterEvent::Submitted {
                at,
                id: id::job(*id),
                seq: seq.0,
                queue: queue.to_string(),
                kind: kind.to_string(),
            }),
            What::Changed { seq, state, attempts, fence, holder } => {
                let job = known.get(seq);
                (is_wanted(seq) && self.wants_one_of([*holder, None])).then(|| {
                    ClusterEvent::Changed {
                        at,
                        id: job.map(|job| id::job(job.id)),
                        seq: seq.0,
                        state: state.to_string(),
                        attempts: attempts_shown(*state, *attempts),
                        fence: fence.0,
                        queue: job.map(|job| job.queue.to_string()),
                        kind: job.map(|job| job.kind.to_string()),
                        worker: holder.map(id::worker),
                    }
                })
            }
            What::Moved { cause, to, jobs } => {
                let (cause, from) = match *cause {
                    LeaseCause::Claim => ("claim", None),
                    LeaseCause::Steal(worker) => ("steal", Some(worker)),
                    LeaseCause::Lost(worker) => ("lost", Some(worker)),
                    LeaseCause::Returned(worker) => ("returned", Some(worker)),
                };
                let wanted: Vec<Seq> = jobs.iter().copied().filter(is_wanted).collect();
                let ids = wanted.iter().filter_map(|seq| known.get(seq));
                let ids = ids.map(|job| id::job(job.id)).collect();
                (!wanted.is_empty() && self.wants_one_of([from, *to])).then(|| {
                    ClusterEvent::Moved {
                        at,
                        cause: cause.to_owned(),
                        from: from.map(id::worker),
                        to: to.map(id::worker),
                        jobs: wanted.iter().map(|seq| seq.0).collect(),
                        ids,
                    }
                })
            }
            &What::WorkerLost { worker, jobs } => {
                let is_wanted = self.wants_all_jobs() && self.wants_one_of([Some(worker), None]);
                is_wanted.then(|| ClusterEvent::WorkerLost { at, worker: id::worker(worker), jobs })
            }
        }
    }
}

/// A reader of the stream. It holds the events that are written and not sent yet; the next ones are
/// looked up only when these are sent.
struct Reader {
    state: State,
    interest: Interest,
    after: EventNo,
    follow: bool,
    newest: watch::Receiver<EventNo>,
    written: VecDeque<sse::Event>,
    /// Its place among all readers.
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.written.pop_front() {
                return Some(event);
            }
            self.newest.borrow_and_update();
            match self.state.events.since(self.after) {
                Since::Lost(lost) => {
                    self.after = lost;
                    return Some(sse::Event::default().event("reset").id(write(lost)).data("{}"));
                }
                Since::These(these) => match these.last() {
                    Some((last, _)) => {
                        self.after = *last;
                        self.write(&these).await?;
                    }
                    None if !self.follow => return None,
                    None => tokio::select! {
                        changed = self.newest.changed() => changed.ok()?,
                        () = closing(self.state.closed.clone()) => return None,
                    },
                },
            }
        }
    }

    /// Writes the events that the reader wants; `None` if the store cannot be read.
    async fn write(&mut self, some: &[(EventNo, Arc<Happened>)]) -> Option<()> {
        let seqs = some.iter().flat_map(|(_, thing)| thing.jobs()).copied();
        let seqs: Vec<Seq> = seqs.collect::<BTreeSet<Seq>>().into_iter().collect();
        let rows = self.state.read(move |store| store.find(&[], &[], &seqs)).await.ok()?;
        let known = rows.into_iter().map(|row| {
            let spec = row.spec;
            (row.seq, Known { id: spec.id, queue: spec.queue, kind: spec.kind })
        });
        let known = known.collect();
        for (number, thing) in some {
            if let Some(event) = self.interest.event(thing, &known) {
                let data = serde_json::to_string(&event).expect("an event can be written");
                self.written.push_back(sse::Event::default().id(write(*number)).data(data));
            }
        }
        Some(())
    }
}

fn write(number: EventNo) -> String {
    format!("{}.{}", number.0, number.1)
}

fn read(text: &str) -> Option<EventNo> {
    let (commit, index) = text.split_once('.')?;
    Some(EventNo(commit.parse().ok()?, index.parse().ok()?))
}
