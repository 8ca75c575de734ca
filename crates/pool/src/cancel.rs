//! Cancelling: tasks that have not begun do not begin, and one that runs can ask.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Says of any number of tasks that they are no longer wanted.
///
/// A task looks at its token once, before it begins; if it was cancelled by then, it is dropped. A task
/// that runs is never stopped, but it [can ask](is_cancelled).
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
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is cancelled with this one, but can also be cancelled alone.
    pub fn child(&self) -> Self {
        Self(Arc::new(Flag { is_cancelled: AtomicBool::new(false), parent: Some(self.clone()) }))
    }

    /// From now on nothing with this token begins.
    pub fn cancel(&self) {
        // Release: who sees it sees why.
        self.0.is_cancelled.store(true, Release);
    }

    /// Whether this, or one that it is a child of, was cancelled.
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

/// Whether the task that calls this was cancelled while it runs. Where there is no task with a token,
/// no.
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
/// assert!(matches!(handle.wait(), Ok("stopped by itself") | Err(filch_pool::task::TaskError::Cancelled)));
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
