//! The size of a path, as probes find it (RFC 8899).

use std::net::SocketAddr;
use std::time::Duration;

use esp::{Buffer, Carrier, Fate, TooBig, Verdict};
use ipsec_types::dataplane::{Command, DataPlane, Direction, Event, Probed};

use crate::common::{Pair, Tunnel, arrival, events, tcp_segment};

const SECOND: Duration = Duration::from_secs(1);

fn peer(tunnel: &Tunnel) -> SocketAddr {
    SocketAddr::new(tunnel.right, if tunnel.encap { 4500 } else { 0 })
}

/// A pair of planes. The left one, the sender, asks for probes.
fn probing(tunnel: &Tunnel) -> Pair {
    let pair = tunnel.connect();
    pair.left.enable_probes();
    pair.left.set_link(tunnel.left, peer(tunnel), 1500);
    pair
}

/// The size for which the sender wants a probe.
fn asked(pair: &mut Pair) -> Option<u16> {
    match events(&mut pair.left)[..] {
        [] => None,
        [Event::ProbePath { octets, .. }] => Some(octets),
        ref other => panic!("{other:?}"),
    }
}

fn tell(pair: &mut Pair, tunnel: &Tunnel, probed: Probed) {
    let id = tunnel.id();
    pair.left.apply(Command::PathProbed(id, probed)).expect("taken");
}

/// Answers all probes as a path of `path` octets does, and returns how many there were.
fn answer(pair: &mut Pair, tunnel: &Tunnel, path: u16) -> usize {
    let mut probes = 0;
    while let Some(octets) = asked(pair) {
        probes += 1;
        let lost = Probed::Lost { octets, hint: None };
        tell(pair, tunnel, if octets <= path { Probed::Carried(octets) } else { lost });
    }
    probes
}

/// RFC 8899: a probe is sent once a packet needs it. Until then nobody is told of a small path.
///
/// Fault: in `Outbound::handle_batch`, ask `fit` of a path that is untried; or in `Sizes::link`, begin with the link.
#[test]
fn a_path_is_probed_when_a_packet_needs_it() {
    for tunnel in [Tunnel::v4(), Tunnel { encap: true, ..Tunnel::v4() }, Tunnel::v6()] {
        let mut pair = probing(&tunnel);
        let (small, large) = (tunnel.packet(1000), tunnel.packet(1300));
        assert!(pair.seal(&small).unwrap().0.fields.dont_fragment);
        assert_eq!(asked(&mut pair), None, "nobody needs it");
        for _ in 0..3 {
            let (outgoing, esp) = pair.seal(&large).unwrap();
            assert!(!outgoing.fields.dont_fragment);
            assert_eq!(pair.open(&outgoing, &esp), Ok(large.clone()));
        }
        assert_eq!(asked(&mut pair), Some(1500));
        assert_eq!(asked(&mut pair), None, "once");
        tell(&mut pair, &tunnel, Probed::Carried(1500));
        assert!(pair.seal(&large).unwrap().0.fields.dont_fragment);
        assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1500));
        assert_eq!(asked(&mut pair), None);
    }
}

/// Where no ICMP comes, the size is found all the same, and senders are told of it.
///
/// Fault: in `Plane::path_probed`, do not ask again; or in `Sizes::take`, leave `Step::AtLeast` out.
#[test]
fn the_size_of_a_black_hole_is_found() {
    for path in [1280, 1300, 1320, 1450, 1460] {
        let tunnel = Tunnel::v4();
        let mut pair = probing(&tunnel);
        let large = tunnel.packet(1430);
        pair.seal(&large).unwrap();
        assert_eq!(asked(&mut pair), Some(1500));
        tell(&mut pair, &tunnel, Probed::Lost { octets: 1500, hint: None });
        assert!(
            matches!(pair.seal(&large), Err(Verdict::TooBig(_))),
            "after the first that is lost"
        );
        let probes = answer(&mut pair, &tunnel, path);
        assert!((2..16).contains(&probes), "{probes} for {path}");
        assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(path));
        let Err(Verdict::TooBig(most)) = pair.seal(&large) else { panic!("not told of {path}") };
        assert!(most < path && most + 80 > path, "{most} of {path}");
        assert!(pair.seal(&tunnel.packet(usize::from(most) - 28)).unwrap().0.fields.dont_fragment);
    }
}

