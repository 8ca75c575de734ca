//! Many threads read while one commits: every acknowledged commit is visible, and no commit is
//! visible in part.

use std::sync::atomic::{AtomicU64, Ordering};

use filch_scheduler::id::{CommitNo, Seq};
use filch_scheduler::record::Mutation;
use filch_scheduler::state::JobState;
use filch_store::{Filter, ListOrder, Store};

use crate::pair::{Pair, commit, payload};
use crate::{put, write};

/// Each commit puts this many jobs and ends those of the one before.
const JOBS: u64 = 10;
const COMMITS: u64 = 400;

#[test]
fn readers_see_acknowledged_commits_whole() {
    let pair = Pair::new();
    let store = pair.sqlite();
    let kept = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // More threads than connections.
        for reader in 0..7_u64 {
            let kept = &kept;
            scope.spawn(move || {
                loop {
                    let before = kept.load(Ordering::Acquire);
                    look(store, reader, before);
                    if before == COMMITS {
                        break;
                    }
                }
            });
        }
        for number in 1..=COMMITS {
            let jobs = |number: u64| (number - 1) * JOBS + 1..=number * JOBS;
            let mut mutations: Vec<Mutation> =
                jobs(number).map(|seq| put(seq, &format!("j{seq}"))).collect();
            if number > 1 {
                let end = |seq| Mutation::Write(write(seq, JobState::Succeeded, 1));
                mutations.extend(jobs(number - 1).map(end));
            }
            store.commit(&commit(CommitNo(number), mutations)).unwrap();
            kept.store(number, Ordering::Release);
        }
    });
}

fn look(store: &dyn Store, reader: u64, before: u64) {
    let filter = match reader % 3 {
        0 => Filter::default(),
        1 => Filter { states: vec![JobState::Queued], ..Filter::default() },
        _ => Filter { states: vec![JobState::Succeeded], ..Filter::default() },
    };
    let rows = store.list(&filter, ListOrder::After(Seq(0)), usize::MAX).expect("readable");
    let count = rows.len() as u64;
    match reader % 3 {
        0 => assert!(count.is_multiple_of(JOBS) && count >= before * JOBS, "{count} {before}"),
        1 => assert_eq!(count, if before == 0 { count.min(JOBS) } else { JOBS }),
        _ => assert!(count.is_multiple_of(JOBS) && count + JOBS >= before * JOBS),
    }
    let seqs: Vec<Seq> = (1..=before * JOBS).map(Seq).collect();
    let payloads = store.payloads(&seqs).expect("readable");
    assert!(seqs.iter().zip(payloads).all(|(&seq, text)| text == Some(payload(seq))));
}
