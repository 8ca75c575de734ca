//! A web server whose visitors clean up expired sessions in Redis: now and then, after a page from
//! the cache, a few are removed. There is no cron job and no daemon.
//!
//! ```sh
//! redis-server --port 7000 --save "" --appendonly no &
//! cargo run -p filch-recruit --all-features --example sessions -- redis://127.0.0.1:7000/ 5 0.05
//! ```
//!
//! Then simulate visitors in another shell, each with its own session. Redis holds only the
//! sessions of the last few seconds. With a rate of 0 their number grows every second.
//!
//! ```sh
//! site=http://127.0.0.1:PORT/  # as it printed
//! while curl -sX POST ${site}sessions && curl -s $site; do :; done > /dev/null &
//! while sleep 1; do
//!     redis-cli -p 7000 hlen '{sessions}:fields'
//!     redis-cli -p 7000 info memory | grep used_memory_human
//! done
//! ```
//!
//! The arguments are the Redis URL, the lifetime of a session in seconds, and the rate: the
//! fraction of cheap responses that clean up. `POST /sessions` opens a session, `GET /` returns the
//! page, and `GET /metrics` the statistics.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use filch_recruit::redis::VolatileHash;
use filch_recruit::tower::{Cheap, EnlistLayer};
use filch_recruit::{Rate, Recruiter};
use redis::{Client, Commands as _, Connection};
use tokio::net::TcpListener;

const ETAG: &str = "\"1\"";

/// The content of a session.
const SESSION: [u8; 2048] = [b'x'; 2048];

/// The state of the handlers.
struct Site {
    sessions: VolatileHash,
    session_duration: Duration,
    connection: Mutex<Connection>,
    recruiter: Arc<Recruiter>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, seconds, rate] = &arguments[..] else {
        return Err("usage: sessions REDIS_URL SESSION_SECONDS RATE".into());
    };
    let client = Client::open(url.as_str())?;
    let sessions = VolatileHash::new("sessions").limit(25);
    // This is the whole set-up.
    let recruiter = Recruiter::builder()
        .job("sessions", Rate::new(rate.parse()?)?, sessions.reaper(client.clone()))
        // Half of a core, because this server does nothing else.
        .time_share(0.5)
        .build()?;
    let recruiter = Arc::new(recruiter);
    let site = Site {
        sessions,
        session_duration: Duration::try_from_secs_f64(seconds.parse()?)?,
        connection: Mutex::new(client.get_connection()?),
        recruiter: Arc::clone(&recruiter),
    };
    let router = Router::new()
        .route("/", get(page))
        .route("/sessions", post(open_session))
        .route("/metrics", get(metrics))
        .layer(EnlistLayer::new(recruiter))
        .with_state(Arc::new(site));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

/// The page never changes, so the layer sees either a 304 or a page marked as cheap.
async fn page(headers: HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH);
    if known.is_some_and(|tag| tag == ETAG) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(header::ETAG, ETAG)], Extension(Cheap), "hello\n").into_response()
}

async fn open_session(State(site): State<Arc<Site>>) -> Result<String, StatusCode> {
    let opened = tokio::task::spawn_blocking(move || {
        let mut connection = site.connection.lock().expect("no code panics with the lock");
        let id: u64 = connection.incr("session", 1)?;
        site.sessions.set(&mut *connection, id, &SESSION[..], site.session_duration)?;
        redis::RedisResult::Ok(id)
    });
    match opened.await {
        Ok(Ok(id)) => Ok(format!("{id}\n")),
        Ok(Err(_)) | Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn metrics(State(site): State<Arc<Site>>) -> String {
    site.recruiter.stats().metrics()
}
