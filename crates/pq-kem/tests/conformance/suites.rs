//! Cipher suites: what is sealed opens, what was changed does not.

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherLengths, CipherProvider, CipherSuite, CryptoError, Frame, IvKind};
use pq_kem::sym::Ciphers;

const MACS: [IntegId; 4] = [
    IntegId::HMAC_SHA1_96,
    IntegId::HMAC_SHA2_256_128,
    IntegId::HMAC_SHA2_384_192,
    IntegId::HMAC_SHA2_512_256,
];

fn all() -> Vec<CipherSuite> {
    let mut suites =
        vec![CipherSuite { encr: EncrId::CHACHA20_POLY1305, key_bits: 0, integ: IntegId::NONE }];
    for key_bits in [128, 192, 256] {
        for encr in [EncrId::AES_GCM_16, EncrId::AES_CCM_8, EncrId::AES_CCM_12, EncrId::AES_CCM_16]
        {
            suites.push(CipherSuite { encr, key_bits, integ: IntegId::NONE });
        }
        for integ in MACS {
            for encr in [EncrId::AES_CBC, EncrId::AES_CTR] {
                suites.push(CipherSuite { encr, key_bits, integ });
            }
        }
    }
    for integ in MACS {
        suites.push(CipherSuite { encr: EncrId::NULL, key_bits: 0, integ });
    }
    suites
}

/// A sealed packet with all that is needed to open it, to be damaged by tests.
#[derive(Clone)]
struct Packet {
    suite: CipherSuite,
    encr_key: Vec<u8>,
    integ_key: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    data: Vec<u8>,
    trailer: Vec<u8>,
    icv: Vec<u8>,
}

impl Packet {
    fn sealed(suite: CipherSuite, plain: &[u8]) -> Self {
        let lengths = Ciphers.lengths(suite).unwrap();
        let mut packet = Self {
            suite,
            encr_key: (0..lengths.encr_key).map(|i| i as u8 ^ 0x35).collect(),
            integ_key: (0..lengths.integ_key).map(|i| i as u8 ^ 0xc9).collect(),
            iv: (0..lengths.iv).map(|i| i as u8 + 0x80).collect(),
            aad: b"SPI and number".to_vec(),
            data: plain.to_vec(),
            trailer: if lengths.aead { vec![] } else { vec![0, 0, 0, 1] },
            icv: vec![0; lengths.icv],
        };
        let (mut data, mut icv) = (packet.data.clone(), packet.icv.clone());
        packet.key().seal(packet.frame(), &mut data, &mut icv).unwrap();
        packet.data = data;
        packet.icv = icv;
        packet
    }

    fn key(&self) -> Box<dyn ipsec_types::crypto::CipherKey> {
        Ciphers.key(self.suite, &self.encr_key, &self.integ_key).unwrap()
    }

    fn frame(&self) -> Frame<'_> {
        Frame { iv: &self.iv, aad: &self.aad, trailer: &self.trailer }
    }

    fn open(&self) -> Result<Vec<u8>, CryptoError> {
        let mut data = self.data.clone();
        self.key().open(self.frame(), &mut data, &self.icv)?;
        Ok(data)
    }
}

fn plain(lengths: CipherLengths, blocks: usize) -> Vec<u8> {
    (0..lengths.block.max(7) / lengths.block * lengths.block * blocks).map(|i| i as u8).collect()
}

#[test]
fn lengths_are_those_of_the_rfcs() {
    assert_eq!(all().len(), 1 + 3 * (4 + 8) + 4);
    for suite in all() {
        let lengths = Ciphers.lengths(suite).unwrap();
        let key = usize::from(suite.key_bits / 8);
        let (encr_key, iv, block, kind) = match suite.encr {
            EncrId::AES_GCM_16 => (key + 4, 8, 1, IvKind::Counter),
            EncrId::CHACHA20_POLY1305 => (36, 8, 1, IvKind::Counter),
            EncrId::AES_CBC => (key, 16, 16, IvKind::Random),
            EncrId::AES_CTR => (key + 4, 8, 1, IvKind::Counter),
            EncrId::NULL => (0, 0, 1, IvKind::Counter),
            _ => (key + 3, 8, 1, IvKind::Counter),
        };
        let (integ_key, icv) = match suite.integ {
            IntegId::HMAC_SHA1_96 => (20, 12),
            IntegId::HMAC_SHA2_256_128 => (32, 16),
            IntegId::HMAC_SHA2_384_192 => (48, 24),
            IntegId::HMAC_SHA2_512_256 => (64, 32),
            _ => match suite.encr {
                EncrId::AES_CCM_8 => (0, 8),
                EncrId::AES_CCM_12 => (0, 12),
                _ => (0, 16),
            },
        };
        let aead = suite.integ == IntegId::NONE;
        let expected = CipherLengths { encr_key, integ_key, iv, iv_kind: kind, icv, block, aead };
        assert_eq!(lengths, expected, "{suite:?}");
    }
}

