//! Tasks in detail: handles, errors, cancellation, priorities and names.
//!
//! [`spawn`](crate::spawn()) and [`Pool::spawn`](crate::Pool::spawn) are enough for most tasks;
//! [`Pool::task`](crate::Pool::task) builds one with a name, a priority or a cancellation token.

pub use crate::cancel::{CancelToken, is_cancelled};
pub use crate::future::FutureHandle;
pub use crate::handle::TaskHandle;
pub use crate::shared_queue::Priority;
pub use crate::spawn::{TaskBuilder, current_name, spawn_detached};
pub use crate::task_error::TaskError;
