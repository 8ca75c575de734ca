//! Commands as real processes: what they are given, what they leave behind, and that nothing of
//! them outlives its attempt, whatever happens to the worker.
//!
//! This program is also the guardian, the launcher and the worker that its tests start, so it has
//! no harness but the few lines at the end.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::future::pending;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use filch_scheduler::time::Monotonic;
use filch_worker::command::{Command, Finished, Helper, How, Options, Runner, Stream, launcher};
use filch_worker::guardian;
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

/// Far more than anything here takes.
const BOUND: Duration = Duration::from_secs(60);

fn options() -> Options {
    let words = |word: &str| vec![word.to_owned()];
    Options {
        helper: Helper {
            program: std::env::current_exe().unwrap(),
            guardian: words("guardian"),
            launcher: words("launcher"),
        },
        ..Options::new(PathBuf::new())
    }
}

/// The moment this long after now, by the time since boot.
fn after(span: Duration) -> Monotonic {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
    Monotonic(0).plus(now + span)
}

fn runner() -> Runner {
    Runner::start(options())
}

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        job: "job-1".into(),
        attempt: 1,
        fence: 7,
        ..Command::default()
    }
}

fn shell(script: &str) -> Command {
    command(&["sh", "-c", script])
}

async fn finish(runner: &Runner, command: Command) -> Finished {
    tokio::time::timeout(BOUND, runner.run(command, |_, _| {}, pending())).await.unwrap()
}

async fn finish_one(command: Command) -> Finished {
    let runner = runner();
    let finished = finish(&runner, command).await;
    runner.close().await;
    finished
}

/// Runs a command until it has printed so many lines of numbers, then does something, and waits for
/// the end. The thing may stop it.
async fn interfere(
    runner: &Runner,
    command: Command,
    lines: usize,
    action: impl FnOnce(&[i32], oneshot::Sender<()>),
) -> (Finished, Vec<i32>) {
    let printed = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&printed);
    let (stop, stopped) = oneshot::channel();
    let running = runner.run(
        command,
        move |_, bytes| heard.lock().unwrap().extend_from_slice(bytes),
        async move {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        },
    );
    let mut running = std::pin::pin!(running);
    let count = || printed.lock().unwrap().iter().filter(|byte| **byte == b'\n').count();
    let started = Instant::now();
    while count() < lines {
        assert!(started.elapsed() < BOUND, "it does not say its numbers");
        let turn = tokio::time::timeout(Duration::from_millis(5), &mut running).await;
        assert!(turn.is_err(), "it ended too early: {turn:?}");
    }
    let text = String::from_utf8(printed.lock().unwrap().clone()).unwrap();
    let numbers: Vec<i32> = text.lines().take(lines).map(|line| line.parse().unwrap()).collect();
    for number in &numbers {
        assert!(is_alive(*number));
    }
    action(&numbers, stop);
    let finished = tokio::time::timeout(BOUND, running).await.unwrap();
    (finished, numbers)
}

/// Waits for what must become true.
fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < BOUND, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// State, parent and name of a process.
fn look_at(number: i32) -> Option<(char, i32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?, name.to_owned()))
}

fn is_alive(number: i32) -> bool {
    look_at(number).is_some_and(|(state, _, _)| !"ZX".contains(state))
}

fn is_stopped(number: i32) -> bool {
    look_at(number).unwrap().0 == 'T'
}

fn signal(number: i32, signal: Signal) {
    kill_process(Pid::from_raw(number).unwrap(), signal).unwrap();
}

/// The guardian that a process has started.
fn guardian_of(worker: i32) -> Option<i32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.find(|number| {
        look_at(*number).is_some_and(|(state, parent, name)| {
            parent == worker && name == "guardian" && state != 'Z'
        })
    })
}

/// What is in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn own_number() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

// What a command is given, and gives.