/// Fault: in `Sizes::try_larger`, take the link's size without a probe; or in `Sad::unasked`, name nothing.
#[test]
fn a_path_that_grows_again_is_found_after_ten_minutes() {
    let tunnel = Tunnel::v4();
    let mut pair = probing(&tunnel);
    pair.seal(&tunnel.packet(1430)).unwrap();
    answer(&mut pair, &tunnel, 1300);
    pair.advance(599 * SECOND);
    pair.left.try_larger(pair.now);
    assert_eq!(asked(&mut pair), None);
    pair.advance(SECOND);
    pair.left.try_larger(pair.now);
    assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1300), "until it is shown");
    assert!(matches!(pair.seal(&tunnel.packet(1430)), Err(Verdict::TooBig(_))));
    assert_eq!(asked(&mut pair), Some(1500));
    tell(&mut pair, &tunnel, Probed::Carried(1500));
    assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1500));
    assert!(pair.seal(&tunnel.packet(1400)).is_ok());
}

/// Senders do not know of a new size yet. What TCP has on its way is divided for a second, because a sender that is told that it
/// is too big sends everything again.
///
/// Fault: in `outbound::fit`, leave `was_refitted` out; or in `Sad::refit_at`, tell the SAs nothing.
#[test]
fn segments_that_were_on_their_way_are_divided() {
    for (tunnel, by_icmp) in [Tunnel::v4(), Tunnel::v6()].into_iter().zip([false, true]) {
        let mut pair = probing(&tunnel);
        let (src, dst) = (tunnel.left_ts[0].start, tunnel.right_ts[0].start);
        let segment = tcp_segment(src, dst, 1300);
        assert_eq!(pieces(&mut pair, &segment), 2, "nothing is known");
        match by_icmp {
            false => tell(&mut pair, &tunnel, Probed::Lost { octets: 1500, hint: None }),
            true => {
                tell(&mut pair, &tunnel, Probed::Carried(1500));
                assert_eq!(pieces(&mut pair, &segment), 1);
                pair.advance(2 * SECOND);
                let (_, esp) = pair.seal(&segment).unwrap();
                let peer = peer(&tunnel);
                let report = TooBig { peer, carrier: Carrier::Ip, octets: 1280, quoted: &esp };
                assert!(pair.left.too_big(pair.now, &report).is_some());
            }
        }
        pair.advance(SECOND - Duration::from_millis(1));
        assert_eq!(pieces(&mut pair, &segment), 2, "it was on its way");
        assert!(matches!(pair.seal(&tunnel.packet(1300)), Err(Verdict::TooBig(_))), "UDP is told");
        pair.advance(Duration::from_millis(1));
        assert!(matches!(pair.seal(&segment), Err(Verdict::TooBig(_))));
    }
}

/// Into how many packets `packet` goes.
fn pieces(pair: &mut Pair, packet: &[u8]) -> usize {
    let (mut out, mut count) = (Buffer::new(), 0);
    pair.sender.handle_batch(pair.now, &[packet], &mut out, |_, fate| {
        assert!(matches!(fate, Fate::Send(_)), "{fate:?}");
        count += 1;
    });
    count
}

/// A path may lose what it carried before, without a word.
///
/// Fault: in `Sizes::doubt`, leave `doubted` as it is; or in `Sizes::unconfirmed`, leave `due` out.
#[test]
fn a_path_without_answers_is_probed_again() {
    let tunnel = Tunnel::v4();
    let mut pair = probing(&tunnel);
    let large = tunnel.packet(1400);
    pair.seal(&large).unwrap();
    answer(&mut pair, &tunnel, 1500);
    let silence = |pair: &mut Pair| {
        pair.advance(10 * SECOND);
        pair.seal(&large).unwrap();
        pair.left.try_larger(pair.now);
    };
    silence(&mut pair);
    assert_eq!(asked(&mut pair), Some(1500));
    tell(&mut pair, &tunnel, Probed::Carried(1500));
    for _ in 0..5 {
        silence(&mut pair);
        assert_eq!(asked(&mut pair), None, "it was asked within the minute");
    }
    silence(&mut pair);
    assert!(answer(&mut pair, &tunnel, 1400) < 16);
    assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1400));
}

