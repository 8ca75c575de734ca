//! The workers' door: one WebSocket each.

use axum::extract::State as Given;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use filch_api::limits;
use filch_api::problem::Problem;
use filch_api::session::UpFrame;
use futures_util::{SinkExt as _, StreamExt as _};

use super::{Failure, State};
use crate::link::{self, Home, Link};

/// The workers' WebSocket
///
/// One for each worker: the protocol of its session, in numbered batches of JSON. Workers of few lines
/// use the four requests below instead.
#[utoipa::path(
    get,
    path = "/v1/work",
    operation_id = "work",
    tag = "work",
    responses((status = 101, description = "It is a WebSocket from here on"))
)]
pub(crate) async fn connect(
    Given(state): Given<State>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(rejection.status().as_u16(), "no-websocket", rejection.body_text())
            .help("workers connect here; those without WebSockets POST to /v1/work/{worker}/claim")
    })?;
    Ok(upgrade
        .max_message_size(limits::FRAME_BYTES)
        .max_frame_size(limits::FRAME_BYTES)
        .on_upgrade(move |socket| talk(state, socket)))
}

async fn talk(state: State, socket: WebSocket) {
    let (link, mut outgoing) = Link::open(state.doorbell.clone(), state.logs.clone());
    let (mut sink, mut source) = socket.split();
    let store = state.store.clone();
    let writing = async move {
        while let Some(batch) = outgoing.recv().await {
            let Ok(delivery) = link::deliver(batch, &store).await else { break };
            if sink.send(Message::text(delivery.write())).await.is_err() {
                break;
            }
        }
    };
    let reading = async {
        while let Some(Ok(message)) = source.next().await {
            let frame = match &message {
                Message::Text(text) => serde_json::from_str::<UpFrame>(text.as_str()).ok(),
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Binary(_) | Message::Close(_) => None,
            };
            let Some(frame) = frame else { break };
            if link.take(frame, Home::Apart).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
        () = link.hung_up() => {}
    }
    link.close().await;
}
