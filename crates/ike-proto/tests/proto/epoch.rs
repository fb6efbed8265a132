//! Sealing, opening and fragmenting under every kind of suite, and what must not open.

use std::collections::BTreeSet;

use crate::vectors::{Counting, prf, suite};
use ike_proto::crypto::{CipherSuite, CryptoError, Frame, Prf, Secret};
use ike_proto::keys::{Epoch, IkeKeys, Nonces, OpenError, Outgoing, Seed, Spis};
use ike_proto::wire::payload::{Payload, Sk, Skf};
use ike_proto::wire::registry::{EncrId, ExchangeType, IntegId, PayloadType, PrfId};
use ike_proto::wire::{Flags, Message, encode_payloads};
use proptest::prelude::*;

const SUITES: [CipherSuite; 8] = [
    suite(EncrId::AES_GCM_16, 128, IntegId::NONE),
    suite(EncrId::AES_GCM_16, 256, IntegId::NONE),
    suite(EncrId::CHACHA20_POLY1305, 0, IntegId::NONE),
    suite(EncrId::AES_CCM_16, 256, IntegId::NONE),
    suite(EncrId::AES_CBC, 128, IntegId::HMAC_SHA2_256_128),
    suite(EncrId::AES_CBC, 256, IntegId::HMAC_SHA2_512_256),
    suite(EncrId::AES_CTR, 256, IntegId::HMAC_SHA2_384_192),
    suite(EncrId::AES_CBC, 192, IntegId::HMAC_SHA1_96),
];
const GCM: CipherSuite = SUITES[1];
const CBC: CipherSuite = SUITES[4];

fn prf_256() -> &'static dyn Prf {
    prf(PrfId::HMAC_SHA2_256)
}

const SEED: Seed<'static> = Seed::new(Nonces { i: &[1; 32], r: &[2; 32] }, Spis::new(3, 4));

fn keys(suite: CipherSuite) -> IkeKeys {
    let lengths = pq_kem::provider().ciphers.lengths(suite).unwrap();
    let shared = Secret::new(vec![7; 32]);
    IkeKeys::initial(prf_256(), &[&shared], &SEED, &lengths)
}

/// The initiator's and the responder's end.
fn ends(suite: CipherSuite) -> (Epoch, Epoch) {
    let (ciphers, keys) = (pq_kem::provider().ciphers, keys(suite));
    let end = |is_initiator| Epoch::new(ciphers, suite, &keys, is_initiator).unwrap();
    (end(true), end(false))
}