async fn output_of_a_command_is_streamed() {
    let runner = runner();
    let (stop, stopped) = oneshot::channel();
    let mut stop = Some(stop);
    let mut heard = Vec::new();
    // It ends only on a stop, which happens when its output was read.
    let script = "trap 'echo stopped; exit 0' TERM; echo hello; echo there >&2
        while :; do sleep 0.01; done";
    let finished = runner.run(
        shell(script),
        |stream, bytes: &[u8]| {
            heard.push((stream, bytes.to_vec()));
            let _ = heard.len() == 2 && stop.take().unwrap().send(()).is_ok();
        },
        async {
            let _ = stopped.await;
        },
    );
    let finished = tokio::time::timeout(BOUND, finished).await.unwrap();
    assert_eq!(finished.how, How::Stopped);
    let of = |wanted| {
        let chunks = heard.iter().filter(|(stream, _)| *stream == wanted);
        chunks.flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>()
    };
    assert_eq!(of(Stream::Stdout), b"hello\nstopped\n");
    // The shell may add that its `sleep` was terminated.
    assert!(of(Stream::Stderr).starts_with(b"there\n"));
    runner.close().await;
}

async fn arguments_are_not_parsed_by_a_shell() {
    let finished = finish_one(command(&["echo", "$HOME", "a  b", "*", ""])).await;
    assert_eq!(finished.how, How::Exited(0));
    assert_eq!(finished.log, "$HOME a  b * \n");
    assert_eq!(finished.result, None);
}

async fn an_exit_code_is_reported() {
    let runner = runner();
    for code in [0, 1, 3, 127, 255] {
        let finished = finish(&runner, shell(&format!("exit {code}"))).await;
        assert_eq!(finished.how, How::Exited(code));
    }
    for signal in [9, 13, 15] {
        let finished = finish(&runner, shell(&format!("kill -{signal} $$"))).await;
        assert_eq!(finished.how, How::Signalled(signal), "none is ignored from the start");
    }
    runner.close().await;
}

async fn the_payload_is_on_stdin() {
    let runner = runner();
    let payload = format!("[\"{}\"]", "x".repeat(250_000));
    let whole = Command { stdin: payload.clone(), ..command(&["cat"]) };
    let finished = finish(&runner, whole).await;
    assert_eq!((finished.how, finished.result), (How::Exited(0), Some(payload.clone())));

    let unread = Command { stdin: payload, ..command(&["true"]) };
    assert_eq!(finish(&runner, unread).await.how, How::Exited(0));
    assert_eq!(finish(&runner, command(&["cat"])).await.log, "");
    runner.close().await;
}

async fn commands_get_exactly_their_environment() {
    let env = [("OWN", "a=b c"), ("FILCH_FENCE", "1"), ("LD_PRELOAD", "")];
    let given = Command {
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        traceparent: Some("00-1-2-01".into()),
        ..command(&["env"])
    };
    let finished = finish_one(given).await;
    let seen: BTreeMap<&str, &str> =
        finished.log.lines().map(|line| line.split_once('=').unwrap()).collect();
    assert_eq!(seen["OWN"], "a=b c");
    assert_eq!(seen["FILCH_JOB"], "job-1");
    assert_eq!(seen["FILCH_ATTEMPT"], "1");
    assert_eq!(seen["FILCH_FENCE"], "7");
    assert_eq!(seen["TRACEPARENT"], "00-1-2-01");
    assert_eq!(Some(seen["PATH"].into()), std::env::var_os("PATH"));
    assert!(!Path::new(seen["FILCH_RESULT"]).exists(), "it is removed at the end");
    let filch = ["FILCH_JOB", "FILCH_ATTEMPT", "FILCH_FENCE", "FILCH_RESULT", "TRACEPARENT"];
    let inherited = options().inherited;
    for name in seen.keys() {
        let kept = inherited.iter().any(|kept| {
            kept == name || kept.strip_suffix('*').is_some_and(|kept| name.starts_with(kept))
        });
        assert!(kept || filch.contains(name) || ["OWN", "LD_PRELOAD"].contains(name), "{name}");
    }
}

