//! Shrinks a plan: removes everything that the violation does not need.

use std::time::Duration;

use filch_scheduler::dispatch::Request;

use crate::check::{Rule, Violation};
use crate::plan::{Plan, PlannedEvent};
use crate::search::run;
use crate::world::Audit;

/// How many runs are tried at most.
const RUNS_MAX: u32 = 1_500;

/// The smallest plan that was found to break the same rule, and its violation.
pub(crate) fn shrink(plan: Plan, violation: Violation) -> (Plan, Violation) {
    let mut shrinker = Shrinker { plan, violation, runs_left: RUNS_MAX };
    shrinker.cut_off();
    loop {
        let before = shrinker.size();
        shrinker.take_acts_away();
        shrinker.take_jobs_away();
        shrinker.take_places_away();
        shrinker.take_http_members_away();
        shrinker.take_time_away();
        if shrinker.size() == before || shrinker.runs_left == 0 {
            return (shrinker.plan, shrinker.violation);
        }
    }
}

struct Shrinker {
    plan: Plan,
    violation: Violation,
    runs_left: u32,
}

impl Shrinker {
    /// Takes the smaller plan if it breaks the same rule.
    fn accept(&mut self, plan: Plan) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        // Audits are needed only if an audit has found the violation.
        let audit = match self.violation.rule {
            Rule::Audit => Audit::Always,
            _ => Audit::Never,
        };
        let found = run(&plan, audit, None).violation;
        match found.filter(|found| found.rule == self.violation.rule) {
            Some(found) => {
                (self.plan, self.violation) = (plan, found);
                true
            }
            None => false,
        }
    }

    fn size(&self) -> (usize, usize, usize) {
        let jobs = self.plan.acts.iter().map(|(_, act)| jobs_in(act)).sum();
        let members = self.plan.members.len() + self.plan.http_members.len();
        (self.plan.acts.len(), jobs, members)
    }

    /// Removes events after the violation, which cannot have caused it, and tries an earlier end of
    /// the faults.
    fn cut_off(&mut self) {
        let at = Duration::from_micros(self.violation.at.0);
        let mut plan = self.plan.clone();
        plan.acts.retain(|(act_at, _)| *act_at <= at);
        self.accept(plan);
        let mut plan = self.plan.clone();
        let last = plan.acts.iter().filter(|(_, act)| act.is_fault()).map(|(at, _)| *at).max();
        let heals_at = last.unwrap_or_default() + Duration::from_secs(1);
        if plan.heals_at.is_some_and(|before| heals_at < before) {
            plan.heals_at = Some(heals_at);
            self.accept(plan);
        }
    }

    /// Removes halves, quarters, and so on down to single events.
    fn take_acts_away(&mut self) {
        let mut size = self.plan.acts.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < self.plan.acts.len() {
                let mut plan = self.plan.clone();
                let to = (from + size).min(plan.acts.len());
                plan.acts.drain(from..to);
                if !self.accept(plan) {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    fn take_jobs_away(&mut self) {
        for which in 0..self.plan.acts.len() {
            let mut size = jobs_in(&self.plan.acts[which].1).div_ceil(2);
            while size > 0 {
                let mut from = 0;
                while jobs_in(&self.plan.acts[which].1) > 1.max(from) {
                    let mut plan = self.plan.clone();
                    if let PlannedEvent::Ask {
                        request: Request::Submit(specs) | Request::SubmitWithin { jobs: specs, .. },
                        ..
                    } = &mut plan.acts[which].1
                    {
                        let to = (from + size).min(specs.len());
                        specs.drain(from..to);
                        if specs.is_empty() {
                            break;
                        }
                    }
                    if !self.accept(plan) {
                        from += size;
                    }
                }
                size /= 2;
            }
        }
    }

    /// Removes nodes, with all their events.
    fn take_places_away(&mut self) {
        for gone in (0..self.plan.members.len()).rev() {
            let mut plan = self.plan.clone();
            plan.members.remove(gone);
            plan.acts.retain(|(_, act)| place_of(act) != Some(gone));
            for (_, act) in &mut plan.acts {
                if let Some(place) = place_in(act)
                    && *place > gone
                {
                    *place -= 1;
                }
            }
            if !plan.members.is_empty() {
                self.accept(plan);
            }
        }
    }

    /// Removes nodes over plain HTTP, with all their events.
    fn take_http_members_away(&mut self) {
        for gone in (0..self.plan.http_members.len()).rev() {
            let mut plan = self.plan.clone();
            plan.http_members.remove(gone);
            plan.acts.retain(
                |(_, act)| !matches!(act, PlannedEvent::Http { member, .. } if *member == gone),
            );
            for (_, act) in &mut plan.acts {
                if let PlannedEvent::Http { member, .. } = act
                    && *member > gone
                {
                    *member -= 1;
                }
            }
            self.accept(plan);
        }
    }

    /// Removes time in which nothing happens.
    fn take_time_away(&mut self) {
        let mut before = Duration::ZERO;
        for which in 0..=self.plan.acts.len() {
            let at = self.plan.acts.get(which).map(|(at, _)| *at).or(self.plan.heals_at);
            let Some(idle) = at.and_then(|at| at.checked_sub(before + SHORT_WAIT)) else {
                break;
            };
            let mut plan = self.plan.clone();
            for (at, _) in &mut plan.acts[which..] {
                *at -= idle;
            }
            plan.heals_at = plan.heals_at.map(|at| at.saturating_sub(idle));
            if idle > SHORT_WAIT {
                self.accept(plan);
            }
            before = self.plan.acts.get(which).map_or(before, |(at, _)| *at);
        }
    }
}

/// A wait that is not worth making shorter.
const SHORT_WAIT: Duration = Duration::from_secs(1);

fn jobs_in(act: &PlannedEvent) -> usize {
    match act {
        PlannedEvent::Ask { request, .. } => request.submitted().len(),
        _ => 0,
    }
}

fn place_of(act: &PlannedEvent) -> Option<usize> {
    place_in(&mut act.clone()).copied()
}

/// The node of an event.
fn place_in(act: &mut PlannedEvent) -> Option<&mut usize> {
    match act {
        PlannedEvent::OperatorDrain { place }
        | PlannedEvent::Drain { place, .. }
        | PlannedEvent::Crash { place, .. }
        | PlannedEvent::Pause { place, .. }
        | PlannedEvent::Cut { place, .. }
        | PlannedEvent::Break { place, .. }
        | PlannedEvent::Reshape { place, .. }
        | PlannedEvent::Intrude { place, .. }
        | PlannedEvent::NetworkConditions { place, .. } => Some(place),
        PlannedEvent::JumpWall { place, .. } => place.as_mut(),
        PlannedEvent::Ask { .. }
        | PlannedEvent::BreakAll { .. }
        | PlannedEvent::Http { .. }
        | PlannedEvent::CrashServer { .. }
        | PlannedEvent::SuspendServer { .. }
        | PlannedEvent::Reconfigure { .. }
        | PlannedEvent::SlowStore { .. }
        | PlannedEvent::FailingRetention { .. }
        | PlannedEvent::UnreliableStore { .. } => None,
    }
}
