//! The rivals, each with a given number of threads.
//!
//! They are created for one workload and dropped after it, because idle threads of some pools still
//! use a processor.

use std::num::NonZero;

pub(crate) fn ours(threads: usize) -> filch_pool::Pool {
    filch_pool::Pool::builder().threads(threads).build().expect("threads can be started")
}

pub(crate) fn rayon(threads: usize) -> rayon::ThreadPool {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("threads can be started")
}

/// The caller of a scope is one of the threads.
pub(crate) fn chili(threads: usize) -> chili::ThreadPool {
    let thread_count = NonZero::new(threads);
    chili::ThreadPool::with_config(chili::Config { thread_count, ..chili::Config::default() })
}

pub(crate) fn tokio(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).build().expect("threads can be started")
}
