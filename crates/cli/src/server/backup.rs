//! `filch server backup`: a copy of everything in a file of its own, while the server goes on.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_store::integrity::{self, IntegrityReport};
use filch_store::{Snapshot, StoreError};
use serde_json::json;

use super::verify;
use crate::connection::Connection;
use crate::document::{self, Json};
use crate::exit::{self, Exit};
use crate::output::data;

/// Copy everything that is kept into a new file, while the server goes on
#[derive(Args)]
#[command(after_help = "\
Runs where the data is, beside a server that has it open or after one; it does not ask the
server, so --server does not matter. The copy is of one moment, on the disk when this ends,
readable by nobody else, and proved like by `filch server verify`. To restore, put it where
filch.db was, without the files beside that, and start a server. Codes: 4 the file is there
already, 1 what was copied cannot be believed.

Example:
  filch server backup --data /var/lib/filch /backup/filch.db")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    form: Json,
    /// A file that is not there yet
    file: PathBuf,
}

pub(super) fn run(connection: &Connection, options: &BackupArgs) -> Result<ExitCode> {
    let BackupArgs { form, file } = options;
    verify::open(&connection.store_file())?
        .backup(file)
        .map_err(|error| refusal(file.clone(), &error))?;
    let report = integrity::check(&Snapshot::open(file)?)?;
    if form.json {
        document::print(json!({
            "file": file.display().to_string(),
            "jobs": report.counts.jobs,
            "holds": report.holds(),
        }))?;
    } else {
        data(&format!("{}\n", file.display()))?;
    }
    if report.holds() { Ok(ExitCode::SUCCESS) } else { Err(doubt(options, &report).into()) }
}

fn refusal(file: PathBuf, error: &StoreError) -> Exit {
    if file.exists() {
        let text = format!("{} is there already\n  help: name a new file", file.display());
        return Exit::new(exit::CONFLICT, text);
    }
    let help = "name a file in a folder that is there, may be written to, and has room";
    Exit::new(1, format!("{}: {error}\n  help: {help}", file.display()))
}

fn doubt(options: &BackupArgs, report: &IntegrityReport) -> Exit {
    let (file, findings) = (options.file.display(), report.violations.len());
    let text = format!(
        "{file} is a faithful copy of what cannot be believed: {findings} findings\n  help: see them \
         with `filch server verify {file}`, and keep older copies"
    );
    Exit::new(1, text)
}
