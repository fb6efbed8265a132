use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::{Doubt, FOUND, MEMORY, PathMtus, Probe, TOLD};

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn start() -> Instant {
    Instant::now()
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_configured_size_is_the_size() {
    let now = start();
    for (configured, v4, v6) in [(0, 576, 1280), (1, 160, 160), (400, 400, 400), (9000, 9000, 9000)]
    {
        let mut known = PathMtus::new(Some(configured));
        assert!(!known.tell(now, V4, 600));
        let mut probe = Probe::default();
        assert!(!probe.step_down(&known, now, V4));
        probe.on_new_request(700, 5);
        assert_eq!(probe.size(&known, now, V4), v4);
        assert_eq!(probe.size(&known, now, V6), v6);
    }
}

#[test]
fn what_the_driver_says_is_bounded() {
    let now = start();
    let mut known = PathMtus::new(None);
    assert_eq!((known.size(now, V4), known.size(now, V6)), (1280, 1280));
    for (told, v4, v6) in [
        (0, 576, 1280),
        (68, 576, 1280),
        (1279, 1279, 1280),
        (1400, 1400, 1400),
        (9000, 1500, 1500),
        (65_536, 1500, 1500),
        (u32::MAX, 1500, 1500),
    ] {
        known.tell(now, V4, told);
        known.tell(now, V6, told);
        assert_eq!((known.size(now, V4), known.size(now, V6)), (v4, v6), "{told}");
    }
    assert!(known.tell(now, V4, 1400), "less than before");
    assert!(!known.tell(now, V4, 1400), "the same");
    assert!(!known.tell(now, V4, 1500), "more");
    let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
    assert!(known.tell(now, mapped, 700));
    assert_eq!(known.size(now, V4), 700);
}

#[test]
fn sizes_go_down_to_the_least_of_the_family() {
    let now = start();
    let mut known = PathMtus::new(None);
    known.tell(now, V4, 1500);
    known.tell(now, V6, 1500);
    let mut probe = Probe::default();
    let mut steps = vec![probe.size(&known, now, V4)];
    while probe.step_down(&known, now, V4) {
        steps.push(probe.size(&known, now, V4));
    }
    assert_eq!(steps, [1500, 1280, 576]);
    let mut probe = Probe::default();
    assert!(probe.step_down(&known, now, V6));
    assert!(!probe.step_down(&known, now, V6));
    assert_eq!(probe.size(&known, now, V6), 1280);
}

#[test]
fn others_hear_of_it_once_something_got_through_and_for_a_while() {
    let now = start();
    let mut known = PathMtus::new(None);
    let mut probe = Probe::default();
    probe.step_down(&known, now, V4);
    assert_eq!(known.size(now, V4), 1280, "the peer may be away");
    probe.on_heard(&mut known, now, V4);
    assert_eq!(known.size(now, V4), 576);
    assert_eq!(known.size(now + MEMORY, V4), 1280);
    assert_eq!(probe.inherited().size(&known, now + MEMORY, V4), 576);
    assert_eq!(probe.moved().size(&known, now + MEMORY, V4), 1280);
}

#[test]
fn it_takes_several_sends_and_some_time() {
    let now = start();
    let mut probe = Probe::default();
    assert!(!probe.is_black_hole(now, 9, 1280), "nothing was sent");
    probe.on_request_sent(now);
    assert!(!probe.is_black_hole(now + seconds(1), 2, 1280));
    assert!(!probe.is_black_hole(now + seconds(1) / 2, 3, 1280));
    assert!(probe.is_black_hole(now + seconds(1), 3, 1280));
    probe.on_answered(1280);
    probe.on_request_sent(now);
    assert!(!probe.is_black_hole(now + seconds(1), 4, 1280), "it got through before");
    assert!(probe.is_black_hole(now + seconds(1), 5, 1280));
    assert!(probe.is_black_hole(now + seconds(1), 3, 1281));
}

#[test]
fn acknowledgements_tell_a_black_hole_from_loss() {
    let now = start();
    let mut probe = Probe::default();
    probe.on_request_sent(now);
    // One of them got through, or all did: from now on only silence counts, and more of it.
    for missing in [&[(2, 5)][..], &[(1, 3)], &[]] {
        probe.on_request_acknowledged(now + seconds(2), (5, missing), 7, 1280);
        assert!(!probe.is_black_hole(now + seconds(9), 11, 1280), "{missing:?}");
        assert!(!probe.is_black_hole(now + seconds(2), 12, 1280), "{missing:?}");
        assert!(probe.is_black_hole(now + seconds(3), 12, 1280), "{missing:?}");
    }
    // All that gets through is the last one.
    probe.on_request_acknowledged(now + seconds(2), (5, &[(1, 4)]), 8, 1280);
    assert!(!probe.is_black_hole(now + seconds(2), 9, 1280), "once is chance");
    probe.on_request_acknowledged(now + seconds(2), (5, &[(1, 4)]), 8, 1280);
    assert!(probe.is_black_hole(now + seconds(2), 9, 1280));
    probe.on_request_sent(now + seconds(2));
    assert!(!probe.is_black_hole(now + seconds(2), 1, 576), "another size");
    // Of two fragments the first is easily lost: that says nothing, neither way.
    let mut probe = Probe::default();
    probe.on_request_sent(now);
    for _ in 0..9 {
        probe.on_request_acknowledged(now, (2, &[(1, 1)]), 0, 1280);
    }
    assert!(!probe.is_black_hole(now + seconds(1), 2, 1280));
    assert!(probe.is_black_hole(now + seconds(1), 3, 1280));
}

#[test]
fn the_peers_fragments_are_a_hint() {
    let now = start();
    let known = PathMtus::new(None);
    let mut probe = Probe::default();
    probe.on_new_request(900, 3);
    assert_eq!(probe.size(&known, now, V4), 900);
    assert_eq!(probe.on_request_again(now, 600, 4), Doubt::PeerSteppedDown);
    assert_eq!(probe.size(&known, now, V4), 600);
    assert_eq!(probe.on_request_again(now, 60, 40), Doubt::PeerSteppedDown);
    assert_eq!(probe.size(&known, now, V4), 576);
    // A whole message says nothing.
    probe.on_new_request(100, 1);
    assert_eq!(probe.size(&known, now, V4), 576);
    probe.on_new_request(9000, 2);
    assert_eq!(probe.size(&known, now, V4), 1280);
}

#[test]
fn a_peer_that_keeps_asking_does_not_hear() {
    let now = start();
    let mut probe = Probe::default();
    probe.on_new_request(900, 3);
    // In one burst it may be one datagram many times.
    for _ in 0..20 {
        assert_eq!(probe.on_request_again(now, 900, 3), Doubt::None);
    }
    assert_eq!(probe.on_request_again(now + seconds(7), 900, 3), Doubt::Unheard);
    assert_eq!(probe.on_request_again(now + seconds(8), 900, 3), Doubt::None);
    assert_eq!(probe.on_request_again(now + seconds(20), 900, 3), Doubt::Unheard);
    probe.on_new_request(900, 3);
    assert_eq!(probe.on_request_again(now + seconds(40), 900, 3), Doubt::None);
}

#[test]
fn what_is_known_is_bounded() {
    let now = start();
    let mut known = PathMtus::new(None);
    for n in 0..100_000u32 {
        let address = IpAddr::from(n.to_be_bytes());
        let at = now + Duration::from_micros(n.into());
        known.tell(at, address, 1400);
        known.find(at, address, 576);
    }
    assert!(known.told.values.len() <= TOLD && known.found.values.len() <= FOUND);
    let last = IpAddr::from(99_999u32.to_be_bytes());
    assert_eq!(known.size(now + seconds(1), last), 576);
    assert_eq!(known.size(now + seconds(1), IpAddr::from(0u32.to_be_bytes())), 1280);
    // All of one instant.
    for n in 0..20_000u32 {
        known.tell(now + seconds(2), IpAddr::from(n.to_be_bytes()), 1400);
    }
    assert!(known.told.values.len() <= TOLD);
}
