//! `filch server backup`: copies the store into a new file while the server runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_store::integrity::{self, IntegrityReport};
use filch_store::{StoreError, inspect};
use serde_json::json;

use super::verify;
use crate::connection::Connection;
use crate::document::{self, Json};
use crate::exit::{self, Exit};
use crate::output::data;

/// Back up the store to a new file while the server runs
#[derive(Args)]
#[command(after_help = "\
Run this on the machine that holds the data; the server may be running or not. It reads the file
and does not ask the server, so --server is ignored. The backup is a consistent snapshot, synced to
disk, readable by its owner only, and verified like by `filch server verify`. To restore, stop the
server, replace filch.db by the backup, remove filch.db-wal and filch.db-shm, and start it again.
Exit codes: 4 the file exists, or the server wrote too much during the read; 1 the check failed.

Example:
  filch server backup --data /var/lib/filch /backup/filch.db")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    form: Json,
    /// New file for the backup
    file: PathBuf,
}

pub(super) fn run(connection: &Connection, options: &BackupArgs) -> Result<ExitCode> {
    let BackupArgs { form, file } = options;
    let store = connection.store();
    verify::open(&store)?.backup(file).map_err(|error| match error.is_busy() {
        true => verify::unread(&store, error),
        false => cannot_write(file.clone(), &error).into(),
    })?;
    let report = integrity::check(&inspect(&file.as_path().into())?)?;
    if form.json {
        document::print(json!({
            "file": file.display().to_string(),
            "jobs": report.counts.jobs,
            "holds": report.holds(),
        }))?;
    } else {
        data(&format!("{}\n", file.display()))?;
    }
    if report.holds() { Ok(ExitCode::SUCCESS) } else { Err(unverified(options, &report).into()) }
}

fn cannot_write(file: PathBuf, error: &StoreError) -> Exit {
    if file.exists() {
        let text = format!("{} already exists\n  help: choose a new file", file.display());
        return Exit::new(exit::CONFLICT, text);
    }
    let help = "choose a file in an existing, writable directory with enough disk space";
    Exit::new(1, format!("{}: {error}\n  help: {help}", file.display()))
}

fn unverified(options: &BackupArgs, report: &IntegrityReport) -> Exit {
    let (file, findings) = (options.file.display(), report.violations.len());
    let text = format!(
        "{file} is a complete copy, but its integrity check failed: {findings} violations\n  help: \
         list them with `filch server verify {file}`, and keep older backups"
    );
    Exit::new(1, text)
}
