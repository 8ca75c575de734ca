//! The network between workers and the server: connections break, and messages are delayed, lost,
//! repeated, reordered or held back by a cut.

use std::time::Duration;

use filch_engine::server::LinkNo;
use filch_engine::worker::WorkerInput;
use filch_scheduler::message::{Delivery, WorkerBatch};
use filch_scheduler::time::Monotonic;

use super::World;
use super::schedule::{Happening, InProcess, Letter};
use crate::log::{Observed, Observer};
use crate::plan::{CutDirection, CutMessages, Member, NetworkConditions, SeenBy};
use crate::random::Random;

/// The network between one node and the server.
pub(super) struct Link {
    network: NetworkConditions,
    usual: NetworkConditions,
    network_turn: u64,
    cut: Option<Cut>,
    cut_turn: u64,
    /// When the last message arrives in order, in each direction.
    to_server_until: Monotonic,
    to_worker_until: Monotonic,
    /// The connection, from the worker's point of view.
    pub(super) connection: Option<Connection>,
    /// Messages that wait for the end of a cut.
    late: Vec<Happening>,
    random: Random,
}

/// A connection as the worker has it.
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) number: u64,
    /// The server that accepted it.
    server: u64,
    /// It is broken, and the worker does not know.
    is_dead: bool,
}

struct Cut {
    direction: CutDirection,
    messages: CutMessages,
    /// The affected connection, if only one is.
    connection: Option<u64>,
}

/// How long a worker tries to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many batches fit into the buffers of a connection over which nothing gets through.
const BUFFERED_MAX: usize = 12;

/// The extra delay of a message that others overtake.
const OVERTAKEN_BY: Duration = Duration::from_millis(300);

/// How many of a million batches that are sent over a broken connection show that it is broken.
const NOTICED_WHEN_SENDING: u32 = 500_000;

/// The network after the faults.
const CALM: NetworkConditions = NetworkConditions::fair(Duration::from_micros(500));

impl Link {
    pub(super) fn new(member: &Member) -> Self {
        Self {
            network: member.network,
            usual: member.network,
            network_turn: 0,
            cut: None,
            cut_turn: 0,
            to_server_until: Monotonic(0),
            to_worker_until: Monotonic(0),
            connection: None,
            late: Vec::new(),
            random: Random::new(0),
        }
    }

    pub(super) fn seed(&mut self, random: Random) {
        self.random = random;
    }

    fn delay(&mut self) -> Duration {
        let (least, most) = self.network.delay;
        Duration::from_micros(
            self.random.between(least.as_micros() as u64, most.as_micros() as u64),
        )
    }

    /// What happens to messages of this connection, or to an attempt to connect.
    fn is_cut(&self, direction: CutDirection, connection: Option<u64>) -> Option<CutMessages> {
        let cut = self.cut.as_ref()?;
        let is_this_direction = cut.direction == direction
            || cut.direction == CutDirection::Both
            || direction == CutDirection::Both;
        let is_this_one = cut.connection.is_none() || cut.connection == connection;
        (is_this_direction && is_this_one).then_some(cut.messages)
    }

    /// When a message that is sent now arrives: once, twice or never.
    fn arrivals(&mut self, now: Monotonic, direction: CutDirection) -> [Option<Monotonic>; 2] {
        if self.random.happens(self.network.lost) {
            return [None; 2];
        }
        let delay = self.delay();
        let is_overtaken = self.random.happens(self.network.overtaken);
        let is_repeated = self.random.happens(self.network.repeated);
        let until = match direction {
            CutDirection::ToServer => &mut self.to_server_until,
            CutDirection::ToWorker | CutDirection::Both => &mut self.to_worker_until,
        };
        let first = if is_overtaken {
            now.plus(delay + OVERTAKEN_BY)
        } else {
            *until = now.plus(delay).max(*until);
            *until
        };
        let second = is_repeated.then(|| first.plus(self.delay() * 3));
        [Some(first), second]
    }
}

