//! The composite of ML-DSA-65 and Ed25519, which no crate of the engine knows: `tests/composite`.

use ike_proto::config::AuthConfig;
use ike_proto::crypto::SchemeRegister;
use ike_proto::wire::payload::{CertReq, Notify, Payload};
use ike_proto::wire::registry::{CertEncoding, ExchangeType, HashId, NotifyType};
use ike_proto::wire::{Message, encode_message};
use ike_proto::{Event, Failure};
use ike_test_composite::scheme;
use ike_tests::network::{Fate, Packet};
use ike_tests::{Host, Pair, Setup};

use super::forged::Chain;
use super::outside::{announcement, both_with, key_of, used};
use super::{comes_up, refused, told};

pub(super) const NAME: &str = "composite_mldsa65_ed25519";
const NAME_OR_ECDSA: &str = "composite_mldsa65_ed25519-ecdsa";
/// What is said of a peer's signature.
pub(super) const INVALID: &str =
    "the signature in AUTH, by composite_mldsa65_ed25519, does not verify";
/// What is said where `auth` does not name the composite.
const UNNAMED: &str =
    "AUTH is by signature scheme composite_mldsa65_ed25519, which `auth` does not allow";

pub(super) fn register() -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    register.add(scheme()).unwrap();
    register
}

/// Both ends have a raw key of the composite, and want `auth`.
fn both(auth: [&str; 2]) -> Setup {
    let registers = [register(), register()];
    both_with(auth, registers.each_ref(), registers.each_ref().map(key_of))
}

/// What `host` says of its peer's AUTH payloads.
pub(super) fn said(host: &Host) -> Vec<String> {
    host.events(|event| match event {
        Event::PeerRefused(refused) => Some(refused.why.to_string()),
        _ => None,
    })
}

/// What an end says that cannot sign.
fn nothing_to_sign_with() -> Failure {
    Failure::Credentials("the peer takes no signature scheme that `auth` allows".to_owned())
}

/// Faults: in `SchemeRegister::from_algorithm_identifier`, look among the built-in schemes alone; in
/// `Composite::verify`, take the Ed25519 half first.
#[test]
fn raw_keys_of_the_composite_authenticate_both_ends() {
    for auth in [NAME, NAME_OR_ECDSA, "pubkey-composite_mldsa65_ed25519"] {
        let pair = comes_up(both([NAME, auth]));
        assert_eq!(used(&pair), [NAME, NAME]);
    }
}

/// Fault: another hash in `Composite::hash`.
#[test]
fn the_composite_is_announced_with_the_identity_hash() {
    let pair = comes_up(both([NAME, NAME]));
    for index in [0, 1] {
        let hashes = announcement(&pair, index, NotifyType::SIGNATURE_HASH_ALGORITHMS);
        assert_eq!(hashes, Some(HashId::IDENTITY.0.to_be_bytes().to_vec()));
    }
    let methods = announcement(&pair, 1, NotifyType::SUPPORTED_AUTH_METHODS).unwrap();
    assert!(methods.ends_with(scheme().algorithm_identifier()));
    assert_eq!(methods.len(), 3 + scheme().algorithm_identifier().len());
}

/// Fault: in `SignatureScheme::must_be_named`, leave `Outside` out.
#[test]
fn the_composite_is_refused_where_the_configuration_does_not_name_it() {
    for auth in ["any", "pubkey", "mldsa65", "ed25519"] {
        let mut pair = both([NAME, auth]).build();
        assert_eq!(refused(&mut pair).0, told(), "{auth}");
        assert_eq!(said(pair.b())[0], UNNAMED, "{auth}");
        let mut pair = both([auth, NAME]).build();
        assert_eq!(refused(&mut pair).0, Failure::Authentication, "{auth}");
        assert_eq!(said(pair.a())[0], UNNAMED, "{auth}");
    }
    // Without the identity hash the other end does not sign at all.
    assert_eq!(refused(&mut both([NAME, "ecdsa"]).build()).0, nothing_to_sign_with());
    let (at_a, at_b) = refused(&mut both(["ecdsa", NAME]).build());
    assert_eq!(at_a, told());
    assert_eq!(at_b[0], nothing_to_sign_with());
    assert!(AuthConfig::parse_with(&SchemeRegister::built_in(), NAME).is_err());
}

