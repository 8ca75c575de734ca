//! A server on a port of its own, and requests to it.

use std::sync::Arc;
use std::time::Duration;

use filch_server::{Bounds, Server, ServerConfig};
use filch_store::{OwnerNote, Sqlite, Store, Transient};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A lease that no worker of a test loses, however slow the machine is.
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// How long a test waits for an event before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Place {
    pub(crate) server: Server,
    pub(crate) http: reqwest::Client,
    _folder: Option<TempDir>,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a successful response.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }

    /// A refusal with this code; returns it.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(self.kind, "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert!(self.body["title"].as_str().is_some_and(|title| !title.is_empty()), "{self:?}");
        self.body
    }
}

impl Place {
    /// A server whose store is in memory.
    pub(crate) async fn start() -> Self {
        Self::with(Arc::new(Transient::default()), LEASE, None).await
    }

    /// A server over a file.
    pub(crate) async fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let note = OwnerNote::this_process();
        let store = Sqlite::open(&folder.path().join("filch.db"), &note).unwrap();
        Self::with(Arc::new(store), LEASE, Some(folder)).await
    }

    /// A server over this store.
    pub(crate) async fn with(
        store: Arc<dyn Store>,
        lease: Duration,
        folder: Option<TempDir>,
    ) -> Self {
        Self::configured(ServerConfig { lease, ..ServerConfig::default() }, store, folder).await
    }

    /// A server with these bounds.
    pub(crate) async fn bounded(bounds: Bounds) -> Self {
        let config = ServerConfig { bounds, ..ServerConfig::default() };
        Self::configured(config, Arc::new(Transient::default()), None).await
    }

    /// A server over this store with this configuration.
    pub(crate) async fn configured(
        config: ServerConfig,
        store: Arc<dyn Store>,
        folder: Option<TempDir>,
    ) -> Self {
        let listen = ([127, 0, 0, 1], 0).into();
        let server =
            Server::start(ServerConfig { listen, seed: 7, ..config }, store).await.unwrap();
        Self { server, http: http(), _folder: folder }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let body = with_instance(path, body);
        read(self.request(method, path).json(&body).send().await.unwrap()).await
    }

    /// The same without a body.
    pub(crate) async fn poke(&self, path: &str) -> Answer {
        read(self.request(Method::POST, path).send().await.unwrap()).await
    }

    /// Submits one job and returns its id.
    pub(crate) async fn submit(&self, job: &Value) -> String {
        let receipt = self.post("/v1/jobs", job).await.ok();
        receipt["id"].as_str().unwrap().to_owned()
    }

    /// Submits a job and fails it for good.
    pub(crate) async fn submit_dead(&self, worker: &mut Worker<'_>, job: &Value) -> String {
        let id = self.submit(job).await;
        let claimed = worker.claim("10s").await.ok();
        let hold = claimed["jobs"][0]["job"].clone();
        assert_eq!(claimed["jobs"][0]["id"], id.as_str(), "{claimed}");
        worker
            .report(&json!({"job": hold, "ending": "failed", "forever": true, "error": "no"}))
            .await
            .ok();
        worker.holds.clear();
        id
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).await.ok()
    }

    /// The job, once it has ended.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        let job = self.get(&format!("/v1/jobs/{id}?wait=60s")).await.ok();
        assert!(job.get("ended_at").is_some(), "it has not ended: {job}");
        job
    }

    pub(crate) fn worker(&self, id: &str) -> Worker<'_> {
        Worker { place: self, id: id.to_owned(), number: 0, slots: 1, holds: Vec::new() }
    }
}

/// The body of a worker's request names its process. All workers of a test are one process, unless
/// the test says otherwise.
pub(crate) fn with_instance(path: &str, body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut().filter(|_| path.starts_with("/v1/work/")) {
        fields.entry("instance").or_insert_with(|| "test".into());
    }
    body
}

/// A client for plain HTTP.
fn http() -> reqwest::Client {
    let nobody = (*filch_api::tls::nobody()).clone();
    reqwest::Client::builder().tls_backend_preconfigured(nobody).build().unwrap()
}

pub(crate) async fn read(response: Response) -> Answer {
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type");
    let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, kind, body }
}

/// A worker over plain HTTP, by hand.
pub(crate) struct Worker<'a> {
    place: &'a Place,
    pub(crate) id: String,
    pub(crate) number: u64,
    pub(crate) slots: u32,
    pub(crate) holds: Vec<Value>,
}

impl Worker<'_> {
    pub(crate) fn path(&self, verb: &str) -> String {
        format!("/v1/work/{}/{verb}", self.id)
    }

    /// The next claim. What it brings is held.
    pub(crate) async fn claim(&mut self, wait: &str) -> Answer {
        self.number += 1;
        let answer = self.claim_again(wait).await;
        if let Some(jobs) = answer.body["jobs"].as_array() {
            self.holds.extend(jobs.iter().map(|job| job["job"].clone()));
        }
        answer
    }

    /// The last claim once more.
    pub(crate) async fn claim_again(&self, wait: &str) -> Answer {
        let claim =
            json!({"number": self.number, "slots": self.slots, "holds": self.holds, "wait": wait});
        self.place.post(&self.path("claim"), &claim).await
    }

    pub(crate) async fn heartbeat(&self) -> Answer {
        self.place.post(&self.path("heartbeat"), &json!({"holds": self.holds})).await
    }

    pub(crate) async fn report(&mut self, report: &Value) -> Answer {
        let answer = self.place.post(&self.path("report"), &json!({"reports": [report]})).await;
        self.holds.retain(|hold| *hold != report["job"]);
        answer
    }

    pub(crate) async fn goodbye(&self) -> Answer {
        self.place.post(&self.path("goodbye"), &json!({})).await
    }
}

/// Waits until the check succeeds, or fails after a long time.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let waiting = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}