async fn a_command_runs_in_its_folder_and_group() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let inside = Command { dir: Some(folder.clone()), ..shell("pwd; echo $$; ps -o pgid= -p $$") };
    let finished = finish_one(inside).await;
    let lines: Vec<&str> = finished.log.lines().map(str::trim).collect();
    assert_eq!(lines[0], folder.to_str().unwrap());
    assert_eq!(lines[1], lines[2], "it leads a group");
}

async fn a_result_is_in_the_file_or_on_the_last_line() {
    let runner = runner();
    let result = async |script: &str| finish(&runner, shell(script)).await;
    assert_eq!(result("echo '{\"a\": 1}'; echo").await.result.unwrap(), "{\"a\": 1}");
    assert_eq!(result("echo 42").await.result.unwrap(), "42");
    assert_eq!(result("echo 42; echo done").await.result, None);
    assert_eq!(result("echo 42; echo 43 >&2; exit 3").await.result.unwrap(), "42");
    assert_eq!(result("echo 42; echo '[1]' > $FILCH_RESULT").await.result.unwrap(), "[1]");
    assert_eq!(result("echo 42; rm $FILCH_RESULT").await.result.unwrap(), "42");
    let moved = "echo '{}' > $FILCH_RESULT.new; mv $FILCH_RESULT.new $FILCH_RESULT";
    assert_eq!(result(moved).await.result.unwrap(), "{}");

    let wrong = result("echo 42; echo oops > $FILCH_RESULT").await;
    assert_eq!((&wrong.how, &wrong.result), (&How::Exited(0), &None));
    assert!(
        wrong.log.starts_with("42\nfilch: the result in $FILCH_RESULT is not usable JSON"),
        "{wrong:?}"
    );
    let pretended = result("printf '\\0execute x' > $FILCH_RESULT; exit 127").await;
    assert_eq!(pretended.how, How::Exited(127));
    runner.close().await;
}

async fn output_is_bounded_and_streamed_whole() {
    let runner = runner();
    let mut streamed = 0;
    let script = "echo first; head -c 20000000 /dev/zero | tr '\\0' x; printf '\\377\\nlast\\n'";
    let finished = runner.run(shell(script), |_, bytes: &[u8]| streamed += bytes.len(), pending());
    let finished = tokio::time::timeout(BOUND, finished).await.unwrap();
    assert_eq!(streamed, 6 + 20_000_000 + 7);
    assert!(finished.log.starts_with("first\nxxx"));
    assert!(finished.log.ends_with("xxx\u{fffd}\nlast\n"));
    assert!(finished.log.contains("\n[filch: 19934"), "contains how much was left out");
    assert!(finished.log.len() < (64 << 10) + 100, "{}", finished.log.len());
    runner.close().await;
}

async fn failures_to_execute_are_explained() {
    let runner = runner();
    let reason = async |command| match finish(&runner, command).await.how {
        How::NotStarted(reason) => reason,
        other => panic!("{other:?}"),
    };
    let missing = reason(command(&["filch-nonesuch", "-x"])).await;
    assert_eq!(
        missing,
        "cannot execute \"filch-nonesuch\" (No such file or directory (os error 2)); it is not in PATH \
         on this worker: install it, or use its full path"
    );
    assert!(reason(command(&["echo hello"])).await.contains("commands run without a shell"));
    assert!(reason(command(&["/etc/passwd"])).await.contains("chmod +x"));
    assert!(reason(command(&[])).await.contains("the command is empty"));
    let nowhere = Command { dir: Some("/nonesuch".into()), ..command(&["true"]) };
    assert!(reason(nowhere).await.contains("cannot enter the folder /nonesuch"));
    runner.close().await;
}

async fn many_commands_run_at_once() {
    let runner = Arc::new(runner());
    let running: Vec<_> = (0..64)
        .map(|number| {
            let runner = Arc::clone(&runner);
            tokio::spawn(
                async move { finish(&runner, command(&["echo", &number.to_string()])).await },
            )
        })
        .collect();
    for (number, running) in running.into_iter().enumerate() {
        assert_eq!(running.await.unwrap().result, Some(number.to_string()));
    }
    Arc::into_inner(runner).unwrap().close().await;
    assert_eq!(guardian_of(own_number()), None);
}

