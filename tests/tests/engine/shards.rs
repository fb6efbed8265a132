//! Two shards of one host: what one must know of the other.

use std::sync::{Arc, Mutex};

use ike_proto::config::Shard;
use ike_proto::crypto::SecureRandom;
use ike_proto::dataplane::{DataPlane, apply_all};
use ike_proto::{
    Command, DropReason, Endpoint, Event, IkeState, Input, Now, Output, Path, Registry, RequestId,
    Transmit, Transport,
};
use ike_tests::plane::Plane;
use ike_tests::setup::{address, side};
use ike_tests::{Seeded, World};

/// An endpoint, its data plane, and what it said.
struct End {
    endpoint: Endpoint,
    plane: Plane,
    sent: Vec<Transmit>,
    dropped: Vec<DropReason>,
}

fn now() -> Now {
    Now { mono: World::new(1).instant(), wall: World::dawn() }
}

impl End {
    /// Host `n` towards host `m`, or a shard of it.
    fn new(
        (n, m): (u8, u8),
        shard: Shard,
        registry: &Registry,
        rng: impl SecureRandom + 'static,
    ) -> Self {
        let mut side = side(n, m);
        side.settings.shard = shard;
        let (config, plane) = (side.config(), Plane::new());
        let (capabilities, registry) = (plane.capabilities(), registry.clone());
        let endpoint = Endpoint::shard(config, side.crypto, Box::new(rng), capabilities, registry);
        Self { endpoint, plane, sent: Vec::new(), dropped: Vec::new() }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.endpoint.handle(now(), input);
        loop {
            match self.endpoint.poll_output() {
                Output::Timeout(_) => return,
                Output::Transmit(transmit) => self.sent.push(transmit),
                Output::DataPlane(ticket, batch) => {
                    let result = apply_all(&mut self.plane, batch);
                    self.endpoint.handle(now(), Input::Completed(ticket, result));
                }
                Output::Event(Event::Dropped { why, .. }) => self.dropped.push(why),
                // Notices to the other shard are on their way.
                _ => {}
            }
        }
    }

    fn initiate(&mut self) {
        let command = Command::Initiate {
            connection: "ab".to_owned(),
            child: Some("net".to_owned()),
            local: address(1),
            remote: address(2),
            packet: None,
        };
        self.handle(Input::Command(RequestId(1), command));
    }

    /// Takes what `other` has sent.
    fn take_from(&mut self, other: &mut Self) {
        for Transmit { path, octets, .. } in std::mem::take(&mut other.sent) {
            let Path { local, remote, transport } = path;
            let path = Path { local: remote, remote: local, transport };
            self.handle(Input::Datagram(path, &octets));
        }
    }

    fn established(&self) -> usize {
        let all = self.endpoint.ike_sas();
        all.iter().filter(|ike| ike.state == IkeState::Established).count()
    }
}

/// Somebody who is between a host and its peers, and sends the host's own request back to it, in a TCP
/// connection that the other shard has because of what came first in it.
#[test]
fn no_shard_answers_the_request_of_another() {
    for seed in 0..20 {
        let registry = Registry::default();
        let shard = |index| {
            let rng = Seeded::new(seed + u64::from(index) * 100);
            End::new((1, 2), Shard { index, count: 2 }, &registry, rng)
        };
        let (mut one, mut other) =
            if seed % 2 == 0 { (shard(0), shard(1)) } else { (shard(1), shard(0)) };
        one.initiate();
        let request = one.sent.remove(0);
        let Path { local, remote, .. } = request.path;
        let path = Path { local, remote, transport: Transport::Tcp };
        other.handle(Input::Datagram(path, &request.octets));
        assert_eq!(other.dropped, [DropReason::OwnInitRequest]);
        assert!(other.sent.is_empty() && other.endpoint.half_open() == 0);
        // That of somebody else, who uses a connection again for another IKE SA, is answered on any shard.
        let mut stranger =
            End::new((1, 2), Shard::default(), &Registry::default(), Seeded::new(7 + seed));
        stranger.initiate();
        let request = stranger.sent.remove(0);
        other.handle(Input::Datagram(path, &request.octets));
        assert_eq!((other.sent.len(), other.endpoint.half_open()), (1, 1));
    }
}

type Then = Box<dyn FnOnce() + Send>;

/// Octets in the midst of which something else happens, once.
struct Meanwhile {
    rng: Seeded,
    then: Arc<Mutex<Option<Then>>>,
}

impl SecureRandom for Meanwhile {
    fn fill(&mut self, out: &mut [u8]) {
        let then = self.then.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        self.rng.fill(out);
    }
}

/// INITIAL_CONTACT of both would have the peer forget the SA that was there first.
#[test]
fn one_of_two_that_begin_at_once_is_the_first_contact() {
    let registry = Registry::default();
    let shard = |index| Shard { index, count: 2 };
    let other = End::new((1, 2), shard(1), &registry, Seeded::new(2));
    let other = Arc::new(Mutex::new(other));
    let then = Arc::new(Mutex::new(None::<Then>));
    let rng = Meanwhile { rng: Seeded::new(1), then: Arc::clone(&then) };
    let mut one = End::new((1, 2), shard(0), &registry, rng);
    let begun = Arc::clone(&other);
    *then.lock().unwrap() = Some(Box::new(move || begun.lock().unwrap().initiate()));
    one.initiate();

    let mut peer = End::new((2, 1), Shard::default(), &Registry::default(), Seeded::new(3));
    let mut other = other.lock().unwrap();
    // What both have sent is under way at the same time.
    for _ in 0..2 {
        let mut to = [&mut *other, &mut one];
        let mut answers = Vec::new();
        for shard in &mut to {
            peer.take_from(shard);
            answers.push(std::mem::take(&mut peer.sent));
        }
        for (shard, answers) in to.into_iter().zip(answers) {
            peer.sent = answers;
            shard.take_from(&mut peer);
        }
    }
    assert_eq!((other.established(), one.established()), (1, 1));
    assert_eq!(peer.established(), 2);
}
