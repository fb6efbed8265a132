//! What every backend must do, whatever it is: agreement in both roles, refusal of bad input.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use ike_proto::crypto::{
    CipherLengths, CipherProvider, CipherSuite, CryptoError, Frame, IvKind, KeMethod, SecureRandom,
};
use ike_proto::wire::registry::{EncrId, IntegId, KeMethodId};
use pq_kem::sym::Ciphers;

fn is_kem(method: &dyn KeMethod) -> bool {
    (KeMethodId::ML_KEM_512..=KeMethodId::ML_KEM_1024).contains(&method.id())
}

/// Octets of the shared secret, by RFC.
fn secret_len(id: KeMethodId) -> usize {
    match id {
        KeMethodId::CURVE_25519 | KeMethodId::ECP_256 => 32,
        KeMethodId::ECP_384 => 48,
        KeMethodId::ECP_521 => 66,
        KeMethodId::MODP_2048 => 256,
        KeMethodId::MODP_3072 => 384,
        KeMethodId::MODP_4096 => 512,
        _ => 32,
    }
}

mod ke {
    use super::*;

    #[test]
    fn every_method_of_the_crate_is_offered_once() {
        let ids: Vec<_> = pq_kem::provider().ke.iter().map(|m| m.id().0).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [14, 15, 16, 19, 20, 21, 31, 35, 36, 37], "{ids:?}");
    }

    #[test]
    fn both_roles_agree_and_never_repeat() {
        let mut rng = pq_kem::os_random();
        for method in pq_kem::provider().ke {
            let mut seen = Vec::new();
            for _ in 0..3 {
                let ours = method.initiate(&mut rng).unwrap();
                assert_eq!(ours.public().len(), method.lengths().initiator, "{method:?}");
                let (public, theirs) = method.respond(ours.public(), &mut rng).unwrap();
                assert_eq!(public.len(), method.lengths().responder, "{method:?}");
                let shared = ours.complete(&public).unwrap();
                assert!(shared.ct_eq(theirs.expose()), "{method:?}");
                assert_eq!(shared.len(), secret_len(method.id()), "{method:?}");
                assert!(shared.expose().iter().any(|&o| o != 0), "{method:?}");
                for value in [ours.public(), &public, shared.expose()] {
                    assert!(!seen.iter().any(|s| s == value), "{method:?} repeats itself");
                    seen.push(value.to_vec());
                }
            }
        }
    }

    /// A forged response does not use the key up: the genuine one still completes, and again.
    #[test]
    fn a_pending_exchange_survives_bad_responses() {
        let mut rng = pq_kem::os_random();
        for method in pq_kem::provider().ke {
            let ours = method.initiate(&mut rng).unwrap();
            let (public, theirs) = method.respond(ours.public(), &mut rng).unwrap();
            let (other, others) = method.respond(ours.public(), &mut rng).unwrap();
            assert_eq!(ours.complete(&[]).unwrap_err(), CryptoError::InvalidPublic);
            assert!(ours.complete(&other).unwrap().ct_eq(others.expose()), "{method:?}");
            let zeros = vec![0; public.len()];
            if let Ok(shared) = ours.complete(&zeros) {
                assert!(is_kem(method), "{method:?} takes zeros");
                assert!(!shared.ct_eq(theirs.expose()));
            }
            for _ in 0..2 {
                assert!(ours.complete(&public).unwrap().ct_eq(theirs.expose()), "{method:?}");
            }
        }
    }

    #[test]
    fn wrong_lengths_are_invalid() {
        let mut rng = pq_kem::os_random();
        for method in pq_kem::provider().ke {
            let ours = method.initiate(&mut rng).unwrap();
            let (public, _) = method.respond(ours.public(), &mut rng).unwrap();
            for (value, len) in [(ours.public(), ours.public().len()), (&public, public.len())] {
                let mut longer = value.to_vec();
                longer.push(0);
                let mut padded = vec![0];
                padded.extend_from_slice(value);
                // 0x04 in front is how other protocols write an ECP point.
                let mut sec1 = vec![4];
                sec1.extend_from_slice(value);
                let mut twice = value.to_vec();
                twice.extend_from_slice(value);
                let shorter = &value[..len - 1];
                let tail = &value[1..];
                for bad in [&[][..], &value[..1], shorter, tail, &longer, &padded, &sec1, &twice] {
                    let bad_len = bad.len();
                    assert_eq!(
                        method.respond(bad, &mut rng).unwrap_err(),
                        CryptoError::InvalidPublic,
                        "{method:?} responds to {bad_len} octets"
                    );
                    assert_eq!(
                        ours.complete(bad).unwrap_err(),
                        CryptoError::InvalidPublic,
                        "{method:?} completes with {bad_len} octets"
                    );
                }
            }
        }
    }

    /// Each degenerate value is refused in both roles, or known to be a legal value of the method.
    #[test]
    fn degenerate_values() {
        let mut rng = pq_kem::os_random();
        for method in pq_kem::provider().ke {
            let lengths = method.lengths();
            let ours = method.initiate(&mut rng).unwrap();
            for (fill, dh_legal, kem_legal) in [
                (0x00, false, true),
                // X25519 ignores the top bit, and 2^255 - 1 is then 18: an ordinary point.
                (0xff, method.id() == KeMethodId::CURVE_25519, false),
            ] {
                let responded = method.respond(&vec![fill; lengths.initiator], &mut rng);
                let legal = if is_kem(method) { kem_legal } else { dh_legal };
                assert_eq!(responded.is_ok(), legal, "{method:?} {fill:02x}");
                if !legal {
                    assert_eq!(responded.unwrap_err(), CryptoError::InvalidPublic);
                }
                // A KEM rejects a ciphertext implicitly: by a secret that nobody shares.
                let completed = ours.complete(&vec![fill; lengths.responder]);
                assert_eq!(completed.is_ok(), is_kem(method) || dh_legal, "{method:?} {fill:02x}");
            }
        }
    }

    /// Points beside the curve, and coordinates beyond the field.
    #[test]
    fn ecp_points_are_validated() {
        let mut rng = pq_kem::os_random();
        for id in [KeMethodId::ECP_256, KeMethodId::ECP_384, KeMethodId::ECP_521] {
            let method = pq_kem::provider().ke(id).unwrap();
            let ours = method.initiate(&mut rng).unwrap();
            let (good, _) = method.respond(ours.public(), &mut rng).unwrap();
            let half = good.len() / 2;
            let mut bad = Vec::new();
            // No two points share all but one bit of x and y, so every flip leaves the curve.
            for bit in (0..good.len() * 8).step_by(29) {
                let mut flipped = good.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                bad.push(flipped);
            }
            let mut swapped = good[half..].to_vec();
            swapped.extend_from_slice(&good[..half]);
            bad.push(swapped);
            // x with y = 0; 0 with y; x beyond the field.
            bad.push([&good[..half], &vec![0; half][..]].concat());
            bad.push([&vec![0; half][..], &good[half..]].concat());
            bad.push([&vec![0xff; half][..], &good[half..]].concat());
            for value in bad {
                let error = ours.complete(&value).unwrap_err();
                assert_eq!(error, CryptoError::InvalidPublic, "{id}");
                assert_eq!(method.respond(&value, &mut rng).unwrap_err(), error, "{id}");
            }
        }
    }

    /// An ML-KEM key with a coefficient of q or more fails the modulus check of FIPS 203 §7.2.
    #[test]
    fn ml_kem_modulus_check() {
        let mut rng = pq_kem::os_random();
        for id in [KeMethodId::ML_KEM_512, KeMethodId::ML_KEM_768, KeMethodId::ML_KEM_1024] {
            let method = pq_kem::provider().ke(id).unwrap();
            let ours = method.initiate(&mut rng).unwrap();
            let coefficients = (method.lengths().initiator - 32) / 3 * 2;
            for index in [0, 1, coefficients / 2, coefficients - 1] {
                let mut key = ours.public().to_vec();
                set_coefficient(&mut key, index, 3329);
                let error = method.respond(&key, &mut rng).unwrap_err();
                assert_eq!(error, CryptoError::InvalidPublic, "{id} {index}");
                set_coefficient(&mut key, index, 3328);
                assert!(method.respond(&key, &mut rng).is_ok(), "{id} {index}");
            }
        }
    }

    /// Two 12-bit coefficients, low bits first, in three octets (FIPS 203 §4.2.1).
    fn set_coefficient(key: &mut [u8], index: usize, value: u16) {
        let at = index / 2 * 3;
        if index.is_multiple_of(2) {
            key[at] = value as u8;
            key[at + 1] = (key[at + 1] & 0xf0) | (value >> 8) as u8;
        } else {
            key[at + 1] = (key[at + 1] & 0x0f) | ((value as u8) << 4);
            key[at + 2] = (value >> 4) as u8;
        }
    }

    /// Every octet of a ciphertext matters, and none gives an error that an attacker could see.
    #[test]
    fn ml_kem_rejects_implicitly() {
        let mut rng = pq_kem::os_random();
        for id in [KeMethodId::ML_KEM_512, KeMethodId::ML_KEM_768, KeMethodId::ML_KEM_1024] {
            let method = pq_kem::provider().ke(id).unwrap();
            let ours = method.initiate(&mut rng).unwrap();
            let (ciphertext, shared) = method.respond(ours.public(), &mut rng).unwrap();
            for at in (0..ciphertext.len()).step_by(13) {
                let mut flipped = ciphertext.clone();
                flipped[at] ^= 0x10;
                let first = ours.complete(&flipped).unwrap();
                assert!(!first.ct_eq(shared.expose()), "{id} {at}");
                assert!(first.ct_eq(ours.complete(&flipped).unwrap().expose()), "{id} {at}");
            }
        }
    }

    /// X25519 and MODP draw their keys from the source they are given, as their documentation says.
    #[test]
    fn the_injected_source_is_used() {
        for id in [KeMethodId::CURVE_25519, KeMethodId::MODP_2048, KeMethodId::MODP_4096] {
            let method = pq_kem::provider().ke(id).unwrap();
            let public = |seed| method.initiate(&mut Counting(seed)).unwrap().public().to_vec();
            assert_eq!(public(1), public(1), "{id}");
            assert_ne!(public(1), public(2), "{id}");
        }
    }

    struct Counting(u8);

    impl SecureRandom for Counting {
        fn fill(&mut self, out: &mut [u8]) {
            for octet in out {
                self.0 = self.0.wrapping_mul(5).wrapping_add(1);
                *octet = self.0;
            }
        }
    }
}

mod suites {
    use super::*;

    const MACS: [IntegId; 4] = [
        IntegId::HMAC_SHA1_96,
        IntegId::HMAC_SHA2_256_128,
        IntegId::HMAC_SHA2_384_192,
        IntegId::HMAC_SHA2_512_256,
    ];

    fn all() -> Vec<CipherSuite> {
        let mut suites = vec![CipherSuite {
            encr: EncrId::CHACHA20_POLY1305,
            key_bits: 0,
            integ: IntegId::NONE,
        }];
        for key_bits in [128, 192, 256] {
            for encr in
                [EncrId::AES_GCM_16, EncrId::AES_CCM_8, EncrId::AES_CCM_12, EncrId::AES_CCM_16]
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

        fn key(&self) -> Box<dyn ike_proto::crypto::CipherKey> {
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
        (0..lengths.block.max(7) / lengths.block * lengths.block * blocks)
            .map(|i| i as u8)
            .collect()
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
            let expected =
                CipherLengths { encr_key, integ_key, iv, iv_kind: kind, icv, block, aead };
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
}