impl<W: Observer> World<'_, W> {
    /// The worker wants a connection after this wait by its own clock.
    pub(super) fn connect_soon(&mut self, place: usize, wait: Duration) {
        let member = &mut self.places[place];
        let local = member.clock.read(self.now).monotonic.plus(wait);
        let at = member.clock.when(local);
        let (delay, life) = (member.link.delay(), member.life());
        let happening = InProcess::Connects;
        self.schedule.put(at.plus(delay * 2), Happening::Process { place, life, happening });
    }

    /// The attempt to connect comes to an end.
    pub(super) fn connects(&mut self, place: usize) {
        // Two failures that were noticed at once lead to two attempts; the first has succeeded.
        if self.places[place].link.connection.is_some() {
            return;
        }
        let is_reachable = self.server.is_up()
            && self.places[place].link.is_cut(CutDirection::Both, None).is_none();
        if is_reachable {
            self.connections += 1;
            let (number, server) = (self.connections, self.server.life);
            self.places[place].link.connection =
                Some(Connection { number, server, is_dead: false });
            let (link, scope) = (LinkNo(number), Box::new(self.scope_of(place)));
            let happening = Happening::LinkOpens { place, link, scope, server };
            self.schedule.put(self.now, happening);
            self.tell(place, WorkerInput::Connected);
        } else {
            let life = self.places[place].life();
            let happening = InProcess::LosesConnection { connection: 0 };
            let at = self.now.plus(CONNECT_TIMEOUT);
            self.schedule.put(at, Happening::Process { place, life, happening });
        }
    }

    /// False if the worker finds out at once that its connection is broken.
    pub(super) fn send_to_server(&mut self, place: usize, mut batch: WorkerBatch) -> bool {
        let (worker, messages) = (batch.worker, &batch.messages);
        self.observe(Observed::Sent { place, worker, messages });
        self.lies.add_to(place, &mut batch);
        let link = &mut self.places[place].link;
        let Some(connection) = link.connection else {
            return true;
        };
        if connection.is_dead {
            return !link.random.happens(NOTICED_WHEN_SENDING);
        }
        let server = connection.server;
        let connection = connection.number;
        let arrivals = link.arrivals(self.now, CutDirection::ToServer);
        let letter = Letter { place, connection, server, batch };
        let happening = Happening::ReachesServer(Box::new(letter));
        self.post(place, (CutDirection::ToServer, connection), arrivals, happening);
        true
    }

    pub(super) fn send_to_worker(&mut self, place: usize, link: LinkNo, delivery: Delivery) {
        let connection = link.0;
        let member = &mut self.places[place];
        let life = member.life();
        let is_closed = member.link.connection.is_none_or(|it| it.number != connection);
        if is_closed && member.link.is_cut(CutDirection::Both, Some(connection)).is_none() {
            // The server finds out at once, after what the worker has sent before.
            let at = self.now.max(member.link.to_server_until);
            let server = self.server.life;
            self.schedule.put(at, Happening::ServerHearsClose { connection, server });
            return;
        }
        let arrivals = member.link.arrivals(self.now, CutDirection::ToWorker);
        let happening = InProcess::Hears { connection, delivery };
        let happening = Happening::Process { place, life, happening };
        self.post(place, (CutDirection::ToWorker, connection), arrivals, happening);
    }

    fn post(
        &mut self,
        place: usize,
        (direction, connection): (CutDirection, u64),
        arrivals: [Option<Monotonic>; 2],
        happening: Happening,
    ) {
        let [Some(first), second] = arrivals else {
            // The gap ends the session once one side notices it.
            let until = self.now.plus(self.plan.lease / 2);
            self.observe(Observed::Trouble { place: Some(place), until });
            return;
        };
        match self.places[place].link.is_cut(direction, Some(connection)) {
            Some(CutMessages::Lost) => return,
            Some(CutMessages::Late | CutMessages::Stuck) => {
                let late = &mut self.places[place].link.late;
                late.push(happening);
                if direction == CutDirection::ToWorker && late.len() > BUFFERED_MAX {
                    let happening = Happening::LinkFills { link: LinkNo(connection) };
                    self.schedule.put(self.now, happening);
                }
                return;
            }
            None => {}
        }
        if let Some(second) = second {
            self.schedule.put(second, happening.clone());
        }
        self.schedule.put(first, happening);
    }

    /// Whether a message arrives; not if the network was cut meanwhile.
    pub(super) fn gets_through(
        &mut self,
        place: usize,
        (direction, connection): (CutDirection, u64),
        happening: impl FnOnce() -> Happening,
    ) -> bool {
        let link = &mut self.places[place].link;
        match link.is_cut(direction, Some(connection)) {
            None => true,
            Some(CutMessages::Lost) => false,
            Some(CutMessages::Late | CutMessages::Stuck) => {
                link.late.push(happening());
                false
            }
        }
    }

    /// The worker closes its connection; the server notices unless the network is cut.
    pub(super) fn disconnect(&mut self, place: usize) {
        let link = &mut self.places[place].link;
        if let Some(connection) = link.connection.take()
            && !connection.is_dead
        {
            let at = self.now.plus(link.delay()).max(link.to_server_until);
            let happening = Happening::ServerHearsClose {
                connection: connection.number,
                server: connection.server,
            };
            match link.is_cut(CutDirection::ToServer, Some(connection.number)) {
                None => self.schedule.put(at, happening),
                Some(CutMessages::Stuck) => link.late.push(happening),
                Some(CutMessages::Lost | CutMessages::Late) => {}
            }
        }
    }

    /// The worker notices that its connection is closed.
    pub(super) fn loses_connection(&mut self, place: usize, connection: u64) {
        let link = &mut self.places[place].link;
        // An attempt that failed has no number.
        let is_current = connection == 0 && link.connection.is_none()
            || link.connection.is_some_and(|current| current.number == connection);
        if is_current {
            link.connection = None;
            self.tell(place, WorkerInput::Disconnected);
        }
    }

    /// The server has closed the connection, and the worker notices.
    pub(super) fn lose_connection_soon(&mut self, place: usize) {
        if let Some(connection) = self.places[place].link.connection {
            self.tell_of_broken_connection(place, connection.number);
        }
    }

    pub(super) fn tell_of_broken_connection(&mut self, place: usize, connection: u64) {
        let member = &mut self.places[place];
        if let Some(current) = &mut member.link.connection
            && current.number == connection
        {
            current.is_dead = true;
        }
        if member.link.is_cut(CutDirection::ToWorker, Some(connection)).is_none() {
            let at = self.now.plus(member.link.delay());
            let happening = InProcess::LosesConnection { connection };
            let happening = Happening::Process { place, life: member.life(), happening };
            self.schedule.put(at, happening);
        }
    }

    pub(super) fn break_connection(&mut self, place: usize, seen_by: SeenBy) {
        let link = &mut self.places[place].link;
        let Some(connection) = &mut link.connection else {
            return;
        };
        let was_dead = std::mem::replace(&mut connection.is_dead, true);
        let Connection { number, server, .. } = *connection;
        if matches!(seen_by, SeenBy::Both | SeenBy::Server) && !was_dead {
            let at = self.now.plus(link.delay());
            self.schedule.put(at, Happening::ServerHearsClose { connection: number, server });
        }
        if matches!(seen_by, SeenBy::Both | SeenBy::Worker) {
            self.tell_of_broken_connection(place, number);
        }
    }

    pub(super) fn cut(
        &mut self,
        place: usize,
        direction: CutDirection,
        span: Duration,
        messages: CutMessages,
    ) {
        let link = &mut self.places[place].link;
        let connection = link.connection.map(|connection| connection.number);
        let connection = connection.filter(|_| messages == CutMessages::Stuck);
        link.cut = Some(Cut { direction, messages, connection });
        link.cut_turn += 1;
        let turn = link.cut_turn;
        self.schedule.put(self.now.plus(span), Happening::CutEnds { place, turn });
    }

    pub(super) fn end_cut(&mut self, place: usize, turn: u64) {
        let link = &mut self.places[place].link;
        if link.cut_turn != turn {
            return;
        }
        link.cut = None;
        let mut at = self.now;
        for happening in std::mem::take(&mut link.late) {
            at = at.plus(Duration::from_micros(10));
            self.schedule.put(at, happening);
        }
        link.to_server_until = link.to_server_until.max(at);
        link.to_worker_until = link.to_worker_until.max(at);
    }

    pub(super) fn change_network(
        &mut self,
        place: usize,
        span: Duration,
        network: NetworkConditions,
    ) {
        let link = &mut self.places[place].link;
        link.network = network;
        link.network_turn += 1;
        let turn = link.network_turn;
        self.schedule.put(self.now.plus(span), Happening::NetworkEnds { place, turn });
    }

    pub(super) fn end_network(&mut self, place: usize, turn: u64) {
        let link = &mut self.places[place].link;
        if link.network_turn == turn {
            link.network = link.usual;
        }
    }

    pub(super) fn mend_network(&mut self) {
        for place in 0..self.places.len() {
            let link = &mut self.places[place].link;
            let turn = link.cut_turn;
            link.network_turn += 1;
            (link.network, link.usual) = (CALM, CALM);
            self.end_cut(place, turn);
        }
    }
}