// Nothing outlives its attempt.

async fn a_stop_kills_the_whole_group() {
    let runner = Runner::start(Options { grace: Duration::from_millis(100), ..options() });
    let stubborn = "trap '' TERM
        sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' &
        echo $$; while :; do sleep 1000; done";
    let (finished, numbers) =
        interfere(&runner, shell(stubborn), 2, |_, stop| stop.send(()).unwrap()).await;
    assert_eq!(finished.how, How::Stopped);
    for number in numbers {
        assert!(!is_alive(number));
    }
    runner.close().await;
}

async fn a_stop_gives_the_grace_period_to_members_without_a_leader() {
    // Longer than the test may take: processes that have ended must not be waited for.
    let runner = Runner::start(Options { grace: BOUND * 2, ..options() });
    let polite =
        "trap 'sleep 0.05; echo saved; exit 0' TERM; echo $$; while :; do sleep 0.01; done";
    let script = format!("sh -c \"$SCRIPT\" & wait; # {polite}");
    let env = BTreeMap::from([("SCRIPT".to_owned(), polite.to_owned())]);
    let leading = Command { env, ..shell(&script) };
    let (finished, numbers) =
        interfere(&runner, leading, 1, |_, stop| stop.send(()).unwrap()).await;
    assert_eq!(finished.how, How::Stopped);
    assert!(finished.log.ends_with("saved\n"), "{}", finished.log);
    assert!(!is_alive(numbers[0]));
    runner.close().await;
}

async fn processes_that_outlive_their_command_are_killed() {
    let finished = finish_one(shell("sleep 1000 & echo $!; exit 5")).await;
    assert_eq!(finished.how, How::Exited(5));
    assert!(!is_alive(finished.log.trim().parse().unwrap()));
}

async fn a_process_that_leaves_the_group_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let script = "setsid sh -c 'echo $$ > number; exec sleep 1000' &
        while ! [ -s number ]; do sleep 0.01; done; echo '{}'";
    let inside = Command { dir: Some(folder.path().to_owned()), ..shell(script) };
    let finished = finish_one(inside).await;
    assert_eq!(finished.how, How::Exited(0));
    assert_eq!(finished.result.unwrap(), "{}");
    let escaped = std::fs::read_to_string(folder.path().join("number")).unwrap();
    signal(escaped.trim().parse().unwrap(), Signal::KILL);
}

async fn a_command_that_is_dropped_is_killed() {
    let runner = runner();
    let printed = Mutex::new(String::new());
    let hear = |_, bytes: &[u8]| {
        printed.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
    };
    let number = {
        let mut running = std::pin::pin!(runner.run(shell("echo $$; sleep 1000"), hear, pending()));
        let started = Instant::now();
        while !printed.lock().unwrap().ends_with('\n') {
            assert!(started.elapsed() < BOUND);
            let turn = tokio::time::timeout(Duration::from_millis(5), &mut running).await;
            assert!(turn.is_err(), "{turn:?}");
        }
        printed.lock().unwrap().trim().parse().unwrap()
    };
    until("it is dead", || !is_alive(number));
    runner.close().await;
    assert_eq!(look_at(number), None, "it was reaped");
}

async fn unreaped_orphans_are_not_waited_for() {
    // Orphans of this test's workers now become our children, and we let them lie.
    set_child_subreaper(Some(Pid::INIT)).unwrap();
    let worker = Worker::start(&["script", "sleep 1000 & echo $!; exit 0"]);
    let number = worker.numbers(1)[0];
    assert_eq!(worker.line(), "Exited(0)");
    assert_eq!(look_at(number).unwrap().0, 'Z');
    set_child_subreaper(None).unwrap();

    // And a worker to whom the orphans are handed reaps them.
    let worker = Worker::start(&["reap", "sleep 1000 & echo $!; exit 0"]);
    let number = worker.numbers(1)[0];
    assert_eq!(worker.line(), "Exited(0)");
    assert_eq!(look_at(number), None);
}

