//! Where a side job panicked. Only a process-wide panic hook can find out, so the program decides
//! whether to install it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// Where this thread panicked last, unless already taken.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Logs where side jobs panic, with a backtrace if `RUST_BACKTRACE` is set. It installs a panic
/// hook once for the process, which calls the previous hook. A hook that is installed later
/// replaces both.
pub fn trace_panics() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string).unwrap_or_default();
            let trace = Backtrace::capture();
            let text = match trace.status() {
                BacktraceStatus::Captured => format!("{location}\n{trace}"),
                _ => location,
            };
            // Fails if the thread is about to end; the location is lost then.
            let _ = LAST.try_with(|last| *last.borrow_mut() = Some(text));
            before(info);
        }));
    });
}

/// Where this thread panicked since the last call, if the hook is installed.
pub(crate) fn take_location() -> Option<String> {
    LAST.try_with(|last| last.borrow_mut().take()).ok().flatten()
}