/// `message` with the data of its notifies of `kind` as `edit` makes it; `None` leaves them out.
fn edited(
    message: &[u8],
    kind: NotifyType,
    edit: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let message = Message::decode(message).unwrap();
    let is_it = |payload: &Payload<'_>| matches!(payload, Payload::Notify(n) if n.kind == kind);
    let mut payloads = message.payloads.clone();
    let at = payloads.iter().position(is_it)?;
    let Payload::Notify(notify) = payloads.remove(at) else { return None };
    let data = edit(notify.data);
    if let Some(data) = &data {
        payloads.insert(at, Payload::Notify(Notify { data, ..notify }));
    }
    Some(encode_message(&message.header, &payloads))
}

/// What a man in the middle leaves of `data`.
type Edit = fn(&[u8]) -> Option<Vec<u8>>;

/// SUPPORTED_AUTH_METHODS (RFC 9593 §3.2): each announcement begins with its length.
fn without_the_composite(mut data: &[u8]) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    while let Some(len) = data.first() {
        let (one, rest) = data.split_at(usize::from(*len));
        if !one.ends_with(scheme().algorithm_identifier()) {
            kept.extend_from_slice(one);
        }
        data = rest;
    }
    Some(kept)
}

/// SIGNATURE_HASH_ALGORITHMS (RFC 7427 §4).
fn without_identity(data: &[u8]) -> Option<Vec<u8>> {
    let (hashes, _) = data.as_chunks::<2>();
    let identity = HashId::IDENTITY.0.to_be_bytes();
    Some(hashes.iter().filter(|hash| **hash != identity).flatten().copied().collect())
}

/// Both ends take the composite or ECDSA, and a man in the middle edits each IKE_SA_INIT message of one direction.
fn refused_with(kind: NotifyType, response: bool, edit: Edit) -> (Pair, Failure) {
    let mut pair = both([NAME_OR_ECDSA; 2]).build();
    pair.net.tap(move |packet: &mut Packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, response)
            && let Some(octets) = edited(&packet.octets, kind, edit)
        {
            assert_ne!(octets[..], packet.octets[..]);
            packet.octets = octets.into();
        }
        Fate::Pass
    });
    let (at_a, _) = refused(&mut pair);
    let ups = |host: &Host| host.events(|e| matches!(e, Event::IkeUp(_)).then_some(())).len();
    assert_eq!(ups(pair.b()), 0, "B was up for a moment: {}", pair.story());
    (pair, at_a)
}

/// Faults: `DowngradePrevention::No` (B is then up until A's complaint); in `SignedOctets`, leave out the peer's
/// message.
#[test]
fn announced_methods_that_a_man_in_the_middle_edits_bring_no_sa() {
    comes_up(both([NAME_OR_ECDSA; 2]));
    let edits: [Edit; 3] = [without_the_composite, |_| Some(Vec::new()), |_| None];
    for edit in edits {
        let (pair, at_a) = refused_with(NotifyType::SUPPORTED_AUTH_METHODS, true, edit);
        assert_eq!(at_a, told());
        assert_eq!(said(pair.b())[0], INVALID);
    }
}

/// Faults: in `signature::accepted`, leave the peer's hashes out of account; `DowngradePrevention::No` with it.
#[test]
fn announced_hashes_that_a_man_in_the_middle_edits_bring_no_sa() {
    let edits: [Edit; 3] = [without_identity, |_| Some(Vec::new()), |_| None];
    for edit in edits {
        // A does not sign at all.
        let (_, at_a) = refused_with(NotifyType::SIGNATURE_HASH_ALGORITHMS, true, edit);
        assert_eq!(at_a, nothing_to_sign_with());
        // A has signed the request that it sent.
        let (pair, at_a) = refused_with(NotifyType::SIGNATURE_HASH_ALGORITHMS, false, edit);
        assert_eq!(at_a, told());
        assert_eq!(said(pair.b())[0], INVALID);
    }
}

/// What a man in the middle makes of the payloads of an IKE_SA_INIT message; `true` for the response.
type Rewrite = for<'a> fn(bool, &mut Vec<Payload<'a>>);

