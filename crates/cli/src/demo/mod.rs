//! `filch demo`: a few seconds of a real cluster. A server and four worker processes; one worker
//! gets too many jobs, the others steal, one worker is killed; in the end the integrity check shows
//! that no job was lost or done twice.

mod board;
mod display;
mod imbalance;
mod recording;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use filch_api::client::Client;
use filch_api::cluster::Worker;
use filch_api::event::ClusterEvent;
use filch_api::submission::Submission;
use filch_scheduler::random::SplitMix64;
use serde::Serialize;
use serde_json::value::RawValue;

use self::board::Board;
use self::display::{Display, Frame};
use self::recording::Recording;
use crate::document::{self, Json};
use crate::exit::{self, Exit};
use crate::output::data;
use crate::processes::{
    ChildProcess, Environment, TempFolder, server_with, verify, wait_for_workers, worker_with,
};
use crate::runtime::{ShutdownSignals, block_on};

/// Watch a real cluster for a few seconds: four workers steal, one is killed
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The demo runs in a temporary directory with its own processes, and cleans up at the end, also after
Ctrl-C. On a terminal it is animated, in a pipe it prints lines. The exit code is 0 if every job was
done exactly once and the integrity check passes.

Examples:
  filch demo
  filch demo --seconds 20 --seed 7"
)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    other: Option<OtherDemo>,
    /// Approximate duration in seconds
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Seed for the durations of the jobs
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    form: Json,
    /// Also write an animated SVG of the run
    #[arg(long, value_name = "FILE", hide = true)]
    svg: Option<PathBuf>,
}

/// Other demos.
#[derive(Subcommand)]
enum OtherDemo {
    Imbalance(imbalance::ImbalanceArgs),
}

/// The number of workers.
const WORKERS: u64 = 4;

/// When a worker is killed, as a fraction of the duration.
const KILL_AT: f64 = 0.35;

/// The lease of the server.
const LEASE: Duration = Duration::from_secs(1);

/// How often the workers are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The totals.
#[derive(Debug, Serialize)]
struct Totals {
    seed: u64,
    jobs: u64,
    done: u64,
    lost: u64,
    double: u64,
    steals: u64,
    stolen: u64,
    killed: String,
    /// Jobs that the killed worker held.
    held: u64,
    /// From the kill (the worker was suspended just before) until the last of these had a new
    /// owner.
    rescued_after_ms: Option<u64>,
    took_ms: u64,
    verified: bool,
}

pub(crate) fn run(options: DemoArgs) -> Result<ExitCode> {
    if let Some(OtherDemo::Imbalance(options)) = &options.other {
        return imbalance::run(options);
    }
    block_on(async {
        let mut signals = ShutdownSignals::listen()?;
        // Child processes are killed on drop.
        tokio::select! {
            played = play(&options) => played,
            () = signals.received() => Err(Exit::new(exit::INTERRUPTED, "interrupted").into()),
        }
    })
}