async fn a_group_is_forgotten_before_its_id_can_be_reused() {
    let folder = tempfile::tempdir().unwrap();
    let heard = folder.path().join("heard");
    let mut options = options();
    options.helper.guardian.extend(["witness".to_owned(), heard.to_str().unwrap().to_owned()]);
    let runner = Runner::start(options);
    assert_eq!(finish(&runner, shell("sleep 1000 & exit 6")).await.how, How::Exited(6));
    runner.close().await;
    let heard = std::fs::read_to_string(heard).unwrap();
    let lines: Vec<&str> = heard.lines().collect();
    let [watch, forget] = lines[..] else { panic!("{heard}") };
    assert!(watch.starts_with("watch ") && !watch.ends_with('Z'), "{watch}");
    assert!(forget.starts_with("forget ") && forget.ends_with('Z'), "{forget}");
}

// Whatever happens to the worker.

async fn the_death_of_a_worker_ends_its_commands() {
    let mut worker = Worker::start(&["script", "sleep 1000 & echo $!; echo $$; sleep 1000"]);
    let numbers = worker.numbers(2);
    let guardian = guardian_of(worker.number()).unwrap();
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    until("its commands are dead", || numbers.iter().all(|number| !is_alive(*number)));
    until("its guardian is gone", || !is_alive(guardian));
}

async fn a_killed_worker_leaves_no_files() {
    let temporary = tempfile::tempdir().unwrap();
    let mut worker = Worker::start_in(temporary.path(), &["script", "echo $$; sleep 1000"]);
    worker.numbers(1);
    assert_eq!(entries(temporary.path()).len(), 1, "the file for the result is somewhere");
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    until("its files are gone", || entries(temporary.path()).is_empty());
}

async fn leftover_folders_are_removed_by_the_next_worker() {
    let temporary = tempfile::tempdir().unwrap();
    let script = "echo $$; sleep 1000";
    let mut worker = Worker::start_in(temporary.path(), &["script", script]);
    let orphan = worker.numbers(1)[0];
    let left = entries(temporary.path());
    // In this order, or the worker would stop its command and clean up.
    signal(worker.number(), Signal::STOP);
    signal(guardian_of(worker.number()).unwrap(), Signal::KILL);
    until("the guardian is dead", || guardian_of(worker.number()).is_none());
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    signal(orphan, Signal::KILL);
    assert_eq!(entries(temporary.path()), left, "there is nobody left to remove it");

    // What is not a worker's stays, and so does what a living one has.
    std::fs::write(temporary.path().join("filch-worker-file"), "").unwrap();
    let second = Worker::start_in(temporary.path(), &["script", script]);
    second.numbers(1);
    let seen = entries(temporary.path());
    assert_eq!(seen.len(), 2, "{seen:?} has nothing of the first worker");
    assert!(!seen.contains(&left[0]), "{seen:?}");
    let third = Worker::start_in(temporary.path(), &["script", script]);
    third.numbers(1);
    let both = entries(temporary.path());
    assert_eq!(both.len(), 3, "{both:?}");
    assert!(seen.iter().all(|entry| both.contains(entry)), "{both:?} has all of {seen:?}");
}

async fn a_result_file_is_created_even_if_the_folder_was_deleted() {
    let temporary = tempfile::tempdir().unwrap();
    let script = format!("rm -r {}/*; echo $$", temporary.path().display());
    let worker = Worker::start_in(temporary.path(), &["twice", &script]);
    for _ in 0..2 {
        worker.numbers(1);
        assert_eq!(worker.line(), "Exited(0)");
    }
    until("nothing is left", || entries(temporary.path()).is_empty());
}

