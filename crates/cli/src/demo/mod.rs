//! `filch demo`: a few seconds of a real cluster. A server and four workers as processes, jobs that one
//! worker gets too many of, thefts, a worker that is killed; and in the end the proof that nothing is
//! missing and nothing was done twice.

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

/// Watch a real cluster for a few seconds: four workers steal from one another, one is killed
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Everything happens in a temporary folder, in processes of its own, and is gone in the end, also
after Ctrl-C. On a terminal it is drawn, elsewhere it is told in lines. The code is 0 if every
job was done once and the ledger proves it.

Examples:
  filch demo
  filch demo --seconds 20 --seed 7"
)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    other: Option<OtherDemo>,
    /// How long it should take, roughly
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Decides how long each job takes
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    form: Json,
    /// Also write what was seen as a picture
    #[arg(long, value_name = "FILE", hide = true)]
    svg: Option<PathBuf>,
}

/// What else there is to watch.
#[derive(Subcommand)]
enum OtherDemo {
    Imbalance(imbalance::ImbalanceArgs),
}

/// How many workers.
const WORKERS: u64 = 4;

/// The share of the time after which one of them is killed.
const KILL_AT: f64 = 0.35;

/// How long the server waits for a worker that says nothing.
const LEASE: Duration = Duration::from_secs(1);

/// How often it is looked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What came of it.
#[derive(Debug, Serialize)]
struct Totals {
    seed: u64,
    jobs: u64,
    done: u64,
    lost: u64,
    double: u64,
    thefts: u64,
    stolen: u64,
    killed: String,
    /// Jobs that the killed worker had.
    held: u64,
    /// From the kill, for which it stood still a moment before, until the last of these was somebody else's.
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
        // Whatever was started ends when it is let go of.
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
    // Each takes as many as it can get, so that the first ones get too many.
    let hold = jobs.len().to_string();
    let start = |name: &String| {
        worker_with(client.url(), 1, &environment, &["--name", name, "--hold", &hold]).map(Some)
    };
    let workers = names.iter().map(start).collect::<Result<Vec<Option<ChildProcess>>>>()?;
    wait_for_workers(&client, WORKERS).await?;

