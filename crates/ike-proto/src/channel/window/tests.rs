use super::*;
use crate::wire::registry::PayloadType;
use crate::wire::{Flags, Header};

/// Random octets that are all the same.
struct Same(u8);

impl SecureRandom for Same {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

const INFO: ExchangeType = ExchangeType::INFORMATIONAL;
const CHILD: ExchangeType = ExchangeType::CREATE_CHILD_SA;

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
    Instant::now()
}

fn window() -> Window {
    Window::new(Retransmission::strongswan())
}

fn path() -> Path {
    let address = std::net::SocketAddr::from(([10, 0, 0, 1], 500));
    Path { local: address, remote: address, transport: crate::event::Transport::Udp }
}

/// What leaves of our request at `at`.
fn again(w: &mut Window, at: Instant) -> Datagrams {
    std::iter::from_fn(|| w.take_request(at)).map(|departure| departure.octets).collect()
}

fn datagrams(octet: u8) -> Datagrams {
    Datagrams::from([[octet; 3].as_slice().into()])
}

fn header(exchange: ExchangeType, message_id: u32, response: bool) -> Header {
    Header {
        spi_i: 1,
        spi_r: 2,
        next_payload: PayloadType::SK,
        minor_version: 0,
        exchange,
        flags: Flags { response, ..Flags::default() },
        message_id,
        length: 28,
    }
}

fn request(message_id: u32) -> Header {
    header(INFO, message_id, false)
}

fn response(message_id: u32) -> Header {
    header(INFO, message_id, true)
}

#[test]
fn requests_of_the_peer_are_taken_once_and_in_order() {
    let mut w = window();
    assert_eq!(w.classify(&request(0), None), Class::NewRequest);
    assert_eq!(w.classify(&request(1), None), Class::OutOfWindow);
    assert!(!w.on_request_authenticated(1, INFO, 0), "not due");
    assert!(!w.start_response(path(), datagrams(0)), "nothing to answer");
    assert!(w.on_request_authenticated(0, INFO, 0));
    assert!(!w.on_request_authenticated(0, INFO, 0), "twice");
    assert_eq!(w.in_progress(), Some((0, INFO)));
    assert_eq!(w.classify(&request(0), None), Class::InProgress);
    assert_eq!(w.classify(&header(CHILD, 0, false), None), Class::Stale);
    assert!(w.start_response(path(), datagrams(7)));
    assert_eq!(w.in_progress(), None);
    assert_eq!(w.classify(&request(0), None), Class::RetransmittedRequest);
    assert_eq!(w.classify(&header(CHILD, 0, false), None), Class::Stale, "another exchange");
    assert_eq!(w.classify(&request(1), None), Class::NewRequest);
    assert_eq!(w.classify(&request(2), None), Class::OutOfWindow);
}

//= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
//= type=test
//# The responder MUST remember each response
//# until it receives a request whose sequence number is larger than or
//# equal to the sequence number in the response plus its window size
#[test]
fn a_response_is_kept_until_the_next_request_is_authenticated() {
    let mut w = window();
    assert!(w.on_request_authenticated(0, INFO, 0));
    assert!(w.start_response(path(), datagrams(7)));
    assert_eq!(w.classify(&request(1), None), Class::NewRequest);
    assert_eq!(w.classify(&request(0), None), Class::RetransmittedRequest);
    assert!(w.on_request_authenticated(1, INFO, 0));
    assert_eq!(w.classify(&request(0), None), Class::Stale);
}

#[test]
fn only_the_first_fragment_brings_the_response_again() {
    let mut w = window();
    assert!(w.on_request_authenticated(0, INFO, 0));
    assert!(w.start_response(path(), datagrams(7)));
    assert_eq!(w.classify(&request(0), Some((1, 3))), Class::RetransmittedRequest);
    assert_eq!(w.classify(&request(0), Some((2, 3))), Class::Stale);
    assert_eq!(w.classify(&request(1), Some((2, 3))), Class::NewRequest);
}

#[test]
fn one_request_at_a_time() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    assert_eq!(w.next_request_id(), Ok(0));
    assert_eq!(w.start_request(t, INFO, datagrams(1), rng), Ok(()));
    assert_eq!(w.next_request_id(), Err(Unsent::Busy));
    assert_eq!(w.start_request(t, INFO, datagrams(2), rng), Err(Unsent::Busy));
    assert_eq!(w.outstanding(), Some((INFO, 0)));
    assert!(w.on_response_authenticated(0));
    assert_eq!(w.next_request_id(), Ok(1));
    assert_eq!(w.next_retransmit(), None);
}

