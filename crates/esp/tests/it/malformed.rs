//! Input that nobody should send: no panic, and nothing comes out of it.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::SocketAddr;

use esp::packet::Cipher;
use esp::{Carrier, DropReason, Outer, Verdict, ip};
use ipsec_types::crypto::{CipherProvider, Frame};
use proptest::prelude::*;

use crate::common::{self, CBC, CIPHERS, GCM, Tunnel, addr, arrival, ts};

/// A peer with the right keys that says what it likes: seals `payload` with any next header.
fn from_insider(tunnel: &Tunnel, seq: u64, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let sa = tunnel.sa(ipsec_types::dataplane::Direction::Out);
    let cipher = Cipher {
        key: CIPHERS.key(sa.suite, sa.encr_key.expose(), sa.integ_key.expose()).unwrap(),
        lengths: CIPHERS.lengths(sa.suite).unwrap(),
        esn: sa.esn,
    };
    let iv = vec![9; cipher.lengths.iv];
    let mut out = esp::Buffer::new();
    cipher.seal(sa.id.spi, seq, &iv, next_header, payload, &mut out).unwrap();
    out.to_vec()
}

fn outer(tunnel: &Tunnel) -> Outer {
    let src = SocketAddr::new(tunnel.left, 4500);
    Outer {
        src,
        dst: tunnel.right,
        fields: esp::Fields::default(),
        carrier: if tunnel.encap { Carrier::Udp } else { Carrier::Ip },
    }
}

/// Selectors that take in everything, so that what is dropped is dropped for its form.
fn wide(mut tunnel: Tunnel) -> Tunnel {
    tunnel.left_ts = vec![ts("0.0.0.0/0"), ts("::/0")];
    tunnel.right_ts = tunnel.left_ts.clone();
    tunnel
}

fn headerish() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![Just(0x45u8), Just(0x46), Just(0x4f), Just(0x60), any::<u8>()];
    (first, prop::collection::vec(any::<u8>(), 0..120), any::<bool>()).prop_map(
        |(first, mut octets, right_length)| {
            octets.insert(0, first);
            let len = octets.len() as u16;
            if right_length && len >= 40 {
                match first >> 4 {
                    4 => octets[2..4].copy_from_slice(&len.to_be_bytes()),
                    _ => octets[4..6].copy_from_slice(&(len - 40).to_be_bytes()),
                }
                // Extension headers and fragments more often than chance would have it.
                octets[6] = [0, 43, 44, 60, 17, 58, octets[6]][usize::from(octets[6] % 7)];
            }
            octets
        },
    )
}

proptest! {
    #[test]
    fn any_packet_to_be_protected(octets in headerish()) {
        for tunnel in [wide(Tunnel::v4()), wide(Tunnel::v4().transport())] {
            let mut pair = tunnel.connect();
            if let Ok((outgoing, esp)) = pair.seal(&octets) {
                prop_assert!(ip::IpPacket::parse(&octets).is_ok());
                prop_assert!(pair.open(&outgoing, &esp).is_ok());
            }
            _ = pair.receiver.handle_clear(&octets);
        }
    }

    #[test]
    fn any_datagram(mut octets in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
        for suite in [GCM, CBC] {
            let tunnel = Tunnel { suite, ..Tunnel::v4() };
            let mut pair = tunnel.connect();
            if let (true, Some(spi)) = (ours, octets.get_mut(..4)) {
                spi.copy_from_slice(&common::SPI.to_be_bytes());
            }
            prop_assert!(pair.open_from(&outer(&tunnel), &octets).is_err());
        }
    }

    #[test]
    fn anything_inside_an_authentic_packet(
        next in prop_oneof![Just(4u8), Just(41), Just(59), any::<u8>()],
        payload in headerish(),
        encap: bool,
    ) {
        for base in [Tunnel::v4(), Tunnel::v6(), Tunnel::v4().transport(), Tunnel::v6().transport()] {
            let tunnel = wide(Tunnel { encap, ..base });
            let mut pair = tunnel.connect();
            let esp = from_insider(&tunnel, 1, next, &payload);
            if let Ok(inner) = pair.open_from(&outer(&tunnel), &esp) {
                prop_assert_eq!(ip::IpPacket::parse(&inner).map(|ip| ip.total_len), Ok(inner.len()));
            }
        }
    }

    #[test]
    fn checksums_after_set_tos(packet in prop::collection::vec(any::<u8>(), 0..40), tos: u8) {
        let (src, dst) = (addr("10.0.0.1"), addr("10.0.0.2"));
        let mut whole = common::packet(src, dst, 0x28, 17, &packet);
        ip::set_tos(&mut whole, tos);
        prop_assert_eq!(ip::checksum(&[&whole[..20]]), 0);
        prop_assert_eq!(ip::IpPacket::parse(&whole).unwrap().tos, tos);
    }
}

#[test]
fn dummies_are_dropped_and_count_as_a_sign_of_life() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let esp = from_insider(&tunnel, 1, ip::proto::NONE, &[0; 50]);
    assert_eq!(pair.open_from(&outer(&tunnel), &esp), Err(DropReason::Dummy));
    assert_eq!(common::events(&mut pair.right).len(), 1, "the peer uses the SA");
}

