//! A retransmission takes no memory from the heap: neither this end's own by timer, nor the answer to a
//! request that was answered before.

use std::time::{Duration, Instant, SystemTime};

use ike_proto::wire::Message;
use ike_proto::{Endpoint, Input, Now, Output, Path, Transmit, TransmitKind, Transport};
use ike_tests::Seeded;
use ike_tests::bench::initiate;
use ike_tests::heap::{self, Counting};
use ike_tests::setup::{Setup, address};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the endpoint sends, and when it wants to be woken.
fn drained(endpoint: &mut Endpoint, mut sent: impl FnMut(Transmit)) -> Option<Instant> {
    loop {
        match endpoint.poll_output() {
            Output::Transmit(transmit) => sent(transmit),
            Output::Timeout(at) => return at,
            _ => {}
        }
    }
}

fn endpoint(side: ike_tests::Side, seed: u64) -> Endpoint {
    let (config, plane) = (side.config(), side.plane.capabilities);
    Endpoint::new(config, side.crypto, Box::new(Seeded::new(seed)), plane)
}

fn now(mono: Instant) -> Now {
    Now { mono, wall: SystemTime::UNIX_EPOCH }
}

#[test]
fn a_request_sent_again() {
    assert!(heap::begin());
    let mut a = endpoint(Setup::new(1).a, 1);
    let mut mono = Instant::now();
    a.handle(now(mono), Input::Command(ike_proto::RequestId(1), initiate()));
    let mut first = None;
    let mut wake = drained(&mut a, |transmit| first = Some(transmit));
    let first = first.expect("a request");
    assert_eq!(first.kind, TransmitKind::Ike);
    let mut again = 0;
    for round in 0..4 {
        mono = wake.expect("a timer").max(mono);
        let before = heap::allocations();
        a.handle(now(mono), Input::Timeout);
        wake = drained(&mut a, |transmit| {
            assert_eq!(transmit.kind, TransmitKind::Retransmission);
            assert_eq!(transmit.octets, first.octets);
            again += 1;
        });
        assert_eq!(heap::allocations(), before, "retransmission {round}");
    }
    assert_eq!(again, 4);
}

#[test]
fn an_answer_sent_again() {
    assert!(heap::begin());
    let setup = Setup::new(1);
    let (mut a, mut b) = (endpoint(setup.a, 1), endpoint(setup.b, 2));
    let mono = Instant::now();
    a.handle(now(mono), Input::Command(ike_proto::RequestId(1), initiate()));
    let mut request = None;
    drained(&mut a, |transmit| request = Some(transmit));
    let request = request.expect("a request");
    let path = Path {
        local: (address(2), 500).into(),
        remote: (address(1), 500).into(),
        transport: Transport::Udp,
    };
    let mut answer = |at: Instant| {
        let mut kinds = [None, None];
        let before = heap::allocations();
        b.handle(now(at), Input::Datagram(path, &request.octets));
        let mut count = 0;
        drained(&mut b, |transmit| {
            kinds[count] = Some(transmit.kind);
            count += 1;
        });
        (kinds[0], count, heap::allocations() - before)
    };
    let (kind, count, allocated) = answer(mono);
    assert_eq!((kind, count), (Some(TransmitKind::Ike), 1));
    assert!(allocated > 0, "the counter counts");
    let before = heap::allocations();
    assert!(Message::decode(&request.octets).is_ok());
    let decoding = heap::allocations() - before;
    for round in 1..5_u32 {
        let (kind, count, allocated) = answer(mono + Duration::from_millis(500) * round);
        assert_eq!((kind, count), (Some(TransmitKind::Retransmission), 1));
        // The request is decoded before it is known to be one: nothing else.
        assert_eq!(allocated, decoding, "answer {round}");
    }
}
