//! Everything that can be wrong with a peer's certificate, key or signature: one answer for all.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{AuthConfig, IdMatch};
use ike_proto::crypto::{CryptoError, SignatureScheme, SigningKey};
use ike_proto::{Event, Failure};
use ike_tests::credentials::{Authority, credential, credential_for, key, key_type, yesterday};
use ike_tests::setup::identity;
use ike_tests::{A, B, Pair, Setup, World};
use pki::{Answerer, Credential, PeerPolicy, RevocationPolicy};
use pq_kem::sign::KeyType;

use super::{comes_up, ec, refused, root, signing, told};

/// What is changed at one end, and what the other says of it in its log.
type Case = (&'static str, fn(&mut Setup, Wrong), &'static str);

/// The end whose credentials are wrong.
#[derive(Clone, Copy)]
struct Wrong {
    host: u8,
}

impl Wrong {
    fn side(self, setup: &mut Setup) -> &mut ike_tests::Side {
        if self.host == 1 { &mut setup.a } else { &mut setup.b }
    }

    fn judge(self, setup: &mut Setup) -> &mut ike_tests::Side {
        if self.host == 1 { &mut setup.b } else { &mut setup.a }
    }

    /// Shows this credential, whatever its identity, as this host.
    fn shows(self, setup: &mut Setup, credential: Credential) {
        let side = self.side(setup);
        let trust = side.answerer.trust().clone();
        side.answerer = Answerer::new(trust);
        side.answerer.set_policy("ab", "remote", PeerPolicy::default());
        side.answerer.add_credential("ab", "local", credential);
    }
}

const CASES: &[Case] = &[
    (
        "another CA",
        |s, w| w.shows(s, credential(&Authority::root("x", ec(), 9), ec(), w.host)),
        "CA",
    ),
    (
        "the same name of CA",
        |s, w| {
            w.shows(s, credential(&Authority::root("root", ec(), 9), ec(), w.host));
        },
        "signature",
    ),
    (
        "expired",
        |s, w| {
            let key = key(ec(), w.host);
            let cert = root().issue(&*key, &identity(w.host), 1, |t| t.not_after = yesterday());
            w.shows(s, Credential::new(key, cert, &[]).unwrap());
        },
        "expired",
    ),
    (
        "not valid yet",
        |s, w| {
            let key = key(ec(), w.host);
            let tomorrow = World::dawn() + Duration::from_secs(86_400);
            let cert = root().issue(&*key, &identity(w.host), 1, |t| t.not_before = tomorrow);
            w.shows(s, Credential::new(key, cert, &[]).unwrap());
        },
        "is valid from",
    ),
    (
        "a CA certificate's key",
        |s, w| {
            let key = key(ec(), w.host);
            let cert = root().issue(&*key, &identity(w.host), 1, |t| {
                t.extended_key_usage = vec!["1.3.6.1.5.5.7.3.4".to_owned()];
            });
            w.shows(s, Credential::new(key, cert, &[]).unwrap());
        },
        "extendedKeyUsage",
    ),
    (
        "no certificate",
        |s, w| w.side(s).connection.send_cert = ike_proto::config::SendCert::Never,
        "no certificate",
    ),
    ("a raw key nobody knows", |s, w| w.shows(s, Credential::raw(key(ec(), w.host))), "public key"),
    (
        "revoked",
        |s, w| {
            let list = root().revocation_list(&[w.host]);
            w.judge(s).answerer.trust_mut().revocation.add_crl(&list).unwrap();
        },
        "revoked",
    ),
    (
        "no word on revocation",
        |s, w| {
            let revocation = RevocationPolicy::Strict;
            let policy = PeerPolicy { revocation, ..PeerPolicy::default() };
            w.judge(s).answerer.set_policy("ab", "remote", policy);
        },
        "not known",
    ),
    ("a path too weak", |s, w| w.judge(s).want("ecdsa-384-ike:pubkey", &root()), "not accepted"),
];

