//! IKE_INTERMEDIATE exchanges that bring nothing (RFC 9242).

use ike_proto::wire::HEADER_LEN;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, notifies};
use ike_tests::setup::identity;

const INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;

/// A peer that has announced IKE_INTERMEDIATE, as the host has, and has proposed no additional key exchange.
fn begun(bench: &mut Bench) -> Handmade {
    let mut started = bench.start();
    let mut payloads = started.payloads();
    let kind = NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED;
    payloads.push(Payload::Notify(Notify::new(kind, &[])));
    started.request = started.encode(&payloads);
    let sent = bench.give(&started.request);
    started.finish(&sent[0]).expect("an SA in the response")
}

/// An empty exchange: the answer is empty, too. Returns what AUTH covers of the request and of the answer: the header
/// and that of the Encrypted payload, with lengths that count nothing else.
#[track_caller]
fn exchange(
    bench: &mut Bench,
    peer: &mut Handmade,
    payloads: &[Payload<'_>],
) -> Option<[Vec<u8>; 2]> {
    let request = peer.next_request(INTERMEDIATE, payloads);
    let sent = bench.give(&request);
    assert_eq!(sent.len(), 1, "dropped: {:?}", bench.host().dropped);
    let answer = peer.open(&sent[0]).expect("sealed for the peer");
    if !answer.octets.is_empty() {
        assert_eq!(notifies(&answer), [NotifyType::INVALID_SYNTAX]);
        return None;
    }
    Some([&request, &sent[0]].map(|message| {
        let mut covered = message[..HEADER_LEN + 4].to_vec();
        covered[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&32_u32.to_be_bytes());
        covered[HEADER_LEN + 2..].copy_from_slice(&4_u16.to_be_bytes());
        covered
    }))
}

//= https://www.rfc-editor.org/rfc/rfc9242#section-3.3.2
//# The IntAuth_[i/r]*P chunk is present if the Encrypted payload is not
//# empty.
/// Empty exchanges are answered by empty ones and are in what AUTH covers, here computed by the text alone.
///
/// Fault: in `on_request` (ike_sa/receive.rs), leave out the arm of IKE_INTERMEDIATE before IKE_AUTH; or in `answer_idle`
/// (exchange/intermediate.rs), leave out `absorb`.
#[test]
fn empty_ones_are_answered_and_authenticated() {
    for count in [0, 1, 3] {
        let mut bench = Bench::new();
        let mut peer = begun(&mut bench);
        let mut running = None;
        for _ in 0..count {
            let [request, answer] = exchange(&mut bench, &mut peer, &[]).expect("answered");
            let (i, r) = running.unwrap_or_default();
            let chain = |before: Vec<u8>, a: &[u8]| [before, a.to_vec()].concat();
            running = Some((peer.by_pi(&chain(i, &request)), peer.by_pr(&chain(r, &answer))));
        }
        let int_auth = running.map(|(i, r)| {
            let message_id = u32::try_from(count + 1).unwrap().to_be_bytes();
            [&i[..], &r, &message_id].concat()
        });
        let (id, auth) = (identity(2), peer.auth_after(&identity(2), PSK, int_auth.as_deref()));
        let request =
            peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, 1007, true));
        let sent = bench.give(&request);
        assert!(sent.len() == 1 && peer.open(&sent[0]).is_some());
        bench.host().child();
        bench.assert_nothing_leaked();
    }
}

/// AUTH that does not cover an empty exchange is of no use: nobody slips one in.
#[test]
fn an_empty_one_that_auth_does_not_cover_is_noticed() {
    let mut bench = Bench::new();
    let mut peer = begun(&mut bench);
    exchange(&mut bench, &mut peer, &[]).expect("answered");
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, 1007, true));
    let sent = bench.give(&request);
    let answer = peer.open(&sent[0]).expect("sealed for the peer");
    assert_eq!(notifies(&answer), [NotifyType::AUTHENTICATION_FAILED]);
    bench.assert_nothing_leaked();
}

/// There is an end to it.
///
/// Fault: in `answer_idle`, leave out `too_many`.
#[test]
fn a_peer_asks_for_a_few_and_not_for_ever() {
    let mut bench = Bench::new();
    let mut peer = begun(&mut bench);
    let mut answered = 0;
    while answered < 100 && exchange(&mut bench, &mut peer, &[]).is_some() {
        answered += 1;
    }
    assert_eq!(answered, 18);
}

/// Neither is an error taken for nothing, nor an exchange that was not announced.
#[test]
fn what_is_not_empty_or_not_announced_is_refused() {
    let mut bench = Bench::new();
    let mut peer = begun(&mut bench);
    let error = [Payload::Notify(Notify::new(NotifyType(9999), &[]))];
    assert!(exchange(&mut bench, &mut peer, &error).is_none());
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    assert!(exchange(&mut bench, &mut peer, &[]).is_none());
}
