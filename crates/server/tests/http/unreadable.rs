//! What a server does if its store cannot be read.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use filch_scheduler::id::{JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, Loaded};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::time::Wall;
use filch_server::Stopped;
use filch_store::{
    ActFilter, Commit, CommitError, DailyCount, Expired, Filter, FoundIds, History, JobText,
    ListOrder, Listed, Outdated, Store, StoreError, StoreStatus, StoredAct, StoredText,
    TokenChange, TokenRow, Transient,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{LEASE, Place, eventually, read};

/// A store that cannot be read.
struct Unreadable(Arc<Transient>, Defect);

enum Defect {
    /// Payloads cannot be read.
    Payloads,
    /// The code that reads payloads has a defect.
    Panic,
    /// The tokens cannot be read this often, once the server has started.
    Tokens(AtomicI32),
}

impl Store for Unreadable {
    fn texts(&self, which: JobText, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        match (which, &self.1) {
            (JobText::Payload, Defect::Payloads) => Err(gone("read payloads")),
            (JobText::Payload, Defect::Panic) => panic!("a defect of the store"),
            _ => self.0.texts(which, jobs),
        }
    }

    fn is_owned(&self) -> Result<bool, StoreError> {
        self.0.is_owned()
    }

    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.0.load(each)
    }

    fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.0.commit(commit)
    }

    fn find(
        &self,
        ids: &[JobId],
        keys: &[QueueKey],
        seqs: &[Seq],
    ) -> Result<Vec<JobRow>, StoreError> {
        self.0.find(ids, keys, seqs)
    }

    fn history(&self, job: JobId) -> Result<Option<History>, StoreError> {
        self.0.history(job)
    }

    fn list(&self, filter: &Filter, order: ListOrder, limit: usize) -> Result<Listed, StoreError> {
        self.0.list(filter, order, limit)
    }

    fn ids_ending(&self, digits: &str, limit: usize) -> Result<FoundIds, StoreError> {
        self.0.ids_ending(digits, limit)
    }

    fn expired(
        &self,
        after: Option<(Wall, Seq)>,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<Expired>, StoreError> {
        self.0.expired(after, before, limit)
    }

    fn outdated(
        &self,
        after: LeaseNo,
        recent: &RangeInclusive<Wall>,
        limit: usize,
    ) -> Result<Outdated, StoreError> {
        self.0.outdated(after, recent, limit)
    }

    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError> {
        self.0.daily_counts(limit)
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        if let Defect::Tokens(left) = &self.1
            && left.fetch_sub(1, Ordering::Relaxed) > 0
        {
            return Err(gone("read the tokens"));
        }
        self.0.tokens()
    }

    fn token_version(&self) -> Result<u64, StoreError> {
        self.0.token_version()
    }

    fn change_token(&self, change: &TokenChange, by: Option<&Name>) -> Result<bool, CommitError> {
        self.0.change_token(change, by)
    }

    fn acts(
        &self,
        filter: &ActFilter,
        before: u64,
        limit: usize,
    ) -> Result<Vec<StoredAct>, StoreError> {
        self.0.acts(filter, before, limit)
    }

    fn status(&self) -> StoreStatus {
        self.0.status()
    }

    fn announce(&self, url: &str) -> Result<(), StoreError> {
        self.0.announce(url)
    }

    fn close(&self) {
        self.0.close();
    }
}

fn gone(doing: &'static str) -> StoreError {
    StoreError { doing, source: "the disk is gone".into() }
}

#[tokio::test]
async fn a_store_that_cannot_be_read_ends_the_server() {
    let store = Arc::new(Transient::default());
    let shared = Arc::clone(&store);
    let place = Place::with(shared, LEASE, None).await;
    place.submit(&json!({"kind": "k"})).await;
    place.server.stop().await;
    // A server that has just started has no payloads in memory.
    let place = Place::with(Arc::new(Unreadable(store, Defect::Payloads)), LEASE, None).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("60s").await.refused(503, "stopping");
    let stopped = place.server.ended().await;
    let Stopped::Read(error) = &stopped else { panic!("{stopped:?}") };
    assert_eq!(error.to_string(), "cannot read payloads: the disk is gone");
}

#[tokio::test]
async fn a_panic_while_the_store_is_read_ends_the_server() {
    let store = Arc::new(Transient::default());
    let place = Place::with(Arc::<Transient>::clone(&store), LEASE, None).await;
    place.submit(&json!({"kind": "k"})).await;
    place.server.stop().await;
    let place = Place::with(Arc::new(Unreadable(store, Defect::Panic)), LEASE, None).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("60s").await.refused(503, "stopping");
    let stopped = place.server.ended().await;
    let Stopped::Read(error) = &stopped else { panic!("{stopped:?}") };
    assert_eq!(error.to_string(), "cannot read the store: the code that reads the store panicked");
}

/// A change that could not be read is read at the next look.
#[tokio::test]
async fn a_revocation_arrives_although_the_tokens_could_not_be_read_at_first() {
    let store = Arc::new(Transient::default());
    let one = Place::with(Arc::<Transient>::clone(&store), LEASE, None).await;
    let make = async |by: Option<&str>, wanted: Value| {
        let mut request = one.request(Method::POST, "/v1/tokens").json(&wanted);
        if let Some(by) = by {
            request = request.bearer_auth(by);
        }
        read(request.send().await.unwrap()).await.ok()
    };
    let admin = make(None, json!({"role": "admin"})).await["secret"].as_str().unwrap().to_owned();
    let viewer = make(Some(&admin), json!({"role": "view"})).await;
    let (id, secret) = (&viewer["token"]["id"], viewer["secret"].as_str().unwrap());
    // The first look is that of the start.
    let unreadable = Unreadable(store, Defect::Tokens(AtomicI32::new(0)));
    let unreadable = Arc::new(unreadable);
    let other = Place::with(Arc::<Unreadable>::clone(&unreadable), LEASE, None).await;
    let status = async || {
        let request = other.request(Method::GET, "/v1/status").bearer_auth(secret);
        read(request.send().await.unwrap()).await.status
    };
    assert_eq!(status().await, 200);
    let Defect::Tokens(left) = &unreadable.1 else { unreachable!("as it was made") };
    left.store(1, Ordering::Relaxed);
    let path = format!("/v1/tokens/{}/revoke", id.as_str().unwrap());
    let revoke = one.request(Method::POST, &path).bearer_auth(&admin);
    read(revoke.send().await.unwrap()).await.ok();
    eventually("the revocation counts there, too", async || status().await == 401).await;
    assert!(left.load(Ordering::Relaxed) < 0, "the first look has failed");
}
