//! What breaks, and what else was planned.

use filch_scheduler::agent::Home;
use filch_scheduler::dispatch::Request;

use super::agenda::Happening;
use super::{Audit, World, moment};
use crate::log::{Seen, Witness};
use crate::plan::{Act, When};

impl<W: Witness> World<'_, W> {
    pub(super) fn act(&mut self, which: usize) {
        if let Some((at, _)) = self.plan.acts.get(which + 1) {
            self.agenda.put(moment(*at), Happening::Act(which + 1));
        }
        let act = &self.plan.acts[which].1;
        if act.is_fault() && self.is_healed {
            return;
        }
        self.counts.faults += u64::from(act.is_fault());
        if act.is_fault() {
            let (place, span) = act.trouble();
            self.see(Seen::Trouble { place, until: self.now.plus(span) });
        }
        match act {
            Act::Ask { request, tries } => self.ask(request.clone(), *tries),
            Act::Dismiss { place } => {
                if let Some(worker) = self.places[*place].worker() {
                    self.ask(Request::DrainWorker(worker), 3);
                }
            }
            Act::Drain { place, grace } => self.drain(*place, *grace),
            Act::Crash { place, away } => match self.plan.members[*place].home {
                Home::Apart => self.crash(*place, *away),
                Home::Embedded => self.crash_server(*away, true),
            },
            Act::Pause { place, span, jobs } => self.pause(*place, *span, *jobs),
            Act::Cut { place, way, span, mail } => self.cut(*place, *way, *span, *mail),
            Act::Break { place, seen_by } => self.break_connection(*place, *seen_by),
            Act::Weather { place, span, weather } => {
                self.change_weather(*place, *span, *weather);
            }
            Act::JumpWall { place: Some(place), by_ms } => {
                self.places[*place].clock.jump_wall(*by_ms);
            }
            Act::JumpWall { place: None, by_ms } => self.server.clock.jump_wall(*by_ms),
            Act::CrashServer { away, noticed, when: When::AtOnce } => {
                self.crash_server(*away, *noticed);
            }
            Act::CrashServer { away, noticed, when: When::AmidCommit } => {
                self.crash_server_amid_commit(*away, *noticed);
            }
            Act::SlowStore { span, by } => self.slow_store(*span, *by),
            Act::DoubtfulStore { span, unknown } => self.doubt_store(*span, *unknown),
        }
        if act.is_fault() && self.audit != Audit::Never {
            self.audit_all();
        }
    }
}
