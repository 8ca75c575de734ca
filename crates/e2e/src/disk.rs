//! What a power cut leaves of a folder: the journal of `shim/power.c`, which has everything that a
//! program did to its files, is replayed.
//!
//! A file's bytes survive once the file was synced, and its name once the folder was. Later changes
//! may survive or not: the test chooses.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::random::TestRandom;

/// Of unsynced writes, this many bytes survive or are lost together.
const SECTOR: usize = 512;

/// What survives of unsynced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surviving {
    /// Nothing.
    Nothing,
    /// Everything up to some moment.
    Prefix,
    /// Any sectors, in no order.
    Sectors,
}

impl Surviving {
    /// One of them at random.
    pub const fn draw(random: &mut TestRandom) -> Self {
        match random.below(3) {
            0 => Self::Nothing,
            1 => Self::Prefix,
            _ => Self::Sectors,
        }
    }
}

/// The files of a folder: what is synced, and what was changed since.
#[derive(Clone, Default)]
pub struct ReplayedDisk {
    /// By inode number, including those without a name.
    files: BTreeMap<u64, File>,
    /// Synced names.
    names: BTreeMap<String, u64>,
    /// Changes of names since.
    renamed: Vec<Change>,
}

#[derive(Clone, Default)]
struct File {
    synced: Vec<u8>,
    /// Changes since.
    done: Vec<Done>,
}

#[derive(Clone)]
enum Done {
    Wrote { place: usize, bytes: Vec<u8> },
    Cut { length: usize },
}

#[derive(Clone)]
enum Change {
    Made { name: String, file: u64 },
    Removed(String),
    Renamed { from: String, to: String },
}

impl ReplayedDisk {
    /// Reads a folder; everything in it counts as synced. Subfolders are ignored.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut disk = Self::default();
        for entry in std::fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            let about = path.metadata().expect("a file has metadata");
            if about.is_file() {
                let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
                let synced = std::fs::read(&path).expect("a file can be read");
                disk.names.insert(name.to_owned(), about.ino());
                disk.files.insert(about.ino(), File { synced, done: Vec::new() });
            }
        }
        disk
    }

    /// Replays a journal. The last record may be truncated.
    ///
    /// # Panics
    /// If it is malformed.
    pub fn play(&mut self, mut journal: &[u8]) {
        while let Some((record, rest)) = Record::read(journal) {
            self.step(&record);
            journal = rest;
        }
    }

    fn step(&mut self, record: &Record<'_>) {
        let &Record { kind, file, place, bytes } = record;
        match kind {
            b'C' => {
                self.files.insert(file, File::default());
                let [name] = names(bytes);
                self.renamed.push(Change::Made { name, file });
            }
            b'W' => self.file(file).done.push(Done::Wrote { place, bytes: bytes.to_vec() }),
            b'T' => self.file(file).done.push(Done::Cut { length: place }),
            b'S' => {
                let file = self.file(file);
                for done in std::mem::take(&mut file.done) {
                    done.apply(&mut file.synced);
                }
            }
            b'U' => {
                let [name] = names(bytes);
                self.renamed.push(Change::Removed(name));
            }
            b'R' => {
                let [from, to] = names(bytes);
                self.renamed.push(Change::Renamed { from, to });
            }
            b'D' => {
                for change in std::mem::take(&mut self.renamed) {
                    change.apply(&mut self.names);
                }
            }
            other => panic!("unknown record {other} in the journal"),
        }
    }

    fn file(&mut self, number: u64) -> &mut File {
        self.files.get_mut(&number).unwrap_or_else(|| panic!("file {number} was never created"))
    }

    /// How many writes to a file are not synced.
    #[must_use]
    pub fn unsynced(&self, name: &str) -> usize {
        self.names.get(name).map_or(0, |file| self.files[file].done.len())
    }

    /// The files without a power cut.
    #[must_use]
    pub fn present(&self) -> BTreeMap<String, Vec<u8>> {
        let keep_all = |file: &File| {
            let mut bytes = file.synced.clone();
            file.done.iter().for_each(|done| done.clone().apply(&mut bytes));
            bytes
        };
        self.named(&self.renamed, keep_all)
    }

    /// The files after a power cut.
    pub fn cut(&self, surviving: Surviving, random: &mut TestRandom) -> BTreeMap<String, Vec<u8>> {
        // Changes of names survive in order, unlike those of contents.
        let last = match surviving {
            Surviving::Nothing => 0,
            Surviving::Prefix | Surviving::Sectors => {
                random.below(self.renamed.len() as u64 + 1) as usize
            }
        };
        self.named(&self.renamed[..last], |file| file.cut(surviving, random))
    }

    fn named(
        &self,
        renamed: &[Change],
        mut bytes: impl FnMut(&File) -> Vec<u8>,
    ) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.names.clone();
        renamed.iter().for_each(|change| change.clone().apply(&mut names));
        names.into_iter().map(|(name, file)| (name, bytes(&self.files[&file]))).collect()
    }
}

/// Replaces the contents of a folder by these files.
///
/// # Panics
/// If it cannot be written.
pub fn write(folder: &Path, files: &BTreeMap<String, Vec<u8>>) {
    std::fs::remove_dir_all(folder).expect("the folder can be removed");
    std::fs::create_dir(folder).expect("the folder can be made");
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).expect("a file can be written");
    }
}

