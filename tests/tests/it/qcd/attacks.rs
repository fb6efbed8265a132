//! Somebody without keys who wants an IKE SA to end, or to make work.

use ike_proto::DropReason;

use super::*;

/// Gives `host` an answer to its last message, as its peer would send it, with these tokens.
fn show(pair: &mut Pair, host: usize, tokens: &[&[u8]]) {
    let like = pair.net.trace.iter().rev().find(|p| p.from == Some(host)).expect("a message");
    let asked = like.header().expect("a header");
    let flags = Flags { initiator: !asked.flags.initiator, version: false, response: true };
    let header = Header { next_payload: PayloadType::NONE, flags, length: 0, ..asked };
    let kind = NotifyType::QUICK_CRASH_DETECTION;
    let unknown = Payload::Notify(Notify::new(NotifyType::INVALID_IKE_SPI, &[]));
    let tokens = tokens.iter().map(|token| Payload::Notify(Notify::new(kind, token)));
    let payloads: Vec<_> = std::iter::once(unknown).chain(tokens).collect();
    let packet = Packet::forged(like.dst, like.src, encode_message(&header, &payloads));
    pair.inject(packet);
}

#[test]
fn a_wrong_token_changes_nothing() {
    let mut pair = established(setup(21));
    pair.run_for(MINUTE);
    for length in [0, 15, 16, 32, 33, 64, 128, 129, 500] {
        let token = vec![0x5a; length];
        show(&mut pair, A, &[&token, &token, &token]);
    }
    let before = pair.hosts[A].sent;
    assert_eq!((found(&pair, A), pair.a().children_up().len()), (0, 1));
    let bad = pair.a().dropped.iter().filter(|why| **why == DropReason::WrongToken);
    assert_eq!(bad.count(), 5, "those of a length that a token may have: {:?}", pair.a().dropped);
    assert_eq!(pair.hosts[A].sent, before, "no answer");
    pair.run_for(MINUTE);
    pair.assert_agreement();
}

/// The right one is the last of four; a fifth is not looked at.
#[test]
fn one_of_four_is_enough() {
    for (wrong, good) in [(3, true), (4, false)] {
        let mut pair = established(setup(22));
        let mut twin = established(setup(22));
        crash(&mut twin, B);
        find(&mut twin, A);
        // The same seed has made the same IKE SA.
        let token = tokens(&given(&twin, B)[0]).remove(0);
        let other = vec![1; 32];
        let mut all = vec![other.as_slice(); wrong];
        all.push(&token);
        show(&mut pair, A, &all);
        assert_eq!(found(&pair, A), usize::from(good), "{}", pair.story());
    }
}

//= https://www.rfc-editor.org/rfc/rfc6290#section-3
//= type=test
//# The token taker MUST accept
//# such tokens from any IP address and port combination
#[test]
fn from_anywhere() {
    let mut pair = established(setup(23));
    let mut twin = established(setup(23));
    crash(&mut twin, B);
    find(&mut twin, A);
    let genuine = given(&twin, B).remove(0);
    let from = "198.51.100.7:1234".parse().unwrap();
    pair.inject(Packet::forged(from, genuine.dst, genuine.octets));
    assert_eq!(found(&pair, A), 1);
}

/// Whoever sees the SPIs of a live IKE SA asks both ends for their tokens, as either end, with every exchange,
/// from anywhere, and shows each what the other has answered.
#[test]
fn nobody_is_given_the_token_of_a_live_sa() {
    for seed in 0..4 {
        let mut pair = established(setup(24 + seed));
        if seed > 1 {
            pair.rekey_ike(if seed == 2 { A } else { B });
            pair.run_for(SECOND);
        }
        let ike = pair.a().ike();
        let mut answers = Vec::new();
        for (to, flags, exchange, swapped) in (0..64).map(|n: usize| {
            let flags = Flags { initiator: n & 2 != 0, version: false, response: n & 4 != 0 };
            let exchange = [
                ExchangeType::INFORMATIONAL,
                ExchangeType::CREATE_CHILD_SA,
                ExchangeType::IKE_AUTH,
                ExchangeType::IKE_SA_INIT,
            ][n >> 4];
            ([A, B][n & 1], flags, exchange, n & 8 != 0)
        }) {
            let (spi_i, spi_r) =
                if swapped { (ike.spi_r, ike.spi_i) } else { (ike.spi_i, ike.spi_r) };
            let header = Header { exchange, flags, ..request(spi_i, spi_r) };
            let sealed = sealed(&header);
            for from in ["10.0.0.1:500", "10.0.0.2:500", "198.51.100.7:4500"] {
                let (src, dst) = (from.parse().unwrap(), pair.socket(to, 500));
                let before = pair.net.trace.len();
                pair.inject(Packet::forged(src, dst, sealed.clone()));
                let sent = &pair.net.trace[before..];
                answers.extend(sent.iter().filter(|p| !tokens(p).is_empty()).cloned());
            }
        }
        assert!(!answers.is_empty(), "to who takes the part of the other end there are answers");
        for answer in &answers {
            let token = tokens(answer).remove(0);
            for host in [A, B] {
                // Not one a second: they would not all be looked at.
                pair.run_for(SECOND);
                show(&mut pair, host, &[&token]);
                let dst = pair.socket(host, 500);
                pair.inject(Packet::forged(answer.src, dst, answer.octets.clone()));
            }
        }
        assert_eq!((found(&pair, A), found(&pair, B)), (0, 0), "{}", pair.story());
        pair.run_for(30 * SECOND);
        pair.assert_agreement();
    }
}

