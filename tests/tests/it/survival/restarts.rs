//! A peer that restarts in mid-handshake.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Fate;
use ike_tests::{A, B, Pair, cheap};

use super::{finish, is_initial, large};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs until the first message of `exchange` is under way.
fn run_until_sent(pair: &mut Pair, exchange: ExchangeType, response: bool) {
    let there =
        pair.run_until(MINUTE, |w| w.net.trace.iter().any(|packet| packet.is(exchange, response)));
    assert!(there, "{}", pair.story());
}

/// The initiator hears that its SPI is unknown, which nobody has authenticated: it asks again, and does not
/// wait for the end of its ladder.
#[test]
fn a_responder_that_restarts_is_asked_again_soon() {
    for (exchange, response) in [
        (ExchangeType::IKE_SA_INIT, true),
        (ExchangeType::IKE_INTERMEDIATE, false),
        (ExchangeType::IKE_INTERMEDIATE, true),
        (ExchangeType::IKE_AUTH, false),
    ] {
        let mut pair = large(1, "mlkem512").build();
        let request = pair.initiate(A, Some("net"));
        run_until_sent(&mut pair, exchange, response);
        pair.restart(B, cheap::post_quantum());
        let took = finish(&mut pair, request, MINUTE);
        assert!(took < Duration::from_secs(1), "{exchange} {response}: {took:?}");
        assert_eq!(pair.a().ikes().len(), 1);
        assert_eq!(pair.b().ikes().len(), 1, "{}", pair.story());
    }
}

/// The same while it is away for a while.
#[test]
fn a_responder_that_takes_its_time_to_restart() {
    for away in [1, 5, 20] {
        let mut pair = large(2, "mlkem512").build();
        let request = pair.initiate(A, Some("net"));
        run_until_sent(&mut pair, ExchangeType::IKE_INTERMEDIATE, false);
        pair.restart(B, cheap::post_quantum());
        let back = pair.now() + Duration::from_secs(away);
        pair.net.tap(move |packet| if packet.sent < back { Fate::Drop } else { Fate::Pass });
        let took = finish(&mut pair, request, Duration::from_secs(160));
        assert!(took < Duration::from_secs(2 * away + 2), "{away}: {took:?}");
    }
}

/// Forged, it costs a datagram now and then: neither the SA nor the attempt.
#[test]
fn forged_unknown_spis_change_nothing() {
    let mut pair = large(3, "mlkem512").build();
    let request = pair.initiate(A, Some("net"));
    run_until_sent(&mut pair, ExchangeType::IKE_INTERMEDIATE, false);
    let sent = pair.net.trace.iter().find(|p| p.is(ExchangeType::IKE_INTERMEDIATE, false));
    let sent = sent.unwrap().clone();
    let header = sent.header().unwrap();
    let mut forged = ike_proto::wire::encode_message(
        &ike_proto::wire::Header {
            flags: ike_proto::wire::Flags { initiator: false, version: false, response: true },
            ..header
        },
        &[ike_proto::wire::Payload::Notify(ike_proto::wire::payload::Notify::new(
            ike_proto::wire::registry::NotifyType::INVALID_IKE_SPI,
            &[],
        ))],
    );
    forged.shrink_to_fit();
    for _ in 0..1000 {
        pair.inject(ike_tests::network::Packet::forged(sent.dst, sent.src, &*forged));
    }
    finish(&mut pair, request, MINUTE);
    let sent = pair.net.trace.iter().filter(|p| p.from == Some(A) && is_initial(p)).count();
    assert!(sent < 12, "{sent} datagrams\n{}", pair.story());
    assert_eq!(pair.b().ikes().len(), 1, "{}", pair.story());
}

/// An initiator that restarts begins anew; what the responder had of the old handshake goes.
#[test]
fn an_initiator_that_restarts_comes_up() {
    for exchange in
        [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_INTERMEDIATE, ExchangeType::IKE_AUTH]
    {
        let mut pair = large(4, "mlkem512").build();
        pair.initiate(A, Some("net"));
        run_until_sent(&mut pair, exchange, true);
        pair.restart(A, cheap::post_quantum());
        let request = pair.initiate(A, Some("net"));
        let took = finish(&mut pair, request, MINUTE);
        assert!(took < Duration::from_secs(1), "{exchange}: {took:?}");
        pair.run_for(Duration::from_secs(400));
        assert_eq!(pair.b().ikes().len(), 1, "{exchange}: {}", pair.story());
        assert_eq!(pair.b().endpoint.half_open(), 0);
    }
}

/// The responder forgets while the initiator's timers are long: the hint makes up for them.
#[test]
fn with_strongswans_timers_a_restart_costs_no_more_than_one_of_them() {
    let mut setup = large(5, "mlkem512");
    setup.a.settings.retransmission = ike_proto::config::Retransmission::strongswan();
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    run_until_sent(&mut pair, ExchangeType::IKE_INTERMEDIATE, true);
    pair.restart(B, cheap::post_quantum());
    // What B sent before it restarted is lost as well.
    let begun = pair.now();
    let back = begun + Duration::from_secs(20);
    pair.net.tap(move |packet| if packet.sent < back { Fate::Drop } else { Fate::Pass });
    let took = finish(&mut pair, request, MINUTE * 2);
    // Sends at 0, 4, 11.2 and 24.2 s.
    assert!(took < Duration::from_millis(24_500), "{took:?}");
}
