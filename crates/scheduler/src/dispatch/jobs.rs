//! The table of jobs in memory: by number, by the client's id, and by idempotency key.
//!
//! Numbers find their job by a page table; ids and keys by hash tables that hold only numbers. The
//! hash tables are never walked, so their order cannot matter; what walks the jobs walks the pages.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use hashbrown::HashTable;

use super::job::Job;
use crate::id::{JobId, Seq};
use crate::name::Name;
use crate::random::mix;

/// Jobs on one page. Small, so that a few old jobs among millions of finished ones hold little.
const PAGE: u64 = 32;

struct Page {
    jobs: [Option<Job>; PAGE as usize],
    used: u32,
}

/// Every job that is in memory.
pub(crate) struct Jobs {
    pages: BTreeMap<u64, Box<Page>>,
    ids: HashTable<Seq>,
    keys: HashTable<Seq>,
    seed: u64,
    count: usize,
}

impl Jobs {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            pages: BTreeMap::new(),
            ids: HashTable::new(),
            keys: HashTable::new(),
            seed,
            count: 0,
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<&Job> {
        find(&self.pages, seq)
    }

    pub(crate) fn find_mut(&mut self, seq: Seq) -> Option<&mut Job> {
        self.pages.get_mut(&(seq.0 / PAGE))?.jobs[(seq.0 % PAGE) as usize].as_mut()
    }

    /// A job that some index of ours names.
    pub(crate) fn get(&self, seq: Seq) -> &Job {
        self.find(seq).expect("a job that an index names is in the table")
    }

    /// A job that some index of ours names.
    pub(crate) fn get_mut(&mut self, seq: Seq) -> &mut Job {
        self.find_mut(seq).expect("a job that an index names is in the table")
    }

    pub(crate) fn by_id(&self, id: JobId) -> Option<Seq> {
        let hash = hash_id(self.seed, id);
        self.ids.find(hash, |&seq| self.get(seq).id == id).copied()
    }

    pub(crate) fn by_key(&self, key: &Name) -> Option<Seq> {
        let hash = hash_key(self.seed, key);
        self.keys.find(hash, |&seq| self.get(seq).key() == Some(key)).copied()
    }

    /// Takes in a job under a number, id and key that are not in memory.
    pub(crate) fn insert(&mut self, seq: Seq, job: Job) {
        let (seed, id, key) = (self.seed, job.id, job.key().cloned());
        let page = self
            .pages
            .entry(seq.0 / PAGE)
            .or_insert_with(|| Box::new(Page { jobs: [const { None }; PAGE as usize], used: 0 }));
        let place = &mut page.jobs[(seq.0 % PAGE) as usize];
        assert!(place.is_none(), "a job's number is used once");
        *place = Some(job);
        page.used += 1;
        self.count += 1;
        let pages = &self.pages;
        self.ids.insert_unique(hash_id(seed, id), seq, |&seq| hash_id(seed, named(pages, seq).id));
        if let Some(key) = key {
            self.keys.insert_unique(hash_key(seed, &key), seq, |&seq| {
                let key = named(pages, seq).key().expect("a job in the index of keys has one");
                hash_key(seed, key)
            });
        }
    }

    pub(crate) fn remove(&mut self, seq: Seq) -> Job {
        let (id, key) = (self.get(seq).id, self.get(seq).key().cloned());
        let in_ids = self.ids.find_entry(hash_id(self.seed, id), |&other| other == seq);
        in_ids.expect("every job is in the index of ids").remove();
        if let Some(key) = key {
            let hash = hash_key(self.seed, &key);
            let in_keys = self.keys.find_entry(hash, |&other| other == seq);
            in_keys.expect("a job with a key is in the index of keys").remove();
        }
        let number = seq.0 / PAGE;
        let page = self.pages.get_mut(&number).expect("the job was there just now");
        let job = page.jobs[(seq.0 % PAGE) as usize].take().expect("the job was there just now");
        page.used -= 1;
        if page.used == 0 {
            self.pages.remove(&number);
        }
        self.count -= 1;
        job
    }

    /// Every job in memory, in the order of submission.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, &Job)> {
        self.iter_from(Seq(0))
    }

    /// Every job in memory from this number on, in the order of submission.
    pub(crate) fn iter_from(&self, first: Seq) -> impl Iterator<Item = (Seq, &Job)> {
        let pages = self.pages.range(first.0 / PAGE..);
        let jobs = pages.flat_map(|(&number, page)| {
            let numbers = (number * PAGE..).map(Seq);
            numbers.zip(&page.jobs).filter_map(|(seq, job)| Some((seq, job.as_ref()?)))
        });
        jobs.skip_while(move |&(seq, _)| seq < first)
    }

    /// How many entries the indexes hold: ids, keys.
    pub(crate) fn indexed(&self) -> (usize, usize) {
        (self.ids.len(), self.keys.len())
    }
}

fn find(pages: &BTreeMap<u64, Box<Page>>, seq: Seq) -> Option<&Job> {
    pages.get(&(seq.0 / PAGE))?.jobs[(seq.0 % PAGE) as usize].as_ref()
}

fn named(pages: &BTreeMap<u64, Box<Page>>, seq: Seq) -> &Job {
    find(pages, seq).expect("a job that an index names is in the table")
}

/// Clients choose ids, so the seed keeps them from choosing collisions.
pub(crate) const fn hash_id(seed: u64, id: JobId) -> u64 {
    mix(mix(id.0 as u64 ^ seed).wrapping_add((id.0 >> 64) as u64))
}

fn hash_key(seed: u64, key: &Name) -> u64 {
    let mut hash = mix(seed ^ key.as_str().len() as u64);
    for chunk in key.as_str().as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash.wrapping_add(u64::from_le_bytes(word)));
    }
    hash
}
