//! Packets of the RFCs, octet by octet.
#![expect(clippy::unwrap_used, reason = "test code")]

use esp::Buffer;
use esp::ip::{self, IpPacket, proto};
use esp::packet::Cipher;
use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherProvider, CipherSuite};

use crate::common::{CHACHA, CIPHERS, addr};

fn cipher(suite: CipherSuite, encr_key: &[u8], integ_key: &[u8]) -> Cipher {
    Cipher {
        key: CIPHERS.key(suite, encr_key, integ_key).unwrap(),
        lengths: CIPHERS.lengths(suite).unwrap(),
        esn: false,
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// The value of `name:` in a vector file: the rest of the line, or the lines up to an empty one.
fn field(text: &str, name: &str) -> Vec<u8> {
    let (_, rest) = text.split_once(&format!("{name}:")).unwrap_or_else(|| panic!("no {name}"));
    let value = match rest.split_once('\n') {
        Some((line, _)) if !line.trim().is_empty() => line,
        Some((_, block)) => block.split("\n\n").next().unwrap_or(block),
        None => rest,
    };
    hex(value)
}

/// RFC 7634 Appendix A: a tunnel mode packet under ChaCha20-Poly1305.
#[test]
fn rfc7634_appendix_a() {
    let text = include_str!("../data/rfc7634-appendix-a.txt");
    let key: Vec<u8> = (0x80..=0xa3).collect();
    let cipher = cipher(CHACHA, &key, &[]);
    let (source, expected) = (field(text, "Source packet"), field(text, "ESP packet"));
    let iv = field(text, "IV");
    let mut out = Buffer::new();
    cipher.seal(0x0102_0304, 5, &iv, proto::IPV4, &source, &mut out).unwrap();
    assert_eq!(*out, expected[20..]);

    let outer = IpPacket::parse(&expected).unwrap();
    assert_eq!((outer.src, outer.dst), (addr("203.0.113.153"), addr("203.0.113.5")));
    assert_eq!(outer.protocol, Some(proto::ESP));
    assert_eq!(outer.total_len, 20 + out.len());

    let mut inner = Buffer::new();
    let opened = cipher.open(&out, 5, &mut inner).unwrap();
    assert_eq!((inner.to_vec(), opened.next_header), (source, proto::IPV4));
}

/// RFC 3602 §4, cases 5 to 8: transport and tunnel mode packets under AES-CBC. They have no integrity;
/// ours is behind what the RFC shows.
#[test]
fn rfc3602_cases_5_to_8() {
    let text = include_str!("../data/rfc3602-cases.txt");
    let suite = CipherSuite { encr: EncrId::AES_CBC, key_bits: 128, integ: IntegId::HMAC_SHA1_96 };
    let cases: Vec<_> = text.split("Case ").skip(1).collect();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let cipher = cipher(suite, &field(case, "Key"), &[7; 20]);
        let packet = field(case, "Original packet");
        let ip = IpPacket::parse(&packet).unwrap();
        let (next, payload) = match case.contains("tunnel") {
            true => (ip.tunnel_protocol(), packet.as_slice()),
            false => (ip.base_next, &packet[ip.base_len..]),
        };
        let spi = u32::from_be_bytes(field(case, "SPI").try_into().unwrap());
        let seq = field(case, "Sequence number")[0].into();
        let mut out = Buffer::new();
        cipher.seal(spi, seq, &field(case, "IV"), next, payload, &mut out).unwrap();
        let shown = out.len() - cipher.lengths.icv;
        assert_eq!(out[24..shown], field(case, "Encrypted data"));
        let outer = IpPacket::parse(&[field(case, "Outer header"), out.to_vec()].concat()).unwrap();
        assert_eq!(outer.total_len, 20 + shown, "the RFC's outer header fits what we made");

        let mut inner = Buffer::new();
        let opened = cipher.open(&out, seq, &mut inner).unwrap();
        assert_eq!((&*inner, opened.next_header), (payload, next));
    }
}

/// RFC 1071 §3's example, and headers of the packets above.
#[test]
fn checksums() {
    assert_eq!(!ip::checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), 0xddf2);
    let text = include_str!("../data/rfc3602-cases.txt");
    for case in text.split("Case ").skip(1) {
        let packet = field(case, "Original packet");
        assert_eq!(ip::checksum(&[&packet[..20]]), 0, "a right checksum sums to zero");
    }
}
