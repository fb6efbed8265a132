//! How long one handshake keeps an engine, and with it its shard, from everybody else's messages: the
//! longest call of `Endpoint::handle`, now that slow key exchanges are asked for, and as long as they were
//! part of it.
//!
//! `cargo run --release -p ike-test-lives --example stall -- [HANDSHAKES]`, by default 200 by each method. The
//! median of the handshakes counts, since machines are noisy.

use std::time::{Duration, Instant};

use ike_proto::dataplane::Reply;
use ike_proto::{Command, Endpoint, Input, Now, Output, Path, Question, RequestId, Transmit};
use ike_tests::setup::{address, side};
use ike_tests::{Seeded, World, cheap};

const METHODS: [&str; 6] = [
    "x25519",
    "x25519-ke1_mlkem768",
    "modp4096",
    "x25519-ke1_frodoa3",
    "x25519-ke1_frodoa5",
    "x25519-ke1_frodos5",
];

/// What took longest at the responder.
#[derive(Default)]
struct Longest {
    /// Of the calls of the engine.
    call: Duration,
    /// With the key exchanges that they asked for, as if done in them.
    in_place: Duration,
}

struct Ends {
    endpoints: [Endpoint; 2],
    now: Now,
    rng: Seeded,
    wire: Vec<(usize, Path, Transmit)>,
    longest: Longest,
}

impl Ends {
    fn new(seed: u64, methods: &str) -> Self {
        let world = World::new(seed);
        let now = Now { mono: world.instant(), wall: world.wall() };
        let end = |local, remote| {
            let mut side = side(local, remote);
            side.crypto = cheap::real();
            side.ike_proposals(&[&format!("aes256gcm16-prfsha384-{methods}")]);
            let rng = Box::new(Seeded::new(seed ^ u64::from(local) << 32));
            Endpoint::new(side.config(), side.crypto, rng, side.plane.capabilities)
        };
        let endpoints = [end(1, 2), end(2, 1)];
        let longest = Longest::default();
        Self { endpoints, now, rng: Seeded::new(seed), wire: Vec::new(), longest }
    }

    /// Hands over `input`, and does all that follows from it at this end.
    fn handle(&mut self, end: usize, input: Input<'_>) {
        let mut asked = Vec::new();
        let call = self.call(end, input, &mut asked);
        let mut whole = call;
        let mut longest = call;
        while let Some((ticket, exchange)) = asked.pop() {
            let begun = Instant::now();
            let answer = exchange.perform(&mut self.rng);
            whole += begun.elapsed();
            let call = self.call(end, Input::Answered(ticket, answer), &mut asked);
            whole += call;
            longest = longest.max(call);
        }
        if end == 1 {
            self.longest.call = self.longest.call.max(longest);
            self.longest.in_place = self.longest.in_place.max(whole);
        }
    }

    /// One call of the engine, and what it wants; how long it took.
    fn call(
        &mut self,
        end: usize,
        input: Input<'_>,
        asked: &mut Vec<(ike_proto::Ticket, ike_proto::Exchange)>,
    ) -> Duration {
        let endpoint = &mut self.endpoints[end];
        let begun = Instant::now();
        endpoint.handle(self.now, input);
        let mut took = begun.elapsed();
        loop {
            match endpoint.poll_output() {
                Output::Timeout(_) => return took,
                Output::Transmit(transmit) => self.wire.push((1 - end, transmit.path, transmit)),
                Output::DataPlane(ticket, batch) => {
                    let done = vec![Reply::Done; batch.len()];
                    let begun = Instant::now();
                    endpoint.handle(self.now, Input::Completed(ticket, Ok(done)));
                    took = took.max(begun.elapsed());
                }
                Output::Ask(ticket, Question::Exchange(exchange)) => asked.push((ticket, exchange)),
                Output::Ask(..) | Output::Stream(..) | Output::Event(_) => {}
            }
        }
    }

    fn handshake(mut self) -> Longest {
        let command = Command::Initiate {
            connection: "ab".to_owned(),
            child: Some("net".to_owned()),
            local: address(1),
            remote: address(2),
            packet: None,
        };
        self.handle(0, Input::Command(RequestId(1), command));
        while !self.wire.is_empty() {
            for (end, Path { local, remote, transport }, transmit) in std::mem::take(&mut self.wire)
            {
                let path = Path { local: remote, remote: local, transport };
                self.handle(end, Input::Datagram(path, &transmit.octets));
            }
            // Large messages are paced.
            self.now.mono += Duration::from_millis(20);
            for end in [0, 1] {
                self.handle(end, Input::Timeout);
            }
        }
        let children =
            self.endpoints[1].ike_sas().iter().map(|ike| ike.children.len()).sum::<usize>();
        assert_eq!(children, 1, "no handshake");
        self.longest
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

fn main() {
    let count = std::env::args().nth(1).map_or(Ok(200), |text| text.parse::<u64>());
    let Ok(count) = count else { panic!("the argument is a number of handshakes") };
    println!("longest call at the responder, µs   in place      asked");
    // In turn, so that all methods meet the same machine.
    let mut times = METHODS.map(|_| (Vec::new(), Vec::new()));
    for seed in 0..count {
        for (methods, times) in METHODS.iter().zip(&mut times) {
            let Longest { call, in_place } = Ends::new(seed, methods).handshake();
            times.0.push(in_place);
            times.1.push(call);
        }
    }
    for (methods, (in_place, asked)) in METHODS.iter().zip(times) {
        println!("{methods:<32} {:>11.0} {:>10.0}", median(in_place), median(asked));
    }
}