/// What was answered once is played back to the SA that has come since, as it is and under its SPIs.
#[test]
fn a_token_is_good_for_one_sa() {
    let mut pair = established(setup(31));
    crash(&mut pair, B);
    find(&mut pair, A);
    pair.run_for(5 * SECOND);
    pair.assert_agreement();
    let answer = given(&pair, B).remove(0);
    let token = tokens(&answer).remove(0);
    pair.inject(Packet::forged(answer.src, answer.dst, answer.octets));
    show(&mut pair, A, &[&token]);
    assert_eq!((found(&pair, A), pair.a().children_up().len()), (1, 1), "{}", pair.story());
}

/// What is not sealed gets no token, nor does what brings one.
#[test]
fn only_sealed_requests_get_tokens() {
    let mut pair = established(setup(32));
    crash(&mut pair, B);
    let header = request(0x1234, 0x5678);
    let (src, dst) = ("10.0.0.9:500".parse().unwrap(), pair.socket(B, 500));
    let answers = |pair: &mut Pair, octets: Vec<u8>| {
        let before = pair.net.trace.len();
        pair.inject(Packet::forged(src, dst, octets));
        let sent = pair.net.trace[before..].iter().filter(|p| p.from == Some(B));
        sent.map(|p| tokens(p).len()).collect::<Vec<_>>()
    };
    assert_eq!(answers(&mut pair, sealed(&header)), [1]);
    assert_eq!(answers(&mut pair, encode_message(&header, &[])), [0], "INVALID_IKE_SPI alone");
    let token = [9; 32];
    let brings = Payload::Notify(Notify::new(NotifyType::QUICK_CRASH_DETECTION, &token));
    assert!(answers(&mut pair, encode_message(&header, &[brings])).is_empty());
    let response = Header { flags: Flags { response: true, ..header.flags }, ..header };
    assert!(answers(&mut pair, sealed(&response)).is_empty());
}

/// More peers have to be told soon after a crash than ever else.
#[test]
fn floods_are_answered_now_and_then() {
    for (age, most) in [(SECOND, 1000), (20 * MINUTE, 100)] {
        let mut setup = setup(33);
        setup.both(|side| side.connection.dpd_delay = Duration::ZERO);
        let mut pair = established(setup);
        crash(&mut pair, B);
        pair.wake(B);
        pair.run_for(age);
        let before = pair.b().sent;
        for n in 0..5000_u64 {
            let from = format!("10.1.{}.9:500", n % 200);
            let (src, dst) = (from.parse().unwrap(), pair.socket(B, 500));
            pair.inject(Packet::forged(src, dst, sealed(&request(n + 1, n + 7))));
        }
        assert_eq!(pair.b().sent - before, most, "{age:?}");
    }
}

/// One address has its share, and what it asks for beyond leaves the others theirs.
#[test]
fn a_flood_from_one_address_leaves_answers_for_others() {
    for (age, most) in [(SECOND, 64), (20 * MINUTE, 16)] {
        let mut setup = setup(35);
        setup.both(|side| side.connection.dpd_delay = Duration::ZERO);
        let mut pair = established(setup);
        crash(&mut pair, B);
        pair.wake(B);
        pair.run_for(age);
        let dst = pair.socket(B, 500);
        for n in 0..5000_u64 {
            let from = "10.0.0.9:500".parse().unwrap();
            pair.inject(Packet::forged(from, dst, sealed(&request(n + 1, n + 7))));
        }
        assert_eq!(given(&pair, B).len(), most, "{age:?}");
        let other = "10.0.0.8:500".parse().unwrap();
        pair.inject(Packet::forged(other, dst, sealed(&request(1, 7))));
        assert_eq!(given(&pair, B).len(), most + 1, "{age:?}");
    }
}

/// An address that is made up is not sent much more than was spent on it: an SK payload that no cipher could have
/// made gets no token.
#[test]
fn answers_are_at_most_three_times_as_long() {
    for (body, some) in [(0, false), (16, false), (17, true), (40, true)] {
        let mut setup = setup(36);
        setup.b.settings.qcd = secrets(2, 4, 4);
        let mut pair = established(setup);
        let mut octets = encode_message(&request(0x1111, 0x2222), &[]);
        octets[16] = 46;
        octets.extend([0, 0, 0, 4 + body]);
        octets.extend(vec![0x77; body.into()]);
        let length = octets.len();
        octets[24..28].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        let before = pair.net.trace.len();
        let (src, dst) = ("10.0.0.9:500".parse().unwrap(), pair.socket(B, 500));
        pair.inject(Packet::forged(src, dst, octets));
        let answers: Vec<_> =
            pair.net.trace[before..].iter().filter(|p| p.from == Some(B)).collect();
        assert_eq!(answers.len(), 1, "{body}");
        assert_eq!(tokens(answers[0]).len(), if some { 4 } else { 0 }, "{body}");
        assert!(answers[0].octets.len() <= 3 * length, "{body}");
    }
}

/// Who tries tokens by the thousand is not heard; one who has the right one is, even at the same address.
#[test]
fn guessing_is_slow() {
    let mut pair = established(setup(34));
    let mut twin = established(setup(34));
    crash(&mut twin, B);
    find(&mut twin, A);
    let genuine = given(&twin, B).remove(0);
    for n in 0..5000_u32 {
        let token = [n.to_be_bytes().as_slice(), &[0; 28]].concat();
        show(&mut pair, A, &[&token]);
    }
    let looked = pair.a().dropped.iter().filter(|w| **w == DropReason::WrongToken);
    assert_eq!(looked.count(), 16);
    let dropped = pair.a().dropped.iter().filter(|w| **w == DropReason::TooManyTokens);
    assert_eq!(dropped.count(), 4984);
    pair.inject(Packet::forged(genuine.src, genuine.dst, genuine.octets));
    assert_eq!(found(&pair, A), 1);
}
