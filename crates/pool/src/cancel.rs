//! Cancellation: tasks that have not started never start, and a running task can check.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Cancels any number of tasks.
///
/// A task checks its token once, before it starts; if the token was cancelled by then, the task is
/// dropped. A running task is never stopped, but it [can check](is_cancelled).
///
/// ```
/// use filch_pool::{Pool, task::CancelToken};
///
/// let pool = Pool::builder().threads(1).build()?;
/// let token = CancelToken::new();
/// token.cancel();
/// let handle = pool.task().token(&token).spawn(|| 42);
/// assert!(matches!(handle.wait(), Err(filch_pool::task::TaskError::Cancelled)));
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_cancelled: AtomicBool,
    parent: Option<CancelToken>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is cancelled with this one, but can also be cancelled alone.
    pub fn child(&self) -> Self {
        Self(Arc::new(Flag { is_cancelled: AtomicBool::new(false), parent: Some(self.clone()) }))
    }

    /// Cancels: no task with this token starts any more.
    pub fn cancel(&self) {
        // Release: a thread that sees the flag also sees why it was set.
        self.0.is_cancelled.store(true, Release);
    }

    /// Whether this token or one of its ancestors was cancelled.
    pub fn is_cancelled(&self) -> bool {
        let mut flag = &self.0;
        loop {
            if flag.is_cancelled.load(Acquire) {
                return true;
            }
            match &flag.parent {
                Some(parent) => flag = &parent.0,
                None => return false,
            }
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<CancelToken>> = const { RefCell::new(None) };
}

/// Whether the calling task was cancelled while it runs. False outside of a task.
///
/// ```
/// let pool = filch_pool::Pool::builder().threads(1).build()?;
/// let handle = pool.spawn(|| {
///     while !filch_pool::task::is_cancelled() {
///         std::hint::spin_loop();
///     }
///     "stopped by itself"
/// });
/// handle.cancel();
/// // It had begun and stopped by itself, or it never began.
/// let result = handle.wait();
/// assert!(matches!(result, Ok("stopped by itself") | Err(filch_pool::task::TaskError::Cancelled)));
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
pub fn is_cancelled() -> bool {
    CURRENT.with_borrow(|token| token.as_ref().is_some_and(CancelToken::is_cancelled))
}

/// Runs `f` as a task with that token.
pub(crate) fn with_token<R>(token: &CancelToken, f: impl FnOnce() -> R) -> R {
    struct Back(Option<CancelToken>);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _back = Back(CURRENT.replace(Some(token.clone())));
    f()
}