/// The end that is shown the wrong thing says why in its log, and AUTHENTICATION_FAILED on the wire.
#[test]
fn each_ends_alike_on_the_wire() {
    for (name, change, why) in CASES {
        for host in [1, 2] {
            let mut setup = signing(1, ec(), ec());
            change(&mut setup, Wrong { host });
            let mut pair = setup.build();
            let (at_a, at_b) = refused(&mut pair);
            let story = pair.story();
            let (here, wire) = match host {
                1 => (at_b.first().cloned(), Some(at_a)),
                _ => (Some(at_a), at_b.first().cloned()),
            };
            let text = here.as_ref().map(Failure::to_string).unwrap_or_default();
            let said = matches!(here, Some(Failure::Untrusted(..))) && text.contains(why);
            assert!(said, "{name}, host {host}: {text:?}\n{story}");
            // The responder's SA ends by the initiator's word, established or not.
            let told_so = host == 2 || wire == Some(told());
            assert!(told_so, "{name}, host {host}: {wire:?}\n{story}");
        }
    }
}

/// Signs with another key than that of its certificate.
#[derive(Debug)]
struct Impostor(Arc<dyn SigningKey>, Arc<dyn SigningKey>);

impl SigningKey for Impostor {
    fn schemes(&self) -> &[SignatureScheme] {
        self.1.schemes()
    }

    fn public_key(&self) -> &[u8] {
        self.0.public_key()
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.1.sign(scheme, message)
    }
}

/// Bug class 31: the certificate is somebody's, the signature somebody else's.
#[test]
fn class_31_a_signature_by_the_key_of_another_certificate() {
    let types = [ec(), KeyType::Rsa2048, key_type(SignatureScheme::MlDsa44)];
    for key_type in types.into_iter().flat_map(|t| [(t.clone(), t.clone()), (t, ec())]) {
        for host in [1, 2] {
            let mut setup = signing(2, ec(), ec());
            let (shown, own) = (key(key_type.0.clone(), host), key(key_type.1.clone(), host + 40));
            let certificate = root().issue(&*shown, &identity(host), host, |_| {});
            let impostor = Arc::new(Impostor(shown, own));
            let wrong = Wrong { host };
            wrong.shows(&mut setup, Credential::new(impostor, certificate, &[]).unwrap());
            let mut pair = setup.build();
            let (at_a, at_b) = refused(&mut pair);
            let here = if host == 1 { at_b[0].clone() } else { at_a };
            assert_eq!(here, Failure::Authentication, "{}", pair.story());
        }
    }
}

/// Bug class 31: the right CA, the wrong name.
#[test]
fn class_31_a_key_that_is_not_bound_to_the_identity() {
    for host in [1, 2] {
        let mut setup = signing(3, ec(), ec());
        let wrong = Wrong { host };
        // The certificate is for c.example; the ID payload says a.example.
        let credential = credential_for(&root(), ec(), host, &identity(3));
        wrong.side(&mut setup).connection.local[0].id = Some(identity(host));
        let side = wrong.side(&mut setup);
        let mut loose = Answerer::new(side.answerer.trust().clone());
        loose.set_policy("ab", "remote", PeerPolicy::default());
        // A signer that does not look at the identity: a raw key with a certificate pasted on.
        loose.add_credential("ab", "local", credential);
        side.answerer = loose;
        let mut pair = setup.build();
        let (at_a, at_b) = refused(&mut pair);
        let own = if host == 1 { at_a } else { at_b[0].clone() };
        // Our own signer refuses to do that at all.
        assert!(matches!(own, Failure::Credentials(_)), "{own}");
    }
}

#[test]
fn class_31_self_signed_is_not_trusted() {
    for host in [1, 2] {
        let mut setup = signing(4, ec(), ec());
        let own = Authority::root("self", ec(), host);
        Wrong { host }.shows(&mut setup, credential(&own, ec(), host));
        refused(&mut setup.build());
    }
}

