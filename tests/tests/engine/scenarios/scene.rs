//! A pair whose datagrams arrive when the test says so.

use std::time::Duration;

use ike_proto::dataplane::Event as PlaneEvent;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{ChildState, Command, Failure, RequestId};
use ike_tests::{A, B, Pair, Setup};

pub use ike_proto::wire::registry::ExchangeType as Exchange;

/// A request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
}

/// Two endpoints with an IKE SA and a child, and nothing under way.
pub struct Scene {
    pub pair: Pair,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        Self::of(Setup::new(seed))
    }

    pub fn of(setup: Setup) -> Self {
        let mut pair = setup.build();
        pair.establish();
        pair.net.manual = true;
        pair.traffic.watch();
        Self { pair }
    }

    /// Ends that each prefer another group for children, and would rather have none than the other's. The
    /// IKE SA has neither, so that each begins with its own.
    pub fn of_two_minds(seed: u64) -> Self {
        let mut setup = Setup::new(seed);
        setup.both(|side| {
            side.crypto = ike_tests::cheap::hybrid();
            side.ike_proposals(&["aes128gcm16-prfsha256-mlkem768"]);
        });
        setup.a.esp_proposals(&["aes128gcm16-x25519-none-ecp256"]);
        setup.b.esp_proposals(&["aes128gcm16-ecp256-none-x25519"]);
        Self::of(setup)
    }

    pub fn rekey_child(&mut self, end: usize) -> RequestId {
        self.pair.rekey_child(end)
    }

    pub fn rekey_ike(&mut self, end: usize) -> RequestId {
        self.pair.rekey_ike(end)
    }

    pub fn delete_child(&mut self, end: usize) -> RequestId {
        let child = self.pair.child_id(end);
        self.pair.command(end, Command::TerminateChild(child))
    }

    pub fn delete_ike(&mut self, end: usize) -> RequestId {
        let ike = self.pair.ike_id(end);
        self.pair.command(end, Command::TerminateIke(ike))
    }

    /// A limit of the oldest child of `end` is reached.
    pub fn limit(&mut self, end: usize, hard: bool) {
        let oldest = self.pair.hosts[end].children().into_iter().min_by_key(|child| child.id);
        let sa = oldest.expect("a child").inbound;
        let event = if hard { PlaneEvent::HardExpire(sa) } else { PlaneEvent::SoftExpire(sa) };
        self.pair.plane_event(end, event);
    }

    /// The first such message on its way to `end` arrives.
    #[track_caller]
    pub fn arrives(&mut self, end: usize, exchange: ExchangeType, kind: Kind) {
        let address = self.pair.address(end);
        let response = kind == Kind::Response;
        let found = self
            .pair
            .deliver_first(|packet| packet.dst.ip() == address && packet.is(exchange, response));
        assert!(found, "no {exchange} {kind:?} for {end}\n{}", self.pair.story());
    }

    /// The first message on its way to `end` is lost.
    #[track_caller]
    pub fn is_lost(&mut self, end: usize) {
        self.pair.lose_to(end);
    }

    /// Octets of the first such message on its way to `end`.
    #[track_caller]
    pub fn size(&self, end: usize, exchange: ExchangeType, kind: Kind) -> usize {
        let address = self.pair.address(end);
        let response = kind == Kind::Response;
        self.pair
            .net
            .mailbox
            .iter()
            .find(|packet| packet.dst.ip() == address && packet.is(exchange, response))
            .map(|packet| packet.octets.len())
            .expect("such a message")
    }

    #[track_caller]
    pub fn sends_nothing(&self) {
        assert!(self.pair.net.mailbox.is_empty(), "{}", self.pair.story());
    }

    /// States of the children of `end`, oldest first.
    pub fn states(&self, end: usize) -> Vec<ChildState> {
        let mut children = self.pair.hosts[end].children();
        children.sort_by_key(|child| child.id);
        children.iter().map(|child| child.state).collect()
    }

    /// Everything else arrives, retries included.
    pub fn rest(&mut self) {
        self.pair.net.manual = false;
        let waiting = std::mem::take(&mut self.pair.net.mailbox);
        for packet in waiting {
            self.pair.inject(packet);
        }
        self.pair.run_for(Duration::from_secs(300));
    }

    /// In the end there are so many IKE SAs and children, the same at both ends.
    #[track_caller]
    pub fn ends_with(&self, ikes: usize, children: usize) {
        self.pair.assert_agreement();
        let story = || self.pair.story();
        assert_eq!(self.pair.a().ikes().len(), ikes, "IKE SAs: {}", story());
        assert_eq!(self.pair.a().children().len(), children, "children: {}", story());
    }

    /// As [`ends_with`](Self::ends_with) one of each, without any interruption.
    #[track_caller]
    pub fn ends_well(&mut self) {
        self.rest();
        self.ends_with(1, 1);
        let lost = &self.pair.traffic.lost;
        assert!(lost.is_empty(), "{lost:?}\n{}", self.pair.story());
        for host in [self.pair.a(), self.pair.b()] {
            assert!(host.child_downs().is_empty(), "{}", self.pair.story());
            assert!(host.ike_downs().is_empty(), "{}", self.pair.story());
        }
    }

    #[track_caller]
    pub fn is_done(&self, end: usize, request: RequestId, result: Result<(), Failure>) {
        let done = self.pair.hosts[end].done(request);
        assert_eq!(done, Some(result), "{}", self.pair.story());
    }
}

/// A scene in which both requests to rekey have arrived and both responses are under way, and the
/// exchange of `winner` is going to survive: the lowest of the four nonces is in the other.
pub fn crossed(
    winner: usize,
    rekey: fn(&mut Scene, usize) -> RequestId,
) -> (Scene, [RequestId; 2]) {
    let survivor = |seed: u64| {
        let (mut scene, _) = cross(seed, rekey);
        let exchange = Exchange::CREATE_CHILD_SA;
        scene.arrives(A, exchange, Kind::Response);
        scene.arrives(B, exchange, Kind::Response);
        // The winner has switched to what its own exchange made; the loser waits for the Delete, or
        // has switched to an IKE SA that it did not initiate.
        let host = scene.pair.a();
        let own = |new| host.ikes().iter().any(|ike| ike.id == new && ike.initiator);
        let ike = host.ike_rekeys().first().is_some_and(|(_, new)| own(*new));
        if ike || !host.child_rekeys().is_empty() { A } else { B }
    };
    let seed = (0..100).find(|seed| survivor(*seed) == winner).expect("a seed for each winner");
    cross(seed, rekey)
}

fn cross(seed: u64, rekey: fn(&mut Scene, usize) -> RequestId) -> (Scene, [RequestId; 2]) {
    let mut scene = Scene::new(seed);
    let requests = [rekey(&mut scene, A), rekey(&mut scene, B)];
    scene.arrives(A, Exchange::CREATE_CHILD_SA, Kind::Request);
    scene.arrives(B, Exchange::CREATE_CHILD_SA, Kind::Request);
    (scene, requests)
}
