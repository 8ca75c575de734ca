//! A ledger of charges: a resource outside filch, like those of filch's users, that uses the
//! fencing token to reject former owners.
//!
//! It is a folder. `charges` has one line per charge (`INVOICE FENCE MICROS`), `seen` one per owner
//! that has announced itself (`INVOICE FENCE`), `refusals` one per refused charge
//! (`INVOICE FENCE REASON`). A file lock makes each step atomic.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::since_boot;

/// The ledger of charges.
#[derive(Clone, Debug)]
pub struct ChargeLedger {
    folder: PathBuf,
}

/// The outcome of an attempt to charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeOutcome {
    /// It was charged.
    Charged,
    /// A former owner has charged it, so nothing is charged. This is no error.
    Before,
    /// There is a newer owner.
    Stale,
    /// The same owner has charged it before: it runs twice.
    Twice,
    /// It should be shipped, but was not charged.
    Unpaid,
}

impl fmt::Display for ChargeOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Charged => "charged",
            Self::Before => "before",
            Self::Stale => "stale",
            Self::Twice => "twice",
            Self::Unpaid => "unpaid",
        })
    }
}

/// A line of `charges`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The invoice.
    pub invoice: String,
    /// The fence of the owner that charged it.
    pub fence: u64,
    /// When, in microseconds since boot.
    pub at: u64,
}

/// A line of `refusals`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCharge {
    /// The invoice.
    pub invoice: String,
    /// The fence of the owner that tried.
    pub fence: u64,
    /// Why it was refused.
    pub reason: String,
}

impl ChargeLedger {
    /// The ledger in this folder, which must exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Announces an owner. From now on no older one can charge.
    pub fn announce(&self, invoice: &str, fence: u64) {
        let _locked = self.lock();
        self.add("seen", &format!("{invoice} {fence}"));
    }

    /// Charges an invoice, at most once, and only for the newest owner.
    #[must_use]
    pub fn charge(&self, invoice: &str, fence: u64) -> ChargeOutcome {
        let _locked = self.lock();
        let is_stale = self.seen().any(|(it, other)| it == invoice && other > fence);
        let before = self.charges().into_iter().find(|charge| charge.invoice == invoice);
        let outcome = match before {
            _ if is_stale => ChargeOutcome::Stale,
            Some(charge) if charge.fence == fence => ChargeOutcome::Twice,
            Some(_) => ChargeOutcome::Before,
            None => ChargeOutcome::Charged,
        };
        match outcome {
            ChargeOutcome::Charged => {
                self.add("charges", &format!("{invoice} {fence} {}", since_boot()));
            }
            refused => self.add("refusals", &format!("{invoice} {fence} {refused}")),
        }
        outcome
    }

    /// Whether an invoice is charged, as it must be before anything is shipped.
    #[must_use]
    pub fn is_paid(&self, invoice: &str, fence: u64) -> bool {
        let _locked = self.lock();
        let is_paid = self.charges().iter().any(|charge| charge.invoice == invoice);
        if !is_paid {
            self.add("refusals", &format!("{invoice} {fence} {}", ChargeOutcome::Unpaid));
        }
        is_paid
    }

    /// Every charge, in order.
    #[must_use]
    pub fn charges(&self) -> Vec<Charge> {
        let read = |line: &str| {
            let [invoice, fence, at] = words(line);
            Charge { invoice, fence: number(&fence), at: number(&at) }
        };
        self.read("charges").lines().map(read).collect()
    }

    /// Every refused charge, in order.
    #[must_use]
    pub fn refusals(&self) -> Vec<RefusedCharge> {
        let read = |line: &str| {
            let [invoice, fence, reason] = words(line);
            RefusedCharge { invoice, fence: number(&fence), reason }
        };
        self.read("refusals").lines().map(read).collect()
    }

    fn seen(&self) -> impl Iterator<Item = (String, u64)> {
        let read = |line: &str| {
            let [invoice, fence] = words(line);
            (invoice, number(&fence))
        };
        let seen: Vec<_> = self.read("seen").lines().map(read).collect();
        seen.into_iter()
    }

    /// Held until it is dropped, or the process dies.
    fn lock(&self) -> File {
        let path = self.folder.join("lock");
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.expect("the folder of the ledger exists");
        file.lock().expect("a lock can be taken");
        file
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// In one write, so that a process that is killed has written the whole line or nothing.
    fn add(&self, name: &str, line: &str) {
        let file = OpenOptions::new().create(true).append(true).open(self.folder.join(name));
        let mut file = file.expect("the folder of the ledger exists");
        file.write_all(format!("{line}\n").as_bytes()).expect("a line can be written");
    }
}

fn words<const COUNT: usize>(line: &str) -> [String; COUNT] {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    words.try_into().unwrap_or_else(|_| panic!("malformed line {line:?} in the ledger"))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("expected a number, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invoice_is_charged_once_and_by_the_newest_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = ChargeLedger::new(folder.path());
        assert!(!ledger.is_paid("a", 1));
        ledger.announce("a", 1);
        ledger.announce("a", 2);
        assert_eq!(ledger.charge("a", 1), ChargeOutcome::Stale);
        assert_eq!(ledger.charge("a", 2), ChargeOutcome::Charged);
        assert_eq!(ledger.charge("a", 2), ChargeOutcome::Twice);
        assert_eq!(ledger.charge("a", 3), ChargeOutcome::Before);
        assert_eq!(ledger.charge("b", 1), ChargeOutcome::Charged);
        assert!(ledger.is_paid("a", 1));
        let charges: Vec<_> =
            ledger.charges().into_iter().map(|it| (it.invoice, it.fence)).collect();
        assert_eq!(charges, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        let reasons: Vec<_> = ledger.refusals().into_iter().map(|it| it.reason).collect();
        assert_eq!(reasons, ["unpaid", "stale", "twice", "before"]);
    }
}