async fn play(options: &DemoArgs) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(|| filch_api::id::seed() >> 40);
    let folder = TempFolder::new("filch-demo", None)?;
    let environment = Environment::isolated(folder.path());
    let lease = filch_api::span::write(LEASE);
    let (server, client) = server_with(folder.path(), &environment, &["--lease", &lease]).await?;
    let names: Vec<String> = (1..=WORKERS).map(|number| format!("w{number}")).collect();
    let jobs = jobs(options.seconds, seed);
    // Each worker prefetches as many jobs as it can get, so that the first ones get too many.
    let hold = jobs.len().to_string();
    let start = |name: &String| {
        worker_with(client.url(), 1, &environment, &["--name", name, "--hold", &hold]).map(Some)
    };
    let workers = names.iter().map(start).collect::<Result<Vec<Option<ChildProcess>>>>()?;
    wait_for_workers(&client, WORKERS).await?;

    let mut board = Board::new(&names);
    board.update_workers(&client.workers().await?);
    let events = EventWatch { client: &client, board: Arc::new(Mutex::new(board)) };
    let event_task = events.listen().await?;
    let mut watch = Watch {
        began: Instant::now(),
        kill_at: Duration::from_secs_f64(options.seconds as f64 * KILL_AT),
        jobs: jobs.len() as u64,
        workers,
        show: Display::new(options.form.json),
        recording: Recording::default(),
        full: 1,
        suspended: None,
        killed: None,
    };
    submit(&client, &jobs).await?;
    let late = watch.began + Duration::from_secs(options.seconds * 10 + 60);
    loop {
        let is_over = watch.poll(&client.workers().await?, &mut events.board());
        if is_over && watch.killed.is_some() || Instant::now() >= late {
            break;
        }
        if is_over {
            // All jobs were done before a worker could be killed (a slow machine): submit them
            // again.
            submit(&client, &jobs).await?;
            watch.jobs += jobs.len() as u64;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let took = watch.began.elapsed();
    let succeeded = succeeded(&client).await?;
    event_task.abort();
    let Watch { workers, recording, killed, jobs: count, .. } = watch;
    // The integrity check reads the file after all processes have ended.
    drop((workers, server));
    let proof = verify(folder.path(), &environment)?;

    let board = events.board().clone();
    let (index, killed_at) = killed.context("all jobs were done before a worker was killed")?;
    let rescue = board.rescue();
    let totals = Totals {
        seed,
        jobs: count,
        done: succeeded,
        lost: count.saturating_sub(succeeded),
        double: board.double(),
        steals: board.steals,
        stolen: board.moved,
        killed: names[index].clone(),
        held: rescue.map_or(0, |(held, _)| held),
        rescued_after_ms: rescue.map(|(_, at)| at.0.0.saturating_sub(killed_at)),
        took_ms: took.as_millis() as u64,
        verified: proof.is_ok(),
    };
    let closing = closing(&totals);
    if let Some(file) = &options.svg {
        std::fs::write(file, recording.svg(count, &closing))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if options.form.json {
        document::print(&totals)?;
    } else {
        data(&(closing.join("\n") + "\n"))?;
    }
    if let Err(why) = proof {
        return Err(Exit::new(1, format!("the integrity check failed: {why}")).into());
    }
    Ok(ExitCode::from(u8::from(totals.lost + totals.double > 0)))
}

/// Polls the workers, kills one at the right time, and draws the state.
struct Watch {
    began: Instant,
    kill_at: Duration,
    jobs: u64,
    /// The workers that were not killed.
    workers: Vec<Option<ChildProcess>>,
    show: Display,
    recording: Recording,
    /// The longest deque so far.
    full: u64,
    /// The worker that was suspended in order to be killed, and when (wall clock).
    suspended: Option<(usize, u64)>,
    /// The worker that was killed, and when it was suspended.
    killed: Option<(usize, u64)>,
}

impl Watch {
    /// Returns true once every job is done.
    fn poll(&mut self, workers: &[Worker], board: &mut Board) -> bool {
        board.update_workers(workers);
        let after = self.began.elapsed();
        if self.killed.is_none() && after >= self.kill_at {
            self.kill(workers, board);
        }
        self.full = self.full.max(board.longest());
        self.show.draw(&Frame { board, after, jobs: self.jobs, full: self.full });
        self.recording.add(after, board);
        board.done() >= self.jobs
    }

    /// Kills the worker with the most jobs, in two steps. The list of workers shows durable state,
    /// which is old if the disk is slow: the worker may have finished its jobs since. So it is
    /// suspended first, and killed if the next list still shows jobs, which only other workers can
    /// then run. Otherwise it is resumed, and the next candidate is chosen.
    fn kill(&mut self, workers: &[Worker], board: &mut Board) {
        match self.suspended.take() {
            Some((index, at)) if board.holds_jobs(index, workers) => {
                // Dropping it is kill -9.
                drop(self.workers[index].take());
                board.kill(index);
                self.show.message(&format!("{} is killed (SIGKILL)", board.rows[index].name));
                self.killed = Some((index, at));
            }
            Some((index, _)) => self.workers[index].iter().for_each(ChildProcess::resume),
            None => {
                if let Some(index) = board.fullest() {
                    self.suspended = Some((index, now_ms()));
                    self.workers[index].iter().for_each(ChildProcess::suspend);
                }
            }
        }
    }
}

/// The summary at the end.
fn closing(totals: &Totals) -> Vec<String> {
    let Totals { jobs, lost, double, steals, stolen, killed, held, .. } = totals;
    let mut lines = vec![format!(
        "{jobs} jobs, {lost} lost, {double} done twice, {steals} steals moved {stolen} jobs"
    )];
    if let Some(millis) = totals.rescued_after_ms {
        let seconds = Duration::from_millis(millis).as_secs_f64();
        lines.push(format!(
            "{killed} was killed with {held} jobs: other workers had all of them after {seconds:.1} s"
        ));
    }
    let word = if totals.verified { "no violations" } else { "integrity check failed" };
    lines.push(format!("server verify: {word}"));
    lines
}

/// Follows the events of the server and keeps the board up to date.
struct EventWatch<'a> {
    client: &'a Client,
    board: Arc<Mutex<Board>>,
}

impl EventWatch<'_> {
    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().expect("no thread panics while it holds this lock")
    }

    /// Follows events until the task is aborted.
    async fn listen(&self) -> Result<EventTask> {
        let (client, board) = (self.client.clone(), Arc::clone(&self.board));
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(events) = client.events("follow=true", None).await else { return };
            let mut ready = Some(ready);
            let apply = events.each(|received| {
                if let Some(ready) = ready.take() {
                    let _ = ready.send(());
                }
                if let Ok(event) = serde_json::from_str::<ClusterEvent>(&received.data) {
                    board.lock().expect("no thread panics while it holds this lock").apply(&event);
                }
                ControlFlow::Continue(())
            });
            // If the stream breaks, the totals show it.
            let _ = apply.await;
        });
        let event_task = EventTask(task);
        is_ready.await.context("the server sends no events")?;
        Ok(event_task)
    }
}

