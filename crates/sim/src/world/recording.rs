//! Records the events and effects of every server and worker, as traces that can be replayed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use filch_scheduler::time::Now;
use filch_scheduler::trace::{Context, Traced, print, print_line};
use filch_scheduler::{agent, dispatch, id};

/// Traces of the server and of every worker's process.
#[derive(Default)]
pub(crate) struct Recording {
    server: Track,
    workers: BTreeMap<usize, Vec<Track>>,
}

/// One trace.
#[derive(Default)]
struct Track {
    context: Context,
    text: String,
}

impl Track {
    fn new(header: &str) -> Self {
        Self { context: Context::default(), text: format!("{header}\n") }
    }

    fn event(&mut self, now: Now, event: &impl Traced) {
        let text = print(event, &self.context);
        event.learn(&mut self.context);
        self.line(now, &text);
    }

    fn line(&mut self, now: Now, text: &str) {
        let line = print_line(now, text, &mut self.context);
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn effects<T: Traced>(&mut self, effects: &[T]) {
        for effect in effects {
            let text = print(effect, &self.context);
            effect.learn(&mut self.context);
            writeln!(self.text, "  -> {text}").expect("a string takes everything");
        }
    }
}

impl Recording {
    /// The server's trace, and those of the nodes that a violation names.
    pub(crate) fn about(&self, what: &str) -> String {
        let mut text = format!("# the server\n{}", self.server.text);
        for (place, tracks) in &self.workers {
            let is_named = what
                .split_once(&format!("node {}", place + 1))
                .is_some_and(|(_, rest)| !rest.starts_with(|next: char| next.is_ascii_digit()));
            for track in tracks.iter().filter(|_| is_named) {
                write!(text, "\n# a worker on node {}\n{}", place + 1, track.text)
                    .expect("a string takes everything");
            }
        }
        text
    }

    pub(super) fn server_starts(
        &mut self,
        now: Now,
        config: &dispatch::DispatchConfig,
        stored: id::CommitNo,
    ) {
        if self.server.text.is_empty() {
            self.server = Track::new(&crate::replay::dispatch_header(config));
            // The simulated clocks do not start at 0.
            self.server.line(now, "tick");
        } else {
            let settings = crate::replay::restart_settings(config);
            self.server.line(now, &format!("restart {settings} stored {}", stored.0));
        }
    }

    pub(super) fn server_hears(&mut self, now: Now, event: &dispatch::DispatchEvent) {
        self.server.event(now, event);
    }

    pub(super) fn server_does(&mut self, effects: &[dispatch::DispatchEffect]) {
        self.server.effects(effects);
    }

    pub(super) fn worker_starts(&mut self, place: usize, config: &agent::AgentConfig) {
        let mut track = Track::new(&crate::replay::agent_header(config));
        // The first effect of every agent.
        track.effects(&[agent::AgentEffect::Connect { wait: std::time::Duration::ZERO }]);
        self.workers.entry(place).or_default().push(track);
    }

    pub(super) fn worker_hears(&mut self, place: usize, now: Now, event: &agent::AgentEvent) {
        if let Some(track) = self.workers.get_mut(&place).and_then(|tracks| tracks.last_mut()) {
            track.event(now, event);
        }
    }

    pub(super) fn worker_does(&mut self, place: usize, effects: &[agent::AgentEffect]) {
        if let Some(track) = self.workers.get_mut(&place).and_then(|tracks| tracks.last_mut()) {
            track.effects(effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::replay::play;
    use crate::search::{Faults, run};
    use crate::world::Audit;

    #[test]
    fn a_recording_can_be_replayed() {
        for seed in 1..=12 {
            let plan = crate::swarm::draw(seed, 4, Duration::from_secs(60), Faults::All);
            let recording = run(&plan, Audit::Never, Some(Recording::default()))
                .recording
                .expect("it was given");
            let tracks = recording.workers.values().flatten().chain([&recording.server]);
            for track in tracks {
                let played = play(&track.text).unwrap_or_else(|error| error);
                let pairs = track.text.lines().zip(played.lines());
                let different = pairs.into_iter().find(|(written, now)| written != now);
                assert_eq!(different, None, "seed {seed}");
                assert_eq!(track.text.len(), played.len(), "seed {seed}");
            }
        }
    }
}
