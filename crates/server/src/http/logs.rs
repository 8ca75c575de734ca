//! The output of a job: streamed while it runs, from the store afterwards.

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State as Given;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use filch_api::session::OutputStream;
use filch_scheduler::dispatch::Dispatch;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use super::extract::{Named, Params};
use super::{Failure, State, closing};
use crate::tokens::Caller;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogQuery {
    /// Follow the output until the job has ended.
    follow: Option<bool>,
}

/// One piece of output, as a line of JSON.
#[derive(Serialize, utoipa::ToSchema)]
struct Line {
    #[schema(value_type = String, example = "stdout")]
    stream: OutputStream,
    text: String,
}

/// Show the output of a job
///
/// Lines of JSON. While the job runs, they are streamed; with `follow`, until the job has ended.
/// After that, the stored output is returned.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/log",
    operation_id = "jobLog",
    tag = "jobs",
    params(
        ("id" = String, Path, pattern = "^[0-9a-fA-F-]{4,36}$", description = "A UUID, or at least its last 4 digits"),
        LogQuery
    ),
    responses((status = 200, body = Line, content_type = "application/x-ndjson"))
)]
pub(crate) async fn show(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Named(id): Named,
    Params(query): Params<LogQuery>,
) -> Result<Response, Failure> {
    // Before the response starts, so that an unknown job is refused and not answered with an empty
    // stream.
    let job = super::jobs::find(&state, &caller, id).await?;
    let place = state.place_for_reader()?;
    let follow = query.follow.unwrap_or(false);
    let (lines, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let _place = place;
        let mut seen = Seen::default();
        let mut more = state.services.logs.watch(job.seq);
        loop {
            more.borrow_and_update();
            let look = move |dispatch: &Dispatch, _| {
                dispatch.job_view(id).is_some_and(|view| !view.state.is_ended())
            };
            let Ok(is_live) = state.handle.look(look).await else { return };
            if !seen.live(&state, job.seq, &lines).await {
                return;
            }
            if !is_live || !follow {
                break;
            }
            tokio::select! {
                changed = more.changed() => if changed.is_err() {
                    // This log was dropped, because other jobs printed too much.
                    more = state.services.logs.watch(job.seq);
                },
                ended = state.handle.end_of(id) => if ended.is_err() { return },
                () = lines.closed() => return,
                () = closing(state.closed.clone()) => return,
            }
        }
        if !seen.anything {
            let kept = state.read(move |store| store.history(id)).await;
            if let Ok(Some(history)) = kept
                && let Some(log) = history.outputs.iter().rev().find_map(|left| left.log.clone())
            {
                send(&lines, OutputStream::Stdout, log.to_string()).await;
            }
        }
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// How much of a job's output has been sent.
#[derive(Default)]
struct Seen {
    fence: u64,
    end: u64,
    anything: bool,
}

impl Seen {
    /// Sends new output; false if the client has disconnected.
    async fn live(
        &mut self,
        state: &State,
        seq: u64,
        lines: &Sender<Result<Bytes, std::io::Error>>,
    ) -> bool {
        loop {
            let Some(part) = state.services.logs.read(seq, self.fence, self.end) else {
                return true;
            };
            (self.fence, self.end) = (part.fence, part.end);
            if part.missed > 0 {
                let text = format!("\n... {} bytes are left out ...\n", part.missed);
                if !send(lines, OutputStream::Stderr, text).await {
                    return false;
                }
            }
            if part.pieces.is_empty() {
                return true;
            }
            for piece in part.pieces {
                self.anything = true;
                if !send(lines, piece.stream, piece.text).await {
                    return false;
                }
            }
        }
    }
}

async fn send(
    lines: &Sender<Result<Bytes, std::io::Error>>,
    stream: OutputStream,
    text: String,
) -> bool {
    let mut line = serde_json::to_vec(&Line { stream, text }).expect("text can be written as JSON");
    line.push(b'\n');
    lines.send(Ok(Bytes::from(line))).await.is_ok()
}
