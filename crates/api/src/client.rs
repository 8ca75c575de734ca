//! A client of the HTTP API, for programs that submit and inspect jobs.

mod streams;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::streams::{Events, Printed, StreamedEvent};
use crate::access::{Access, NoAccess, Target};
use crate::act::Acts;
use crate::cluster::{Order, Purge, Queue, QueueDetail, QueueUpdate, Status, Worker, WorkerStop};
use crate::dead::{Count, Groups, Selection};
use crate::event::JobEvents;
use crate::flow::Flow;
use crate::job::{Job, Receipt};
use crate::problem::Problem;
use crate::recruit::Recruit;
use crate::submission::Submission;
use crate::tls;
use crate::token::{Made, Token, TokenRequest};

/// Talks to one server.
#[derive(Clone, Debug)]
pub struct Client {
    url: String,
    http: reqwest::Client,
}

/// Why a request failed.
#[derive(Debug)]
pub enum Error {
    /// The server cannot be reached.
    Unreachable {
        /// The server's URL.
        url: String,
        /// The cause.
        why: String,
    },
    /// TLS failed: the server is not trusted, or it does not trust this client.
    Untrusted {
        /// The server's URL.
        url: String,
        /// The cause.
        why: String,
    },
    /// The request was not sent, because the token or the URL is invalid.
    NoAccess(NoAccess),
    /// The server refused the request.
    Refused(Problem),
    /// The response cannot be parsed: perhaps it is not from a filch server, or from another
    /// version.
    Strange {
        /// The server's URL.
        url: String,
        /// What is wrong with the response.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { url, why } => {
                write!(
                    formatter,
                    "no server answers at {url}: {why}\n  help: start one with `filch up`"
                )
            }
            Self::Untrusted { url, why } => write!(
                formatter,
                "no secure connection to {url}: {why}\n  help: set --tls-ca FILE (FILCH_TLS_CA) to the \
                 server's CA; if the server requires a client certificate, set --tls-client-cert \
                 and --tls-client-key"
            ),
            Self::NoAccess(why) => why.fmt(formatter),
            Self::Refused(problem) => problem.fmt(formatter),
            Self::Strange { url, why } => {
                write!(formatter, "{url} is not a filch server, or it has another version: {why}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// One page of a list.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page begins.
    pub next: Option<u64>,
}

/// The receipts of a submitted flow.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub struct FlowReceipt {
    /// Its name.
    pub name: String,
    /// The receipts of its jobs, by their names in the flow.
    pub jobs: BTreeMap<String, Receipt>,
}

#[derive(serde::Deserialize)]
struct Done {}

#[derive(serde::Deserialize)]
struct Receipts {
    jobs: Vec<Receipt>,
}

#[derive(serde::Deserialize)]
struct Queues {
    queues: Vec<Queue>,
}

#[derive(serde::Deserialize)]
struct Workers {
    workers: Vec<Worker>,
}

const NOTHING: Option<&()> = None;

/// How many times to retry, at most, to learn why a connection was closed.
const DISTRUST_TRIES: usize = 5;

impl Client {
    /// A client for the server at this URL, such as `http://127.0.0.1:7420`, without credentials.
    ///
    /// # Errors
    /// If the URL is malformed, or the HTTP client cannot be created.
    pub fn new(url: &str) -> Result<Self> {
        Self::with(url, &Access::default())
    }

    /// The same, with credentials.
    ///
    /// # Errors
    /// If the URL is malformed, the token could be intercepted, or the HTTP client cannot be
    /// created.
    pub fn with(url: &str, access: &Access) -> Result<Self> {
        let target = Target::read(url).map_err(Error::NoAccess)?;
        let mut headers = HeaderMap::new();
        if let Some(token) = access.token_for(&target).map_err(Error::NoAccess)? {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            let mut value = value.expect("a token is plain text");
            // Keeps the token out of printed headers.
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let tls =
            if target.is_tls { access.tls.read().map_err(Error::NoAccess)? } else { tls::nobody() };
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .default_headers(headers)
            .tls_backend_preconfigured((*tls).clone())
            // A filch server never redirects, and the token is for this server only.
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let url = target.url;
        let http =
            http.map_err(|error| Error::Strange { url: url.clone(), why: error.to_string() })?;
        Ok(Self { url, http })
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Submits one job.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn submit(&self, job: &Submission) -> Result<Receipt> {
        self.ask(Method::POST, "/v1/jobs", Some(job)).await
    }

    /// Submits these jobs, all or none.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn submit_all(&self, jobs: &[Submission]) -> Result<Vec<Receipt>> {
        Ok(self.ask::<Receipts>(Method::POST, "/v1/jobs", Some(&jobs)).await?.jobs)
    }

    /// One job with everything that is stored of it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn job(&self, id: &str) -> Result<Job> {
        self.read_job(&format!("/v1/jobs/{}", path(id))).await
    }

