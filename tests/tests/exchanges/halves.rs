//! What is in questions and answers.

use ike_proto::crypto::KeMethod;
use ike_proto::{Answer, Output, Question};
use ike_tests::Seeded;
use ike_tests::cheap;

/// Nothing of a key is in what may be logged.
#[test]
fn questions_and_answers_print_no_secret() {
    let mut side = ike_tests::setup::side(1, 2);
    side.ike_proposals(&["aes128gcm16-prfsha256-modp2048"]);
    let config = side.config();
    let mut endpoint = ike_proto::Endpoint::new(
        config,
        cheap::provider(),
        Box::new(Seeded::new(1)),
        side.plane.capabilities,
    );
    let mut world = ike_tests::World::new(1);
    let now = ike_proto::Now { mono: world.instant(), wall: world.wall() };
    let command = ike_proto::Command::Initiate {
        connection: "ab".to_owned(),
        child: None,
        local: ike_tests::setup::address(1),
        remote: ike_tests::setup::address(2),
        packet: None,
    };
    world.run_for(super::SECOND);
    endpoint.handle(now, ike_proto::Input::Command(ike_proto::RequestId(1), command));
    let Output::Ask(_, Question::Exchange(exchange)) = endpoint.poll_output() else {
        panic!("no question");
    };
    assert_eq!(exchange.method(), cheap::MODP_2048.id());
    assert_eq!(format!("{exchange:?}"), "Exchange(MODP_2048, initiate)");
    let Answer::Exchanged(done) = exchange.perform(&mut Seeded::new(1)) else {
        panic!("no answer")
    };
    assert_eq!(format!("{done:?}"), "Exchanged(done)");
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