    let mut board = Board::new(&names);
    board.update_workers(&client.workers().await?);
    let events = EventWatch { client: &client, board: Arc::new(Mutex::new(board)) };
    let listening = events.listen().await?;
    let mut watch = Watch {
        began: Instant::now(),
        kill_at: Duration::from_secs_f64(options.seconds as f64 * KILL_AT),
        jobs: jobs.len() as u64,
        workers,
        show: Display::new(options.form.json),
        recording: Recording::default(),
        full: 1,
        halted: None,
        killed: None,
    };
    submit(&client, &jobs).await?;
    let late = watch.began + Duration::from_secs(options.seconds * 10 + 60);
    loop {
        let is_over = watch.look(&client.workers().await?, &mut events.board());
        if is_over && watch.killed.is_some() || Instant::now() >= late {
            break;
        }
        if is_over {
            // The machine stood still when somebody was to be killed at work: once more.
            submit(&client, &jobs).await?;
            watch.jobs += jobs.len() as u64;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let took = watch.began.elapsed();
    let succeeded = succeeded(&client).await?;
    listening.abort();
    let Watch { workers, recording, killed, jobs: count, .. } = watch;
    // The proof is that of the file alone: whoever wrote it is gone.
    drop((workers, server));
    let proof = verify(folder.path(), &environment)?;

    let board = events.board().clone();
    let (place, killed_at) = killed.context("it was over before anybody was killed")?;
    let rescue = board.rescue();
    let totals = Totals {
        seed,
        jobs: count,
        done: succeeded,
        lost: count.saturating_sub(succeeded),
        double: board.double(),
        thefts: board.thefts,
        stolen: board.moved,
        killed: names[place].clone(),
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
        return Err(Exit::new(1, format!("the ledger does not hold: {why}")).into());
    }
    Ok(ExitCode::from(u8::from(totals.lost + totals.double > 0)))
}

/// Looks on, kills at the right moment, and shows it.
struct Watch {
    began: Instant,
    kill_at: Duration,
    jobs: u64,
    /// Those that were not killed.
    workers: Vec<Option<ChildProcess>>,
    show: Display,
    recording: Recording,
    /// The most jobs that a deque has held so far.
    full: u64,
    /// Who was made to stand still in order to be killed, and when by the wall clock.
    halted: Option<(usize, u64)>,
    /// Who was killed, and since when it stood still.
    killed: Option<(usize, u64)>,
}

impl Watch {
    /// True once every job is done.
    fn look(&mut self, workers: &[Worker], board: &mut Board) -> bool {
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

    /// Kills the fullest in two looks. What is shown is durable, so where the disk is slow it is old, and the
    /// worker may have done it all since. So it is made to stand still, and killed if it is then seen with
    /// something, which nobody but others can do any more; if not, it goes on, and the fullest is looked for anew.
    fn kill(&mut self, workers: &[Worker], board: &mut Board) {
        match self.halted.take() {
            Some((place, at)) if board.holds_jobs(place, workers) => {
                // Letting go of it is kill -9.
                drop(self.workers[place].take());
                board.kill(place);
                self.show.say(&format!("{} is killed with -9", board.rows[place].name));
                self.killed = Some((place, at));
            }
            Some((place, _)) => self.workers[place].iter().for_each(ChildProcess::resume),
            None => {
                if let Some(place) = board.fullest() {
                    self.halted = Some((place, now_ms()));
                    self.workers[place].iter().for_each(ChildProcess::suspend);
                }
            }
        }
    }
}

/// What there is to say in the end.
fn closing(totals: &Totals) -> Vec<String> {
    let Totals { jobs, lost, double, thefts, stolen, killed, held, .. } = totals;
    let mut lines =
        vec![format!("{jobs} jobs, {lost} lost, {double} double, {thefts} thefts moved {stolen}")];
    if let Some(millis) = totals.rescued_after_ms {
        let seconds = Duration::from_millis(millis).as_secs_f64();
        lines.push(format!(
            "{killed} was killed with {held} jobs: others had all of them after {seconds:.1} s"
        ));
    }
    let word = if totals.verified { "every step of every job holds" } else { "something is wrong" };
    lines.push(format!("server verify: {word}"));
    lines
}

/// Who listens to what happens, and what is known by that.
struct EventWatch<'a> {
    client: &'a Client,
    board: Arc<Mutex<Board>>,
}

impl EventWatch<'_> {
    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().expect("nobody panics with it")
    }

    /// Listens until it is aborted.
    async fn listen(&self) -> Result<Listening> {
        let (client, board) = (self.client.clone(), Arc::clone(&self.board));
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(events) = client.events("follow=true", None).await else { return };
            let mut ready = Some(ready);
            let apply = events.each(|told| {
                if let Some(ready) = ready.take() {
                    let _ = ready.send(());
                }
                if let Ok(event) = serde_json::from_str::<ClusterEvent>(&told.data) {
                    board.lock().expect("nobody panics with it").apply(&event);
                }
                ControlFlow::Continue(())
            });
            // If it breaks, the totals will say so.
            let _ = apply.await;
        });
        let listening = Listening(task);
        is_ready.await.context("the server does not tell what happens")?;
        Ok(listening)
    }
}

/// A task that ends when it is let go of.
struct Listening(tokio::task::JoinHandle<()>);

impl Listening {
    fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Jobs that keep four workers busy for so long, of which one is lost on the way; few are long.
fn jobs(seconds: u64, seed: u64) -> Vec<Submission> {
    let work_ms =
        (seconds * 1_000) as f64 * (WORKERS as f64 * KILL_AT + 3.0 * (1.0 - KILL_AT)) * 0.7;
    let mut random = seed;
    let (mut jobs, mut planned) = (Vec::new(), 0.0);
    while planned < work_ms {
        // Numbers without a pattern that anybody would see.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (sort, length) = ((random >> 33) % 10, (random >> 40) % 100);
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

/// How many jobs the server shows as succeeded.
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
    fn a_seed_decides_the_jobs() {
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