    /// The same job, once it has ended, or after this time.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn wait(&self, id: &str, span: Duration) -> Result<Job> {
        let span = crate::span::write(span);
        self.read_job(&format!("/v1/jobs/{}?wait={span}", path(id))).await
    }

    /// Any document of the server, by its path.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.ask(Method::GET, path, NOTHING).await
    }

    /// A page of jobs; `query` as in the API, without the question mark.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn jobs(&self, query: &str) -> Result<Page> {
        self.ask(Method::GET, &format!("/v1/jobs?{query}"), NOTHING).await
    }

    /// Cancels a job. Returns once no attempt of it can start any more.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cancel(&self, id: &str) -> Result<()> {
        let path = format!("/v1/jobs/{}/cancel", path(id));
        self.ask::<Done>(Method::POST, &path, NOTHING).await.map(drop)
    }

    /// Gives a dead job new attempts.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn retry(&self, id: &str) -> Result<()> {
        let path = format!("/v1/jobs/{}/retry", path(id));
        self.ask::<Done>(Method::POST, &path, NOTHING).await.map(drop)
    }

    /// Gives a job another priority.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_priority(&self, id: &str, priority: i16) -> Result<()> {
        #[derive(Serialize)]
        struct TokenRequest {
            priority: i16,
        }
        let path = format!("/v1/jobs/{}/priority", path(id));
        self.ask::<Done>(Method::PUT, &path, Some(&TokenRequest { priority })).await.map(drop)
    }

    /// Retries dead jobs, and returns how many.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dead_retry(&self, chosen: &Selection) -> Result<Count> {
        self.ask(Method::POST, "/v1/dead/retry", Some(chosen)).await
    }

    /// Discards dead jobs, and returns how many.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dead_discard(&self, chosen: &Selection) -> Result<Count> {
        self.ask(Method::POST, "/v1/dead/discard", Some(chosen)).await
    }

    /// Dead jobs grouped by error; `query` as in the API, without the question mark.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dead_groups(&self, query: &str) -> Result<Groups> {
        self.ask(Method::GET, &format!("/v1/dead/groups?{query}"), NOTHING).await
    }

    /// Submits the jobs of a flow, all or none. Submitting again with the same key returns the same
    /// jobs.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn submit_flow(&self, flow: &Flow, key: Option<&str>) -> Result<FlowReceipt> {
        let mut request = self.http.request(Method::POST, format!("{}/v1/flows", self.url));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = self.answer(request.json(flow)).await?;
        self.read(response).await
    }

    /// Every queue.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn queues(&self) -> Result<Vec<Queue>> {
        Ok(self.ask::<Queues>(Method::GET, "/v1/queues", NOTHING).await?.queues)
    }

    /// Changes a queue.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_queue(&self, name: &str, change: &QueueUpdate) -> Result<Queue> {
        self.ask(Method::PATCH, &format!("/v1/queues/{}", path(name)), Some(change)).await
    }

    /// Statistics of the server's side-work.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn recruit(&self) -> Result<Recruit> {
        self.ask(Method::GET, "/v1/recruit", NOTHING).await
    }

    /// The scheduling strategy.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn strategy(&self) -> Result<Order> {
        #[derive(serde::Deserialize)]
        struct Present {
            strategy: Order,
        }
        Ok(self.ask::<Present>(Method::GET, "/v1/strategy", NOTHING).await?.strategy)
    }

    /// Changes the scheduling strategy.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_strategy(&self, strategy: Order) -> Result<()> {
        #[derive(Serialize)]
        struct TokenRequest {
            strategy: Order,
        }
        let wanted = TokenRequest { strategy };
        self.ask::<Done>(Method::PUT, "/v1/strategy", Some(&wanted)).await.map(drop)
    }

    /// Every worker.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn workers(&self) -> Result<Vec<Worker>> {
        Ok(self.ask::<Workers>(Method::GET, "/v1/workers", NOTHING).await?.workers)
    }

    /// Drains a worker: it finishes its running jobs and leaves.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn drain(&self, worker: &str) -> Result<()> {
        let path = format!("/v1/workers/{}/drain", path(worker));
        self.ask::<Done>(Method::POST, &path, NOTHING).await.map(drop)
    }

    /// Creates a token. Only the response contains its secret.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn make_token(&self, wanted: &TokenRequest) -> Result<Made> {
        self.ask(Method::POST, "/v1/tokens", Some(wanted)).await
    }

    /// Every token, including revoked and expired ones.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tokens(&self) -> Result<Vec<Token>> {
        #[derive(serde::Deserialize)]
        struct Tokens {
            tokens: Vec<Token>,
        }
        Ok(self.ask::<Tokens>(Method::GET, "/v1/tokens", NOTHING).await?.tokens)
    }

    /// Revokes a token at once.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn revoke_token(&self, id: &str) -> Result<()> {
        let path = format!("/v1/tokens/{}/revoke", path(id));
        self.ask::<Done>(Method::POST, &path, NOTHING).await.map(drop)
    }

    /// Stops a worker: it finishes running jobs within the grace period and leaves.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stop_worker(&self, worker: &str, stop: &WorkerStop) -> Result<()> {
        let path = format!("/v1/workers/{}/stop", path(worker));
        self.ask::<Done>(Method::POST, &path, Some(stop)).await.map(drop)
    }

    /// One queue in detail.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn queue(&self, name: &str) -> Result<QueueDetail> {
        self.ask(Method::GET, &format!("/v1/queues/{}", path(name)), NOTHING).await
    }

    /// A page of the audit trail, the newest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn acts(&self, queue: Option<&str>, before: Option<u64>) -> Result<Acts> {
        let mut url = "/v1/acts?limit=1000".to_owned();
        if let Some(queue) = queue {
            url.push_str(&format!("&queue={}", path(queue)));
        }
        if let Some(before) = before {
            url.push_str(&format!("&before={before}"));
        }
        self.ask(Method::GET, &url, NOTHING).await
    }

    /// Cancels the waiting jobs of a queue, and returns how many.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn purge_queue(&self, name: &str, purge: &Purge) -> Result<Count> {
        self.ask(Method::POST, &format!("/v1/queues/{}/purge", path(name)), Some(purge)).await
    }

    /// The status of the server.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<Status> {
        self.ask(Method::GET, "/v1/status", NOTHING).await
    }

    /// The history of one job.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn job_events(&self, id: &str) -> Result<JobEvents> {
        self.ask(Method::GET, &format!("/v1/jobs/{}/events", path(id)), NOTHING).await
    }

    async fn read_job(&self, path: &str) -> Result<Job> {
        let response = self.send(Method::GET, path, NOTHING).await?;
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        Job::read(&bytes).map_err(|error| self.strange(error.to_string()))
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&(impl Serialize + ?Sized)>,
    ) -> Result<T> {
        self.read(self.send(method, path, body).await?).await
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T> {
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(error.to_string()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&(impl Serialize + ?Sized)>,
    ) -> Result<Response> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Response> {
        match request.send().await {
            Ok(response) => self.check(response).await,
            Err(error) => Err(self.unanswered(&error).await),
        }
    }

    /// A server may reject our client certificate after the handshake has already succeeded on our
    /// side. Whether we then read its reason, or only see that the connection was closed, is a
    /// race. So a few more requests are sent, only to learn the reason.
    async fn unanswered(&self, error: &reqwest::Error) -> Error {
        let why = self.unreachable(error);
        let may_be_distrust = self.url.starts_with("https:")
            && !error.is_connect()
            && !error.is_timeout()
            && matches!(why, Error::Unreachable { .. });
        if may_be_distrust {
            for _ in 0..DISTRUST_TRIES {
                let Err(error) = self.http.head(&self.url).send().await else { break };
                let why = self.unreachable(&error);
                if matches!(why, Error::Untrusted { .. }) {
                    return why;
                }
            }
        }
        why
    }

    async fn check(&self, response: Response) -> Result<Response> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        Err(match serde_json::from_slice(&bytes) {
            Ok(problem) => Error::Refused(problem),
            Err(_) => self.strange(format!("it answered {status}")),
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        // The innermost cause is the one that people understand.
        let mut cause: &dyn std::error::Error = error;
        loop {
            if let Some(why) = tls::distrust(cause) {
                return Error::Untrusted { url: self.url.clone(), why };
            }
            match cause.source() {
                Some(source) => cause = source,
                None => break,
            }
        }
        Error::Unreachable { url: self.url.clone(), why: cause.to_string() }
    }

    fn strange(&self, why: String) -> Error {
        Error::Strange { url: self.url.clone(), why }
    }
}

/// Percent-encodes a name for a path or a query.
#[must_use]
pub fn path(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~@".contains(&byte) {
            path.push(byte as char);
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}
