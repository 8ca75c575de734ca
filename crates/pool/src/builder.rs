//! How a pool is made.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::core::{Core, IdleHook};
use crate::pool::Pool;
use crate::steal::StealPolicy;
use crate::trace;

/// What a pool is to be like: see [`Pool::builder`].
#[must_use]
#[derive(Default)]
pub struct PoolBuilder {
    threads: Option<usize>,
    name: Option<String>,
    stack_size: Option<usize>,
    is_pinned: bool,
    seed: Option<u64>,
    steal: StealPolicy,
    idle_hook: Option<IdleHook>,
    trace: trace::Settings,
    #[cfg(feature = "tokio")]
    tokio: Option<tokio::runtime::Handle>,
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder").field("threads", &self.threads).finish_non_exhaustive()
    }
}

pub(crate) struct Settings {
    pub(crate) threads: usize,
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
    pub(crate) is_pinned: bool,
    pub(crate) seed: u64,
    pub(crate) steal: StealPolicy,
    pub(crate) idle_hook: Option<IdleHook>,
    #[cfg(feature = "tokio")]
    pub(crate) tokio: Option<tokio::runtime::Handle>,
}

/// Why there is no pool.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// No thread at all was asked for.
    NoThreads,
    /// More than [`PoolBuilder::THREADS_MAX`].
    TooManyThreads(usize),
    /// A thread could not be started.
    Thread(io::Error),
    /// There is a global pool already.
    GlobalExists,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThreads => f.write_str(
                "a pool needs at least one thread: leave `threads` out to have one for each core",
            ),
            Self::TooManyThreads(count) => write!(
                f,
                "{count} threads are too many, {} are the most: wrap waiting in `blocking` instead, and another \
                 thread takes over meanwhile",
                PoolBuilder::THREADS_MAX
            ),
            Self::Thread(error) => write!(f, "a thread could not be started: {error}"),
            Self::GlobalExists => f.write_str(
                "the global pool was made already: build it at the start of the program, before \
                 anything uses it",
            ),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            Self::NoThreads | Self::TooManyThreads(_) | Self::GlobalExists => None,
        }
    }
}

impl PoolBuilder {
    /// The most threads a pool can have. External threads that enter it and reserve threads come
    /// on top.
    pub const THREADS_MAX: usize = 512;

    /// How many threads work at the same time; if not said, one for each core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// What the threads are called, with a number behind it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How large the stack of each thread is, in bytes.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Keeps each thread on a core of its own.
    pub fn pinned(mut self) -> Self {
        self.is_pinned = true;
        self
    }

    /// From which random numbers victims are chosen.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How much a thief takes.
    pub fn steal(mut self, steal: StealPolicy) -> Self {
        self.steal = steal;
        self
    }

    /// Is called on a thread that has found nothing to do, before it sleeps, and may bring work: it
    /// spawns that, and returns true. It must not wait. If it panics, it has brought nothing.
    pub fn idle_hook(mut self, hook: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.idle_hook = Some(Box::new(hook));
        self
    }

    /// Prints what the pool is doing, one [line](crate::stats::PoolStats::trace_line) per period, to stderr, and a
    /// last one when the pool has been dropped. A period of zero is no trace.
    ///
    /// If this is not called, the environment is asked: `FILCH_SCHEDTRACE=1000` prints a line each second.
    /// What is not a number there is complained about on stderr, and ignored.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = filch_pool::Pool::builder().threads(2).trace(Duration::from_secs(1)).build()?;
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn trace(mut self, period: Duration) -> Self {
        self.trace.period = Some(period);
        self
    }

    /// Where the [trace](PoolBuilder::trace) goes instead of stderr. A thread that does nothing else writes there.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (reader, writer) = std::io::pipe().expect("there is a pipe");
    /// let pool = filch_pool::Pool::builder().threads(2).trace(Duration::from_secs(60)).trace_to(writer);
    /// drop(pool.build()?);
    /// let last = std::io::read_to_string(reader).expect("the pipe was closed");
    /// assert!(last.starts_with("SCHED "));
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn trace_to(mut self, writer: impl io::Write + Send + 'static) -> Self {
        self.trace.writer = Some(Box::new(writer));
        self
    }

    /// All threads of the pool belong to that runtime of tokio's as well, so that futures which need
    /// its timers, its sockets or its `spawn` run here too. The runtime lives elsewhere, and has to be
    /// driven there.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let pool = filch_pool::Pool::builder().threads(1).tokio(runtime.handle().clone()).build()?;
    /// let nap = pool.spawn_future(async { tokio::time::sleep(Duration::from_millis(1)).await });
    /// filch_pool::block_on(nap)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, handle: tokio::runtime::Handle) -> Self {
        self.tokio = Some(handle);
        self
    }

    /// Makes the pool.
    ///
    /// # Errors
    /// If the number of threads makes no sense, or one could not be started.
    pub fn build(mut self) -> Result<Pool, BuildError> {
        let trace = std::mem::take(&mut self.trace);
        let core = Core::new(self.settings()?);
        let pool = Pool::new(core);
        pool.core().start().map_err(BuildError::Thread)?;
        pool.core().trace.start(pool.core(), trace).map_err(BuildError::Thread)?;
        Ok(pool)
    }

    pub(crate) fn settings(self) -> Result<Settings, BuildError> {
        let threads = self.threads.unwrap_or_else(cores);
        match threads {
            0 => Err(BuildError::NoThreads),
            1..=Self::THREADS_MAX => Ok(Settings {
                threads,
                name: self.name.unwrap_or_else(|| "filch".to_owned()),
                stack_size: self.stack_size,
                is_pinned: self.is_pinned,
                seed: self.seed.unwrap_or(0),
                steal: self.steal,
                idle_hook: self.idle_hook,
                #[cfg(feature = "tokio")]
                tokio: self.tokio,
            }),
            _ => Err(BuildError::TooManyThreads(threads)),
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(PoolBuilder::THREADS_MAX)
}
