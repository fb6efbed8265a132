//! RFC 6290 §9.2: no token of an IKE SA that is about to exist.

use ike_proto::Command;

use super::*;

/// B rekeys the IKE SA, and A's answer is held back until A asks for something on the new SA. Returns the pair, the
/// answer, and what B is asked.
///
/// A asks for a ticket with `resumption`, and else rekeys the child.
fn asked_early(resumption: bool) -> (Pair, Packet, Packet) {
    let mut setup = setup(7);
    setup.both(|side| {
        side.connection.session_resumption = resumption;
        let key = TicketKey { id: [1; 8], secret: Secret::new(vec![1; 32]) };
        side.settings.resumption.keys = if resumption { vec![Arc::new(key)] } else { Vec::new() };
    });
    let mut pair = established(setup);
    pair.run_for(5 * SECOND);
    pair.net.manual = true;
    let ike = pair.ike_id(B);
    pair.command(B, Command::RekeyIke(ike));
    pair.deliver_to(A);
    let answer = pair.net.mailbox.remove(0);
    assert!(answer.is(ExchangeType::CREATE_CHILD_SA, true), "{}", pair.story());
    if !resumption {
        let child = pair.child_id(A);
        pair.command(A, Command::RekeyChild(child));
    }
    let old = answer.header().map(|header| (header.spi_i, header.spi_r));
    let new = |p: &Packet| {
        p.from == Some(A)
            && p.header().is_some_and(|h| Some((h.spi_i, h.spi_r)) != old && !h.flags.response)
    };
    pair.run_until(10 * SECOND, |w| w.net.mailbox.iter().any(new));
    let index = pair.net.mailbox.iter().position(new).expect("a request on the new SA");
    let early = pair.net.mailbox.remove(index);
    pair.net.mailbox.clear();
    (pair, answer, early)
}

/// The request overtakes the answer that makes the SA at B. An eavesdropper who keeps a copy, and whoever plays one
/// back a minute later, gets nothing that ends the SA.
///
/// Fault: in `Endpoint::answer_unknown` (endpoint/crash.rs), leave out the question `is_coming`.
#[track_caller]
fn no_token_for(resumption: bool) {
    let (mut pair, answer, early) = asked_early(resumption);
    pair.inject(early.clone());
    assert_eq!(given(&pair, B).len(), 0, "{}", pair.story());
    assert_eq!(
        pair.waiting_for(A),
        0,
        "nothing at all is said of an SA that may exist in a moment"
    );
    pair.net.manual = false;
    pair.inject(answer);
    pair.run_for(MINUTE);
    pair.assert_agreement();
    pair.inject(early);
    pair.run_for(SECOND);
    assert_eq!((found(&pair, A), found(&pair, B)), (0, 0), "{}", pair.story());
    assert_eq!(pair.a().ike_rekeys().len(), 1, "{}", pair.story());
    pair.assert_agreement();
}

#[test]
fn no_token_of_an_sa_that_a_rekey_is_making_with_a_ticket_asked_for() {
    no_token_for(true);
}

#[test]
fn no_token_of_an_sa_that_a_rekey_is_making_with_a_task_of_the_responder() {
    no_token_for(false);
}

/// A rekey of A with an additional key exchange that stops when B has told its new SPI, or goes on.
fn chain(stops: bool) -> Pair {
    let mut setup = setup(8);
    setup.both(|side| {
        side.crypto = cheap::post_quantum();
        side.ike_proposals(&["aes256gcm16-prfsha256-x25519-ke1_mlkem512"]);
    });
    let mut pair = established(setup);
    let ike = pair.ike_id(A);
    pair.net.manual = true;
    pair.command(A, Command::RekeyIke(ike));
    pair.deliver_to(B);
    if !stops {
        pair.deliver_all();
        pair.run_for(SECOND);
    }
    pair
}

/// The same at the end that answers, before the additional key exchange: it has told its SPI already. What that SPI
/// is, another run of the same world tells.
///
/// Fault: in `Established::coming_spis` (ike_sa/established/mod.rs), leave out `theirs`.
#[test]
fn no_token_of_an_sa_that_additional_key_exchanges_are_making() {
    let before = chain(true).b().ike();
    let after = chain(false);
    let new = after.b().ikes().into_iter().find(|ike| ike.spi_r != before.spi_r).expect("rekeyed");
    let mut pair = chain(true);
    assert_eq!(pair.b().ikes().len(), 1, "the new SA is not there yet");
    let (src, dst) = (before.path.remote, before.path.local);
    for (spi_i, tokens) in [(new.spi_i, 0), (new.spi_i ^ 1, 0)] {
        pair.inject(Packet::forged(src, dst, sealed(&request(spi_i, new.spi_r))));
        assert_eq!(given(&pair, B).len(), tokens, "{}", pair.story());
    }
    // Of an SPI that is nobody's it gives one: the question is asked as it must be.
    pair.inject(Packet::forged(src, dst, sealed(&request(new.spi_i, new.spi_r ^ 1))));
    assert_eq!(given(&pair, B).len(), 1, "{}", pair.story());
    pair.deliver_all();
    pair.run_for(SECOND);
    assert_eq!(pair.b().ike_rekeys().len(), 1, "{}", pair.story());
}
