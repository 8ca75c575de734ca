//! Where a side job panicked: only a hook of the whole process hears of that, so the program decides.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// Where this thread panicked last, since somebody asked.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on the log says where a side job panicked, and how it came there if `RUST_BACKTRACE` is set. It puts a
/// hook before the one there is, once for the process; who sets another one later replaces both.
pub fn trace_panics() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let trace = Backtrace::capture();
            let text = match trace.status() {
                BacktraceStatus::Captured => format!("{place}\n{trace}"),
                _ => place,
            };
            // A thread that is about to end has nowhere to note it.
            let _ = LAST.try_with(|last| *last.borrow_mut() = Some(text));
            before(info);
        }));
    });
}

/// Where this thread panicked, if it did since somebody asked, and if that is noted.
pub(crate) fn take_place() -> Option<String> {
    LAST.try_with(|last| last.borrow_mut().take()).ok().flatten()
}
