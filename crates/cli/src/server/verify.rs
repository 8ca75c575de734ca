//! `filch server verify`: checks the integrity of the store and of the job history in it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::id;
use filch_store::integrity::{
    self, IntegrityCounts, IntegrityReport, IntegrityRule, IntegrityViolation,
};
use filch_store::{Location, Snapshot, StoreError};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::data;
use crate::document::Json;
use crate::exit::{self, Exit};
use crate::{document, table};

/// Check the integrity of the job history
#[derive(Args)]
#[command(after_help = "\
Reads the store file, or a copy made by `filch server backup`. It writes nothing, and a server that
has the file open keeps running. Exit codes: 0 no violations, 1 violations,
3 no such file, 4 the server wrote too much during the read.

Examples:
  filch server verify
  filch server verify --json backup.db | jq .violations")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    form: Json,
    /// Store file [default: filch.db in the data directory]
    file: Option<PathBuf>,
}

pub(super) fn run(connection: &Connection, options: VerifyArgs) -> Result<ExitCode> {
    let VerifyArgs { form, file } = options;
    let store = file.map_or_else(|| connection.store(), Location::from);
    let report = integrity::check(&open(&store)?).map_err(|error| unread(&store, error))?;
    if form.json {
        document::print(as_json(&store, &report))?;
    } else {
        table::facts(&facts(&report))?;
    }
    if report.holds() {
        return Ok(ExitCode::SUCCESS);
    }
    let broken = report.violations.len() as u64 + report.more;
    let text = format!(
        "{store}: integrity check failed: {broken} violations\n  help: keep a copy of this file, and \
         restore the last good backup"
    );
    Err(Exit::new(1, text).into())
}

/// Opens a store for reading.
pub(super) fn open(store: &Location) -> Result<Snapshot> {
    if !store.exists() {
        let text = format!(
            "no such file: {store}\n  help: name the data directory with --data, or the file itself"
        );
        return Err(Exit::new(exit::NOT_FOUND, text).into());
    }
    filch_store::inspect(store).map_err(|error| data::unopened(store, &error).into())
}

/// The exit code and message for a store that cannot be read to its end.
pub(super) fn unread(store: &Location, error: StoreError) -> anyhow::Error {
    if !error.is_busy() {
        return error.into();
    }
    let help = "repeat it when the server writes less, or stop the server meanwhile";
    Exit::new(exit::CONFLICT, format!("{store}: {error}\n  help: {help}")).into()
}

fn facts(report: &IntegrityReport) -> Vec<(&'static str, String)> {
    let IntegrityCounts { submitted, jobs, expired, discarded, .. } = report.counts;
    let IntegrityCounts { unfinished, succeeded, dead, cancelled, .. } = report.counts;
    let IntegrityCounts { claims, steals, losses, returns, failures, children, orphans, .. } =
        report.counts;
    let mut facts = vec![
        ("acknowledged", format!("{submitted} jobs")),
        (
            "stored",
            format!(
                "{jobs}: {unfinished} unfinished, {succeeded} succeeded, {dead} dead, {cancelled} \
                 cancelled"
            ),
        ),
        (
            "purged",
            format!(
                "{}: {expired} after their retention, {discarded} discarded",
                report.counts.purged()
            ),
        ),
        ("owners", format!("{}: {claims} by a claim, {steals} by a steal", report.counts.owners())),
        ("reclaimed", format!("{losses} from lost workers, {returns} returned")),
        ("attempts", format!("{failures} failed")),
        (
            "ledger",
            format!(
                "{} rows, and {} trimmed rows of purged jobs",
                report.counts.ledger_rows_kept,
                report.counts.ledger_rows_trimmed()
            ),
        ),
        ("children", format!("{children}, {orphans} of them with purged parents")),
    ];
    for rule in IntegrityRule::ALL {
        let broken = report.violations.iter().filter(|finding| finding.rule == rule).count();
        let verdict = if broken == 0 { "ok" } else { "VIOLATED" };
        facts.push((rule.name(), format!("{verdict}: {}", rule.words())));
    }
    for finding in &report.violations {
        facts.push(("violation", format!("{}: {}", finding.rule.name(), words(finding))));
    }
    if report.more > 0 {
        facts.push(("more", format!("{} violations", report.more)));
    }
    facts
}

fn words(finding: &IntegrityViolation) -> String {
    let IntegrityViolation { job, id, what, .. } = finding;
    match (job, id) {
        (Some(job), Some(id)) => format!("job {} (number {}): {what}", id::job(*id), job.0),
        (Some(job), None) => format!("job number {}: {what}", job.0),
        (None, _) => what.clone(),
    }
}

fn as_json(store: &Location, report: &IntegrityReport) -> Value {
    let counts = &report.counts;
    let rules = IntegrityRule::ALL.map(|rule| {
        let holds = report.violations.iter().all(|finding| finding.rule != rule);
        json!({ "rule": rule.name(), "holds": holds, "text": rule.words() })
    });
    let finding = |finding: &IntegrityViolation| {
        json!({
            "rule": finding.rule.name(),
            "id": finding.id.map(id::job),
            "seq": finding.job.map(|job| job.0),
            "text": finding.what,
        })
    };
    json!({
        "file": store.to_string(),
        "holds": report.holds(),
        "counts": {
            "commits": counts.commits,
            "submitted": counts.submitted,
            "jobs": counts.jobs,
            "unfinished": counts.unfinished,
            "succeeded": counts.succeeded,
            "dead": counts.dead,
            "cancelled": counts.cancelled,
            "purged": counts.purged(),
            "expired": counts.expired,
            "discarded": counts.discarded,
            "owners": counts.owners(),
            "claims": counts.claims,
            "steals": counts.steals,
            "losses": counts.losses,
            "returns": counts.returns,
            "failures": counts.failures,
            "children": counts.children,
            "orphans": counts.orphans,
            "ledger_rows": counts.ledger_rows_kept,
            "ledger_rows_trimmed": counts.ledger_rows_trimmed(),
        },
        "rules": rules,
        "violations": report.violations.iter().map(finding).collect::<Vec<_>>(),
        "more": report.more,
    })
}
