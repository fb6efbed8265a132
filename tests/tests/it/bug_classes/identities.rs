//! Classes 25 and 43: identities that are not what they claim, and answers that tell too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ike_proto::IkeState;
use ike_proto::config::{IdMatch, PreSharedKey, Unique};
use ike_proto::crypto::{CryptoProvider, Prf, Secret};
use ike_proto::wire::payload::{Auth, IdData, Payload};
use ike_proto::wire::registry::{AuthMethod, ExchangeType, IdType, NotifyType, PrfId};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::notifies;
use ike_tests::setup::{address, identity, side};

/// Sends IKE_AUTH with this identity and its correct AUTH; what is told.
fn told_to(bench: &mut Bench, id: &IdData) -> Vec<NotifyType> {
    let mut peer = bench.half_open();
    let auth = peer.auth(id, PSK);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(id, &auth, 1007, true));
    let sent = bench.give(&request);
    assert_eq!(sent.len(), 1);
    notifies(&peer.open(&sent[0]).expect("sealed for the peer"))
}

/// Takes everybody who has the key.
fn hospitable() -> Bench {
    let mut side = side(1, 2);
    side.connection.set_remote_id(IdMatch::Any);
    let secret = Secret::copy_from(PSK);
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })];
    Bench::with(side)
}

#[test]
fn class_25_data_that_does_not_fit_the_type_is_refused() {
    let long = vec![b'a'; 2049];
    let dn: &[u8] = &[0x30, 0x0d, 0x31, 0x0b, 0x30, 0x09, 6, 3, 0x55, 4, 3, 0x0c, 2, b'a', b'b'];
    let bad: &[(IdType, &[u8])] = &[
        (IdType::IPV4_ADDR, b""),
        (IdType::IPV4_ADDR, &[10, 0, 0]),
        (IdType::IPV4_ADDR, &[10, 0, 0, 2, 0]),
        (IdType::IPV4_ADDR, b"10.0.0.2"),
        (IdType::IPV6_ADDR, &[1; 15]),
        (IdType::IPV6_ADDR, &[1; 17]),
        (IdType::IPV6_ADDR, &[10, 0, 0, 2]),
        (IdType::FQDN, b""),
        (IdType::FQDN, b"b.example\0"),
        (IdType::FQDN, b"b.example\0.evil"),
        (IdType::FQDN, b"b.example\r\n"),
        (IdType::FQDN, &[0xff, 0xfe]),
        (IdType::FQDN, &long),
        (IdType::RFC822_ADDR, b"a@b\0"),
        (IdType::KEY_ID, b""),
        (IdType::KEY_ID, &long),
        (IdType::NULL, b"x"),
        (IdType::DER_ASN1_DN, b""),
        (IdType::DER_ASN1_DN, &[0x30]),
        (IdType::DER_ASN1_DN, &dn[..dn.len() - 1]),
        (IdType::DER_ASN1_DN, &[0x30, 0x80, 0, 0]),
        (IdType::DER_ASN1_DN, &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
        (IdType::DER_ASN1_DN, &[0x31, 0]),
        (IdType::DER_ASN1_GN, &[0x86, 5, b'a']),
    ];
    for (kind, data) in bad {
        let mut bench = hospitable();
        let id = IdData { kind: *kind, data: data.to_vec() };
        assert_eq!(told_to(&mut bench, &id), [NotifyType::INVALID_SYNTAX], "{kind} {data:02x?}");
        assert_eq!(bench.host().ikes().len(), 0);
        bench.assert_nothing_leaked();
    }
    let trailing = IdData { kind: IdType::DER_ASN1_DN, data: [dn, &[0]].concat() };
    assert_eq!(told_to(&mut hospitable(), &trailing), [NotifyType::INVALID_SYNTAX]);
    let good = IdData { kind: IdType::DER_ASN1_DN, data: dn.to_vec() };
    assert_eq!(told_to(&mut hospitable(), &good), []);
}

#[test]
fn class_25_an_identity_of_another_type_is_another_identity() {
    // The endpoint wants the FQDN b.example, and has a key for it alone.
    let name = b"b.example";
    for kind in [IdType::RFC822_ADDR, IdType::KEY_ID, IdType(200)] {
        let id = IdData { kind, data: name.to_vec() };
        let told = told_to(&mut Bench::new(), &id);
        assert_eq!(told, [NotifyType::AUTHENTICATION_FAILED], "{kind}");
    }
    for near in ["b.example.", "B.example.org", "b.exampl", "b.examplf", "*.example", "b", "*"] {
        let told = told_to(&mut Bench::new(), &IdData::fqdn(near));
        assert_eq!(told, [NotifyType::AUTHENTICATION_FAILED], "{near}");
    }
    assert_eq!(told_to(&mut Bench::new(), &IdData::fqdn("B.EXAMPLE")), []);

    // The endpoint wants the address, and is told it as text.
    let mut side = side(1, 2);
    side.connection.set_remote_id(IdMatch::Exact(IdData::ip(address(2))));
    let ids = vec![IdData::ip(address(2))];
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids, secret: Secret::copy_from(PSK) })];
    let mut bench = Bench::with(side);
    for id in [IdData::fqdn("10.0.0.2"), IdData::keyid([10, 0, 0, 2])] {
        assert_eq!(told_to(&mut bench, &id), [NotifyType::AUTHENTICATION_FAILED], "{id:?}");
    }
    assert_eq!(told_to(&mut bench, &IdData::ip(address(2))), []);
}