async fn a_worker_that_dies_before_its_command_is_watched_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (heard, made) = (folder.path().join("heard"), folder.path().join("made"));
    let script = format!("echo > {}", made.display());
    let mut worker = Worker::start(&["unanswered", &script, heard.to_str().unwrap()]);
    // By then the launcher runs, and its guardian has not answered.
    let line = || std::fs::read_to_string(&heard).unwrap_or_default();
    until("the launcher is there", || line().ends_with('\n'));
    let launcher: i32 = line().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(is_alive(launcher));
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    until("the launcher is gone", || !is_alive(launcher));
    assert!(!made.exists());
}

async fn a_worker_suspended_past_its_deadline_loses_its_commands() {
    // Where it takes long to be made to stand still, the deadline passes before. It did that in
    // time if it stands still and its commands live: from then on nobody but the guardian can end
    // them.
    let in_time = [2, 4, 8, 16, 32].into_iter().find_map(|seconds: u64| {
        let script = "sleep 1000 & echo $!; echo $$; sleep 1000";
        let worker = Worker::start(&["deadline", script, &seconds.to_string()]);
        let numbers = worker.numbers(2);
        signal(worker.number(), Signal::STOP);
        until("the worker stands still", || is_stopped(worker.number()));
        numbers.iter().all(|number| is_alive(*number)).then_some((worker, numbers))
    });
    let (worker, numbers) = in_time.expect("one stands still before its deadline");
    until("its commands are dead", || numbers.iter().all(|number| !is_alive(*number)));
    assert!(is_stopped(worker.number()));
    // The leader waits to be reaped, so that its number is nobody else's.
    assert_eq!(look_at(numbers[1]).unwrap().0, 'Z');
    let guardian = guardian_of(worker.number()).unwrap();
    signal(worker.number(), Signal::CONT);
    assert_eq!(worker.line(), "Stopped", "the guardian killed it: no fault of its own");
    // It is late for anything new, until the deadline is moved: that is not a reason to rest.
    assert_eq!(worker.line(), "Stopped");
    assert_eq!(worker.line(), "Exited(4)");
    assert_eq!(guardian_of(worker.number()), Some(guardian), "it goes on with its work");
}

async fn a_deadline_can_be_moved() {
    let runner = runner();
    runner.deadline(Some(after(Duration::ZERO)));
    assert_eq!(finish(&runner, command(&["true"])).await.how, How::Stopped);
    runner.deadline(Some(after(BOUND * 10)));
    assert_eq!(finish(&runner, command(&["true"])).await.how, How::Exited(0));
    let forever = shell("echo $$; sleep 1000");
    let move_it = |_: &[i32], _| runner.deadline(Some(after(Duration::from_millis(1))));
    let (finished, _) = interfere(&runner, forever, 1, move_it).await;
    assert_eq!(finished.how, How::Stopped);
    runner.deadline(None);
    assert_eq!(finish(&runner, command(&["true"])).await.how, How::Exited(0));
    runner.close().await;
}

async fn the_death_of_the_guardian_stops_commands_and_a_new_one_starts() {
    let runner = runner();
    let script = shell("sleep 1000 & echo $!; echo $$; wait");
    let (finished, numbers) = interfere(&runner, script, 2, |_, _| {
        signal(guardian_of(own_number()).unwrap(), Signal::KILL);
    })
    .await;
    assert!(matches!(finished.how, How::Interrupted(_)), "{finished:?}");
    assert!(!numbers.into_iter().any(is_alive));
    assert_eq!(finish(&runner, command(&["true"])).await.how, How::Exited(0));

    // One that is merely asked to go stays.
    let guardian = guardian_of(own_number()).unwrap();
    for polite in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        signal(guardian, polite);
    }
    assert_eq!(finish(&runner, command(&["true"])).await.how, How::Exited(0));
    assert_eq!(guardian_of(own_number()), Some(guardian));
    runner.close().await;
    assert!(!is_alive(guardian));
}

