//! Why a task has no result.

use std::any::Any;
use std::fmt;
use std::panic::resume_unwind;

/// Why a task has no result.
#[non_exhaustive]
pub enum TaskError {
    /// It panicked with this payload.
    Panicked(Box<dyn Any + Send>),
    /// It was cancelled before it started; a future, before it finished.
    Cancelled,
    /// The pool was closed before it started; a future, before it finished.
    Closed,
}

impl TaskError {
    /// Resumes the panic, or panics with this error.
    ///
    /// # Panics
    /// Always.
    pub fn resume(self) -> ! {
        match self {
            Self::Panicked(panic) => resume_unwind(panic),
            Self::Cancelled | Self::Closed => panic!("{self}"),
        }
    }

    /// The panic message, if it was text.
    pub fn message(&self) -> Option<&str> {
        let Self::Panicked(panic) = self else { return None };
        let text = panic.downcast_ref::<&'static str>().copied();
        text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(_) => {
                write!(f, "the task panicked: {}", self.message().unwrap_or("no message"))
            }
            Self::Cancelled => f.write_str("the task was cancelled"),
            Self::Closed => f.write_str("the pool was closed before the task finished"),
        }
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TaskError {}
