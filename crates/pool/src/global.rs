//! The global pool, which exists without being built.

use crate::builder::{BuildError, PoolBuilder};
use crate::pool::Pool;
use crate::protocol::sync::OnceLock;

static POOL: OnceLock<Pool> = OnceLock::new();

pub(crate) fn pool() -> &'static Pool {
    POOL.get_or_init(|| {
        PoolBuilder::default().build().expect("threads can be started, or nothing can run")
    })
}

impl Pool {
    /// The global pool, with one thread per core. It is created on first use.
    ///
    /// # Panics
    /// If no thread can be started.
    pub fn global() -> &'static Self {
        pool()
    }
}

impl PoolBuilder {
    /// Builds this as the global pool.
    ///
    /// # Errors
    /// If the global pool already exists, because this was called before or because something used
    /// it; or if [`PoolBuilder::build`] fails.
    pub fn build_global(self) -> Result<&'static Pool, BuildError> {
        if POOL.get().is_some() {
            return Err(BuildError::GlobalExists);
        }
        let pool = self.build()?;
        match POOL.set(pool) {
            Ok(()) => Ok(Pool::global()),
            Err(_second) => Err(BuildError::GlobalExists),
        }
    }
}