/// Bug class 35, fetch before trust: who has not proven to have the key makes nobody fetch.
#[test]
fn fetching_is_asked_for_after_the_signature_alone() {
    for (honest, trusted) in [(true, true), (false, true), (true, false)] {
        for host in [1, 2] {
            let mut setup = signing(5, ec(), ec());
            let ca = if trusted { root() } else { Authority::root("x", ec(), 9) };
            let (shown, other) = (key(ec(), host), key(ec(), host + 40));
            let certificate = ca.issue(&*shown, &identity(host), host, |template| {
                template.crl = vec!["http://crl.example/root.crl".to_owned()];
            });
            let own = if honest { shown.clone() } else { other };
            let credential =
                Credential::new(Arc::new(Impostor(shown, own)), certificate, &[]).unwrap();
            Wrong { host }.shows(&mut setup, credential);
            let mut pair = setup.build();
            let judge = if host == 1 { B } else { A };
            if honest && trusted {
                pair.establish();
                let asked: Vec<_> = asked_of_peer(&pair, judge);
                assert_eq!(asked, ["judge", "revocation"]);
            } else {
                refused(&mut pair);
                let asked = asked_of_peer(&pair, judge);
                assert!(!asked.contains(&"revocation"), "{asked:?}");
            }
        }
    }
}

fn asked_of_peer(pair: &Pair, host: usize) -> Vec<&'static str> {
    pair.hosts[host].asked.iter().copied().filter(|what| *what != "sign").collect()
}

/// With `revocation = strict` the peer is accepted if the list can be had, and not before.
#[test]
fn strict_revocation_with_a_list() {
    let mut setup = signing(6, ec(), ec());
    for side in [&mut setup.a, &mut setup.b] {
        let policy = PeerPolicy { revocation: RevocationPolicy::Strict, ..PeerPolicy::default() };
        side.answerer.set_policy("ab", "remote", policy);
        let list = root().revocation_list(&[77]);
        side.answerer.trust_mut().revocation.add_crl(&list).unwrap();
    }
    comes_up(setup);
}

/// Several connections admit the peer's identity: the one whose CA it has is taken.
#[test]
fn the_certificate_decides_between_connections() {
    let (first, second) = (root(), Authority::root("second", ec(), 8));
    let mut setup = Setup::new(7);
    setup.a.show(credential(&second, ec(), 1));
    setup.a.want("pubkey", &first);
    setup.b.show(credential(&first, ec(), 2));
    setup.b.want("pubkey", &first);
    setup.b.connection.set_remote_id(IdMatch::Any);
    let mut more = setup.b.connection.clone();
    more.name = "second".to_owned();
    more.children = vec![Arc::new(setup.b.children[0].clone())];
    let cacerts = vec![second.certificate.clone()];
    let policy = PeerPolicy { cacerts, ..PeerPolicy::default() };
    setup.b.answerer.set_policy("second", "remote", policy);
    let own = credential(&first, ec(), 2);
    setup.b.answerer.add_credential("second", "local", own);
    setup.b.more.push(more);
    let pair = comes_up(setup);
    assert_eq!(pair.b().ike().connection, "second");
    assert_eq!(pair.b().asked, ["judge", "judge", "sign"]);
}

/// Bug class 43: an identity that no connection admits is judged like any other.
#[test]
fn class_43_an_unknown_identity_takes_the_way_of_a_known_one() {
    let mut setup = signing(8, ec(), ec());
    setup.b.connection.set_remote_id(IdMatch::Exact(identity(7)));
    let mut pair = setup.build();
    let (at_a, _) = refused(&mut pair);
    assert_eq!(at_a, told());
    assert_eq!(pair.b().asked[0], "judge", "although the verdict does not matter");
    assert!(!pair.b().asked.contains(&"sign"));
}

#[test]
fn nothing_is_sent_or_kept_if_this_end_has_no_key() {
    let mut setup = signing(9, ec(), ec());
    setup.a.answerer = Answerer::default();
    let mut pair = setup.build();
    let (failure, at_b) = refused(&mut pair);
    assert!(matches!(failure, Failure::Credentials(_)));
    assert_eq!(at_b, [Failure::Timeout], "half-open, and forgotten");
    assert!(pair.b().events(|event| matches!(event, Event::IkeUp(_)).then_some(())).is_empty());

    let mut setup = signing(9, ec(), ec());
    setup.b.answerer.set_policy("ab", "local", PeerPolicy::default());
    setup.b.connection.local[0] =
        ike_proto::config::LocalAuth::new("keyless", AuthConfig::pubkey());
    setup.b.connection.set_local_id(Some(identity(2)));
    let (at_a, at_b) = refused(&mut setup.build());
    assert_eq!(at_a, told());
    assert!(matches!(at_b[0], Failure::Credentials(_)));
}
