//! A store that cannot be read when jobs are delivered ends the server, with the reason.

use std::ops::RangeInclusive;
use std::sync::Arc;

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
use serde_json::json;

use crate::client::{LEASE, Place};

/// A store whose payloads cannot be read.
struct Unreadable(Arc<Transient>);

impl Store for Unreadable {
    fn texts(&self, which: JobText, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        match which {
            JobText::Payload => {
                Err(StoreError { doing: "read payloads", source: "the disk is gone".into() })
            }
            JobText::LastError => self.0.texts(which, jobs),
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

#[tokio::test]
async fn a_store_that_cannot_be_read_ends_the_server() {
    let store = Arc::new(Transient::default());
    let shared = Arc::clone(&store);
    let place = Place::with(shared, LEASE, None).await;
    place.submit(&json!({"kind": "k"})).await;
    place.server.stop().await;
    // A server that has just started has no payloads in memory.
    let place = Place::with(Arc::new(Unreadable(store)), LEASE, None).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("60s").await.refused(503, "stopping");
    let stopped = place.server.ended().await;
    let Stopped::Read(error) = &stopped else { panic!("{stopped:?}") };
    assert_eq!(error.to_string(), "cannot read payloads: the disk is gone");
}
