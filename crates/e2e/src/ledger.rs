//! Who was charged: a resource outside filch, as filch's users have them, which guards itself by the
//! fence.
//!
//! It is a folder. `charges` has one line per charge (`INVOICE FENCE MICROS`), `seen` one per owner that
//! has come to charge (`INVOICE FENCE`), `refusals` one per charge that was not made
//! (`INVOICE FENCE REASON`). An OS lock makes each step one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::since_boot;

/// The ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
}

/// What became of the wish to charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is charged now.
    Charged,
    /// An owner before has charged it. All is well, and nothing is charged.
    Before,
    /// There is a newer owner.
    Stale,
    /// This very owner has charged it: somebody runs twice.
    Twice,
    /// It was to be shipped, and is not charged.
    Unpaid,
}

impl fmt::Display for Verdict {
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
    /// What was charged.
    pub invoice: String,
    /// By which owner.
    pub fence: u64,
    /// When, in microseconds since boot.
    pub at: u64,
}

/// A line of `refusals`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was not charged.
    pub invoice: String,
    /// Who wanted to.
    pub fence: u64,
    /// Why, as it is written.
    pub reason: String,
}

impl Ledger {
    /// The ledger in this folder, which must be there.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// An owner says that it is there. From now on no older one can charge.
    pub fn announce(&self, invoice: &str, fence: u64) {
        let _locked = self.lock();
        self.add("seen", &format!("{invoice} {fence}"));
    }

    /// Charges an invoice, at most once, and never for an owner that has been replaced.
    #[must_use]
    pub fn charge(&self, invoice: &str, fence: u64) -> Verdict {
        let _locked = self.lock();
        let is_stale = self.seen().any(|(it, other)| it == invoice && other > fence);
        let before = self.charges().into_iter().find(|charge| charge.invoice == invoice);
        let verdict = match before {
            _ if is_stale => Verdict::Stale,
            Some(charge) if charge.fence == fence => Verdict::Twice,
            Some(_) => Verdict::Before,
            None => Verdict::Charged,
        };
        match verdict {
            Verdict::Charged => self.add("charges", &format!("{invoice} {fence} {}", since_boot())),
            verdict => self.add("refusals", &format!("{invoice} {fence} {verdict}")),
        }
        verdict
    }

    /// Whether an invoice is charged, as it must be before anything is shipped.
    #[must_use]
    pub fn is_paid(&self, invoice: &str, fence: u64) -> bool {
        let _locked = self.lock();
        let is_paid = self.charges().iter().any(|charge| charge.invoice == invoice);
        if !is_paid {
            self.add("refusals", &format!("{invoice} {fence} {}", Verdict::Unpaid));
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

    /// Everything that was not charged, in order.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        let read = |line: &str| {
            let [invoice, fence, reason] = words(line);
            Refusal { invoice, fence: number(&fence), reason }
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

    /// Held until it is dropped, or its process dies.
    fn lock(&self) -> File {
        let path = self.folder.join("lock");
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.expect("the folder of the ledger is there");
        file.lock().expect("a lock can be taken");
        file
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// In one write, so that who is killed has written all of it or nothing.
    fn add(&self, name: &str, line: &str) {
        let file = OpenOptions::new().create(true).append(true).open(self.folder.join(name));
        let mut file = file.expect("the folder of the ledger is there");
        file.write_all(format!("{line}\n").as_bytes()).expect("a line can be written");
    }
}

fn words<const COUNT: usize>(line: &str) -> [String; COUNT] {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    words.try_into().unwrap_or_else(|_| panic!("{line:?} is no line of the ledger"))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invoice_is_charged_once_and_by_the_newest_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path());
        assert!(!ledger.is_paid("a", 1));
        ledger.announce("a", 1);
        ledger.announce("a", 2);
        assert_eq!(ledger.charge("a", 1), Verdict::Stale);
        assert_eq!(ledger.charge("a", 2), Verdict::Charged);
        assert_eq!(ledger.charge("a", 2), Verdict::Twice);
        assert_eq!(ledger.charge("a", 3), Verdict::Before);
        assert_eq!(ledger.charge("b", 1), Verdict::Charged);
        assert!(ledger.is_paid("a", 1));
        let charges: Vec<_> =
            ledger.charges().into_iter().map(|it| (it.invoice, it.fence)).collect();
        assert_eq!(charges, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        let reasons: Vec<_> = ledger.refusals().into_iter().map(|it| it.reason).collect();
        assert_eq!(reasons, ["unpaid", "stale", "twice", "before"]);
    }
}
