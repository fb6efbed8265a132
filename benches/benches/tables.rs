//! How an SA is found among many, and what a timer costs while many are armed.

mod clock;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clock::Counter;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use ike_bench::counter::ticks;
use ike_bench::memory::config::{GATEWAY, PLANE, address, clients, name};
use ike_bench::memory::ends::Ends;
use ike_bench::memory::suite;
use ike_proto::config::ConnectionConfig;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Endpoint, Input, Now, Output, Path, RequestId};
use ike_tests::{Seeded, cheap};

/// A request that was answered long ago is found to be of an SA and dropped; one of no SA as well.
fn spi_lookup(criterion: &mut Criterion<Counter>) {
    let mut group = criterion.benchmark_group("spi-lookup");
    for sas in sizes(&[1, 1_000, 10_000, 100_000]) {
        let suite = suite::named("psk-x25519").expect("a suite");
        let mut ends = Ends::new(suite, None, |_| ());
        ends.tap = Some(Vec::new());
        ends.connect_and_forget(sas);
        ends.check().expect("handshakes");
        assert_eq!(ends.gateway.endpoint().ike_sas().len(), sas);
        // Answers are forgotten; peers that do not answer are not missed yet.
        let old = ends.tap.take().unwrap_or_default().into_iter();
        let old = old.filter(|(_, octets)| octets[18] == ExchangeType::IKE_AUTH.0);
        let mut known: Vec<(Path, Vec<u8>)> = old.collect();
        // Not in the order in which they were made.
        let mut at = 0;
        for n in 0..known.len() {
            at = (at + 7_919) % known.len();
            known.swap(n, at);
        }
        let mut unknown = known.clone();
        unknown.iter_mut().for_each(|(_, octets)| octets[12] ^= 0x40);
        for (what, datagrams) in [("known", &known), ("unknown", &unknown)] {
            let mut datagrams = datagrams.iter().cycle();
            group.bench_function(BenchmarkId::new(what, sas), |b| {
                b.iter_batched(
                    || datagrams.next().expect("at least one"),
                    |(path, octets)| black_box(ends.give(*path, octets)),
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

/// Attempts at a peer that never answers: each time one of them is due and sends its request again.
fn timers(criterion: &mut Criterion<Counter>) {
    let mut group = criterion.benchmark_group("timer");
    for attempts in sizes(&[100, 1_000, 10_000]) {
        let mut engine = Attempts::new(attempts);
        group.bench_function(BenchmarkId::new("due", attempts), |b| {
            b.iter_custom(|times| (0..times).map(|_| engine.next()).sum());
        });
        group.bench_function(BenchmarkId::new("early", attempts), |b| {
            b.iter(|| engine.early());
        });
    }
    group.finish();
}

/// `cargo test --bench` runs each once, without optimisation: the larger tables would take it minutes.
fn sizes<const N: usize>(all: &[usize; N]) -> impl Iterator<Item = usize> {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let most = if is_measured { usize::MAX } else { 1_000 };
    all.iter().copied().filter(move |size| *size <= most)
}

struct Attempts {
    endpoint: Endpoint,
    begun: Instant,
    wake: Instant,
    sent: usize,
}

impl Attempts {
    fn new(count: usize) -> Self {
        let suite = suite::named("psk-x25519").expect("a suite");
        let mut config = clients(suite, None, 0..count);
        for connection in &mut config.connections {
            let for_ever = ConnectionConfig { keyingtries: 0, ..(**connection).clone() };
            *connection = Arc::new(for_ever);
        }
        let rng = Box::new(Seeded::new(1));
        let endpoint = Endpoint::new(config, cheap::post_quantum(), rng, PLANE);
        let begun = Instant::now();
        let mut all = Self { endpoint, begun, wake: begun, sent: 0 };
        for number in 0..count {
            let command = Command::Initiate {
                connection: name(number),
                child: Some("net".to_owned()),
                local: address(number),
                remote: GATEWAY,
                packet: None,
            };
            // A moment apart, so that they are not due all at once.
            let at = begun + Duration::from_millis(2_000 * number as u64 / count as u64);
            all.handle(at, Input::Command(RequestId(number as u64), command));
        }
        assert_eq!(all.sent, count);
        all
    }

    fn handle(&mut self, at: Instant, input: Input<'_>) {
        let wall = SystemTime::UNIX_EPOCH + at.duration_since(self.begun);
        self.endpoint.handle(Now { mono: at, wall }, input);
        loop {
            match self.endpoint.poll_output() {
                Output::Transmit(transmit) => {
                    self.sent += 1;
                    black_box(transmit);
                }
                Output::Timeout(at) => {
                    self.wake = at.expect("attempts that go on");
                    return;
                }
                _ => {}
            }
        }
    }

    /// Ticks of what is due next.
    fn next(&mut self) -> u64 {
        let (at, sent, before) = (self.wake, self.sent, ticks());
        self.handle(at, Input::Timeout);
        let taken = ticks() - before;
        assert!(self.sent > sent || self.wake > at, "nothing was due");
        taken
    }

    /// Nothing is due.
    fn early(&mut self) {
        self.handle(self.begun, Input::Timeout);
    }
}

criterion_group! {
    name = benches;
    config = clock::criterion();
    targets = spi_lookup, timers
}
criterion_main!(benches);
