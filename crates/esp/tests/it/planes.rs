//! Every suite, mode, family, sequence number width and encapsulation between two planes.

use esp::{DropReason, Verdict, ip};
use std::sync::Arc;

use ipsec_types::dataplane::{Mode, Processing, TfcPadding};

use crate::common::{self, SUITES, Tunnel};

fn every_combination() -> Vec<Tunnel> {
    let mut all = Vec::new();
    for suite in SUITES {
        for base in [Tunnel::v4(), Tunnel::v6()] {
            for mode in [Mode::Tunnel, Mode::Transport] {
                for esn in [false, true] {
                    for encap in [false, true] {
                        let tunnel = Tunnel { suite, esn, encap, ..base.clone() };
                        all.push(match mode {
                            Mode::Transport => tunnel.transport(),
                            _ => tunnel,
                        });
                    }
                }
            }
        }
    }
    all
}

#[test]
fn packets_of_every_length_come_out_as_they_went_in() {
    for tunnel in every_combination() {
        let mut pair = tunnel.connect();
        // Every padding length of a 16-octet block, and a full-sized packet.
        for payload in (0..34).chain([1372]) {
            let sent = tunnel.packet(payload);
            let (outgoing, esp) = pair.seal(&sent).unwrap();
            assert_eq!(outgoing.encap.is_some(), tunnel.encap);
            assert_eq!((outgoing.src, outgoing.dst), (tunnel.left, tunnel.right));
            assert_eq!(esp[..4], common::SPI.to_be_bytes());
            assert_eq!(esp.len() % 4, 0, "{tunnel:?}");
            let got = pair.open(&outgoing, &esp).unwrap();
            assert_eq!(got, sent, "{tunnel:?} with {payload} octets");
        }
        assert_eq!(pair.left.stats().sealed(), 35);
        assert_eq!(pair.right.stats().opened(), 35);
    }
}

