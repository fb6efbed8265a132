//! Whether a policy in force still trusts the key of a peer that was accepted earlier.

use std::collections::HashMap;
use std::sync::Arc;

use ike_proto::config::{IdMatch, SchemeConstraints};
use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::{AuthMethod, CertEncoding};
use ike_proto::{
    Answer, OwnedCert, PeerCertificate, PeerCredentials, Question, ResumeClaim, UsedAuth, UsedEap,
};
use pki::{Answerer, Certificate, PeerPolicy, RawKey, TrustNow, TrustStore, verify_peer};

use crate::common::{id, now, x509};
use crate::lists::{Owner, key, trusting};

const PEER: &str = "peer.example.org";

/// Two CAs and a CA below the first one, a certificate by that CA, another one for the same identity, and a stranger's.
struct World {
    own: Owner,
    other: Owner,
    sub: Owner,
    peer: Arc<Certificate>,
    renewed: Arc<Certificate>,
}

/// What is trusted.
type Rules = (PeerPolicy, TrustStore);

impl World {
    fn new() -> Self {
        let (own, other) = (Owner::root("own"), Owner::root("other"));
        let sub = own.sub_ca("sub", key(), 2);
        let (peer, renewed) = (sub.peer_with(Vec::new()), sub.peer_with(Vec::new()));
        Self { own, other, sub, peer, renewed }
    }

    /// An answerer that has accepted the peer by its CA.
    fn accepting(&self) -> Answerer {
        let mut answerer = Answerer::new(trusting(&[&self.own]));
        answerer.set_policy("site", "remote", PeerPolicy::default());
        let shown = [&self.peer, &self.sub.certificate];
        let peer = PeerCredentials {
            connection: "site".to_owned(),
            round: "remote".to_owned(),
            id: id(PEER),
            certs: shown.iter().map(|one| OwnedCert::from(x509(one.der()))).collect(),
            chain: SchemeConstraints::default(),
        };
        let answer = answerer.answer(&Question::Judge(peer), now());
        assert!(matches!(answer, Answer::Key(_)), "{answer:?}");
        answerer
    }

    /// All combinations of the options that say whom to trust.
    fn rules(&self) -> Vec<Rules> {
        let raw =
            |certificate: &Certificate| RawKey { id: id(PEER), spki: certificate.spki().to_vec() };
        let file = |ca: &Owner| Arc::clone(&ca.certificate);
        let certs = [vec![], vec![Arc::clone(&self.peer)], vec![Arc::clone(&self.renewed)]];
        let pubkeys = [vec![], vec![raw(&self.peer)], vec![raw(&self.renewed)]];
        let cacerts =
            [vec![], vec![file(&self.own)], vec![file(&self.sub)], vec![file(&self.other)]];
        let ca_ids = [None, Some("CN=own"), Some("CN=nobody")];
        let trusted = [vec![], vec![&self.own], vec![&self.other], vec![&self.own, &self.other]];
        let mut all = Vec::new();
        for certs in &certs {
            for pubkeys in &pubkeys {
                for cacerts in &cacerts {
                    // The daemon refuses `ca_id` beside `pubkeys`.
                    for ca_id in ca_ids.into_iter().filter(|id| id.is_none() || pubkeys.is_empty())
                    {
                        let policy = PeerPolicy {
                            certs: certs.clone(),
                            pubkeys: pubkeys.clone(),
                            cacerts: cacerts.clone(),
                            ca_id: ca_id.map(|name| IdMatch::Exact(id(name))),
                            ..PeerPolicy::default()
                        };
                        let with = |trusted: &Vec<&Owner>| (policy.clone(), trusting(trusted));
                        all.extend(trusted.iter().map(with));
                    }
                }
            }
        }
        all
    }
}

/// The judgement about a peer with this path, after the reload of an answerer that had `before`.
fn judged(rules: &Rules, before: &Answerer, path: &[u8]) -> TrustNow {
    let mut answerer = Answerer::new(rules.1.clone());
    answerer.set_policy("site", "remote", rules.0.clone());
    answerer.inherit_examples(before);
    TrustNow::of(&answerer, ("site", "remote"), &used(path))
}

/// A round in which the peer has authenticated by what has this path.
fn used(path: &[u8]) -> UsedAuth {
    let certificate = PeerCertificate { subject: "".into(), path: path.into(), unchecked: false };
    UsedAuth {
        id: id(PEER),
        method: AuthMethod::DIGITAL_SIGNATURE,
        scheme: None,
        certificate: Some(Arc::new(certificate)),
        eap: None,
        addresses: None,
    }
}

