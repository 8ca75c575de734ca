//! The workers of the world and their connections: what they run, when it stops, and which messages
//! are lost on the way.

use super::*;

impl World {
    pub(super) fn agent_event(&mut self, at: usize, event: agent::AgentEvent) {
        let mut effects = Vec::new();
        self.members[at].agent.handle(self.now, event, &mut effects);
        for effect in effects {
            let member = &mut self.members[at];
            match effect {
                // The world decides when to connect. A connection that the worker has given up is
                // gone.
                agent::AgentEffect::Connect { .. } if member.is_connected => {
                    self.disconnect_silently(at);
                }
                agent::AgentEffect::Connect { .. } => {}
                agent::AgentEffect::Disconnect { .. } => self.disconnect_silently(at),
                agent::AgentEffect::Send { .. } if member.is_link_dead => {}
                agent::AgentEffect::Send { worker, session, number, messages } => {
                    member.session = Some((worker, session));
                    member.to_server.push_back((worker, session, number, messages));
                }
                agent::AgentEffect::Start(assignment) => self.start(at, assignment.hold),
                agent::AgentEffect::Stop { hold, .. } => {
                    assert!(member.running.contains(&hold), "what is stopped runs");
                    member.stopping.entry(hold).or_insert(self.now.monotonic);
                }
                agent::AgentEffect::Answered { hold, verdict } => self.settled(hold, verdict),
                agent::AgentEffect::Leave => member.has_left = true,
            }
        }
        if self.members[at].has_left {
            self.replace(at);
        }
    }

    pub(super) fn finish_one(&mut self, at: usize, which: usize, outcome: Ending) {
        if self.members[at].is_paused {
            return;
        }
        let running = &mut self.members[at].running;
        let Some(hold) = running.iter().nth(which % running.len().max(1)).copied() else {
            return;
        };
        running.remove(&hold);
        // A job that was asked to stop may be reported as stopped although it ended by itself.
        let was_stopping = self.members[at].stopping.remove(&hold).is_some();
        if outcome == Ending::Finished && !was_stopping {
            self.finished.insert(hold);
        }
        self.agent_event(at, agent::AgentEvent::Ended(Report::plain(hold, outcome)));
    }

    /// A job that was asked to stop has stopped.
    pub(super) fn stopped(&mut self, at: usize, hold: Hold) {
        if !self.members[at].is_paused {
            self.members[at].running.remove(&hold);
            self.members[at].stopping.remove(&hold);
            self.agent_event(at, agent::AgentEvent::Ended(Report::plain(hold, Ending::Stopped)));
        }
    }

    pub(super) fn connect(&mut self, at: usize) {
        if !self.members[at].is_connected && !self.members[at].is_paused {
            self.members[at].is_connected = true;
            self.members[at].is_link_dead = false;
            self.agent_event(at, agent::AgentEvent::Connected);
        }
    }

    /// The connection breaks, and both sides notice; a paused worker notices when it resumes.
    pub(super) fn disconnect(&mut self, at: usize) {
        if self.members[at].is_connected {
            self.disconnect_silently(at);
            if self.members[at].is_paused {
                self.members[at].missed_disconnect = true;
                self.members[at].is_link_dead = true;
            } else {
                self.agent_event(at, agent::AgentEvent::Disconnected);
            }
        }
    }

    /// The connection breaks, and only the worker notices.
    pub(super) fn disconnect_unseen_by_the_server(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.is_connected && !member.is_paused {
            member.is_connected = false;
            member.session = None;
            member.to_server.clear();
            member.to_agent.clear();
            self.agent_event(at, agent::AgentEvent::Disconnected);
        }
    }

    /// The connection breaks, and only the server notices.
    pub(super) fn disconnect_unseen_by_the_worker(&mut self, at: usize) {
        if self.members[at].is_connected {
            self.disconnect_silently(at);
            self.members[at].is_connected = true;
            self.members[at].is_link_dead = true;
        }
    }

    /// The connection is gone; the worker knows already.
    pub(super) fn disconnect_silently(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.is_connected = false;
        member.is_link_dead = false;
        member.to_server.clear();
        member.to_agent.clear();
        if let Some((worker, session)) = member.session.take() {
            self.event(DispatchEvent::Closed { worker, session });
        }
    }

    pub(super) fn deliver_to_server(&mut self, at: usize) {
        if let Some((worker, session, number, messages)) = self.members[at].to_server.pop_front() {
            self.event(DispatchEvent::Worker { worker, session, number, messages });
        }
    }

    pub(super) fn deliver_to_agent(&mut self, at: usize) {
        if self.members[at].is_paused {
            return;
        }
        if let Some((session, number, messages)) = self.members[at].to_agent.pop_front() {
            self.agent_event(at, agent::AgentEvent::Received { session, number, messages });
        }
    }

    /// The process is killed, with all that ran in it; another takes its place.
    pub(super) fn kill(&mut self, at: usize) {
        self.disconnect_silently(at);
        self.replace(at);
    }

    pub(super) fn replace(&mut self, at: usize) {
        // Messages that it sent before may still arrive.
        let before = &mut self.members[at];
        let last_words: Vec<FromWorkerBatch> = before.to_server.drain(..).collect();
        self.members[at] = self.member(at);
        for (worker, session, number, messages) in last_words {
            self.event(DispatchEvent::Worker { worker, session, number, messages });
        }
    }

    /// Stops jobs that have been stopping for as long as they may.
    pub(super) fn stop_the_late(&mut self, at: usize) {
        let is_late = |since: Monotonic| since.plus(STOP_TAKES) <= self.now.monotonic;
        let stopping = self.members[at].stopping.iter();
        let late: Vec<Hold> =
            stopping.filter(|&(_, &since)| is_late(since)).map(|(&hold, _)| hold).collect();
        for hold in late {
            self.stopped(at, hold);
        }
    }

    /// Resumes a paused worker. On any event, it checks the clock first.
    pub(super) fn resume(&mut self, at: usize) {
        if std::mem::take(&mut self.members[at].is_paused) {
            self.agent_event(at, agent::AgentEvent::Tick);
            if std::mem::take(&mut self.members[at].missed_disconnect) {
                self.agent_event(at, agent::AgentEvent::Disconnected);
            }
            // Its jobs may run elsewhere by now. While it is past its deadline they run in two
            // places; only the fence protects against that, and observing more of it would show
            // nothing new.
            for hold in self.members[at].stopping.keys().copied().collect::<Vec<_>>() {
                self.stopped(at, hold);
            }
        }
    }
}