async fn without_a_guardian_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    for (program, word) in [("/nonesuch", ""), ("/bin/echo", "hello"), ("/bin/true", "")] {
        let mut options = options();
        let launcher = options.helper.program.clone();
        options.helper.guardian = vec![word.to_owned()];
        options.helper.program = program.into();
        if program != "/nonesuch" {
            // What launches must work, or it would not come to the guardian.
            let script = format!(
                "if [ \"$1\" = launcher ]; then exec {} launcher; else exec {program} {word}; fi",
                launcher.display()
            );
            options.helper.program = "/bin/sh".into();
            options.helper.guardian = vec!["-c".into(), script.clone(), "sh".into()];
            options.helper.launcher = vec!["-c".into(), script, "sh".into(), "launcher".into()];
        }
        let runner = Runner::start(options);
        let finished = finish(&runner, command(&["touch", made.to_str().unwrap()])).await;
        assert!(matches!(finished.how, How::Unstarted(_)), "{finished:?}");
        runner.close().await;
    }
    assert!(!made.exists());
}

async fn a_worker_without_a_temporary_folder_starts_nothing_and_says_why() {
    let worker = Worker::start_in(Path::new("/nonesuch"), &["script", "echo started"]);
    let said = worker.line();
    assert!(said.starts_with("Unstarted(") && said.contains("in /nonesuch"), "{said}");
}

// A worker in a process of its own.

struct Worker {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Worker {
    fn start(words: &[&str]) -> Worker {
        Worker::start_in(&std::env::temp_dir(), words)
    }

    /// With a folder for temporary files of its own.
    fn start_in(temporary: &Path, words: &[&str]) -> Worker {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap())
            .arg("worker")
            .args(words)
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = BufReader::new(process.stdout.take().unwrap());
        let (line, lines) = mpsc::channel();
        // It ends with the worker.
        std::thread::spawn(move || printed.lines().try_for_each(|read| line.send(read.unwrap())));
        Worker { process, lines }
    }

    fn number(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(BOUND).unwrap()
    }