/// A peer that would be accepted again keeps its IKE SA, and a peer that would not be accepted loses it: no peer ends and
/// comes back without end. `cacerts` and `ca_id` are alternatives, and a key that the file names needs no CA. All
/// combinations of options before and after.
///
/// Faults, each by itself: in `Judged::trust`, do not ask `pubkeys`, or `certs`, or `needs_no_ca`. In `trust_by_ca`, leave out
/// `has_one`, or `ca_id` in it. In `write_path`, leave out the key.
#[test]
fn a_peer_is_trusted_still_if_it_would_be_accepted_again() {
    let world = World::new();
    let (chain, spki) =
        ([x509(world.peer.der()), x509(world.sub.certificate.der())], world.peer.spki());
    let raw = [Cert { encoding: CertEncoding::RAW_PUBLIC_KEY, data: spki }];
    let (rules, before) = (world.rules(), world.accepting());
    let mut compared = HashMap::new();
    for shown in [&chain[..], &raw] {
        let accepted = |(policy, trust): &Rules| {
            verify_peer(&id(PEER), shown, policy, trust, now()).ok().map(|peer| peer.shown())
        };
        let verdicts: Vec<_> = rules.iter().map(accepted).collect();
        let mut paths: Vec<_> = verdicts.iter().flatten().map(|shown| &shown.path).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            for (rules, verdict) in rules.iter().zip(&verdicts) {
                let (policy, _) = rules;
                let is_pinned = policy.certs.iter().any(|pin| pin.spki() == spki);
                let (is_raw, has_ca) = (path[0] == 1, path.len() > 9);
                let judged = judged(rules, &before, path);
                let case = format!("{is_raw} {has_ca} {judged:?} {policy:?}");
                let expected = match verdict {
                    // The file names the key itself. What else it asks of the certificate was not asked before.
                    None if is_pinned && (is_raw || !has_ca) => judged == TrustNow::Same,
                    None => judged != TrustNow::Same,
                    // No CA of it was known. It authenticates once more.
                    Some(_)
                        if !is_raw
                            && !has_ca
                            && policy.certs.is_empty()
                            && policy.pubkeys.is_empty() =>
                    {
                        judged == TrustNow::PinRemoved
                    }
                    // Its key was named. It authenticates once more by the certificate.
                    Some(_) if is_raw && !is_pinned && policy.pubkeys.is_empty() => {
                        judged == TrustNow::PinRemoved
                    }
                    Some(_) => judged == TrustNow::Same,
                };
                assert!(expected, "{case}");
                *compared.entry((is_raw, has_ca, verdict.is_some())).or_insert(0) += 1;
            }
        }
    }
    // Certificates with a CA and without one, and keys as such with a CA and without one.
    assert_eq!(compared.len(), 8, "{compared:?}");
}

/// Another CA of the same name, and another key for the same identity, are replacements. With none the trust is removed.
///
/// Faults, each by itself: in `Judged::trust`, let `other` be false; in `trust_by_ca`, compare no names.
#[test]
fn what_is_replaced_is_not_removed() {
    let world = World::new();
    let chain = [x509(world.peer.der()), x509(world.sub.certificate.der())];
    let policy = |cacerts: &[&Owner]| PeerPolicy {
        cacerts: cacerts.iter().map(|ca| Arc::clone(&ca.certificate)).collect(),
        ..PeerPolicy::default()
    };
    let pinning = |certs: &[&Arc<Certificate>]| PeerPolicy {
        certs: certs.iter().map(|one| Arc::clone(one)).collect(),
        ..PeerPolicy::default()
    };
    let raw = |name: &str| PeerPolicy {
        pubkeys: vec![RawKey { id: id(name), spki: world.renewed.spki().to_vec() }],
        ..PeerPolicy::default()
    };
    let path = |rules: &Rules| {
        let (policy, trust) = rules;
        verify_peer(&id(PEER), &chain, policy, trust, now()).unwrap().shown().path.clone()
    };
    let (own, other, before) = (&world.own, &world.other, world.accepting());
    let by_ca = path(&(PeerPolicy::default(), trusting(&[own])));
    let by_pin = path(&(pinning(&[&world.peer]), TrustStore::new()));
    let (namesake, new_sub) = (Owner::root("own"), own.sub_ca("sub", key(), 7));
    let stranger = other.certify(&crate::lists::template("stranger"), key().public_key());
    for (path, policy, trusted, expected) in [
        (&by_ca, policy(&[]), &[&namesake][..], TrustNow::Replaced),
        (&by_ca, policy(&[&new_sub]), &[own], TrustNow::Replaced),
        (&by_ca, policy(&[&namesake]), &[other], TrustNow::Replaced),
        (&by_ca, policy(&[other]), &[own], TrustNow::AnchorRemoved),
        (&by_ca, policy(&[]), &[other], TrustNow::AnchorRemoved),
        (&by_ca, pinning(&[&world.renewed]), &[own], TrustNow::Replaced),
        (&by_pin, pinning(&[&world.renewed]), &[], TrustNow::Replaced),
        (&by_pin, pinning(&[&world.renewed, &world.peer]), &[], TrustNow::Same),
        (&by_pin, raw(PEER), &[], TrustNow::Replaced),
        (&by_pin, raw("other.example.org"), &[], TrustNow::PinRemoved),
        (&by_pin, pinning(&[&stranger]), &[], TrustNow::PinRemoved),
        (&by_pin, policy(&[]), &[other], TrustNow::PinRemoved),
    ] {
        let case = format!("{policy:?}");
        assert_eq!(judged(&(policy, trusting(trusted)), &before, path), expected, "{case}");
    }
}