impl File {
    fn cut(&self, surviving: Surviving, random: &mut TestRandom) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let count = self.done.len();
        let (whole, torn) = match surviving {
            Surviving::Nothing => (0, 0),
            Surviving::Sectors => (0, count),
            Surviving::Prefix => {
                let whole = random.below(count as u64 + 1) as usize;
                (whole, count.min(whole + 1))
            }
        };
        for done in &self.done[..whole] {
            done.clone().apply(&mut bytes);
        }
        for done in self.done[whole..torn].iter().flat_map(Done::sectors) {
            if random.below(2) == 0 {
                done.apply(&mut bytes);
            }
        }
        bytes
    }
}

impl Done {
    fn apply(self, file: &mut Vec<u8>) {
        match self {
            Self::Cut { length } => file.resize(length, 0),
            Self::Wrote { place, bytes } => {
                let end = place + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[place..end].copy_from_slice(&bytes);
            }
        }
    }

    /// The parts of it that survive or are lost independently.
    fn sectors(&self) -> Vec<Self> {
        let Self::Wrote { place, bytes } = self else {
            return vec![self.clone()];
        };
        let (mut place, mut rest, mut parts) = (*place, &bytes[..], Vec::new());
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.len().min(SECTOR - place % SECTOR));
            parts.push(Self::Wrote { place, bytes: part.to_vec() });
            (place, rest) = (place + part.len(), more);
        }
        parts
    }
}

impl Change {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Made { name, file } => {
                names.insert(name, file);
            }
            Self::Removed(name) => {
                names.remove(&name);
            }
            Self::Renamed { from, to } => {
                let file = names.remove(&from).expect("a renamed file exists");
                names.insert(to, file);
            }
        }
    }
}

/// Splits a journal into its records.
#[must_use]
pub fn records(mut journal: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((_, rest)) = Record::read(journal) {
        records.push(&journal[..journal.len() - rest.len()]);
        journal = rest;
    }
    records
}

/// A record of the journal.
struct Record<'a> {
    kind: u8,
    file: u64,
    place: usize,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The first one, and the rest.
    fn read(journal: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, rest) = journal.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (file, rest) = rest.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
        let kind = u8::try_from(u32::from_ne_bytes(*kind)).expect("kinds are letters");
        let (file, place) = (u64::from_ne_bytes(*file), u64::from_ne_bytes(*place) as usize);
        Some((Self { kind, file, place, bytes }, rest))
    }
}

/// Names, each terminated by a zero byte.
fn names<const COUNT: usize>(bytes: &[u8]) -> [String; COUNT] {
    let text = std::str::from_utf8(bytes).expect("names are UTF-8");
    let names: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    names.try_into().unwrap_or_else(|_| panic!("{text:?} are not {COUNT} names"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, file: u64, place: u64, bytes: &[u8]) -> Vec<u8> {
        let mut record = u32::from(kind).to_ne_bytes().to_vec();
        record.extend((bytes.len() as u32).to_ne_bytes());
        record.extend(file.to_ne_bytes());
        record.extend(place.to_ne_bytes());
        record.extend(bytes);
        record
    }

    #[test]
    fn only_synced_changes_survive() {
        let journal = [
            record(b'C', 1, 0, b"a\0"),
            record(b'W', 1, 0, b"one"),
            record(b'S', 1, 0, b""),
            record(b'D', 9, 0, b""),
            record(b'W', 1, 5, b"two"),
            record(b'C', 2, 0, b"b\0"),
            record(b'W', 2, 0, b"other"),
            record(b'S', 2, 0, b""),
            record(b'R', 0, 0, b"b\0c\0"),
        ]
        .concat();
        let mut disk = ReplayedDisk::default();
        // A truncated record at the end was never written.
        disk.play(&journal);
        disk.play(&record(b'T', 1, 0, b"")[..20]);
        let mut random = TestRandom::new(1);
        let kept = disk.cut(Surviving::Nothing, &mut random);
        assert_eq!(kept, BTreeMap::from([("a".to_owned(), b"one".to_vec())]));
        let whole = BTreeMap::from([
            ("a".to_owned(), b"one\0\0two".to_vec()),
            ("c".to_owned(), b"other".to_vec()),
        ]);
        assert_eq!(disk.present(), whole);
        assert_eq!((disk.unsynced("a"), disk.unsynced("b")), (1, 0));
        disk.play(&[record(b'S', 1, 0, b""), record(b'D', 9, 0, b"")].concat());
        assert_eq!(disk.cut(Surviving::Nothing, &mut random), whole);
    }

    #[test]
    fn unsynced_writes_may_survive_in_parts() {
        let mut disk = ReplayedDisk::default();
        disk.play(&[record(b'C', 1, 0, b"a\0"), record(b'D', 9, 0, b"")].concat());
        disk.play(&record(b'W', 1, 100, &[7; 2_000]));
        let mut random = TestRandom::new(1);
        let mut seen: Vec<usize> = (0..100)
            .map(|_| {
                let kept = disk.cut(Surviving::Sectors, &mut random);
                kept["a"].iter().filter(|&&byte| byte == 7).count()
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        // The first sector has 412 of them, the last 52, three are whole.
        assert_eq!((seen[0], seen[seen.len() - 1]), (0, 2_000));
        assert!(seen.len() > 8 && seen.contains(&412), "{seen:?}");
    }
}