/// RFC 4303 §2.7, in tunnel mode: nobody outside sees how long a packet is, and the receiver has what was sent.
#[test]
fn short_packets_become_as_long_as_others() {
    for tunnel in every_combination() {
        let with = |tfc_padding| {
            let processing = Arc::new(Processing { tfc_padding, ..Processing::default() });
            Tunnel { processing, ..tunnel.clone() }.connect()
        };
        let sizes = |padding, mtu: Option<u16>| -> Vec<usize> {
            let mut pair = with(padding);
            if let Some(mtu) = mtu {
                pair.left.set_mtu(mtu);
            }
            let lengths = [0, 1, 90, 700, 1300];
            let size = |payload| {
                let sent = tunnel.packet(payload);
                let (outgoing, esp) = pair.seal(&sent).unwrap();
                assert_eq!(pair.open(&outgoing, &esp).unwrap(), sent, "{tunnel:?} {payload}");
                esp.len()
            };
            lengths.map(size).to_vec()
        };
        let plain = sizes(TfcPadding::None, None);
        assert!(plain.is_sorted() && plain[0] < plain[4]);
        let (to, mtu) = (sizes(TfcPadding::To(600), None), sizes(TfcPadding::Mtu, None));
        let narrow = sizes(TfcPadding::To(u32::MAX), Some(600));
        if tunnel.mode == Mode::Transport {
            assert_eq!((&to, &mtu, &narrow), (&plain, &plain, &plain));
            continue;
        }
        assert!(to[0] > 600 && to[..3] == [to[0]; 3] && to[3..] == plain[3..], "{to:?}");
        assert!(mtu[0] > 1400 && mtu == [mtu[0]; 5], "{mtu:?}");
        assert_eq!(narrow, to, "no further than the MTU");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    for tunnel in every_combination() {
        let mut pair = tunnel.connect();
        let (outgoing, esp) = pair.seal(&tunnel.packet(20)).unwrap();
        for at in 0..esp.len() {
            let mut forged = esp.clone();
            forged[at] ^= 0x80;
            let expected = match at {
                0..4 => DropReason::UnknownSpi,
                _ => DropReason::Integrity,
            };
            assert_eq!(pair.open(&outgoing, &forged), Err(expected), "{tunnel:?} octet {at}");
        }
        for cut in 0..esp.len() {
            assert!(pair.open(&outgoing, &esp[..cut]).is_err(), "{tunnel:?} cut to {cut}");
        }
        // None of that used the sequence number up.
        assert!(pair.open(&outgoing, &esp).is_ok(), "{tunnel:?}");
        assert_eq!(pair.open(&outgoing, &esp), Err(DropReason::Replay), "{tunnel:?}");
    }
}

#[test]
fn the_esn_setting_must_agree() {
    for suite in SUITES {
        let sender = Tunnel { suite, esn: true, ..Tunnel::v4() };
        let receiver = Tunnel { esn: false, ..sender.clone() };
        let (mut a, mut b) = (sender.connect(), receiver.connect());
        let (outgoing, esp) = a.seal(&sender.packet(10)).unwrap();
        assert_eq!(b.open(&outgoing, &esp), Err(DropReason::Integrity), "{suite:?}");
    }
}

#[test]
fn ipv6_inside_ipv4_and_the_other_way_round() {
    let (v4, v6) = (Tunnel::v4(), Tunnel::v6());
    for (outer, inner) in [(&v4, &v6), (&v6, &v4)] {
        let mixed = Tunnel {
            left_ts: inner.left_ts.clone(),
            right_ts: inner.right_ts.clone(),
            ..outer.clone()
        };
        let mut pair = mixed.connect();
        let sent = mixed.packet(99);
        assert_eq!(pair.send(&sent), Ok(sent));
    }
}

#[test]
fn ivs_do_not_repeat_and_counter_ivs_follow_the_sequence_number() {
    for suite in SUITES {
        let tunnel = Tunnel { suite, ..Tunnel::v4() };
        let mut pair = tunnel.connect();
        let mut seen = std::collections::HashSet::new();
        for seq in 1..=200u32 {
            let (_, esp) = pair.seal(&tunnel.packet(8)).unwrap();
            assert_eq!(esp[4..8], seq.to_be_bytes());
            if suite.encr != ike_wire::registry::EncrId::NULL {
                assert!(seen.insert(esp[8..16].to_vec()), "{suite:?}");
            }
        }
    }
}

/// RFC 6040 and RFC 4301 §5.1.2: DSCP and ECN go out as they are inside; a congestion mark of the
/// network comes in.
#[test]
fn dscp_and_ecn() {
    for tunnel in [Tunnel::v4(), Tunnel::v6()] {
        let mut pair = tunnel.connect();
        let (src, dst) = (tunnel.left_ts[0].start, tunnel.right_ts[0].start);
        let ect0 = common::packet(src, dst, 0xb8 | 0b10, 17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        let (outgoing, esp) = pair.seal(&ect0).unwrap();
        assert_eq!(outgoing.fields.tos, 0xba);
        let fields = esp::Fields { tos: 0b11, ..outgoing.fields };
        let marked = esp::Outer { fields, ..common::arrival(&outgoing) };
        let expected = common::packet(src, dst, 0xb8 | 0b11, 17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        assert_eq!(pair.open_from(&marked, &esp).unwrap(), expected, "with a right checksum");

        let not_ect = common::packet(src, dst, 0xb8, 17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        let (outgoing, esp) = pair.seal(&not_ect).unwrap();
        let fields = esp::Fields { tos: 0b11, ..outgoing.fields };
        let marked = esp::Outer { fields, ..common::arrival(&outgoing) };
        assert_eq!(pair.open_from(&marked, &esp), Err(DropReason::Congestion));
    }
}

/// RFC 4303 §3.1.1: in transport mode the header in front of ESP is the sender's own. BGP and OSPF count on its TTL (RFC
/// 5082).
///
/// Fault: in `transport_payload` give `Fields::PLAIN`, or in `inbound::transport` leave `set_fields` out.
#[test]
fn transport_mode_leaves_header_fields_alone() {
    for tunnel in [Tunnel::v4().transport(), Tunnel::v6().transport()] {
        let mut pair = tunnel.connect();
        for packet in common::of_many_fields(&tunnel) {
            let v4 = packet[0] >> 4 == 4;
            let (outgoing, esp) = pair.seal(&packet).unwrap();
            let fields = outgoing.fields;
            assert_eq!(fields.hop_limit, Some(packet[if v4 { 8 } else { 7 }]));
            assert_eq!(fields.dont_fragment, !v4 || packet[6] & 0x40 != 0);
            assert_eq!(pair.open(&outgoing, &esp), Ok(packet));
        }
    }
}

/// RFC 3948 §3.1.2: behind a NAT the addresses that a TCP or UDP checksum covered are not those that
/// the receiver sees.
#[test]
fn transport_mode_behind_a_nat_has_its_checksum_put_right() {
    let tunnel = Tunnel { encap: true, ..Tunnel::v4() }.transport();
    let public = common::addr("203.0.113.9");
    let mut receiving = tunnel.clone();
    receiving.left_ts = vec![ipsec_types::dataplane::TrafficSelector::host(public)];
    receiving.left = public;
    let (mut sender, mut receiver) = (tunnel.connect(), receiving.connect());
    for (sent, wanted) in [
        (tunnel.packet(40), common::udp(public, tunnel.right, 1000, 2000, 40)),
        (common::tcp(tunnel.left, tunnel.right, 5, 6), common::tcp(public, tunnel.right, 5, 6)),
    ] {
        let (outgoing, esp) = sender.seal(&sent).unwrap();
        let mut outer = common::arrival(&outgoing);
        outer.src = std::net::SocketAddr::new(public, 33333);
        assert_eq!(receiver.open_from(&outer, &esp).unwrap(), wanted);
    }
}

/// RFC 4303 §3.3.4: ESP is applied to whole datagrams; the host's fragments are put together first.
#[test]
fn transport_mode_puts_fragments_together() {
    for tunnel in [Tunnel::v4().transport(), Tunnel::v6().transport()] {
        let mut pair = tunnel.connect();
        let whole = tunnel.packet(3000);
        let pieces = common::fragments(&whole, 1000);
        assert_eq!(pieces.len(), 4);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for &n in &order[..3] {
                assert_eq!(pair.seal(&pieces[n]), Err(Verdict::Held));
            }
            let mut wanted = whole.clone();
            if wanted[0] >> 4 == 4 {
                // What came in fragments may leave in fragments.
                wanted = common::fragment(wanted, 0, false);
            }
            assert_eq!(pair.send(&pieces[order[3]]), Ok(wanted), "{order:?}");
        }
        // An overlap gives the packet up.
        assert_eq!(pair.seal(&pieces[1]), Err(Verdict::Held));
        let dropped = Err(Verdict::Drop(DropReason::Incomplete));
        let mut other = pieces[1].clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(pair.seal(&other), dropped);
        for piece in [&pieces[0], &pieces[2], &pieces[3]] {
            assert_eq!(pair.seal(piece), Err(Verdict::Held), "one is missing now");
        }
        // What is not completed is forgotten.
        pair.advance(std::time::Duration::from_secs(3));
        let (other, _) = pieces.split_at(2);
        let late: Vec<_> = other.iter().map(|piece| common::with_id(piece.clone(), 77)).collect();
        assert_eq!(pair.seal(&late[0]), Err(Verdict::Held));
        assert_eq!(pair.seal(&pieces[1]), Err(Verdict::Held), "the others of it are gone");
    }
}

#[test]
fn transport_mode_carries_no_options() {
    let tunnel = Tunnel::v4().transport();
    let mut pair = tunnel.connect();
    let whole = tunnel.packet(64);
    let mut options = whole.clone();
    options[0] = 0x46;
    let verdict = pair.seal(&options).unwrap_err();
    assert_eq!(verdict, Verdict::Drop(DropReason::TransportHeaders));

    let tunnel = Tunnel::v6().transport();
    let mut pair = tunnel.connect();
    let hop_by_hop = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &[0, 1, 0, 2, 0, 8, 0, 0]].concat();
    let packet = common::packet(tunnel.left, tunnel.right, 0, ip::proto::HOP_BY_HOP, &hop_by_hop);
    assert_eq!(pair.seal(&packet), Err(Verdict::Drop(DropReason::TransportHeaders)));
    // Destination options travel inside ESP.
    let packet = common::packet(tunnel.left, tunnel.right, 0, ip::proto::DESTINATION, &hop_by_hop);
    assert_eq!(pair.send(&packet), Ok(packet));
}

/// The overhead that an MTU has to leave room for.
#[test]
fn the_default_mtu_leaves_room_for_every_suite() {
    for suite in SUITES {
        let tunnel = Tunnel { suite, encap: true, ..Tunnel::v4() };
        let mut pair = tunnel.connect();
        let (outgoing, _) = pair.seal(&tunnel.packet(1400 - 28)).unwrap();
        assert!(outgoing.len + 20 + 8 <= 1500, "{suite:?}: {}", outgoing.len);
    }
}