/// AES_GCM_8 and _12 are not in the backend; the rest is no suite at all.
#[test]
fn other_suites_are_unsupported() {
    let suite = |encr, key_bits, integ| CipherSuite { encr, key_bits, integ };
    for bad in [
        suite(EncrId::AES_GCM_8, 256, IntegId::NONE),
        suite(EncrId::AES_GCM_12, 256, IntegId::NONE),
        suite(EncrId::AES_GCM_16, 0, IntegId::NONE),
        suite(EncrId::AES_GCM_16, 255, IntegId::NONE),
        suite(EncrId::AES_GCM_16, 256, IntegId::HMAC_SHA2_256_128),
        suite(EncrId::CHACHA20_POLY1305, 256, IntegId::NONE),
        suite(EncrId::CHACHA20_POLY1305, 0, IntegId::HMAC_SHA2_256_128),
        suite(EncrId::AES_CCM_16, 64, IntegId::NONE),
        suite(EncrId::AES_CCM_16, 128, IntegId::HMAC_SHA1_96),
        suite(EncrId::AES_CBC, 256, IntegId::NONE),
        suite(EncrId::AES_CBC, 0, IntegId::HMAC_SHA2_256_128),
        suite(EncrId::AES_CBC, 256, IntegId(5)),
        suite(EncrId::AES_CTR, 256, IntegId::NONE),
        suite(EncrId::NULL, 0, IntegId::NONE),
        suite(EncrId::NULL, 128, IntegId::HMAC_SHA2_256_128),
        suite(EncrId::DES3, 0, IntegId::HMAC_SHA2_256_128),
        suite(EncrId(65535), 128, IntegId::HMAC_SHA2_256_128),
    ] {
        assert_eq!(Ciphers.lengths(bad), None, "{bad:?}");
        let error = Ciphers.key(bad, &[0; 36], &[0; 32]).err();
        assert_eq!(error, Some(CryptoError::Unsupported), "{bad:?}");
    }
}

#[test]
fn what_is_sealed_opens() {
    for suite in all() {
        let lengths = Ciphers.lengths(suite).unwrap();
        for blocks in [0, 1, 2, 3, 90, 200] {
            let plain = plain(lengths, blocks);
            let packet = Packet::sealed(suite, &plain);
            assert_eq!(packet.open().as_deref(), Ok(&plain[..]), "{suite:?}");
            let hidden = suite.encr != EncrId::NULL && blocks > 1;
            assert!(!hidden || packet.data != plain, "{suite:?}");
        }
    }
}

/// Every bit of IV, AAD, ciphertext, ICV and trailer is under the integrity check.
#[test]
fn every_flipped_bit_is_noticed() {
    type Field = fn(&mut Packet) -> &mut Vec<u8>;
    let fields: [(&str, Field); 5] = [
        ("iv", |p| &mut p.iv),
        ("aad", |p| &mut p.aad),
        ("data", |p| &mut p.data),
        ("icv", |p| &mut p.icv),
        ("trailer", |p| &mut p.trailer),
    ];
    for suite in all() {
        let packet = Packet::sealed(suite, &plain(Ciphers.lengths(suite).unwrap(), 2));
        for (name, field) in fields {
            let bits = field(&mut packet.clone()).len() * 8;
            for bit in 0..bits {
                let mut damaged = packet.clone();
                field(&mut damaged)[bit / 8] ^= 1 << (bit % 8);
                let result = damaged.open();
                assert_eq!(result, Err(CryptoError::Integrity), "{suite:?} {name} {bit}");
            }
        }
    }
}

