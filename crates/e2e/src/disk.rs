//! What a power cut leaves of a folder, told from what a program did to its files: the journal of
//! `shim/power.c`, played again.
//!
//! A file's bytes last once the file was synced, and its name once the folder was. What came later may
//! last or not: that is for whoever cuts the power to choose.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::random::Random;

/// Of writes that were not synced, so many bytes last or are lost together.
const SECTOR: usize = 512;

/// What lasts of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Nothing.
    Nothing,
    /// Everything up to some moment.
    Prefix,
    /// Any sectors, in no order.
    Sectors,
}

impl Lasts {
    /// One of them, by chance.
    pub const fn draw(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Nothing,
            1 => Self::Prefix,
            _ => Self::Sectors,
        }
    }
}

/// The files of a folder, as they last and as they are.
#[derive(Clone, Default)]
pub struct Disk {
    /// By number; those without a name too.
    files: BTreeMap<u64, File>,
    /// Names that last.
    names: BTreeMap<String, u64>,
    /// What was done to them since.
    renamed: Vec<Change>,
}

#[derive(Clone, Default)]
struct File {
    lasting: Vec<u8>,
    /// What was done to it since.
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

impl Disk {
    /// What is in the folder now; all of it lasts. Folders in it are not looked into.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut disk = Self::default();
        for entry in std::fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            let about = path.metadata().expect("a file can be looked at");
            if about.is_file() {
                let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
                let lasting = std::fs::read(&path).expect("a file can be read");
                disk.names.insert(name.to_owned(), about.ino());
                disk.files.insert(about.ino(), File { lasting, done: Vec::new() });
            }
        }
        disk
    }

    /// Does once more what a journal says. The last record may be cut off.
    ///
    /// # Panics
    /// If it makes no sense.
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
                    done.apply(&mut file.lasting);
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
            other => panic!("a journal knows no {other}"),
        }
    }

    fn file(&mut self, number: u64) -> &mut File {
        self.files.get_mut(&number).unwrap_or_else(|| panic!("file {number} was never made"))
    }

    /// How many writes to a file would be lost by a cut that spares nothing.
    #[must_use]
    pub fn unsynced(&self, name: &str) -> usize {
        self.names.get(name).map_or(0, |file| self.files[file].done.len())
    }

    /// The files as they are as long as there is power.
    #[must_use]
    pub fn present(&self) -> BTreeMap<String, Vec<u8>> {
        let keep_all = |file: &File| {
            let mut bytes = file.lasting.clone();
            file.done.iter().for_each(|done| done.clone().apply(&mut bytes));
            bytes
        };
        self.named(&self.renamed, keep_all)
    }

    /// The files as they are after a cut.
    pub fn cut(&self, lasts: Lasts, random: &mut Random) -> BTreeMap<String, Vec<u8>> {
        // A folder changes in order, whatever happens to the files in it.
        let last = match lasts {
            Lasts::Nothing => 0,
            Lasts::Prefix | Lasts::Sectors => random.below(self.renamed.len() as u64 + 1) as usize,
        };
        self.named(&self.renamed[..last], |file| file.cut(lasts, random))
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

/// Makes a folder hold these files and no others.
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
    fn cut(&self, lasts: Lasts, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.lasting.clone();
        let count = self.done.len();
        let (whole, torn) = match lasts {
            Lasts::Nothing => (0, 0),
            Lasts::Sectors => (0, count),
            Lasts::Prefix => {
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

    /// The parts of it that last or are lost by themselves.
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
                let file = names.remove(&from).expect("what is renamed is there");
                names.insert(to, file);
            }
        }
    }
}

/// The records of a journal, each by itself.
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
    /// The first one, and what comes behind it.
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

/// Names, each with a zero behind it.
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
    fn what_was_synced_lasts_and_nothing_else() {
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
        let mut disk = Disk::default();
        // Half a record at the end is one that was never written.
        disk.play(&journal);
        disk.play(&record(b'T', 1, 0, b"")[..20]);
        let mut random = Random::new(1);
        let kept = disk.cut(Lasts::Nothing, &mut random);
        assert_eq!(kept, BTreeMap::from([("a".to_owned(), b"one".to_vec())]));
        let whole = BTreeMap::from([
            ("a".to_owned(), b"one\0\0two".to_vec()),
            ("c".to_owned(), b"other".to_vec()),
        ]);
        assert_eq!(disk.present(), whole);
        assert_eq!((disk.unsynced("a"), disk.unsynced("b")), (1, 0));
        disk.play(&[record(b'S', 1, 0, b""), record(b'D', 9, 0, b"")].concat());
        assert_eq!(disk.cut(Lasts::Nothing, &mut random), whole);
    }

    #[test]
    fn what_was_not_synced_may_last_in_parts() {
        let mut disk = Disk::default();
        disk.play(&[record(b'C', 1, 0, b"a\0"), record(b'D', 9, 0, b"")].concat());
        disk.play(&record(b'W', 1, 100, &[7; 2_000]));
        let mut random = Random::new(1);
        let mut seen: Vec<usize> = (0..100)
            .map(|_| {
                let kept = disk.cut(Lasts::Sectors, &mut random);
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
