//! Probes of the path for the data plane (RFC 8899), and what becomes of an IKE SA whose probes are lost.

use std::time::Duration;

use ike_proto::config::{Fragmentation, Retransmission};
use ike_proto::dataplane::{Event, Probed, SaId};
use ike_proto::wire::registry::{ExchangeType, PayloadType};
use ike_proto::{Command, TransmitKind};
use ike_tests::network::{Fate, Packet};
use ike_tests::{A, B, Pair, Setup};
use xfrm::Summary;

const SECOND: Duration = Duration::from_secs(1);

/// Drops what is larger than `octets` without a word.
fn narrow(pair: &mut Pair, octets: usize) {
    pair.net.tap(move |packet| if packet.ip_octets() > octets { Fate::Drop } else { Fate::Pass });
}

fn outbound(pair: &Pair) -> SaId {
    pair.a().child().outbound
}

/// The data plane of A asks whether the path carries `octets`.
fn ask(pair: &mut Pair, octets: u16) {
    let sa = outbound(pair);
    pair.plane_event(A, Event::ProbePath { sa, octets });
}

/// What the data plane of A was told.
fn told(pair: &Pair) -> Vec<Probed> {
    let commands = pair.a().plane.table().commands().iter();
    commands
        .filter_map(|command| match command {
            Summary::PathProbed(_, probed) => Some(*probed),
            _ => None,
        })
        .collect()
}

fn probes(pair: &Pair) -> Vec<&Packet> {
    pair.net.trace.iter().filter(|packet| packet.kind == TransmitKind::Probe).collect()
}

/// Both ends are up as before, and an exchange of A goes on.
#[track_caller]
fn all_is_well(pair: &mut Pair) {
    let request = pair.rekey_child(A);
    pair.run_for(10 * SECOND);
    assert_eq!(pair.hosts[A].done(request), Some(Ok(())), "{}", pair.story());
    for host in [A, B] {
        assert_eq!(pair.hosts[host].ike_downs(), [], "{}", pair.story());
        assert_eq!(pair.hosts[host].children_up().len(), 1, "{}", pair.story());
    }
    assert_eq!(pair.audit.complaints, Vec::<String>::new());
}

/// Fault: in `Probing::send`, leave the second `seal` out; or in `Probing::seal`, have fragments of 1,280 octets made.
#[test]
fn a_probe_shows_what_the_path_carries() {
    // AES-GCM, and a cipher with blocks.
    for (suite, short) in [("aes128gcm16-prfsha256-x25519", 0), ("aes128-sha256-x25519", 15)] {
        for octets in [1281, 1400, 1500] {
            let mut setup = Setup::new(1);
            setup.both(|side| side.ike_proposals(&[suite]));
            let mut pair = setup.build();
            pair.establish();
            ask(&mut pair, octets);
            pair.run_for(SECOND);
            let [probe] = probes(&pair)[..] else { panic!("{}", pair.story()) };
            let size = u16::try_from(probe.ip_octets()).unwrap();
            assert!(size <= octets && size + short >= octets, "{size} of {octets}, {suite}");
            assert!(probe.is(ExchangeType::INFORMATIONAL, false));
            assert_eq!(told(&pair), [Probed::Carried(size)]);
            all_is_well(&mut pair);
        }
    }
}

/// If a probe does not fit, the request without padding gets the answer, which shows that the probe was lost. This request is
/// not sent in fragments: strongSwan with its mediation extension takes no INFORMATIONAL request in fragments.
///
/// Fault: in `Channel::try_smaller`, leave `fall_back` out: the window is held for seconds, and for good where fragments of
/// IP are lost as well; or in `Probing::fall_back`, send the request in fragments.
#[test]
fn a_lost_probe_is_no_dead_peer() {
    for retransmission in [Retransmission::adaptive(), Retransmission::strongswan()] {
        for path in [1280, 1300, 1499] {
            let mut setup = Setup::new(2);
            setup.both(|side| {
                side.settings.retransmission = retransmission;
                side.connection.dpd_delay = 5 * SECOND;
            });
            let mut pair = setup.build();
            pair.establish();
            narrow(&mut pair, path);
            let limit = retransmission.timeout.unwrap_or(SECOND) + SECOND;
            ask(&mut pair, 1500);
            pair.run_until(limit, |pair| pair.hosts[A].ike().outstanding.is_none());
            assert_eq!(told(&pair), [Probed::Lost { octets: 1500, hint: None }], "{path}");
            assert_eq!(probes(&pair).len(), 1);
            for _ in 0..20 {
                ask(&mut pair, 1500);
                pair.run_for(10 * SECOND);
            }
            assert_eq!(told(&pair).len(), 21);
            let pieces = |packet: &&Packet| {
                packet.is(ExchangeType::INFORMATIONAL, false)
                    && packet.header().is_some_and(|h| h.next_payload == PayloadType::SKF)
            };
            assert_eq!(pair.net.trace.iter().find(pieces).map(|packet| packet.sent), None);
            all_is_well(&mut pair);
        }
    }
}