#[test]
fn keys_and_extents_are_under_the_integrity_check() {
    for suite in all() {
        let packet = Packet::sealed(suite, &plain(Ciphers.lengths(suite).unwrap(), 2));
        let damaged: [fn(&mut Packet); 6] = [
            |p| p.data.truncate(p.data.len() - 1),
            |p| p.data.clear(),
            |p| p.data.extend([0; 16]),
            |p| p.aad.truncate(3),
            |p| p.aad.extend([0; 16]),
            |p| match p.integ_key.last_mut() {
                Some(octet) => *octet ^= 1,
                None => p.encr_key[0] ^= 1,
            },
        ];
        for (index, damage) in damaged.into_iter().enumerate() {
            let mut packet = packet.clone();
            damage(&mut packet);
            assert_eq!(packet.open(), Err(CryptoError::Integrity), "{suite:?} {index}");
        }
        // The salt of an AEAD is part of its nonce.
        if suite.integ == IntegId::NONE {
            let mut packet = packet.clone();
            *packet.encr_key.last_mut().unwrap() ^= 1;
            assert_eq!(packet.open(), Err(CryptoError::Integrity), "{suite:?} salt");
        }
    }
}

#[test]
fn wrong_lengths_are_errors() {
    for suite in all() {
        let lengths = Ciphers.lengths(suite).unwrap();
        let packet = Packet::sealed(suite, &plain(lengths, 2));
        for change in [-1, 1] {
            let resized = |v: &[u8]| Some(vec![1; v.len().checked_add_signed(change)?]);
            if let Some(key) = resized(&packet.encr_key) {
                let error = Ciphers.key(suite, &key, &packet.integ_key).err();
                assert_eq!(error, Some(CryptoError::Length), "{suite:?} key {change}");
            }
            if let Some(key) = resized(&packet.integ_key) {
                let error = Ciphers.key(suite, &packet.encr_key, &key).err();
                assert_eq!(error, Some(CryptoError::Length), "{suite:?} MAC key {change}");
            }
            if let Some(iv) = resized(&packet.iv) {
                let (mut data, mut icv) = (packet.data.clone(), packet.icv.clone());
                let frame = Frame { iv: &iv, ..packet.frame() };
                let sealed = packet.key().seal(frame, &mut data, &mut icv);
                assert_eq!(sealed, Err(CryptoError::Length), "{suite:?} IV {change}");
                assert!(packet.key().open(frame, &mut data, &icv).is_err(), "{suite:?}");
            }
            let mut icv = resized(&packet.icv).unwrap();
            let mut data = packet.data.clone();
            let sealed = packet.key().seal(packet.frame(), &mut data, &mut icv);
            assert_eq!(sealed, Err(CryptoError::Length), "{suite:?} ICV {change}");
            let opened = packet.key().open(packet.frame(), &mut data, &icv);
            assert_eq!(opened, Err(CryptoError::Length), "{suite:?} ICV {change}");
        }
        if lengths.aead {
            let (mut data, mut icv) = (packet.data.clone(), packet.icv.clone());
            let frame = Frame { trailer: &[0; 4], ..packet.frame() };
            let sealed = packet.key().seal(frame, &mut data, &mut icv);
            assert_eq!(sealed, Err(CryptoError::Length), "{suite:?} trailer");
        }
    }
}

/// A peer that has the keys can send CBC data of any length under a good MAC.
#[test]
fn cbc_takes_no_broken_block() {
    for integ in MACS {
        let cbc = CipherSuite { encr: EncrId::AES_CBC, key_bits: 256, integ };
        let null = CipherSuite { encr: EncrId::NULL, key_bits: 0, integ };
        let template = Packet::sealed(cbc, &[0; 32]);
        for len in 0..=70 {
            let mut packet = template.clone();
            packet.data = vec![0x5a; len];
            // NULL's MAC covers no IV, so that `aad | iv` as its AAD gives CBC's.
            let aad = [&packet.aad[..], &packet.iv].concat();
            let frame = Frame { iv: &[], aad: &aad, trailer: &packet.trailer };
            let mac = Ciphers.key(null, &[], &packet.integ_key).unwrap();
            mac.seal(frame, &mut packet.data, &mut packet.icv).unwrap();
            match packet.open() {
                Ok(data) => assert!(len.is_multiple_of(16) && data.len() == len, "{len}"),
                Err(error) => {
                    assert_eq!(error, CryptoError::Length);
                    assert!(!len.is_multiple_of(16), "{len}");
                }
            }
            let (mut data, mut icv) = (vec![0; len], packet.icv.clone());
            let sealed = packet.key().seal(packet.frame(), &mut data, &mut icv);
            assert_eq!(sealed.is_ok(), len.is_multiple_of(16), "{len}");
        }
    }
}
