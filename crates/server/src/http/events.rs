//! What happens, as server-sent events. Each has an id, so that a reader that was cut off goes on where
//! it was; if that is too long ago it is told `reset`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Given;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{self, KeepAlive, Sse};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::watch;

use super::extract::{Nothing, Params};
use super::{State, closing};
use crate::events::{EventNo, Events, Since};

/// What happens, as it happens
///
/// Server-sent events, each an `Event` under an id. A reader that was cut off sends the last id it has
/// seen as `last-event-id` and goes on from there; if that is too long ago, it is sent an event `reset`
/// and looks at everything anew.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "events",
    tag = "server",
    params(("last-event-id" = Option<String>, Header, description = "The id of the last event seen")),
    responses((status = 200, body = filch_api::event::Event, content_type = "text/event-stream"))
)]
pub(crate) async fn stream(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(read);
    let (lines, receiver) = channel::<Result<sse::Event, Infallible>>(256);
    tokio::spawn(tell(Arc::clone(&state.events), last, lines, state.closed.clone()));
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}

async fn tell(
    events: Arc<Events>,
    last: Option<Option<EventNo>>,
    lines: Sender<Result<sse::Event, Infallible>>,
    closed: watch::Receiver<bool>,
) {
    let mut newest = events.listen();
    let mut after = match last {
        None => events.newest(),
        // An id that is not one of ours is as good as one that is too old.
        Some(last) => last.unwrap_or_default(),
    };
    loop {
        newest.borrow_and_update();
        match events.since(after) {
            Since::Lost(lost) => {
                after = lost;
                let reset = sse::Event::default().event("reset").id(write(lost)).data("{}");
                if lines.send(Ok(reset)).await.is_err() {
                    return;
                }
            }
            Since::These(these) => {
                for (number, event) in these {
                    after = number;
                    let data = serde_json::to_string(&*event).expect("an event can be written");
                    let event = sse::Event::default().id(write(number)).data(data);
                    if lines.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
            }
        }
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = lines.closed() => return,
            () = closing(closed.clone()) => return,
        }
    }
}

fn write(number: EventNo) -> String {
    format!("{}.{}", number.0, number.1)
}

fn read(text: &str) -> Option<EventNo> {
    let (commit, index) = text.split_once('.')?;
    Some(EventNo(commit.parse().ok()?, index.parse().ok()?))
}