/// A daemon that ends waits two round trips for the answer to its Delete. A lost probe has the window meanwhile.
///
/// Fault: in `Established::pump`, leave `fall_back` out: the Delete waits for the retransmission timer of the probe.
#[test]
fn a_lost_probe_does_not_hold_up_a_delete() {
    let mut setup = Setup::new(4);
    setup.conditions.delay = Duration::from_millis(100);
    let mut pair = setup.build();
    pair.establish();
    narrow(&mut pair, 1300);
    ask(&mut pair, 1500);
    pair.run_for(Duration::from_millis(1));
    assert_eq!(probes(&pair).len(), 1);
    let ike = pair.ike_id(A);
    pair.command(A, Command::TerminateIke(ike));
    // The answer to the request without padding, and half a round trip of the Delete.
    pair.run_for(Duration::from_millis(310));
    assert_eq!(pair.hosts[B].ike_downs().len(), 1, "{}", pair.story());
    assert_eq!(probes(&pair).len(), 1);
}

/// Fault: in `Window::on_response_authenticated`, take every answer to a probe for that of the probe itself.
#[test]
fn an_answer_to_a_probe_that_was_sent_again_shows_no_size() {
    let (exact, blocks) = ("aes128gcm16-prfsha256-x25519", "aes128-sha256-x25519");
    for (suite, octets) in [(exact, 1500), (blocks, 1500), (blocks, 1281)] {
        for response in [false, true] {
            let mut setup = Setup::new(3);
            setup.both(|side| side.ike_proposals(&[suite]));
            let mut pair = setup.build();
            pair.establish();
            pair.net.lose(1, move |packet| packet.is(ExchangeType::INFORMATIONAL, response));
            ask(&mut pair, octets);
            pair.run_for(5 * SECOND);
            let [Probed::Lost { octets: lost, hint: None }] = told(&pair)[..] else {
                panic!("{response} {suite} {octets}: {:?}", told(&pair))
            };
            assert!((octets - 15..=octets).contains(&lost), "{lost} of {octets}");
            all_is_well(&mut pair);
        }
    }
}

/// Fault: in `Queue::push_probe`, push at once; or in `PathProbe::queue`, leave `under_way` out.
#[test]
fn there_is_one_probe_a_second_at_most() {
    let mut pair = Pair::established(4);
    for _ in 0..100 {
        ask(&mut pair, 1400);
        pair.run_for(Duration::from_millis(50));
    }
    pair.run_for(2 * SECOND);
    let sent: Vec<_> = probes(&pair).iter().map(|probe| probe.sent).collect();
    assert!((4..=7).contains(&sent.len()), "{sent:?}");
    assert!(sent.windows(2).all(|two| two[1] - two[0] >= SECOND), "{sent:?}");
    assert_eq!(told(&pair).len(), sent.len());
    all_is_well(&mut pair);
}

/// Fault: in `Established::pump`, do not prefer other tasks.
#[test]
fn a_probe_delays_nothing_that_waits() {
    let mut setup = Setup::new(5);
    setup.a.add_child("other", 11, 12);
    setup.b.add_child("other", 12, 11);
    let mut pair = setup.build();
    pair.establish();
    pair.initiate(A, Some("other"));
    pair.run_for(SECOND);
    // A request in flight, and behind it a probe and then a rekey.
    let [first, second] = &pair.a().children_up()[..] else { panic!("{}", pair.story()) };
    let (first, sa, second) = (first.id, first.outbound, second.outbound);
    pair.command(A, Command::RekeyChild(first));
    pair.plane_event(A, Event::ProbePath { sa, octets: 1400 });
    pair.plane_event(A, Event::SoftExpire(second));
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().child_rekeys().len(), 2, "{}", pair.story());
    let requests: Vec<_> = pair
        .net
        .trace
        .iter()
        .filter(|packet| {
            packet.from == Some(A) && packet.header().is_some_and(|h| !h.flags.response)
        })
        .map(|packet| (packet.kind, packet.header().unwrap().exchange))
        .collect();
    let at = requests.iter().position(|(kind, _)| *kind == TransmitKind::Probe);
    let last =
        requests.iter().rposition(|(_, exchange)| *exchange == ExchangeType::CREATE_CHILD_SA);
    assert!(at > last, "{requests:?}");
}

/// Forged ICMP changes the size that the kernel reports. It can change only the order in which sizes are tried.
///
/// Fault: in `Channel::refit_request`, leave `is_probing` out.
#[test]
fn forged_icmp_does_not_make_a_probe_lost() {
    let mut pair = Pair::established(6);
    ask(&mut pair, 1500);
    pair.run_for(Duration::from_millis(5));
    pair.path_mtu(A, B, 576);
    pair.run_for(SECOND);
    assert_eq!(told(&pair), [Probed::Carried(1500)]);
    narrow(&mut pair, 1400);
    pair.path_mtu(A, B, 1400);
    pair.run_for(SECOND);
    ask(&mut pair, 1500);
    pair.run_for(5 * SECOND);
    assert_eq!(told(&pair)[1..], [Probed::Lost { octets: 1500, hint: Some(1400) }]);
    all_is_well(&mut pair);
}

/// Fault: in `Probing::fall_back`, ask whether the peer takes fragments.
#[test]
fn a_peer_without_fragments_is_probed_as_well() {
    let mut setup = Setup::new(7);
    setup.b.connection.fragmentation = Fragmentation::No;
    let mut pair = setup.build();
    pair.establish();
    narrow(&mut pair, 1400);
    ask(&mut pair, 1500);
    pair.run_for(2 * SECOND);
    ask(&mut pair, 1400);
    pair.run_for(2 * SECOND);
    assert_eq!(told(&pair), [Probed::Lost { octets: 1500, hint: None }, Probed::Carried(1400)]);
    all_is_well(&mut pair);
}