/// A man in the middle edits both IKE_SA_INIT messages, and no SA comes up. What B says of A.
fn refused_after(setup: Setup, rewrite: Rewrite) -> Vec<String> {
    let mut pair = setup.build();
    pair.net.tap(move |packet: &mut Packet| {
        for response in [false, true] {
            if packet.is(ExchangeType::IKE_SA_INIT, response) {
                let message = Message::decode(&packet.octets).unwrap();
                let mut payloads = message.payloads.clone();
                rewrite(response, &mut payloads);
                packet.octets = encode_message(&message.header, &payloads).into();
            }
        }
        Fate::Pass
    });
    let (at_a, _) = refused(&mut pair);
    assert_eq!(at_a, told(), "{}", pair.story());
    let ups = |host: &Host| host.events(|e| matches!(e, Event::IkeUp(_)).then_some(())).len();
    assert_eq!(ups(pair.b()), 0, "B was up for a moment: {}", pair.story());
    said(pair.b())
}

/// B asks for the root of the composite in its IKE_SA_INIT response, which both AUTH payloads cover.
///
/// Fault: in `SignedOctets::new`, leave both messages out.
#[test]
fn certificate_requests_that_a_man_in_the_middle_edits_bring_no_sa() {
    const OTHER: CertReq<'_> =
        CertReq { encoding: CertEncoding::X509_SIGNATURE, authorities: &[7; 20] };
    const ANY: CertReq<'_> = CertReq { encoding: CertEncoding::X509_SIGNATURE, authorities: &[] };
    fn is_request(payload: &Payload<'_>) -> bool {
        matches!(payload, Payload::CertReq(_))
    }
    fn replace(response: bool, payloads: &mut [Payload<'_>], by: CertReq<'static>) {
        let requests = payloads.iter_mut().filter(|payload| is_request(payload));
        assert_eq!(requests.map(|request| *request = Payload::CertReq(by)).count() > 0, response);
    }
    let chain = Chain::new();
    let both = || chain.both_as_it_is([NAME; 2]);
    comes_up(both());
    for (rewrite, why) in [
        ((|response, payloads| replace(response, payloads, OTHER)) as Rewrite, INVALID),
        (|response, payloads| replace(response, payloads, ANY), INVALID),
        // Without a request A shows no certificate.
        (|_, payloads| payloads.retain(|one| !is_request(one)), "the peer sent no certificate"),
    ] {
        assert_eq!(refused_after(both(), rewrite)[0], why);
    }
}

/// A offers the weaker proposal alone, as B sees it, and takes B's answer for the second of its own.
///
/// Fault: in `SignedOctets::new`, leave both messages out.
#[test]
fn proposals_that_a_man_in_the_middle_edits_bring_no_sa() {
    let both = || {
        let mut setup = both([NAME; 2]);
        let offer = ["aes256gcm16-prfsha384-x25519", "aes128gcm16-prfsha256-x25519"];
        setup.both(|side| side.ike_proposals(&offer));
        setup
    };
    comes_up(both());
    let said = refused_after(both(), |response, payloads| {
        for payload in payloads {
            if let Payload::Sa(sa) = payload {
                if response {
                    sa.proposals[0].number = 2;
                } else {
                    sa.proposals.remove(0);
                    sa.proposals[0].number = 1;
                }
            }
        }
    });
    assert_eq!(said[0], INVALID);
}

/// What A announces and asks for after IKE_SA_INIT is encrypted: a man in the middle cannot edit it, and a packet that it
/// changes all the same is lost.
#[test]
fn what_the_initiator_announces_is_in_no_message_that_can_be_edited() {
    let setup = Chain::new().both_as_it_is([NAME; 2]);
    let pair = comes_up(setup);
    assert_eq!(announcement(&pair, 0, NotifyType::SUPPORTED_AUTH_METHODS), None);
    for packet in &pair.net.trace {
        let message = Message::decode(&packet.octets).unwrap();
        let clear = message.header.exchange == ExchangeType::IKE_SA_INIT;
        let is_sealed = |one: &Payload<'_>| matches!(one, Payload::Sk(_) | Payload::Skf(_));
        assert!(clear || message.payloads.iter().all(is_sealed));
        if packet.is(ExchangeType::IKE_SA_INIT, false) {
            assert!(!message.payloads.iter().any(|one| matches!(one, Payload::CertReq(_))));
        }
    }
}
