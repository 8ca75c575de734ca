//! The ledger of ownership: which lease rows are open, and what the present event adds to them.
//!
//! A row is open while it says more about some job than that job's own row in the store: until
//! every job in it was written since, or appears in a later row.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::id::{Hold, LeaseNo, WorkerId};
use crate::record::{LeaseCause, LeaseRow, Mutation};
use crate::time::Wall;

/// The open rows and those being made.
#[derive(Default)]
pub(crate) struct Ledger {
    /// How many jobs each open row still speaks for.
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

    /// Writes a change of owner into the row that this event makes for such changes. The job has
    /// yet to leave the row it was in before.
    pub(crate) fn enter(
        &mut self,
        worker: Option<WorkerId>,
        cause: LeaseCause,
        hold: Hold,
        at: Wall,
    ) -> LeaseNo {
        // The jobs of one change come one after another, so the row is among the last ones, if it
        // is there; a second row would be right too.
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

    /// One more job for which this row speaks.
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
            // A row that is still being made may come to speak for another job yet.
            if self.making.first().is_none_or(|first| number < first.number) {
                self.closing.push(number);
            }
        }
    }

    /// What the event adds to the store.
    pub(crate) fn flush(&mut self, mutations: &mut Vec<Mutation>) {
        let made = self.making.iter().map(|row| row.number);
        self.closing.extend(made.filter(|number| !self.open.contains_key(number)));
        mutations.extend(self.making.drain(..).map(Mutation::Lease));
        mutations.extend(self.closing.drain(..).map(Mutation::Close));
    }

    /// The open rows and how many jobs each speaks for.
    pub(crate) fn open(&self) -> &BTreeMap<LeaseNo, u32> {
        &self.open
    }
}
