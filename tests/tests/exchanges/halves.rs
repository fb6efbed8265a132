//! What is in questions and answers.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::crypto::{
    CryptoError, CryptoProvider, KeLengths, KeMethod, KeyExchange, PendingKe, Secret, SecureRandom,
};
use ike_proto::wire::registry::KeMethodId;
use ike_proto::{
    Answer, Command, Endpoint, Exchange, Input, Now, Output, Path, Question, RequestId, Ticket,
};
use ike_tests::{Seeded, World, cheap};

/// Nothing of a key is in what may be logged.
#[test]
fn questions_and_answers_print_no_secret() {
    let mut endpoint = endpoint(1, 2);
    initiate(&mut endpoint, now(0));
    let (_, exchange) = asked(&mut endpoint);
    assert_eq!(exchange.method(), cheap::MODP_2048.id());
    assert_eq!(format!("{exchange:?}"), "Exchange(MODP_2048, initiate)");
    let Answer::Exchanged(done) = exchange.perform(&mut Seeded::new(1)) else {
        panic!("no answer")
    };
    assert_eq!(format!("{done:?}"), "Exchanged(done)");
}

/// Whoever computes is told for whom, and when it is not worth its while any more.
#[test]
fn a_step_is_wanted_as_long_as_somebody_waits() {
    let (mut left, mut right) = (endpoint(1, 2), endpoint(2, 1));
    initiate(&mut left, now(0));
    let (ticket, exchange) = asked(&mut left);
    assert!(exchange.is_wanted() && !exchange.is_for_stranger());
    left.handle(now(0), Input::Answered(ticket, exchange.perform(&mut Seeded::new(1))));
    assert!(!exchange.is_wanted(), "it is done");
    let request = loop {
        match left.poll_output() {
            Output::Transmit(request) => break request,
            Output::Timeout(_) => panic!("no request"),
            _ => {}
        }
    };
    let path = Path { local: request.path.remote, remote: request.path.local, ..request.path };
    right.handle(now(0), Input::Datagram(path, &request.octets));
    let (_, theirs) = asked(&mut right);
    assert!(theirs.is_wanted() && theirs.is_for_stranger());
    right.handle(now(29), Input::Timeout);
    assert!(theirs.is_wanted());
    right.handle(now(31), Input::Timeout);
    assert!(!theirs.is_wanted(), "the half-open SA is gone");
}

/// A method that the program has made lives as long as a provider or a question has it, and no longer.
///
/// Fault: in `KeyExchange::new`, forget a second copy of the method.
#[test]
fn a_method_of_the_program_lives_as_long_as_it_is_needed() {
    let alive = Arc::new(());
    let ke = vec![KeyExchange::new(OfTheProgram(Arc::clone(&alive)))];
    let crypto = Arc::new(CryptoProvider { ke, ..pq_kem::provider() });
    let mut endpoint = endpoint_with(crypto, 1, 2);
    initiate(&mut endpoint, now(0));
    let (_, exchange) = asked(&mut endpoint);
    drop(endpoint);
    let answer = exchange.perform(&mut Seeded::new(1));
    assert!(matches!(answer, Answer::Exchanged(_)));
    assert_eq!(Arc::strong_count(&alive), 2, "the question has it");
    drop(exchange);
    assert_eq!(Arc::strong_count(&alive), 1, "nobody has it");
}

/// MODP_2048 as a value of the program's own.
#[derive(Debug)]
struct OfTheProgram(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl KeMethod for OfTheProgram {
    fn id(&self) -> KeMethodId {
        cheap::MODP_2048.id()
    }

    fn lengths(&self) -> KeLengths {
        cheap::MODP_2048.lengths()
    }

    fn is_slow(&self) -> bool {
        cheap::MODP_2048.is_slow()
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        cheap::MODP_2048.initiate(rng)
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        cheap::MODP_2048.respond(peer, rng)
    }
}

fn endpoint(host: u8, other: u8) -> Endpoint {
    endpoint_with(cheap::provider(), host, other)
}

fn endpoint_with(crypto: Arc<CryptoProvider>, host: u8, other: u8) -> Endpoint {
    let mut side = ike_tests::setup::side(host, other);
    side.ike_proposals(&["aes128gcm16-prfsha256-modp2048"]);
    let (config, capabilities) = (side.config(), side.plane.capabilities);
    let rng = Box::new(Seeded::new(u64::from(host)));
    Endpoint::new(config, crypto, rng, capabilities)
}

fn initiate(endpoint: &mut Endpoint, now: Now) {
    let command = Command::Initiate {
        connection: "ab".to_owned(),
        child: None,
        local: ike_tests::setup::address(1),
        remote: ike_tests::setup::address(2),
        packet: None,
    };
    endpoint.handle(now, Input::Command(RequestId(1), command));
}

/// The question that is asked next.
fn asked(endpoint: &mut Endpoint) -> (Ticket, Exchange) {
    loop {
        match endpoint.poll_output() {
            Output::Ask(ticket, Question::Exchange(exchange)) => return (ticket, exchange),
            Output::Timeout(_) => panic!("no question"),
            _ => {}
        }
    }
}

fn now(seconds: u64) -> Now {
    let world = World::new(1);
    let later = Duration::from_secs(1 + seconds);
    Now { mono: world.instant() + later, wall: world.wall() + later }
}

/// What takes long is asked for, and nothing else: a hop between threads costs more than an X25519.
#[test]
fn the_slow_methods_are_those_that_take_half_a_millisecond() {
    let slow: Vec<String> = pq_kem::provider()
        .ke
        .iter()
        .filter(|method| method.is_slow())
        .map(|method| method.id().to_string())
        .collect();
    assert!(slow.iter().all(|id| id.contains("FRODOKEM") || id.contains("MODP")), "{slow:?}");
    assert!(slow.iter().any(|id| id == "MODP_4096") && slow.iter().any(|id| id == "MODP_3072"));
    assert_eq!(slow.iter().filter(|id| id.contains("FRODOKEM")).count(), 12);
}
