//! The ledger of ownership: which lease rows are open, and what the current event adds to them.
//!
//! A row is open while it is newer than the stored row of some job in it: until every job in it was
//! written since, or appears in a later row.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::id::{Hold, LeaseNo, WorkerId};
use crate::record::{LeaseCause, LeaseRow, Mutation};
use crate::time::Wall;

/// The open rows and those being made.
#[derive(Default)]
pub(crate) struct Ledger {
    /// For how many jobs each open row still determines the owner.
    open: BTreeMap<LeaseNo, u32>,
    last: LeaseNo,
    making: Vec<LeaseRow>,
    closing: Vec<LeaseNo>,
}

impl Ledger {
    pub(crate) const fn set_last(&mut self, last: LeaseNo) {
        self.last = last;
    }

    pub(crate) const fn last(&self) -> LeaseNo {
        self.last
    }

    /// Records a change of owner in the row that this event makes for such changes. The caller has
    /// yet to remove the job from its previous row.
    pub(crate) fn enter(
        &mut self,
        worker: Option<WorkerId>,
        cause: LeaseCause,
        hold: Hold,
        at: Wall,
    ) -> LeaseNo {
        // The jobs of one change come one after another, so if the row exists, it is among the last
        // ones; a second row would be correct, too.
        let same = |row: &&mut LeaseRow| row.worker == worker && row.cause == cause;
        let row = if let Some(row) = self.making.iter_mut().rev().take(4).find(same) {
            row
        } else {
            self.last = self.last.next();
            self.making.push(LeaseRow { number: self.last, worker, cause, jobs: Vec::new(), at });
            self.making.last_mut().expect("pushed just now")
        };
        row.jobs.push(hold);
        let number = row.number;
        self.speak(number);
        number
    }

    /// This row determines the owner of one more job.
    pub(crate) fn speak(&mut self, number: LeaseNo) {
        *self.open.entry(number).or_default() += 1;
    }

    /// The job was written, or is in a later row.
    pub(crate) fn leave(&mut self, number: LeaseNo) {
        if number == LeaseNo(0) {
            return;
        }
        let jobs = self.open.get_mut(&number).expect("a job's row is open");
        *jobs -= 1;
        if *jobs == 0 {
            self.open.remove(&number);
            // A row that is still being made may get another job.
            if self.making.first().is_none_or(|first| number < first.number) {
                self.closing.push(number);
            }
        }
    }

    /// Adds the rows that this event opened and closed.
    pub(crate) fn flush(&mut self, mutations: &mut Vec<Mutation>) {
        let made = self.making.iter().map(|row| row.number);
        self.closing.extend(made.filter(|number| !self.open.contains_key(number)));
        mutations.extend(self.making.drain(..).map(Mutation::Lease));
        mutations.extend(self.closing.drain(..).map(Mutation::Close));
    }

    /// The open rows, and for how many jobs each determines the owner.
    pub(crate) fn open(&self) -> &BTreeMap<LeaseNo, u32> {
        &self.open
    }
}