#[test]
fn class_25_a_pattern_matches_its_own_type_and_something_in_front() {
    let pattern = IdData::fqdn("*.example");
    for (id, fits) in [
        (IdData::fqdn("b.example"), true),
        (IdData::fqdn("b.c.EXAMPLE"), true),
        (IdData::fqdn(".example"), false),
        (IdData::fqdn("example"), false),
        (IdData::fqdn("b.example.org"), false),
        (IdData::email("b@c.example"), false),
        (IdData::keyid(*b"b.example"), false),
    ] {
        let mut side = side(1, 2);
        side.connection.set_remote_id(IdMatch::Suffix(pattern.clone()));
        let secret = Secret::copy_from(PSK);
        side.settings.secrets = vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })];
        let told = told_to(&mut Bench::with(side), &id);
        let expected: &[NotifyType] = if fits { &[] } else { &[NotifyType::AUTHENTICATION_FAILED] };
        assert_eq!(told, expected, "{id:?}");
    }
}

// ---- class 43 ----

/// Counts the calls of a real PRF.
#[derive(Debug)]
struct Counting(&'static dyn Prf, AtomicU64);

impl Prf for Counting {
    fn id(&self) -> PrfId {
        self.0.id()
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.prf(key, parts)
    }
}

/// Ways to fail that an attacker must not be able to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Secret,
    Identity,
    IdentityWithoutKey,
    WantedIdentity,
    Method,
    Length,
    NoAuth,
}

