//! What `benches/counts.sh` counts the instructions of: each case hands one engine, or two, the same
//! datagrams in every run, and only what [`Endpoint::handle`](ike_proto::Endpoint::handle) does is counted.
//!
//! All cryptography is a stand-in, so that counts neither depend on the processor nor are mostly the
//! library's.

mod stand_in;

use std::process::ExitCode;
use std::time::Duration;

use ike_proto::config::{AuthConfig, CertRequest, LocalAuth, RemoteAuth};
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{CertEncoding, ExchangeType, NotifyType};
use ike_tests::bench::Bench;
use ike_tests::cheap::Signer;
use ike_tests::setup::{Side, side};
use ike_tests::{A, B, Setup};

/// A case by name, and how many operations it is.
type Case = (&'static str, fn(u32), u32);

const CASES: &[Case] = &[
    ("handshake-psk", |n| handshakes(n, false), 20),
    ("handshake-ecdsa", |n| handshakes(n, true), 20),
    ("init-request", init_requests, 200),
    ("malformed", malformed, 500),
    ("informational", informational, 200),
    ("retransmission", retransmissions, 200),
    ("fragments", fragments, 50),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    match CASES.iter().find(|(name, ..)| *name == wanted) {
        Some((_, run, times)) => {
            run(*times);
            println!("{times}");
            ExitCode::SUCCESS
        }
        None => {
            CASES.iter().for_each(|(name, ..)| println!("{name}"));
            if wanted.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// IKE_SA_INIT and IKE_AUTH with a child, both ends.
fn handshakes(times: u32, certificates: bool) {
    for seed in 0..u64::from(times) {
        let mut setup = Setup::new(seed);
        setup.both(|side| {
            side.crypto = stand_in::provider();
            if certificates {
                by_certificate(side);
            }
        });
        let mut pair = setup.build();
        pair.net.tracing = false;
        pair.audit.off = true;
        if certificates {
            for end in [A, B] {
                pair.hosts[end].signer = Some(Signer { certificate: 467, signature: 72 });
            }
        }
        pair.establish();
    }
}

fn by_certificate(side: &mut Side) {
    let id = side.connection.local_id().cloned();
    side.connection.local = vec![LocalAuth { id, ..LocalAuth::new("local", AuthConfig::pubkey()) }];
    let request =
        CertRequest { encoding: CertEncoding::X509_SIGNATURE, authorities: vec![0x5a; 20] };
    let id = side.connection.remote_id().clone();
    let remote = RemoteAuth::new("remote", AuthConfig::pubkey());
    side.connection.remote = vec![RemoteAuth { id, certreqs: vec![request], ..remote }];
}

fn bench() -> Bench {
    let mut side = side(1, 2);
    side.crypto = stand_in::provider();
    side.settings.cookie_threshold = 0;
    Bench::with(side)
}

/// A stranger's request, answered; the SA stays half-open.
fn init_requests(times: u32) {
    let mut bench = bench();
    for _ in 0..times {
        bench.half_open();
    }
}

/// Requests that end somewhere in the middle: decoding, and nothing after it.
fn malformed(times: u32) {
    let mut bench = bench();
    let request = bench.start().request;
    for len in (28..request.len()).cycle().step_by(7).take(times as usize) {
        let mut cut = request[..len].to_vec();
        cut[24..28].copy_from_slice(&u32::try_from(len).expect("a length").to_be_bytes());
        assert!(bench.give(&cut).is_empty(), "cut at {len}");
    }
}

/// One request on an established SA, opened and answered.
fn informational(times: u32) {
    let mut bench = bench();
    let mut peer = bench.established(0xc000_0001);
    for _ in 0..times {
        let request = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
        assert_eq!(bench.give(&request).len(), 1);
    }
}

/// The same, and the request once more: the answer leaves again.
fn retransmissions(times: u32) {
    let mut bench = bench();
    let mut peer = bench.established(0xc000_0001);
    for _ in 0..times {
        let request = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
        assert_eq!(bench.give(&request).len(), 1);
        bench.world.run_for(Duration::from_millis(500));
        bench.sent();
        assert_eq!(bench.give(&request).len(), 1, "dropped: {:?}", bench.host().dropped);
    }
}

/// A message of 16,000 octets in fragments, put together again.
fn fragments(times: u32) {
    let mut bench = bench();
    let mut peer = bench.established(0xc000_0001);
    let data = vec![0x5a; 16_000];
    for _ in 0..times {
        let payloads = [Payload::Notify(Notify::new(NotifyType(40_000), &data))];
        let id = peer.next_id;
        peer.next_id += 1;
        let sealed = peer.seal_in(ExchangeType::INFORMATIONAL, id, false, &payloads, Some(1_252));
        assert!(sealed.len() > 12);
        let answers: usize = sealed.iter().map(|fragment| bench.give(fragment).len()).sum();
        assert_eq!(answers, 1, "dropped: {:?}", bench.host().dropped);
    }
}