#[test]
fn only_the_response_to_the_outstanding_request_is_expected() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    assert_eq!(w.classify(&response(0), None), Class::OutOfWindow, "never asked");
    w.start_request(t, INFO, datagrams(1), rng).unwrap();
    assert_eq!(w.classify(&response(0), None), Class::ExpectedResponse);
    assert_eq!(w.classify(&response(0), Some((2, 2))), Class::ExpectedResponse);
    assert_eq!(w.classify(&header(CHILD, 0, true), None), Class::Stale, "another exchange");
    assert_eq!(w.classify(&response(1), None), Class::OutOfWindow);
    assert!(!w.on_response_authenticated(1));
    assert!(w.on_response_authenticated(0));
    assert!(!w.on_response_authenticated(0), "twice");
    assert_eq!(w.classify(&response(0), None), Class::Stale);
}

#[test]
fn the_two_directions_do_not_touch() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    w.start_request(t, CHILD, datagrams(1), rng).unwrap();
    assert_eq!(w.classify(&header(CHILD, 0, false), None), Class::NewRequest);
    assert!(w.on_request_authenticated(0, CHILD, 0));
    assert!(w.start_response(path(), datagrams(2)));
    assert_eq!(w.outstanding(), Some((CHILD, 0)));
    assert!(w.on_response_authenticated(0));
    assert_eq!(w.classify(&header(CHILD, 0, false), None), Class::RetransmittedRequest);
}

//= https://www.rfc-editor.org/rfc/rfc7296#section-2.2
//= type=test
//# In the unlikely event that
//# Message IDs grow too large to fit in 32 bits, the IKE SA MUST be
//# closed or rekeyed.
#[test]
fn message_ids_end_and_do_not_wrap() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    w.next_request = Some(u32::MAX);
    w.start_request(t, INFO, datagrams(1), rng).unwrap();
    assert_eq!(w.classify(&response(u32::MAX), None), Class::ExpectedResponse);
    assert!(w.on_response_authenticated(u32::MAX));
    assert_eq!(w.next_request_id(), Err(Unsent::Exhausted));
    assert_eq!(w.start_request(t, INFO, datagrams(1), rng), Err(Unsent::Exhausted));
    assert_eq!(w.classify(&response(u32::MAX), None), Class::Stale);

    w.next_expected = Some(u32::MAX);
    assert!(w.on_request_authenticated(u32::MAX, INFO, 0));
    assert!(w.start_response(path(), datagrams(3)));
    assert_eq!(w.classify(&request(u32::MAX), None), Class::RetransmittedRequest);
    assert_eq!(w.classify(&request(0), None), Class::Stale);
    assert!(!w.on_request_authenticated(0, INFO, 0));
}

/// The ladder of strongswan.conf(5): 4 s, times 1.8, five tries, 165 s in all.
#[test]
fn the_ladder_gives_up_after_165_seconds() {
    let (mut w, t0, rng) = (window(), now(), &mut Same(0));
    w.start_request(t0, INFO, datagrams(1), rng).unwrap();
    again(&mut w, t0);
    let mut sent = Vec::new();
    let given_up = loop {
        let due = w.next_retransmit().unwrap();
        assert_eq!(w.retransmit(due - Duration::from_millis(1), rng), Retransmit::Nothing);
        match w.retransmit(due, rng) {
            Retransmit::Again => {
                assert_eq!(again(&mut w, due), datagrams(1));
                sent.push((due - t0).as_secs());
            }
            Retransmit::GiveUp => break due - t0,
            Retransmit::Nothing => unreachable!("it is due"),
        }
    };
    assert_eq!(sent, [4, 11, 24, 47, 89]);
    assert_eq!(w.tries(), 5);
    assert_eq!(given_up.as_secs(), 165);
}

#[test]
fn retransmissions_share_the_datagrams() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    let request = datagrams(1);
    w.start_request(t, INFO, Arc::clone(&request), rng).unwrap();
    again(&mut w, t);
    let due = w.next_retransmit().unwrap();
    assert_eq!(w.retransmit(due, rng), Retransmit::Again);
    assert!(Arc::ptr_eq(&request[0], &again(&mut w, due)[0]));
}

