//! Building a pool.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::core::{Core, IdleHook};
use crate::pool::Pool;
use crate::steal::StealPolicy;
use crate::trace;

/// Configures and builds a pool: see [`Pool::builder`].
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

/// Why a pool could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Zero threads were requested.
    NoThreads,
    /// More than [`PoolBuilder::THREADS_MAX`].
    TooManyThreads(usize),
    /// A thread could not be started.
    Thread(io::Error),
    /// The global pool already exists.
    GlobalExists,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThreads => {
                f.write_str("a pool needs at least one thread (omit `threads` to get one per core)")
            }
            Self::TooManyThreads(count) => write!(
                f,
                "{count} threads are too many, {} are the most: wrap waiting in `blocking` instead, and another \
                 thread takes over meanwhile",
                PoolBuilder::THREADS_MAX
            ),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::GlobalExists => f.write_str(
                "the global pool already exists: build it at the start of the program, before \
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

    /// The number of threads that run at the same time. Default: one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The name of the threads, which is followed by a number. Default: `filch`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The stack size of each thread, in bytes.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Pins each thread to a core.
    pub fn pinned(mut self) -> Self {
        self.is_pinned = true;
        self
    }

    /// The seed of the random numbers that choose victims.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many tasks a thief takes.
    pub fn steal(mut self, steal: StealPolicy) -> Self {
        self.steal = steal;
        self
    }

    /// A function that a worker calls when it has found nothing to do, before it sleeps. It may
    /// spawn work, and then returns true. It must not wait. If it panics, that counts as false.
    pub fn idle_hook(mut self, hook: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.idle_hook = Some(Box::new(hook));
        self
    }

    /// Prints a schedule trace to stderr: one [line](crate::stats::PoolStats::trace_line) per
    /// period, and a last one when the pool has been dropped. A period of zero disables it.
    ///
    /// Without this call, the environment decides: `FILCH_SCHEDTRACE=1000` prints a line each
    /// second. A value that is not a number is reported on stderr and ignored.
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

    /// Writes the [trace](PoolBuilder::trace) here instead of to stderr. A dedicated thread does
    /// the writing.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (reader, writer) = std::io::pipe().expect("there is a pipe");
    /// let pool = filch_pool::Pool::builder().threads(2).trace(Duration::from_secs(60));
    /// let pool = pool.trace_to(writer);
    /// drop(pool.build()?);
    /// let last = std::io::read_to_string(reader).expect("the pipe was closed");
    /// assert!(last.starts_with("SCHED "));
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn trace_to(mut self, writer: impl io::Write + Send + 'static) -> Self {
        self.trace.writer = Some(Box::new(writer));
        self
    }

    /// Enters that tokio runtime on all threads of the pool, so that futures which need tokio's
    /// timers, sockets or `spawn` can run here. The runtime itself has to be driven elsewhere.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mut runtime = tokio::runtime::Builder::new_multi_thread();
    /// let runtime = runtime.worker_threads(1).enable_all().build()?;
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

    /// Builds the pool and starts its threads.
    ///
    /// # Errors
    /// If the number of threads is out of range, or a thread could not be started.
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