/// What was kept of the peer's path below `sub` and `own`.
fn path_by_ca(world: &World) -> Box<[u8]> {
    let chain = [x509(world.peer.der()), x509(world.sub.certificate.der())];
    let (policy, trust) = (PeerPolicy::default(), trusting(&[&world.own]));
    verify_peer(&id(PEER), &chain, &policy, &trust, now()).unwrap().shown().path.clone()
}

/// Two rounds: in the first one the peer's key was replaced, and the second one trusts any CA, as one for EAP does.
///
/// Fault: in `TrustNow::judge`, judge by all policies of the connection, and let the best judgement count, as it was done.
#[test]
fn each_round_is_judged_by_its_own_policy() {
    let world = World::new();
    let mut answerer = Answerer::new(trusting(&[&world.own]));
    let pinned = PeerPolicy { certs: vec![Arc::clone(&world.renewed)], ..PeerPolicy::default() };
    answerer.set_policy("site", "first", pinned);
    answerer.set_policy("site", "second", PeerPolicy::default());
    let used = used(&path_by_ca(&world));
    let judged = |round| TrustNow::of(&answerer, ("site", round), &used);
    assert_eq!((judged("first"), judged("second")), (TrustNow::Replaced, TrustNow::Same));
    let claim = |round: &str| ResumeClaim {
        connection: "site".to_owned(),
        rounds: vec![(round.to_owned(), used.clone())],
    };
    assert!(matches!(answerer.resume(&claim("first"), now()), Answer::Untrusted(..)));
    assert!(matches!(answerer.resume(&claim("second"), now()), Answer::Resumable));
}

/// The certificate of EAP-TLS has the EAP identity, and IDi is an address: another key for the EAP identity is a replacement.
///
/// Fault: in `TrustNow::judge`, let `id` be `used.id`.
#[test]
fn a_pin_of_eap_tls_is_compared_by_the_eap_identity() {
    let world = World::new();
    let mut answerer = Answerer::new(trusting(&[&world.own]));
    let pinned = PeerPolicy { certs: vec![Arc::clone(&world.renewed)], ..PeerPolicy::default() };
    answerer.set_policy("site", "remote", pinned);
    let eap = |id: IdData| {
        let method = "EAP-TLS".to_owned();
        Some(Box::new(UsedEap { method, id: Some(id), password: None, authorization: None }))
    };
    let used = |id: IdData, eap| UsedAuth { id, eap, ..used(&path_by_ca(&world)) };
    for (used, expected) in [
        (used(id("10.0.0.7"), eap(IdData::eap(PEER))), TrustNow::Replaced),
        (used(id(PEER), eap(IdData::eap("other.example.org"))), TrustNow::PinRemoved),
        (used(id("10.0.0.7"), None), TrustNow::PinRemoved),
    ] {
        assert_eq!(TrustNow::of(&answerer, ("site", "remote"), &used), expected, "{used:?}");
    }
}

/// `ca_id` names a CA whose certificate the gateway does not have, as after a restart: an IKE SA that is up stays, and a
/// ticket is void, as it is if nothing can be read from its path.
///
/// Fault: in `Answerer::resume`, let `lenient` be true.
#[test]
fn what_is_not_known_speaks_for_an_ike_sa_and_against_a_ticket() {
    let world = World::new();
    let policy = PeerPolicy { ca_id: Some(IdMatch::Exact(id("CN=sub"))), ..PeerPolicy::default() };
    let restarted = || {
        let mut answerer = Answerer::new(trusting(&[&world.own]));
        answerer.set_policy("site", "remote", policy.clone());
        answerer
    };
    let used = used(&path_by_ca(&world));
    let rounds = vec![("remote".to_owned(), used.clone())];
    let claim = ResumeClaim { connection: "site".to_owned(), rounds };
    let mut answerer = restarted();
    assert_eq!(TrustNow::of(&answerer, ("site", "remote"), &used), TrustNow::Same);
    assert!(matches!(answerer.resume(&claim, now()), Answer::Untrusted(..)));
    answerer.inherit_examples(&world.accepting());
    assert!(matches!(answerer.resume(&claim, now()), Answer::Resumable));
}
