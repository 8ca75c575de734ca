//! A small disk for the data of one server, in memory and in a namespace of its own, so that nothing is
//! left of it when the test is over.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::stage::{Manner, Program, Stage};

/// A disk that lies over the folder `data` of a stage, for whoever is started through it.
pub struct Small {
    /// Keeps the namespace for as long as it lives.
    keeper: Program,
    is_user: bool,
    data: PathBuf,
}

/// How a namespace is made: as anybody, where that may be, else as root.
const WAYS: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

impl Small {
    /// Makes one with so many bytes.
    ///
    /// # Panics
    /// If this system does not let us: nobody shall believe that a full disk was tried when it was not.
    pub async fn make(stage: &Stage, bytes: u64) -> Self {
        let data = stage.path("data");
        let size = format!("size={bytes}");
        let script = "mount -t tmpfs -o \"$0\" filch \"$1\" && echo mounted && exec sleep infinity";
        let mut said = String::new();
        for way in WAYS {
            let manner = Manner { program: Some("unshare".into()), ..Manner::default() };
            let folder = data.to_str().expect("a path in UTF-8");
            let words = [way, &["sh", "-c", script, &size, folder]].concat();
            let mut keeper = stage.filch_in(&manner, &stage.path(""), &words);
            let is_there = crate::until::until("a small disk", async || {
                let is_mounted = keeper.printed().contains("mounted");
                (is_mounted || keeper.process.ended().is_some()).then_some(is_mounted)
            });
            if is_there.await {
                return Self { keeper, is_user: way.contains(&"--user"), data };
            }
            said.push_str(&keeper.said());
        }
        panic!(
            "this test needs a disk of its own: `unshare` (apt-get install util-linux), and either root or \
             the right to make user namespaces (sysctl kernel.unprivileged_userns_clone=1): {said}"
        );
    }

    /// How a program is started that sees it.
    #[must_use]
    pub fn manner(&self) -> Manner {
        let keeper = self.keeper.process.pid().to_string();
        let mut through = vec!["nsenter", "--target", &keeper, "--mount"];
        if self.is_user {
            through.extend(["--user", "--preserve-credentials"]);
        }
        let through = through.into_iter().map(str::to_owned).collect();
        Manner { through, ..Manner::default() }
    }

    /// A file on it, as it is reached from outside.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        let root = format!("/proc/{}/root", self.keeper.process.pid());
        let inside = self.data.strip_prefix("/").expect("the folder of a stage has a whole path");
        Path::new(&root).join(inside).join(name)
    }

    /// A folder of the stage with the store as it lies on the disk, whose server is gone. SQLite would
    /// look for it where the disk is not, were it told the path from outside.
    ///
    /// # Panics
    /// If it cannot be copied.
    #[must_use]
    pub fn copied(&self, stage: &Stage) -> PathBuf {
        let folder = stage.path("copied");
        std::fs::create_dir(&folder).expect("the folder can be written");
        for name in ["filch.db", "filch.db-wal"] {
            let from = self.path(name);
            if from.exists() {
                std::fs::copy(from, folder.join(name)).expect("the store can be copied");
            }
        }
        folder
    }

    /// Lets a file of somebody else take up all but so many bytes.
    ///
    /// # Panics
    /// If it cannot be written for another reason than that the disk is full.
    pub fn fill(&self, name: &str, spare: u64) {
        let disk = rustix::fs::statvfs(self.path("")).expect("a disk knows its room");
        let mut left = (disk.f_bavail * disk.f_frsize).saturating_sub(spare);
        let file = OpenOptions::new().create(true).append(true).open(self.path(name));
        let mut file: File = file.expect("a file can be made");
        let zeros = vec![0; 1 << 16];
        while left > 0 {
            let part = zeros.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.write(&zeros[..part]) {
                Ok(written) => left -= written as u64,
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return,
                Err(error) => panic!("cannot fill the disk: {error}"),
            }
        }
    }
}