/// A task that is aborted on drop.
struct EventTask(tokio::task::JoinHandle<()>);

impl EventTask {
    fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for EventTask {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Jobs that keep four workers busy for this long, taking into account that one is killed. A few
/// are long.
fn jobs(seconds: u64, seed: u64) -> Vec<Submission> {
    let work_ms =
        (seconds * 1_000) as f64 * (WORKERS as f64 * KILL_AT + 3.0 * (1.0 - KILL_AT)) * 0.7;
    let mut random = SplitMix64::new(seed);
    let (mut jobs, mut planned) = (Vec::new(), 0.0);
    while planned < work_ms {
        let (sort, length) = (random.below(10), random.below(100));
        let ms = if sort < 8 { 10 + length * 3 / 10 } else { 120 + length * 2 };
        planned += ms as f64;
        jobs.push(Submission {
            kind: Some("sleep".into()),
            args: RawValue::from_string(format!("{{\"ms\":{ms}}}")).ok(),
            ..Submission::default()
        });
    }
    jobs
}

async fn submit(client: &Client, jobs: &[Submission]) -> Result<()> {
    for some in jobs.chunks(filch_api::limits::ARRAY_JOBS) {
        client.submit_all(some).await?;
    }
    Ok(())
}

/// The number of succeeded jobs on the server.
async fn succeeded(client: &Client) -> Result<u64> {
    let (mut count, mut next) = (0, Some(0));
    while let Some(after) = next {
        let page = client.jobs(&format!("state=succeeded&limit=1000&after={after}")).await?;
        count += page.jobs.len() as u64;
        next = page.next;
    }
    Ok(count)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_jobs() {
        let lengths = |seconds, seed| {
            let args =
                jobs(seconds, seed).into_iter().map(|job| job.args.map(|args| args.to_string()));
            args.collect::<Vec<_>>()
        };
        assert_eq!(lengths(6, 1), lengths(6, 1));
        assert_ne!(lengths(6, 1), lengths(6, 2));
        assert!((100..1_000).contains(&lengths(6, 1).len()), "{}", lengths(6, 1).len());
        assert!(lengths(600, 3).len() < 50_000);
    }
}