/// RFC 4303 §2.7: padding for traffic flow confidentiality is behind the inner packet.
#[test]
fn tfc_padding_is_left_behind() {
    for tunnel in [Tunnel::v4(), Tunnel::v6()] {
        let mut pair = tunnel.connect();
        let packet = tunnel.packet(30);
        let next = if tunnel.left.is_ipv4() { 4 } else { 41 };
        let padded = [packet.as_slice(), &[0; 333]].concat();
        let esp = from_insider(&tunnel, 1, next, &padded);
        assert_eq!(pair.open_from(&outer(&tunnel), &esp), Ok(packet));
    }
}

#[test]
fn the_next_header_must_fit_the_mode_and_the_packet() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let packet = tunnel.packet(30);
    for (seq, next, expected) in [
        (1, 17, DropReason::NextHeader),
        (2, 41, DropReason::NextHeader),
        (3, 0, DropReason::NextHeader),
    ] {
        let esp = from_insider(&tunnel, seq, next, &packet);
        assert_eq!(pair.open_from(&outer(&tunnel), &esp), Err(expected), "{next}");
    }
    let esp = from_insider(&tunnel, 4, 4, &packet[..19]);
    assert_eq!(pair.open_from(&outer(&tunnel), &esp), Err(DropReason::InnerMalformed));
}

/// Opens packets of an insider who chooses the payload with its padding, pad length and next header.
fn padded(tunnel: &Tunnel) -> impl FnMut(&[u8]) -> Result<Vec<u8>, DropReason> {
    let sa = tunnel.sa(ipsec_types::dataplane::Direction::Out);
    let lengths = CIPHERS.lengths(sa.suite).unwrap();
    let key = CIPHERS.key(sa.suite, sa.encr_key.expose(), sa.integ_key.expose()).unwrap();
    let (mut pair, outer, mut seq) = (tunnel.connect(), outer(tunnel), 0);
    move |data| {
        seq += 1;
        let header = [common::SPI.to_be_bytes(), u32::to_be_bytes(seq)].concat();
        let (iv, mut data, mut icv) = (vec![1; lengths.iv], data.to_vec(), vec![0; lengths.icv]);
        let frame = Frame { iv: &iv, aad: &header, trailer: &[] };
        key.seal(frame, &mut data, &mut icv).unwrap();
        pair.open_from(&outer, &[header, iv, data, icv].concat())
    }
}

/// The payload data can be empty, but pad length and next header cannot be missing.
#[test]
fn padding_that_lies() {
    let tunnel = Tunnel { suite: CBC, ..Tunnel::v4() };
    let mut open = padded(&tunnel);
    let mut block = [0; 16];
    block[14..].copy_from_slice(&[15, 4]);
    assert_eq!(open(&block), Err(DropReason::Padding), "longer than the packet");
    block[14..].copy_from_slice(&[255, 4]);
    assert_eq!(open(&block), Err(DropReason::Padding));
    block[14..].copy_from_slice(&[3, 4]);
    assert_eq!(open(&block), Err(DropReason::Padding), "not 1, 2, 3");
    block[11..].copy_from_slice(&[1, 2, 3, 3, 4]);
    assert_eq!(open(&block), Err(DropReason::InnerMalformed), "well padded, and no packet");
    assert_eq!(open(&[]), Err(DropReason::Truncated));
}

/// The padding is inspected whatever its length, and every octet of it (RFC 4303 §2.4).
///
/// Fault: in `strip` (packet.rs), let `sound` be true for more than three octets.
#[test]
fn padding_of_every_length_is_inspected() {
    let tunnel = Tunnel { suite: CBC, ..Tunnel::v4() };
    let mut open = padded(&tunnel);
    for pad in 1..=255_u8 {
        // A packet that fills the blocks together with this padding and the two octets behind it.
        let packet = (0..16).map(|more| tunnel.packet(more));
        let fits = |packet: &Vec<u8>| (packet.len() + usize::from(pad) + 2).is_multiple_of(16);
        let packet = packet.into_iter().find(fits).unwrap();
        let good = [packet.as_slice(), &(1..=pad).collect::<Vec<_>>(), &[pad, 4]].concat();
        assert_eq!(open(&good), Ok(packet.clone()), "{pad}");
        for at in packet.len()..packet.len() + usize::from(pad) {
            let mut wrong = good.clone();
            wrong[at] ^= 1;
            assert_eq!(open(&wrong), Err(DropReason::Padding), "{pad}, octet {at}");
        }
    }
}

/// A packet whose header says less than there is: what is behind it does not travel.
#[test]
fn octets_behind_a_packet_do_not_travel() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let packet = tunnel.packet(30);
    let longer = [packet.as_slice(), b"left over"].concat();
    assert_eq!(pair.send(&longer), Ok(packet));
}

#[test]
fn the_largest_packet() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let Err(Verdict::TooBig(most)) = pair.seal(&tunnel.packet(65535 - 28)) else {
        panic!("no packet outside has room for it");
    };
    let packet = tunnel.packet(usize::from(most) - 28);
    let (outgoing, esp) = pair.seal(&packet).unwrap();
    assert!((65_535 - 3..=65_535).contains(&(esp.len() + 20)));
    assert_eq!(pair.open_from(&arrival(&outgoing), &esp), Ok(packet));
    let empty = Verdict::Drop(DropReason::Malformed);
    assert_eq!(pair.seal(&[]), Err(empty));
}