    fn numbers(&self, count: usize) -> Vec<i32> {
        (0..count).map(|_| self.line().parse().unwrap()).collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a script and prints what it prints, then how it ended.
async fn be_worker(words: &[String]) {
    let (role, script) = (words[0].as_str(), shell(&words[1]));
    let mut options = options();
    match role {
        "reap" => set_child_subreaper(Some(Pid::INIT)).unwrap(),
        "unanswered" => options.helper.guardian.extend(["mute".to_owned(), words[2].clone()]),
        "script" | "deadline" | "twice" => {}
        other => panic!("there is no worker that can {other}"),
    }
    let runner = Runner::start(options);
    if role == "deadline" {
        let deadline = Duration::from_secs(words[2].parse().unwrap());
        return be_worker_with_deadline(&runner, script, deadline).await;
    }
    let print = |_, bytes: &[u8]| std::io::stdout().write_all(bytes).unwrap();
    if role == "twice" {
        println!("{:?}", runner.run(script.clone(), print, pending()).await.how);
    }
    println!("{:?}", runner.run(script, print, pending()).await.how);
}

/// Prints what the script prints only when the guardian knows of a deadline. Once that has passed
/// it tries to go on, moves the deadline, and goes on.
async fn be_worker_with_deadline(runner: &Runner, script: Command, deadline: Duration) {
    let (print, mut printed) = tokio::sync::mpsc::unbounded_channel();
    let hear = |_, bytes: &[u8]| print.send(bytes.to_vec()).unwrap();
    let say = async {
        let mut text = Vec::new();
        while text.iter().filter(|byte| **byte == b'\n').count() < 2 {
            text.extend(printed.recv().await.unwrap());
        }
        runner.deadline(Some(after(deadline)));
        // No command starts before the guardian has heard of a deadline that was set before.
        finish(runner, command(&["true"])).await;
        std::io::stdout().write_all(&text).unwrap();
    };
    let (finished, ()) = tokio::join!(runner.run(script, hear, pending()), say);
    println!("{:?}", finished.how);
    println!("{:?}", finish(runner, command(&["true"])).await.how);
    runner.deadline(Some(after(BOUND)));
    println!("{:?}", finish(runner, shell("exit 4")).await.how);
    // Looked at until it is killed.
    pending::<()>().await;
}

/// A guardian that kills nobody. It writes what it hears into a file, and behind it the state in
/// which the process is at that time.
fn be_witness(is_mute: bool, path: &str) -> ExitCode {
    println!("filch guardian 3");
    let mut heard = String::new();
    for line in std::io::stdin().lines().map(Result::unwrap) {
        let (word, number) = line.split_once(' ').unwrap();
        let reply = match word {
            "watch" => "watching",
            "forget" => "forgotten",
            _ => continue,
        };
        let state = look_at(number.parse().unwrap()).map_or('-', |(state, _, _)| state);
        heard.push_str(&format!("{line} {state}\n"));
        std::fs::write(path, &heard).unwrap();
        if !is_mute {
            println!("{reply} {number}");
        }
    }
    ExitCode::SUCCESS
}

// What a harness would do, in the manner of the usual one, so that callers can work with this:
// names to run, `--exact`, and for lists `--list --format terse`.

macro_rules! tests {
    ($($name:ident)*) => { [$((stringify!($name), || runtime().block_on($name()))),*] };
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("guardian") if words.len() == 3 => return be_witness(words[1] == "mute", &words[2]),
        Some("guardian") => return guardian::main(),
        Some("launcher") => return launcher::main(),
        Some("worker") => {
            runtime().block_on(be_worker(&words[1..]));
            return ExitCode::SUCCESS;
        }
        Some(_) | None => {}
    }
    let tests: &[(&str, fn())] = &tests![
        output_of_a_command_is_streamed
        arguments_are_not_parsed_by_a_shell
        an_exit_code_is_reported
        the_payload_is_on_stdin
        commands_get_exactly_their_environment
        a_command_runs_in_its_folder_and_group
        a_result_is_in_the_file_or_on_the_last_line
        output_is_bounded_and_streamed_whole
        failures_to_execute_are_explained
        many_commands_run_at_once
        a_stop_kills_the_whole_group
        a_stop_gives_the_grace_period_to_members_without_a_leader
        processes_that_outlive_their_command_are_killed
        a_process_that_leaves_the_group_does_not_block
        a_command_that_is_dropped_is_killed
        unreaped_orphans_are_not_waited_for
        a_group_is_forgotten_before_its_id_can_be_reused
        the_death_of_a_worker_ends_its_commands
        a_killed_worker_leaves_no_files
        leftover_folders_are_removed_by_the_next_worker
        a_result_file_is_created_even_if_the_folder_was_deleted
        a_worker_that_dies_before_its_command_is_watched_starts_nothing
        a_worker_suspended_past_its_deadline_loses_its_commands
        a_deadline_can_be_moved
        the_death_of_the_guardian_stops_commands_and_a_new_one_starts
        without_a_guardian_nothing_starts
        a_worker_without_a_temporary_folder_starts_nothing_and_says_why
    ];
    let is_set = |flag: &str| words.iter().any(|word| word == flag);
    let filters = words.iter().filter(|word| !word.starts_with("--") && *word != "terse");
    let filters: Vec<&String> = filters.collect();
    let wanted = |name: &str| match is_set("--exact") {
        true => filters.iter().any(|filter| *filter == name),
        false => filters.is_empty() || filters.iter().any(|filter| name.contains(*filter)),
    };
    // None of them is switched off, which is what this flag asks for.
    let tests = tests.iter().filter(|(name, _)| wanted(name) && !is_set("--ignored"));
    if is_set("--list") {
        tests.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut outcome = ExitCode::SUCCESS;
    for (name, test) in tests {
        let passed =
            std::thread::Builder::new().name((*name).to_owned()).spawn(test).unwrap().join();
        println!("test {name} ... {}", if passed.is_ok() { "ok" } else { "FAILED" });
        if passed.is_err() {
            outcome = ExitCode::FAILURE;
        }
    }
    outcome
}
