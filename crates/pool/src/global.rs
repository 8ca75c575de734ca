//! The pool that is there without being made.

use crate::builder::{BuildError, Builder};
use crate::pool::Pool;
use crate::protocol::sync::OnceLock;

static POOL: OnceLock<Pool> = OnceLock::new();

pub(crate) fn pool() -> &'static Pool {
    POOL.get_or_init(|| {
        Builder::default().build().expect("threads can be started, or nothing can run")
    })
}

/// The global pool, with a thread for each core; it is made when it is first asked for.
///
/// # Panics
/// If no thread can be started.
pub fn global() -> &'static Pool {
    pool()
}

impl Builder {
    /// Makes this the global pool.
    ///
    /// # Errors
    /// If there is one already, because this was called before or because something used it; or if
    /// [`Builder::build`] fails.
    pub fn build_global(self) -> Result<&'static Pool, BuildError> {
        if POOL.get().is_some() {
            return Err(BuildError::GlobalExists);
        }
        let pool = self.build()?;
        match POOL.set(pool) {
            Ok(()) => Ok(global()),
            Err(_second) => Err(BuildError::GlobalExists),
        }
    }
}
