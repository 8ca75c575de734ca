//! Which jobs a starting server loads: one bit per job number, in blocks that are rows of a table.
//!
//! A commit of thousands of jobs changes one or two rows here, where an index would get thousands
//! of entries and lose them again. The writer holds all of it in memory: a million jobs are 125 KB.

use std::collections::BTreeMap;

use filch_scheduler::id::Seq;
use rusqlite::Connection;

use super::error::Failure;

/// How many numbers one row covers.
const BLOCK: u64 = 4_096;

const WORDS: usize = (BLOCK / 64) as usize;

/// The size of a row's blob.
const BYTES: usize = WORDS * 8;

type Bits = [u64; WORDS];

/// The jobs that every starting server loads.
#[derive(Default)]
pub(super) struct Live {
    /// Blocks in which at least one bit is set.
    blocks: BTreeMap<u64, Bits>,
    /// The blocks that the present commit has changed, as they were before.
    before: BTreeMap<u64, Option<Bits>>,
}

impl Live {
    /// Reads the whole table.
    pub(super) fn read(connection: &Connection) -> Result<Self, Failure> {
        let mut blocks = BTreeMap::new();
        let mut statement = connection.prepare_cached("SELECT block, bits FROM live")?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let block: i64 = row.get(0)?;
            let bytes = row.get_ref(1)?.as_blob()?;
            let wrong =
                || Failure::Content(format!("block {block} of the table `live` is unreadable"));
            let number = u64::try_from(block).map_err(|_| wrong())?;
            blocks.insert(number, from_bytes(bytes).ok_or_else(wrong)?);
        }
        Ok(Self { blocks, before: BTreeMap::new() })
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        let (block, word, bit) = place(seq);
        self.blocks.get(&block).is_some_and(|bits| bits[word] & bit != 0)
    }

    pub(super) fn set(&mut self, seq: Seq, lives: bool) {
        let (block, word, bit) = place(seq);
        let kept = self.blocks.get(&block);
        if kept.is_some_and(|bits| bits[word] & bit != 0) == lives {
            return;
        }
        self.before.entry(block).or_insert_with(|| kept.copied());
        let bits = self.blocks.entry(block).or_insert([0; WORDS]);
        bits[word] = if lives { bits[word] | bit } else { bits[word] & !bit };
        if !lives && bits.iter().all(|&word| word == 0) {
            self.blocks.remove(&block);
        }
    }

    /// Writes the rows of all changed blocks.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), Failure> {
        for block in self.before.keys() {
            let number = block.cast_signed();
            if let Some(bits) = self.blocks.get(block) {
                let sql = "INSERT INTO live (block, bits) VALUES (?1, ?2)
                           ON CONFLICT (block) DO UPDATE SET bits = excluded.bits";
                connection.prepare_cached(sql)?.execute((number, &to_bytes(bits)[..]))?;
            } else {
                let sql = "DELETE FROM live WHERE block = ?1";
                connection.prepare_cached(sql)?.execute([number])?;
            }
        }
        Ok(())
    }

    /// The commit has succeeded.
    pub(super) fn settle(&mut self) {
        self.before.clear();
    }

    /// The commit has failed: restores the changed blocks.
    pub(super) fn take_back(&mut self) {
        for (block, bits) in std::mem::take(&mut self.before) {
            match bits {
                Some(bits) => self.blocks.insert(block, bits),
                None => self.blocks.remove(&block),
            };
        }
    }

    /// The jobs as ascending ranges without gaps: first and last number.
    pub(super) fn runs(&self) -> Vec<(Seq, Seq)> {
        let mut runs: Vec<(Seq, Seq)> = Vec::new();
        for (block, bits) in &self.blocks {
            for (word, &content) in (0..).zip(bits) {
                let mut rest = content;
                while rest != 0 {
                    let skipped = rest.trailing_zeros();
                    let length = (!(rest >> skipped)).trailing_zeros();
                    let first = block * BLOCK + word * 64 + u64::from(skipped);
                    let last = first + u64::from(length) - 1;
                    match runs.last_mut() {
                        Some((_, end)) if end.0 + 1 == first => *end = Seq(last),
                        _ => runs.push((Seq(first), Seq(last))),
                    }
                    let done = skipped + length;
                    rest = if done == 64 { 0 } else { rest >> done << done };
                }
            }
        }
        runs
    }
}

fn place(seq: Seq) -> (u64, usize, u64) {
    let within = seq.0 % BLOCK;
    (seq.0 / BLOCK, (within / 64) as usize, 1 << (within % 64))
}

fn to_bytes(bits: &Bits) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(bits) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8]) -> Option<Bits> {
    let mut bits = [0; WORDS];
    let (words, rest) = bytes.as_chunks::<8>();
    if words.len() != WORDS || !rest.is_empty() {
        return None;
    }
    for (word, bytes) in bits.iter_mut().zip(words) {
        *word = u64::from_le_bytes(*bytes);
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_cover_exactly_the_set(seqs in prop::collection::vec((0..9_000_u64, 1..200_u64), 0..20)) {
            let (mut live, mut set) = (Live::default(), BTreeSet::new());
            for (seq, length) in seqs {
                for seq in seq..seq + length {
                    let lives = set.insert(seq);
                    if !lives {
                        set.remove(&seq);
                    }
                    live.set(Seq(seq), lives);
                }
            }
            let runs = live.runs();
            let apart = |pair: &[(Seq, Seq)]| pair[0].1.0 + 1 < pair[1].0.0;
            prop_assert!(runs.windows(2).all(apart));
            let in_runs: Vec<u64> = runs.iter().flat_map(|run| run.0.0..=run.1.0).collect();
            prop_assert!(set.iter().copied().eq(in_runs));
            prop_assert!((0..9_300).all(|seq| live.contains(Seq(seq)) == set.contains(&seq)));
            live.take_back();
            prop_assert!(live.blocks.is_empty());
        }
    }

    #[test]
    fn a_block_survives_encoding() {
        let mut live = Live::default();
        for seq in [0, 63, 64, 4_095] {
            live.set(Seq(seq), true);
        }
        let bits = live.blocks[&0];
        assert_eq!(from_bytes(&to_bytes(&bits)), Some(bits));
        assert_eq!(from_bytes(&[0; 511]), None);
    }
}
