//! The server of the world, its store and its gate: events in, effects out, commits that take their
//! time, crashes, and look-ups that are read early and answered late.

use super::*;

impl World {
    pub(super) fn event(&mut self, event: DispatchEvent) {
        let mut effects = Vec::new();
        let text = print(&event, &self.context);
        event.learn(&mut self.context);
        self.write_down(&text);
        self.dispatch.handle(self.now, event, &mut effects);
        self.perform(effects);
    }

    pub(super) fn write_down(&mut self, event: &str) {
        self.trace.push_str(&print_line(self.now, event, &mut self.context));
        self.trace.push('\n');
    }

    pub(super) fn perform(&mut self, effects: Vec<DispatchEffect>) {
        let mut told = Vec::new();
        for effect in &effects {
            self.trace.push_str(&format!("  -> {}\n", print(effect, &self.context)));
            effect.learn(&mut self.context);
        }
        for effect in effects {
            match self.gate.pass(effect, &mut told) {
                Some(DispatchEffect::Commit { number, mutations }) => {
                    self.commits.push_back((number, mutations));
                }
                Some(DispatchEffect::Fetch { fetch, ids, keys, seqs }) => {
                    self.fetches.push_back((fetch, ids, keys, seqs));
                }
                Some(DispatchEffect::HangUp { worker, session }) => self.hang_up(worker, session),
                Some(DispatchEffect::Send { .. } | DispatchEffect::Reply { .. }) => {
                    unreachable!("gated")
                }
                None => {}
            }
        }
        self.tell(told);
    }

    pub(super) fn tell(&mut self, told: Vec<Outgoing>) {
        for told in told {
            match told {
                Outgoing::Worker { worker, session, messages, .. } => {
                    let mine = |member: &&mut Member| member.session == Some((worker, session));
                    if let Some(member) = self.members.iter_mut().find(mine) {
                        let number = self.numbers.entry((worker, session)).or_default();
                        *number = number.next();
                        member.to_agent.push_back((session, *number, messages));
                    }
                }
                Outgoing::Request { to, answer, .. } => self.answered(to, &answer),
            }
        }
    }

    pub(super) fn hang_up(&mut self, worker: WorkerId, session: SessionNo) {
        let mine = |member: &Member| member.session == Some((worker, session));
        if let Some(at) = self.members.iter().position(mine) {
            self.disconnect(at);
        }
    }

    /// Makes up to `most` commits durable.
    pub(super) fn commit(&mut self, most: usize) {
        let mut last = None;
        for _ in 0..most {
            let Some((number, mutations)) = self.commits.pop_front() else {
                break;
            };
            self.store.commit(number, &mutations).expect("what is decided can be kept");
            last = Some(number);
            if self.crash_at == Some(number) {
                self.crash_at = None;
                self.crash();
                return;
            }
        }
        if let Some(number) = last {
            // Either `dispatch` or the gate may get the receipt first.
            let is_gate_first = number.0 % 2 == 0;
            if !is_gate_first {
                self.event(DispatchEvent::Committed(number));
            }
            let mut told = Vec::new();
            self.gate.receipt(number, &mut told);
            self.tell(told);
            if is_gate_first {
                self.event(DispatchEvent::Committed(number));
            }
        }
        if self.commits.is_empty() {
            self.compare_with_a_load();
        }
    }

    /// The server crashes and starts again with the durable state.
    pub(super) fn crash(&mut self) {
        self.crashes += 1;
        self.before_crashes.push(self.dispatch.counters());
        for member in 0..MEMBERS {
            self.disconnect(member);
        }
        // The embedded worker ends with the server's process, and so do its jobs.
        self.members[EMBEDDED] = self.member(EMBEDDED);
        self.commits.clear();
        self.fetches.clear();
        self.reads.clear();
        self.requests.clear();
        self.gate = Gate::default();
        let effects;
        (self.dispatch, effects) = self.load();
        self.write_down("restart");
        self.perform(effects);
        // The crash itself may have been requested by a commit that came before a cancel's answer.
        self.audit();
    }

    /// A server that starts now, and its first effects.
    pub(super) fn load(&self) -> (Dispatch, Vec<DispatchEffect>) {
        let mut effects = Vec::new();
        let loaded = Dispatch::load(self.config.clone(), self.now, self.store.load(), &mut effects);
        (loaded.expect("what is kept fits together"), effects)
    }

    /// The store looks something up. The result may be out of date when the server receives it.
    pub(super) fn read_fetch(&mut self, which: usize) {
        let which = which % self.fetches.len().max(1);
        if let Some((fetch, ids, keys, seqs)) = self.fetches.remove(which) {
            let found = self.store.find(&ids, &keys, &seqs);
            self.reads.push((fetch, found));
        }
    }

    /// The server receives results of look-ups, in any order.
    pub(super) fn answer_fetch(&mut self, which: usize) {
        if self.reads.is_empty() {
            self.read_fetch(which);
        }
        if !self.reads.is_empty() {
            let (fetch, found) = self.reads.remove(which % self.reads.len());
            self.event(DispatchEvent::Fetched { fetch, found });
        }
    }

    pub(super) fn purge(&mut self) {
        let ended = |row: &&JobRow| row.now.state.is_ended();
        let rows = self.store.jobs().filter(ended);
        let proposed: Vec<(Seq, JobId)> = rows.map(|row| (row.seq, row.spec.id)).collect();
        let before = self.commits.len();
        self.event(DispatchEvent::Expired(proposed));
        for (_, mutations) in self.commits.iter().skip(before) {
            for mutation in mutations {
                if let Mutation::Purge(seqs) = mutation {
                    let ids =
                        seqs.iter().map(|seq| self.store.job(*seq).expect("it is kept").spec.id);
                    self.purged.extend(ids);
                }
            }
        }
    }

    pub(super) fn request(&mut self, request: Request) {
        self.next_request += 1;
        let from = RequestNo(self.next_request);
        self.requests.insert(from, request.clone());
        self.event(DispatchEvent::Request { from, by: None, request });
    }
}
