//! The table of jobs in memory: by number, by the client's id, and by idempotency key.
//!
//! Hash tables map ids and keys to numbers. They are never iterated, so their order cannot matter;
//! every iteration over jobs is by number.

use hashbrown::HashTable;

use super::job::Job;
use super::pages::Pages;
use crate::id::{JobId, Seq};
use crate::name::Name;
use crate::planted::{Bug, planted};
use crate::random::mix;

/// Every job that is in memory.
pub(crate) struct Jobs {
    pages: Pages,
    ids: HashTable<Entry>,
    keys: HashTable<Seq>,
    seed: u64,
    count: usize,
}

/// A job in the index of ids, with a part of the id's hash. So the index can grow without reading a
/// single job: with millions of them, that would take longer than a heartbeat interval. The number
/// is stored in halves because that saves four bytes per job.
struct Entry {
    hash: u32,
    seq_low: u32,
    seq_high: u32,
}

impl Entry {
    const fn new(hash: u32, seq: Seq) -> Self {
        Self { hash, seq_low: seq.0 as u32, seq_high: (seq.0 >> 32) as u32 }
    }

    const fn seq(&self) -> Seq {
        Seq((self.seq_high as u64) << 32 | self.seq_low as u64)
    }
}

impl Jobs {
    pub(crate) fn new(seed: u64) -> Self {
        let pages = Pages::default();
        Self { pages, ids: HashTable::new(), keys: HashTable::new(), seed, count: 0 }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<&Job> {
        self.pages.find(seq)
    }

    pub(crate) fn find_mut(&mut self, seq: Seq) -> Option<&mut Job> {
        self.pages.find_mut(seq)
    }

    /// A job that one of our indexes refers to.
    pub(crate) fn get(&self, seq: Seq) -> &Job {
        self.find(seq).expect("a job that an index names is in the table")
    }

    /// A job that one of our indexes refers to.
    pub(crate) fn get_mut(&mut self, seq: Seq) -> &mut Job {
        self.find_mut(seq).expect("a job that an index names is in the table")
    }

    pub(crate) fn by_id(&self, id: JobId) -> Option<Seq> {
        let hash = short_hash(self.seed, id);
        let is_it = |entry: &Entry| entry.hash == hash && self.get(entry.seq()).id == id;
        self.ids.find(spread(hash), is_it).map(Entry::seq)
    }

    /// Whether the index of ids has this job, as it must.
    pub(crate) fn is_indexed(&self, seq: Seq) -> bool {
        let hash = short_hash(self.seed, self.get(seq).id);
        self.ids.find(spread(hash), |entry| entry.seq() == seq).is_some()
    }

    /// The job of this queue with this key.
    pub(crate) fn by_key(&self, queue: u32, key: &Name) -> Option<Seq> {
        let hash = hash_key(self.seed, queue, key);
        let is_it = |&seq: &Seq| {
            let job = self.get(seq);
            (job.queue == queue || planted(Bug::KeyOfAnotherQueue)) && job.key() == Some(key)
        };
        self.keys.find(hash, is_it).copied()
    }

    /// Adds a job whose number, id and key are not in memory yet.
    pub(crate) fn insert(&mut self, seq: Seq, job: Job) {
        let (seed, queue, key) = (self.seed, job.queue, job.key().cloned());
        let hash = short_hash(seed, job.id);
        self.pages.insert(seq, job);
        self.count += 1;
        let entry = Entry::new(hash, seq);
        self.ids.insert_unique(spread(hash), entry, |entry| spread(entry.hash));
        if let Some(key) = key {
            let pages = &self.pages;
            self.keys.insert_unique(hash_key(seed, queue, &key), seq, |&seq| {
                let found = pages.find(seq).and_then(|job| Some((job.queue, job.key()?)));
                let (queue, key) = found.expect("a job in the index of keys has one");
                hash_key(seed, queue, key)
            });
        }
    }

    pub(crate) fn remove(&mut self, seq: Seq) -> Job {
        let job = self.pages.remove(seq).expect("a job that is removed is in the table");
        self.count -= 1;
        let hash = short_hash(self.seed, job.id);
        let in_ids = self.ids.find_entry(spread(hash), |entry| entry.seq() == seq);
        in_ids.ok().expect("every job is in the index of ids").remove();
        if let Some(key) = job.key() {
            let hash = hash_key(self.seed, job.queue, key);
            let in_keys = self.keys.find_entry(hash, |&other| other == seq);
            in_keys.expect("a job with a key is in the index of keys").remove();
        }
        job
    }

    /// Every job in memory, in the order of submission.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, &Job)> {
        self.iter_from(Seq(0))
    }

    /// Every job in memory from this number on, in the order of submission.
    pub(crate) fn iter_from(&self, first: Seq) -> impl Iterator<Item = (Seq, &Job)> {
        self.pages.iter_from(first)
    }

    /// How many entries the indexes hold: ids, keys.
    pub(crate) fn indexed(&self) -> (usize, usize) {
        (self.ids.len(), self.keys.len())
    }
}

/// Clients choose ids, so the seed keeps them from choosing collisions.
pub(crate) const fn hash_id(seed: u64, id: JobId) -> u64 {
    mix(mix(id.0 as u64 ^ seed).wrapping_add((id.0 >> 64) as u64))
}

/// The part of an id's hash that is stored.
const fn short_hash(seed: u64, id: JobId) -> u32 {
    hash_id(seed, id) as u32
}

/// All the bits that a hash table uses, from the part that is stored.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash as u64
}

fn hash_key(seed: u64, queue: u32, key: &Name) -> u64 {
    let queue = if planted(Bug::KeyOfAnotherQueue) { 0 } else { u64::from(queue) };
    let mut hash = mix(seed ^ key.as_str().len() as u64 ^ queue << 32);
    for chunk in key.as_str().as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash.wrapping_add(u64::from_le_bytes(word)));
    }
    hash
}