fn outgoing<'a>(payloads: &'a [Payload<'a>], max_datagram: Option<usize>) -> Outgoing<'a> {
    Outgoing {
        spi_i: 3,
        spi_r: 4,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags { initiator: true, ..Flags::default() },
        message_id: 5,
        payloads,
        max_datagram,
        force_fragment: false,
    }
}

fn seal(epoch: &mut Epoch, payloads: &[Payload<'_>], max: Option<usize>) -> Vec<Vec<u8>> {
    epoch.seal(&outgoing(payloads, max), &mut Counting(0)).unwrap()
}

/// The content of a message in one or several datagrams, in order.
fn open(epoch: &Epoch, datagrams: &[Vec<u8>]) -> Result<(PayloadType, Vec<u8>), OpenError> {
    let (mut first, mut octets) = (PayloadType::NONE, Vec::new());
    for (n, datagram) in datagrams.iter().enumerate() {
        let message = Message::decode(datagram).map_err(|_| OpenError)?;
        match message.payloads.last() {
            Some(Payload::Sk(sk)) => {
                let opened = epoch.open(datagram, sk)?;
                assert_eq!(datagrams.len(), 1);
                return Ok((opened.first, opened.octets));
            }
            Some(Payload::Skf(skf)) => {
                assert_eq!((skf.number as usize, skf.total as usize), (n + 1, datagrams.len()));
                if n == 0 {
                    first = skf.first;
                } else {
                    assert_eq!(skf.first, PayloadType::NONE);
                }
                octets.extend(epoch.open_fragment(datagram, skf)?);
            }
            other => panic!("{other:?}"),
        }
    }
    Ok((first, octets))
}

fn encoded(payloads: &[Payload<'_>]) -> (PayloadType, Vec<u8>) {
    let mut octets = Vec::new();
    let first = encode_payloads(payloads, &mut octets);
    (first, octets)
}

#[test]
fn what_one_end_seals_the_other_opens_whatever_the_length() {
    for suite in SUITES {
        let (mut initiator, mut responder) = ends(suite);
        assert_eq!(initiator.suite(), suite);
        assert_eq!(open(&responder, &seal(&mut initiator, &[], None)), Ok(encoded(&[])));
        for len in 0..70 {
            let body = vec![0x5a; len];
            let payloads = [Payload::Vendor(&body), Payload::Nonce(&[9; 16])];
            let expected = Ok(encoded(&payloads));
            assert_eq!(open(&responder, &seal(&mut initiator, &payloads, None)), expected);
            assert_eq!(open(&initiator, &seal(&mut responder, &payloads, None)), expected);
        }
    }
}

#[test]
fn the_header_is_that_of_the_message() {
    let (mut initiator, _) = ends(GCM);
    let sealed = seal(&mut initiator, &[Payload::Nonce(&[9; 16])], None);
    let message = Message::decode(&sealed[0]).unwrap();
    let header = message.header;
    assert_eq!((header.spi_i, header.spi_r, header.message_id), (3, 4, 5));
    assert_eq!(header.exchange, ExchangeType::INFORMATIONAL);
    assert_eq!(header.flags, Flags { initiator: true, version: false, response: false });
    assert_eq!((header.minor_version, header.next_payload), (0, PayloadType::SK));
    assert_eq!(header.length as usize, sealed[0].len());
}

/// Bug class 37: no bit of a sealed message goes unchecked.
#[test]
fn bug_class_37_every_bit_of_sk_is_authenticated() {
    for suite in SUITES {
        let (mut initiator, responder) = ends(suite);
        let sealed = seal(&mut initiator, &[Payload::Nonce(&[9; 19])], None);
        let message = Message::decode(&sealed[0]).unwrap();
        let Some(&Payload::Sk(Sk { first, offset, .. })) = message.payloads.last() else {
            panic!("no SK")
        };
        assert!(open(&responder, &sealed).is_ok());
        for bit in 0..sealed[0].len() * 8 {
            let flipped = flip(&sealed[0], bit);
            // Even if the decoder took it for what it was.
            let sk = Sk { first, offset, body: &flipped[offset..] };
            assert_eq!(responder.open(&flipped, &sk), Err(OpenError), "{suite:?} bit {bit}");
        }
    }
}

/// Bug class 37, fragments.
#[test]
fn bug_class_37_every_bit_of_skf_is_authenticated() {
    for suite in SUITES {
        let (mut initiator, responder) = ends(suite);
        let sealed = seal(&mut initiator, &[Payload::Vendor(&[9; 90])], Some(120));
        assert!(sealed.len() > 1 && open(&responder, &sealed).is_ok());
        for datagram in &sealed {
            let message = Message::decode(datagram).unwrap();
            let Some(&Payload::Skf(skf)) = message.payloads.last() else { panic!("no SKF") };
            for bit in 0..datagram.len() * 8 {
                let flipped = flip(datagram, bit);
                let forged = Skf { body: &flipped[skf.offset..], ..skf };
                let opened = responder.open_fragment(&flipped, &forged);
                assert_eq!(opened, Err(OpenError), "{suite:?} bit {bit}");
            }
        }
    }
}

fn flip(datagram: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = datagram.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}

/// Bug class 13: bodies shorter than IV, ICV and Pad Length, and offsets that lie.
#[test]
fn bug_class_13_short_and_lying_payloads_do_not_open() {
    for suite in SUITES {
        let (mut initiator, responder) = ends(suite);
        let sealed = seal(&mut initiator, &[Payload::Nonce(&[9; 16])], None).remove(0);
        let first = PayloadType::NONCE;
        for len in 0..sealed.len() {
            let cut = &sealed[..len];
            for offset in [0, 28, 32, len, len + 1, usize::MAX] {
                let body = cut.get(offset..).unwrap_or(&[]);
                let sk = Sk { first, offset, body };
                assert_eq!(responder.open(cut, &sk), Err(OpenError), "{suite:?} {len} {offset}");
                let skf = Skf { first, number: 1, total: 1, offset, body };
                assert_eq!(responder.open_fragment(cut, &skf), Err(OpenError));
            }
        }
        let longer = [&sealed[..], &[0]].concat();
        let sk = Sk { first, offset: 32, body: &longer[32..] };
        assert_eq!(responder.open(&longer, &sk), Err(OpenError));
        let sk = Sk { first, offset: 32, body: &sealed[33..] };
        assert_eq!(responder.open(&sealed, &sk), Err(OpenError), "body is not the rest");
    }
}

#[test]
fn a_message_does_not_open_at_its_sender_nor_under_other_keys() {
    for suite in SUITES {
        let (mut initiator, responder) = ends(suite);
        let sealed = seal(&mut initiator, &[Payload::Nonce(&[9; 16])], None);
        assert!(open(&responder, &sealed).is_ok());
        assert_eq!(open(&initiator, &sealed), Err(OpenError), "reflected");
        let lengths = pq_kem::provider().ciphers.lengths(suite).unwrap();
        let shared = Secret::new(vec![8; 32]);
        let next = IkeKeys::next(prf_256(), &keys(suite).d, &shared, &SEED, &lengths);
        let next = Epoch::new(pq_kem::provider().ciphers, suite, &next, false).unwrap();
        assert_eq!(open(&next, &sealed), Err(OpenError), "next generation");
    }
}

/// Seals `plaintext`, Pad Length included, as it stands.
fn seal_raw(suite: CipherSuite, plaintext: &[u8]) -> Vec<u8> {
    let ciphers = pq_kem::provider().ciphers;
    let (lengths, keys) = (ciphers.lengths(suite).unwrap(), keys(suite));
    let key = ciphers.key(suite, keys.ei.expose(), keys.ai.expose()).unwrap();
    let (mut initiator, _) = ends(suite);
    let mut datagram = seal(&mut initiator, &[], None).remove(0)[..32].to_vec();
    let len = 32 + lengths.iv + plaintext.len() + lengths.icv;
    datagram[24..28].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
    datagram[30..32].copy_from_slice(&u16::try_from(len - 28).unwrap().to_be_bytes());
    let (iv, mut data, mut icv) = (vec![6; lengths.iv], plaintext.to_vec(), vec![0; lengths.icv]);
    key.seal(Frame { iv: &iv, aad: &datagram, trailer: &[] }, &mut data, &mut icv).unwrap();
    [datagram, iv, data, icv].concat()
}

//= https://www.rfc-editor.org/rfc/rfc7296#section-3.14
//= type=test
//# the recipient MUST accept any length that results in proper alignment.
#[test]
fn any_padding_is_accepted_and_a_lying_pad_length_is_not() {
    for suite in SUITES {
        let (_, responder) = ends(suite);
        let mut opened = 0;
        for padding in 0..=255u8 {
            let mut plaintext = b"sixteen octets!!".to_vec();
            plaintext.extend((0..padding).map(|n| n ^ 0xa5));
            plaintext.push(padding);
            let block = pq_kem::provider().ciphers.lengths(suite).unwrap().block;
            if !plaintext.len().is_multiple_of(block) {
                continue;
            }
            let (_, content) = open(&responder, &[seal_raw(suite, &plaintext)]).unwrap();
            assert_eq!(content, b"sixteen octets!!");
            opened += 1;

            // One more octet of padding than there is content and padding.
            let lie = u8::try_from(plaintext.len()).unwrap_or(255);
            if usize::from(lie) >= plaintext.len() {
                *plaintext.last_mut().unwrap() = lie;
                assert_eq!(open(&responder, &[seal_raw(suite, &plaintext)]), Err(OpenError));
            }
        }
        assert!(opened >= 16, "{suite:?}");
    }
}

#[test]
fn a_plaintext_without_pad_length_does_not_open() {
    for suite in [GCM, SUITES[2], SUITES[3], SUITES[6]] {
        let (_, responder) = ends(suite);
        assert_eq!(open(&responder, &[seal_raw(suite, &[])]), Err(OpenError), "{suite:?}");
    }
}

#[test]
fn no_iv_comes_twice() {
    for suite in SUITES {
        let (mut initiator, _) = ends(suite);
        let iv = pq_kem::provider().ciphers.lengths(suite).unwrap().iv;
        let mut rng = Counting(0);
        let mut seen = BTreeSet::new();
        let body = [0; 300];
        let payloads = [Payload::Vendor(&body)];
        for _ in 0..100 {
            for (max, front) in [(None, 32), (Some(200), 36)] {
                for datagram in initiator.seal(&outgoing(&payloads, max), &mut rng).unwrap() {
                    assert!(seen.insert(datagram[front..front + iv].to_vec()), "{suite:?}");
                }
            }
        }
        assert!(seen.len() >= 300);
    }
}

#[test]
fn a_message_is_fragmented_when_it_would_not_fit_and_not_before() {
    for suite in SUITES {
        let (mut initiator, responder) = ends(suite);
        let body = [0x5a; 500];
        let payloads = [Payload::Vendor(&body)];
        let whole = seal(&mut initiator, &payloads, None);
        let len = whole[0].len();
        assert_eq!(seal(&mut initiator, &payloads, Some(len)).len(), 1);
        let fragments = seal(&mut initiator, &payloads, Some(len - 1));
        assert_eq!(fragments.len(), 2, "{suite:?}");
        assert_eq!(open(&responder, &fragments), Ok(encoded(&payloads)));

        let forced = Outgoing { force_fragment: true, ..outgoing(&payloads, Some(1280)) };
        let forced = initiator.seal(&forced, &mut Counting(0)).unwrap();
        assert_eq!((forced.len(), forced[0][16]), (1, PayloadType::SKF.0));
        assert_eq!(open(&responder, &forced), Ok(encoded(&payloads)));
    }
}

#[test]
fn what_cannot_be_carried_is_an_error() {
    let (mut initiator, responder) = ends(GCM);
    let body = vec![0; 60_000];
    let payloads = [Payload::Vendor(&body), Payload::Vendor(&body)];
    let mut refused = |max| {
        let sealed = initiator.seal(&outgoing(&payloads, max), &mut Counting(0));
        assert_eq!(sealed.unwrap_err(), CryptoError::Length, "{max:?}");
    };
    refused(None);
    // Room for header and Pad Length, but not for content; and one octet less.
    refused(Some(36 + 8 + 16 + 1));
    refused(Some(36 + 8 + 16));
    refused(Some(0));
    // One octet in each of 120,008 fragments.
    refused(Some(36 + 8 + 16 + 2));
    // Two in each of 60,004 are possible.
    let sealed = seal(&mut initiator, &payloads, Some(36 + 8 + 16 + 3));
    assert_eq!(sealed.len(), 60_004);
    assert_eq!(open(&responder, &sealed), Ok(encoded(&payloads)));
    // A length limit beyond the field's is the field's.
    let sealed = seal(&mut initiator, &payloads, Some(usize::MAX));
    assert_eq!(sealed.len(), 2);
    assert_eq!(open(&responder, &sealed), Ok(encoded(&payloads)));
}

#[test]
fn a_suite_the_backend_lacks_is_an_error() {
    let ciphers = pq_kem::provider().ciphers;
    let unknown = suite(EncrId(4711), 256, IntegId::NONE);
    let made = Epoch::new(ciphers, unknown, &keys(GCM), true);
    assert_eq!(made.unwrap_err(), CryptoError::Unsupported);
    let wrong = Epoch::new(ciphers, CBC, &keys(GCM), true);
    assert_eq!(wrong.unwrap_err(), CryptoError::Length, "keys of another suite");
}

#[test]
fn an_epoch_prints_its_suite_only() {
    let (initiator, _) = ends(GCM);
    let printed = format!("{initiator:?}");
    assert!(printed.starts_with("Epoch { suite: CipherSuite {"), "{printed}");
    assert!(printed.ends_with(" }, .. }"), "{printed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any message, cut for any datagram size: no datagram is too long, all but the last are as long
    /// as the block size lets them be, and together they are the message.
    #[test]
    fn fragments_fit_and_make_the_message(
        bodies in proptest::collection::vec(0..900usize, 0..5),
        max in 110..700usize,
        n in 0..SUITES.len(),
    ) {
        let suite = SUITES[n];
        let (mut initiator, responder) = ends(suite);
        let octets = vec![0xc3; 900];
        let payloads: Vec<_> = bodies.iter().map(|len| Payload::Vendor(&octets[..*len])).collect();
        let sealed = seal(&mut initiator, &payloads, Some(max));
        let block = pq_kem::provider().ciphers.lengths(suite).unwrap().block;
        for (i, datagram) in sealed.iter().enumerate() {
            prop_assert!(datagram.len() <= max);
            prop_assert!(i + 1 == sealed.len() || datagram.len() + block > max);
        }
        prop_assert_eq!(open(&responder, &sealed), Ok(encoded(&payloads)));
    }

    /// Arbitrary octets behind a well-formed header never open and never panic.
    #[test]
    fn noise_does_not_open(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        n in 0..SUITES.len(),
    ) {
        let (_, responder) = ends(SUITES[n]);
        let datagram = [&[0x2e; 32][..], &body].concat();
        let sk = Sk { first: PayloadType::NONE, offset: 32, body: &body };
        prop_assert_eq!(responder.open(&datagram, &sk), Err(OpenError));
    }
}
