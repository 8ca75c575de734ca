//! A thread that waits for an event sees everything that was done before it was set.

use std::sync::Arc;

use super::payload::Payload;
use super::{beside, explore, sleeper};
use crate::protocol::event::Event;

struct Model {
    event: Event,
    done: Payload,
}

/// (That a wake alone would do here is a liberty of loom's: it lets nothing happen between the
/// store and the wake, which publishes everything. The sanitizer finds the planted race.)
#[test]
fn a_waiting_thread_sees_what_was_done_before_the_event() {
    explore(4, || {
        sleeper(|| {
            let model = Arc::new(Model { event: Event::new(), done: Payload::new(1) });
            let other = beside(&model, |model| {
                model.done.make(1);
                model.event.set();
            });
            model.event.wait();
            model.done.take(std::ptr::without_provenance_mut(1));
            vec![other]
        });
    });
}

/// As with a future that is woken while it is being polled.
#[test]
fn an_event_that_is_set_again_wakes_again() {
    explore(3, || {
        sleeper(|| {
            let event = Arc::new(Event::new());
            let twice = beside(&event, |event| {
                event.set();
                event.set();
            });
            event.wait();
            let last = beside(&event, Event::set);
            event.wait();
            vec![twice, last]
        });
    });
}