/// What is answered, and how often the PRF was asked for it.
fn fail(wrong: Wrong) -> (Vec<u8>, usize, u64) {
    let prf: &'static Counting = Box::leak(Box::new(Counting(
        ike_tests::cheap::provider().prf(PrfId::HMAC_SHA2_256).expect("a PRF"),
        AtomicU64::new(0),
    )));
    let mut side = side(1, 2);
    side.crypto =
        Arc::new(CryptoProvider { prf: vec![prf], ..CryptoProvider::clone(&side.crypto) });
    if wrong == Wrong::IdentityWithoutKey {
        side.connection.set_remote_id(IdMatch::Any);
    }
    let mut bench = Bench::with(side);
    let mut peer = bench.half_open();
    // Names of one length: the length of the request is no part of the comparison.
    let id = match wrong {
        Wrong::Identity | Wrong::IdentityWithoutKey => IdData::fqdn("x.example"),
        _ => identity(2),
    };
    let psk = if wrong == Wrong::Secret { b"secret of 1 and 3" } else { PSK };
    let mut auth = peer.auth(&id, psk);
    if wrong == Wrong::Length {
        auth.pop();
    }
    let mut payloads = auth_payloads(&id, &auth, 1007, true);
    let unknown = IdData::fqdn("y.example");
    match wrong {
        Wrong::Method => {
            payloads[1] = Payload::Auth(Auth { method: AuthMethod(1), data: &auth });
        }
        Wrong::NoAuth => drop(payloads.remove(1)),
        Wrong::WantedIdentity => payloads.insert(1, Payload::IdR(unknown.as_id())),
        _ => {}
    }
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let before = prf.1.load(Ordering::Relaxed);
    let sent = bench.give(&request);
    let asked = prf.1.load(Ordering::Relaxed) - before;
    assert_eq!(sent.len(), 1, "{wrong:?}");
    assert_eq!(bench.host().ikes().len(), 0, "{wrong:?}");
    bench.assert_nothing_leaked();
    let opened = peer.open(&sent[0]).expect("sealed for the peer");
    assert_eq!(notifies(&opened), [NotifyType::AUTHENTICATION_FAILED], "{wrong:?}");
    (opened.octets, sent[0].len(), asked)
}

#[test]
fn class_43_an_unknown_identity_and_a_wrong_secret_get_the_same_answer() {
    let expected = fail(Wrong::Secret);
    assert!(expected.2 > 0, "the secret was checked");
    for wrong in [
        Wrong::Identity,
        Wrong::IdentityWithoutKey,
        Wrong::WantedIdentity,
        Wrong::Method,
        Wrong::Length,
        Wrong::NoAuth,
    ] {
        assert_eq!(fail(wrong), expected, "{wrong:?}");
    }
}

#[test]
fn class_43_a_guess_costs_an_exchange() {
    // After a wrong guess the half-open SA is gone: the next needs a key exchange of its own.
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let id = identity(2);
    for (n, psk) in [&b"first guess"[..], b"second guess", PSK].into_iter().enumerate() {
        let auth = peer.auth(&id, psk);
        let payloads = auth_payloads(&id, &auth, 1007, true);
        for message_id in [1, 2] {
            let request = peer.seal(ExchangeType::IKE_AUTH, message_id, false, &payloads);
            let answered = bench.give(&request).iter().any(|sent| peer.open(sent).is_some());
            assert_eq!(answered, n == 0 && message_id == 1);
        }
    }
    assert_eq!(bench.host().ikes().len(), 0);
}

/// Whoever shares a key with this end is not this end.
#[test]
fn class_25_the_endpoints_own_identity_is_nobody_elses() {
    let mut side = side(1, 2);
    side.connection.set_remote_id(IdMatch::Any);
    let mut bench = Bench::with(side);
    assert_eq!(told_to(&mut bench, &identity(1)), [NotifyType::AUTHENTICATION_FAILED]);
    assert_eq!(told_to(&mut bench, &identity(2)), []);
}

/// `unique` is not to be had around by another spelling.
#[test]
fn class_25_an_identity_in_capitals_is_the_same() {
    let mut side = side(1, 2);
    side.connection.unique = Unique::Replace;
    let mut bench = Bench::with(side);
    told_to(&mut bench, &identity(2));
    let (id, mut peer) = (IdData::fqdn("B.EXAMPLE"), bench.half_open());
    let auth = peer.auth(&id, PSK);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, 1008, true));
    assert_eq!(bench.give(&request).len(), 1, "a response");
    // The peer may not have the SAs of the new child yet.
    bench.world.run_for(Duration::from_secs(1));
    assert_eq!(bench.sent().len(), 1, "a Delete");
    assert_eq!(bench.host().ikes_in(IkeState::Established).len(), 1);
}