/// RFC 8899 §5.1.1: ESP shows nothing about its packets, so the path is confirmed while it is in use, also if packets come: those
/// may be small ones of other connections, or of another path back.
///
/// Fault: in `Sad::unconfirmed`, ask for silence on all paths; or in `Sizes::take`, leave `confirmed` as it is.
#[test]
fn a_path_with_traffic_both_ways_is_confirmed_each_minute() {
    let tunnel = Tunnel::v4();
    let mut pair = probing(&tunnel);
    let back = Tunnel {
        left: tunnel.right,
        right: tunnel.left,
        left_ts: tunnel.right_ts.clone(),
        right_ts: tunnel.left_ts.clone(),
        ..tunnel.clone()
    };
    pair.left.apply(Command::InstallSa(Box::new(back.sa(Direction::In)))).unwrap();
    let mut far = back.connect();
    let mut receiver = pair.left.inbound();
    let large = tunnel.packet(1400);
    pair.seal(&large).unwrap();
    answer(&mut pair, &tunnel, 1500);
    let mut both_ways = |pair: &mut Pair, sends: bool| {
        pair.advance(10 * SECOND);
        far.advance(10 * SECOND);
        let (outgoing, esp) = far.seal(&back.packet(9)).unwrap();
        let opened = receiver.handle(pair.now, &arrival(&outgoing), &esp, &mut Buffer::new());
        assert!(opened.is_ok(), "{opened:?}");
        // That the first packet has come.
        events(&mut pair.left);
        if sends {
            pair.seal(&large).unwrap();
        }
        pair.left.try_larger(pair.now);
    };
    for _ in 0..5 {
        both_ways(&mut pair, true);
        assert_eq!(asked(&mut pair), None, "a probe has shown it within the minute");
    }
    both_ways(&mut pair, false);
    assert_eq!(asked(&mut pair), None, "nothing leaves");
    both_ways(&mut pair, true);
    assert!(answer(&mut pair, &tunnel, 1400) < 16);
    assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1400));
}

/// Fault: in `Sizes::take`, leave `Probed::Impossible` or `unproven` out.
#[test]
fn where_no_probe_can_be_sent_icmp_decides() {
    for (believes, size) in [(true, 1500), (false, 1280)] {
        let tunnel = Tunnel::v4();
        let mut pair = probing(&tunnel);
        pair.left.believe_icmp(believes);
        pair.seal(&tunnel.packet(1400)).unwrap();
        assert_eq!(asked(&mut pair), Some(1500));
        tell(&mut pair, &tunnel, Probed::Impossible);
        assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(size));
        assert_eq!(asked(&mut pair), None);
    }
}

/// The engine may be unable to send a probe, and no result comes. A packet that is too large for the base size then comes back
/// to its sender.
///
/// Fault: in `Shared::ask_for_probe`, leave `give_up` out.
#[test]
fn a_path_without_results_has_the_base_size_after_half_a_minute() {
    let tunnel = Tunnel::v4();
    let mut pair = probing(&tunnel);
    let large = tunnel.packet(1400);
    for _ in 0..3 {
        assert!(!pair.seal(&large).unwrap().0.fields.dont_fragment);
        assert_eq!(asked(&mut pair), Some(1500));
        pair.advance(10 * SECOND);
    }
    assert!(!pair.seal(&large).unwrap().0.fields.dont_fragment, "the last one");
    let Err(Verdict::TooBig(most)) = pair.seal(&large) else { panic!("it goes on") };
    assert!(pair.seal(&tunnel.packet(usize::from(most) - 28)).unwrap().0.fields.dont_fragment);
    assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1280));
    assert_eq!(asked(&mut pair), Some(1500));
    tell(&mut pair, &tunnel, Probed::Carried(1500));
    assert!(pair.seal(&large).unwrap().0.fields.dont_fragment, "a late result counts");
}
