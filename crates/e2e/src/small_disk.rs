//! A small disk for the data of one server: a tmpfs in its own mount namespace, so that nothing is
//! left of it when the test is over.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::test_env::{LaunchOptions, StartedProgram, TestEnv};

/// A disk that is mounted on the folder `data` of an environment, for programs that are started
/// with its options.
pub struct SmallDisk {
    /// Keeps the namespace alive.
    keeper: StartedProgram,
    is_user: bool,
    data: PathBuf,
}

/// How a namespace is made: as an ordinary user, if that is allowed, else as root.
const WAYS: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

impl SmallDisk {
    /// Makes one of this many bytes.
    ///
    /// # Panics
    /// If this system does not allow it. The test is not skipped, so that a passed run means that a
    /// full disk was tested.
    pub async fn make(env: &TestEnv, bytes: u64) -> Self {
        let data = env.path("data");
        let size = format!("size={bytes}");
        let script = "mount -t tmpfs -o \"$0\" filch \"$1\" && echo mounted && exec sleep infinity";
        let mut errors = String::new();
        for way in WAYS {
            let options =
                LaunchOptions { program: Some("unshare".into()), ..LaunchOptions::default() };
            let folder = data.to_str().expect("a path in UTF-8");
            let words = [way, &["sh", "-c", script, &size, folder]].concat();
            let mut keeper = env.filch_with(&options, &env.path(""), &words);
            let is_there = crate::until::until("a small disk", async || {
                let is_mounted = keeper.stdout().contains("mounted");
                (is_mounted || keeper.process.ended().is_some()).then_some(is_mounted)
            });
            if is_there.await {
                return Self { keeper, is_user: way.contains(&"--user"), data };
            }
            errors.push_str(&keeper.stderr());
        }
        panic!(
            "this test needs its own disk: `unshare` (apt-get install util-linux), and either root or \
             the right to make user namespaces (sysctl kernel.unprivileged_userns_clone=1): {errors}"
        );
    }

    /// Launch options for a program that uses it.
    #[must_use]
    pub fn options(&self) -> LaunchOptions {
        let keeper = self.keeper.process.pid().to_string();
        let mut wrapper = vec!["nsenter", "--target", &keeper, "--mount"];
        if self.is_user {
            wrapper.extend(["--user", "--preserve-credentials"]);
        }
        let wrapper = wrapper.into_iter().map(str::to_owned).collect();
        LaunchOptions { wrapper, ..LaunchOptions::default() }
    }

    /// The path of a file on it, from outside the namespace.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        let root = format!("/proc/{}/root", self.keeper.process.pid());
        let inside = self.data.strip_prefix("/").expect("the path is absolute");
        Path::new(&root).join(inside).join(name)
    }

    /// Copies the store, which no server has open, into a folder outside. SQLite resolves links, so
    /// it cannot use the path from outside the namespace.
    ///
    /// # Panics
    /// If it cannot be copied.
    #[must_use]
    pub fn copied(&self, env: &TestEnv) -> PathBuf {
        let folder = env.path("copied");
        std::fs::create_dir(&folder).expect("the folder can be written");
        for name in ["filch.db", "filch.db-wal"] {
            let from = self.path(name);
            if from.exists() {
                std::fs::copy(from, folder.join(name)).expect("the store can be copied");
            }
        }
        folder
    }

    /// Writes a file that takes up all but this many bytes.
    ///
    /// # Panics
    /// If it cannot be written for another reason than that the disk is full.
    pub fn fill(&self, name: &str, spare: u64) {
        let disk = rustix::fs::statvfs(self.path("")).expect("a file system reports its space");
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
