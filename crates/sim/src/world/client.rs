//! Clients and operators: they send requests, and repeat them until there is an answer.

use std::time::Duration;

use filch_scheduler::dispatch::Request;

use super::World;
use super::schedule::Happening;
use crate::log::Observer;
use crate::plan::NetworkConditions;
use crate::random::{Purpose, Random};
use crate::work;

/// A request.
pub(super) struct Ask {
    pub(super) request: Request,
    tries_left: u32,
    is_answered: bool,
    random: Random,
}

/// How long a client waits for an answer before it repeats a request.
const ASKS_AGAIN_AFTER: Duration = Duration::from_secs(2);

impl Ask {
    /// Whether the request will not be repeated.
    pub(super) const fn is_settled(&self) -> bool {
        self.is_answered || self.tries_left == 0
    }

    /// The delays of one direction, one for each arrival.
    fn ways(&mut self, network: NetworkConditions) -> [Option<Duration>; 2] {
        let (least, most) = network.delay;
        let mut way = || {
            let micros = self.random.between(least.as_micros() as u64, most.as_micros() as u64);
            Duration::from_micros(micros)
        };
        let (first, second) = (way(), way());
        if self.random.happens(network.lost) {
            return [None; 2];
        }
        [Some(first), self.random.happens(network.repeated).then_some(first + second)]
    }
}

impl<W: Observer> World<'_, W> {
    pub(super) fn ask(&mut self, mut request: Request, tries: u32) {
        if let Request::Submit(specs) | Request::SubmitWithin { jobs: specs, .. } = &mut request {
            for spec in specs {
                spec.payload = Some(work::payload(spec.id));
            }
        }
        let random = Random::keyed(self.plan.seed, Purpose::Client, self.asks.len() as u64);
        self.asks.push(Ask { request, tries_left: tries, is_answered: false, random });
        self.ask_again(self.asks.len() - 1);
    }

    pub(super) fn ask_again(&mut self, which: usize) {
        let (network, now) = (self.client_network(), self.now);
        let ask = &mut self.asks[which];
        if ask.is_settled() {
            return;
        }
        for way in ask.ways(network).into_iter().flatten() {
            self.schedule.put(now.plus(way), Happening::RequestArrives { ask: which });
        }
        self.schedule.put(now.plus(ASKS_AGAIN_AFTER), Happening::AsksAgain { ask: which });
        if ask.tries_left != u32::MAX {
            ask.tries_left -= 1;
        }
    }

    pub(super) fn request_arrives(&mut self, ask: usize) {
        if self.server.is_up() {
            self.take_request(ask);
        }
    }

    pub(super) fn send_answer(&mut self, which: usize) {
        let (network, now) = (self.client_network(), self.now);
        for way in self.asks[which].ways(network).into_iter().flatten() {
            self.schedule.put(now.plus(way), Happening::AnswerArrives { ask: which });
        }
    }

    pub(super) fn answer_arrives(&mut self, ask: usize) {
        self.asks[ask].is_answered = true;
    }

    /// Unanswered requests are repeated until there is an answer.
    pub(super) fn mend_asks(&mut self) {
        for ask in self.asks.iter_mut().filter(|ask| !ask.is_settled()) {
            ask.tries_left = u32::MAX;
        }
    }

    fn client_network(&self) -> NetworkConditions {
        match self.is_healed {
            true => NetworkConditions { lost: 0, ..self.plan.clients },
            false => self.plan.clients,
        }
    }
}