#[test]
fn limit_caps_and_jitter_shortens_the_waits() {
    let ladder = Retransmission {
        limit: Duration::from_secs(10),
        jitter: 20,
        ..Retransmission::strongswan()
    };
    assert_eq!(wait(&ladder, Duration::from_secs(4), 0, &mut Same(0)), Duration::from_secs(4));
    assert_eq!(
        wait(&ladder, Duration::from_secs(4), 0, &mut Same(0xff)),
        Duration::from_millis(3200)
    );
    assert_eq!(wait(&ladder, Duration::from_secs(4), 9, &mut Same(0)), Duration::from_secs(10));
    assert_eq!(wait(&ladder, Duration::from_secs(4), 9, &mut Same(0xff)), Duration::from_secs(8));
}

#[test]
fn odd_ladders_do_not_panic() {
    for base in [0.0, -3.0, f64::NAN, f64::INFINITY, 1e300] {
        for jitter in [0, 100, u32::MAX] {
            let ladder = Retransmission {
                base,
                jitter,
                timeout: Some(Duration::MAX),
                ..Retransmission::strongswan()
            };
            for n in [0, 1, 40, u32::MAX] {
                let wait = wait(&ladder, Duration::MAX, n, &mut Same(0x55));
                assert!(wait <= LONGEST_WAIT, "{base} {jitter} {n}");
            }
        }
    }
}

#[test]
fn a_replaced_request_keeps_its_id_and_starts_the_ladder_over() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    assert!(!w.replace_request(t, datagrams(2), rng), "nothing to replace");
    let init = ExchangeType::IKE_SA_INIT;
    w.start_request(t, init, datagrams(1), rng).unwrap();
    assert_eq!(again(&mut w, t), datagrams(1));
    let due = w.next_retransmit().unwrap();
    assert_eq!(w.retransmit(due, rng), Retransmit::Again);
    assert_eq!(again(&mut w, due), datagrams(1));
    assert!(w.replace_request(due, datagrams(2), rng));
    assert_eq!((w.outstanding(), w.tries()), (Some((init, 0)), 0));
    assert_eq!(w.next_retransmit(), Some(due + Duration::from_secs(4)));
    assert_eq!(w.retransmit(due + Duration::from_secs(4), rng), Retransmit::Again);
    assert_eq!(again(&mut w, due + Duration::from_secs(4)), datagrams(2));
}

#[test]
fn an_abandoned_request_leaves_a_used_id() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    w.start_request(t, INFO, datagrams(1), rng).unwrap();
    w.abandon_request();
    assert_eq!(w.classify(&response(0), None), Class::Stale);
    assert_eq!(w.next_request_id(), Ok(1));
    assert_eq!(w.retransmit(t + LONGEST_WAIT, rng), Retransmit::Nothing);
}

/// Fault: in `Flight::smaller`, keep no former datagram. strongSwan ignores all other datagrams of a request that it
/// has answered, and a lost answer stays lost.
#[test]
fn smaller_pieces_bring_fragment_one_of_each_larger_form_again() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    w.start_request(t, INFO, datagrams(1), rng).unwrap();
    again(&mut w, t);
    w.refit_request(t, [2, 3].map(|piece| Arc::from([piece].as_slice())).into(), rng);
    w.refit_request(t, [4, 5, 6].map(|piece| Arc::from([piece].as_slice())).into(), rng);
    let first = |piece: &Arc<[u8]>| piece[0];
    assert_eq!(again(&mut w, t).iter().map(first).collect::<Vec<_>>(), [4, 5, 6]);
    for round in 0..3 {
        let due = w.next_retransmit().unwrap();
        if round == 2 {
            w.on_moved(due, rng);
            assert_eq!(again(&mut w, due).iter().map(first).collect::<Vec<_>>(), [4, 5, 6]);
        }
        let due = w.next_retransmit().unwrap();
        assert_eq!(w.retransmit(due, rng), Retransmit::Again);
        let mut left: Vec<_> = again(&mut w, due).iter().map(first).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 4, 5, 6], "round {round}");
    }
}

/// Fault: in `Window::refit_request`, pass `false` for `acks`.
#[test]
fn a_peer_that_acknowledges_gets_smaller_pieces_alone() {
    let (mut w, t, rng) = (window(), now(), &mut Same(0));
    w.set_fragment_acks(true);
    w.start_request(t, INFO, datagrams(1), rng).unwrap();
    again(&mut w, t);
    w.refit_request(t, [2, 3].map(|piece| Arc::from([piece].as_slice())).into(), rng);
    assert_eq!(again(&mut w, t).len(), 2);
    let due = w.next_retransmit().unwrap();
    assert_eq!(w.retransmit(due, rng), Retransmit::Again);
    assert_eq!(again(&mut w, due).len(), 2);
}
