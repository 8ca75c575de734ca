//! Executes planned events: faults and requests.

use filch_scheduler::agent::Home;
use filch_scheduler::dispatch::Request;

use super::schedule::Happening;
use super::{Audit, World, moment};
use crate::log::{Observed, Observer};
use crate::plan::{CrashMoment, PlannedEvent};

impl<W: Observer> World<'_, W> {
    pub(super) fn act(&mut self, which: usize) {
        if let Some((at, _)) = self.plan.acts.get(which + 1) {
            self.schedule.put(moment(*at), Happening::Planned(which + 1));
        }
        let act = &self.plan.acts[which].1;
        if act.is_fault() && self.is_healed {
            return;
        }
        self.counts.faults += u64::from(act.is_fault());
        if act.is_fault() {
            let (place, span) = act.trouble();
            self.observe(Observed::Trouble { place, until: self.now.plus(span) });
        }
        match act {
            PlannedEvent::Ask { request, tries } => self.ask(request.clone(), *tries),
            PlannedEvent::OperatorDrain { place } => {
                if let Some(worker) = self.places[*place].worker() {
                    self.ask(Request::DrainWorker(worker), 3);
                }
            }
            PlannedEvent::Drain { place, grace } => self.drain(*place, *grace),
            PlannedEvent::Crash { place, away } => match self.plan.members[*place].home {
                Home::Apart => self.crash(*place, *away),
                Home::Embedded => self.crash_server(*away, true),
            },
            PlannedEvent::Pause { place, span, jobs } => self.pause(*place, *span, *jobs),
            PlannedEvent::Cut { place, direction, span, messages } => {
                self.cut(*place, *direction, *span, *messages);
            }
            PlannedEvent::Break { place, seen_by } => self.break_connection(*place, *seen_by),
            PlannedEvent::BreakAll { seen_by } => {
                for place in 0..self.places.len() {
                    if self.plan.members[place].home == Home::Apart {
                        self.break_connection(place, *seen_by);
                    }
                }
            }
            PlannedEvent::NetworkConditions { place, span, network } => {
                self.change_network(*place, *span, *network);
            }
            PlannedEvent::JumpWall { place: Some(place), by_ms } => {
                self.places[*place].clock.jump_wall(*by_ms);
            }
            PlannedEvent::JumpWall { place: None, by_ms } => self.server.clock.jump_wall(*by_ms),
            PlannedEvent::CrashServer { away, noticed, when: CrashMoment::Now } => {
                self.crash_server(*away, *noticed);
            }
            PlannedEvent::CrashServer { away, noticed, when } => {
                self.crash_server_later(*when, *away, *noticed);
            }
            PlannedEvent::SuspendServer { span } => self.suspend_server(*span),
            PlannedEvent::Reconfigure { away, lease, strategy, retention } => {
                self.reconfigure_server(*away, *lease, *strategy, *retention);
            }
            PlannedEvent::Reshape { place, slots, serves } => {
                self.reshape(*place, *slots, serves);
            }
            PlannedEvent::Http { member, fault } => self.fault_http(*member, *fault),
            PlannedEvent::Intrude { place, deed } => self.intrude(*place, *deed),
            PlannedEvent::SlowStore { span, by } => self.slow_store(*span, *by),
            PlannedEvent::FailingRetention { span, failed } => self.fail_retention(*span, *failed),
            PlannedEvent::UnreliableStore { span, unknown } => self.doubt_store(*span, *unknown),
        }
        if act.is_fault() && self.audit != Audit::Never {
            self.audit_all();
        }
    }
}
