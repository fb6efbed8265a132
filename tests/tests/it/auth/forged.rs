//! Signatures of the composite of which somebody has changed one half or both: in AUTH and in certificates, at either end.

use std::sync::Arc;

use aws_lc_rs::digest;
use aws_lc_rs::signature::Ed25519KeyPair;
use ike_proto::config::AuthConfig;
use ike_proto::crypto::{CryptoError, Scheme, SignatureScheme, SigningKey};
use ike_proto::{Distrust, Failure};
use ike_test_composite::Composite;
use ike_tests::credentials::Authority;
use ike_tests::setup::identity;
use ike_tests::{Pair, Setup};
use ml_dsa::{MlDsa44, MlDsa65, Seed};
use pki::issue::distinguished_name;
use pki::{Certificate, Credential, PeerPolicy, TrustStore};

use super::composite::{INVALID, NAME, register, said};
use super::outside::{both_with, knows};
use super::{refused, told};

/// Octets of the ML-DSA half of a signature.
const ML_DSA: usize = 3309;
/// The label of the composite.
const LABEL: &str = "COMPSIG-MLDSA65-Ed25519-SHA512";
/// That of the composite of ML-DSA-44 and Ed25519.
const OTHER_LABEL: &str = "COMPSIG-MLDSA44-Ed25519-SHA512";

type Change = fn(&Forger, &[u8]) -> Vec<u8>;

/// A key of the composite whose signatures somebody changes.
#[derive(Debug)]
struct Forger {
    key: Box<dyn SigningKey>,
    other: Box<dyn SigningKey>,
    /// The seeds of both halves.
    octets: Vec<u8>,
    change: Change,
}

impl Forger {
    /// A new key.
    fn new(change: Change) -> Self {
        Self::of(Composite.generate().unwrap().expose().to_vec(), change)
    }

    /// The same key, with another change.
    fn with(&self, change: Change) -> Arc<dyn SigningKey> {
        Arc::new(Self::of(self.octets.clone(), change))
    }

    fn of(octets: Vec<u8>, change: Change) -> Self {
        let other = Composite.private_key(Composite.generate().unwrap().expose()).unwrap();
        Self { key: Composite.private_key(&octets).unwrap(), other, octets, change }
    }

    fn good(&self, message: &[u8]) -> Vec<u8> {
        self.key.sign(&self.key.schemes()[0], message).unwrap()
    }

    fn by_other(&self, message: &[u8]) -> Vec<u8> {
        self.other.sign(&self.other.schemes()[0], message).unwrap()
    }

    fn seed(&self) -> Seed {
        Seed::try_from(&self.octets[..32]).unwrap()
    }

    /// The ML-DSA-65 half for a composite with this label.
    fn ml_dsa(&self, label: &str, message: &[u8]) -> Vec<u8> {
        let key = ml_dsa::SigningKey::<MlDsa65>::from_seed(&self.seed());
        let (context, message) = (context(label), representative(label, message));
        let parts = [&context[..], &message];
        key.expanded_key().sign_internal(&parts, &Seed::default()).encode().to_vec()
    }

    /// The Ed25519 half for a composite with this label.
    fn ed25519(&self, label: &str, message: &[u8]) -> Vec<u8> {
        let key = Ed25519KeyPair::from_seed_unchecked(&self.octets[32..]).unwrap();
        key.sign(&representative(label, message)).as_ref().to_vec()
    }

    /// A whole signature of id-MLDSA44-Ed25519-SHA512.
    fn of_other_composite(&self, message: &[u8]) -> Vec<u8> {
        let key = ml_dsa::SigningKey::<MlDsa44>::from_seed(&self.seed());
        let (context, octets) = (context(OTHER_LABEL), representative(OTHER_LABEL, message));
        let half = key.expanded_key().sign_internal(&[&context, &octets], &Seed::default());
        [&half.encode()[..], &self.ed25519(OTHER_LABEL, message)].concat()
    }
}

/// The beginning of what ML-DSA signs (FIPS 204, algorithm 2).
fn context(label: &str) -> Vec<u8> {
    [&[0, label.len() as u8], label.as_bytes()].concat()
}

/// What the halves of a composite sign.
fn representative(label: &str, message: &[u8]) -> Vec<u8> {
    let hash = digest::digest(&digest::SHA512, message);
    let prefix = format!("CompositeAlgorithmSignatures2025{label}\0").into_bytes();
    [&prefix[..], hash.as_ref()].concat()
}

impl SigningKey for Forger {
    fn schemes(&self) -> &[SignatureScheme] {
        self.key.schemes()
    }

    fn public_key(&self) -> &[u8] {
        self.key.public_key()
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        assert!(self.key.schemes().contains(scheme));
        Ok((self.change)(self, message))
    }
}

/// The ML-DSA half of `one` and the Ed25519 half of `other`.
fn mixed(one: &[u8], other: &[u8]) -> Vec<u8> {
    [&one[..ML_DSA], &other[ML_DSA..]].concat()
}

fn flipped(mut signature: Vec<u8>, at: usize) -> Vec<u8> {
    signature[at] ^= 1;
    signature
}

const NOTHING: Change = |it, message| it.good(message);
const CHANGES: &[(&str, Change)] = &[
    ("ML-DSA half forged", |it, message| flipped(it.good(message), 100)),
    ("Ed25519 half forged", |it, message| flipped(it.good(message), ML_DSA)),
    ("ML-DSA half of another message", |it, message| {
        mixed(&it.good(b"another"), &it.good(message))
    }),
    ("Ed25519 half of another message", |it, message| {
        mixed(&it.good(message), &it.good(b"another"))
    }),
    ("both of another message", |it, _| it.good(b"another")),
    ("ML-DSA half by another key", |it, message| mixed(&it.by_other(message), &it.good(message))),
    ("Ed25519 half by another key", |it, message| mixed(&it.good(message), &it.by_other(message))),
    ("halves in the other order", |it, message| {
        let signature = it.good(message);
        [&signature[ML_DSA..], &signature[..ML_DSA]].concat()
    }),
    ("ML-DSA half with the label of another composite", |it, message| {
        [it.ml_dsa(OTHER_LABEL, message), it.ed25519(LABEL, message)].concat()
    }),
    ("Ed25519 half with the label of another composite", |it, message| {
        [it.ml_dsa(LABEL, message), it.ed25519(OTHER_LABEL, message)].concat()
    }),
    ("signature of another composite", |it, message| it.of_other_composite(message)),
    ("ML-DSA half alone", |it, message| it.good(message)[..ML_DSA].to_vec()),
    ("Ed25519 half alone", |it, message| it.good(message)[ML_DSA..].to_vec()),
    ("one octet more", |it, message| [&it.good(message)[..], &[0]].concat()),
    ("nothing", |_, _| Vec::new()),
];

/// Root, intermediate CA, and a certificate for each host. All keys are of the composite.
pub(super) struct Chain {
    forgers: [Forger; 4],
    root: Authority,
    inter: Authority,
}

impl Chain {
    pub(super) fn new() -> Self {
        let forgers = [(); 4].map(|()| Forger::new(NOTHING));
        let root = Authority::root_with("root", forgers[0].with(NOTHING), 100);
        let inter = root.intermediate_with("inter", forgers[1].with(NOTHING), 101);
        Self { forgers, root, inter }
    }

    /// The credential of the host with this index; `changes` are those of what the root signs, of what the intermediate
    /// CA signs, and of what the host signs.
    fn credential(&self, host: usize, changes: [Change; 3]) -> Credential {
        let [of_root, of_inter, own] = changes;
        let root = self.root.signing_by(self.forgers[0].with(of_root));
        let inter = root.intermediate_with("inter", self.forgers[1].with(of_inter), 101);
        let key = self.forgers[2 + host].with(own);
        let number = host as u8 + 1;
        let certificate = inter.issue(&*key, &identity(number), number, |template| {
            template.subject = distinguished_name(["CN=a", "CN=b"][host]).unwrap();
        });
        Credential::new(key, certificate, &[inter.certificate]).unwrap()
    }

    /// Both ends have such credentials, trust the root, and want `auth`.
    fn both(&self, changes: [[Change; 3]; 2], auth: [&str; 2]) -> Setup {
        self.both_by([0, 1].map(|host| self.credential(host, changes[host])), auth)
    }

    /// Both ends with nothing changed.
    pub(super) fn both_as_it_is(&self, auth: [&str; 2]) -> Setup {
        self.both([[NOTHING; 3]; 2], auth)
    }

    fn both_by(&self, credentials: [Credential; 2], auth: [&str; 2]) -> Setup {
        let register = register();
        let mut setup = Setup::new(12);
        let sides = [&mut setup.a, &mut setup.b].into_iter().zip(credentials);
        for (n, (side, credential)) in sides.enumerate() {
            knows(side, &register);
            *side.answerer.trust_mut() = TrustStore::with_schemes(&register);
            let root = Certificate::from_der(self.root.certificate.der()).unwrap();
            side.answerer.trust_mut().add_ca(root).unwrap();
            let own = AuthConfig::parse_with(&register, NAME).unwrap();
            side.show_in("local", own, credential);
            let theirs = AuthConfig::parse_with(&register, auth[n]).unwrap();
            let AuthConfig::Pubkey(pubkey) = &theirs else { panic!("{theirs:?}") };
            let policy = PeerPolicy { chain: pubkey.chain.clone(), ..PeerPolicy::default() };
            side.answerer.set_policy("ab", "remote", policy);
            side.connection.remote[0].auth = theirs;
            side.connection.remote[0].certreqs = side.answerer.certreqs("ab", "remote");
        }
        setup
    }
}

/// The end with the other index refuses `forger` for this reason, and there is no SA.
#[track_caller]
fn refuses(mut pair: Pair, forger: usize, why: &str, what: &str) {
    let (at_a, at_b) = refused(&mut pair);
    assert_eq!(said(&pair.hosts[1 - forger])[0], why, "{what} of {forger}");
    match forger {
        0 => assert_eq!(at_a, told(), "{what}"),
        _ if why == INVALID => assert_eq!(at_a, Failure::Authentication, "{what}"),
        _ => assert_eq!(at_a, Failure::Untrusted(Distrust::Other, why.to_owned()), "{what}"),
    }
    assert!(!at_b.is_empty(), "{what}");
}

/// `change` of the one with the index `forger`.
fn only<const N: usize>(forger: usize, change: Change) -> [Change; N] {
    std::array::from_fn(|n| if n == forger { change } else { NOTHING })
}

/// Faults: in `Composite::verify`, `|` in the place of `&`, the ML-DSA half alone, or the Ed25519 half alone.
#[test]
fn an_auth_payload_with_a_changed_half_is_refused_at_either_end_by_raw_keys() {
    let registers = [register(), register()];
    let by = |forger: usize, change: Change| {
        let keys = only::<2>(forger, change).map(|change| Arc::new(Forger::new(change)) as _);
        both_with([NAME, NAME], registers.each_ref(), keys).build()
    };
    for (what, change) in CHANGES {
        for forger in [0, 1] {
            refuses(by(forger, *change), forger, INVALID, what);
        }
    }
    by(0, NOTHING).establish();
}

/// Faults: those of the test above.
#[test]
fn an_auth_payload_with_a_changed_half_is_refused_at_either_end_by_certificates() {
    let chain = Chain::new();
    let by = |forger: usize, change: Change| {
        let own = only::<2>(forger, change).map(|change| only::<3>(2, change));
        chain.both(own, [NAME, NAME]).build()
    };
    for (what, change) in CHANGES {
        for forger in [0, 1] {
            refuses(by(forger, *change), forger, INVALID, what);
        }
    }
    by(0, NOTHING).establish();
}

/// The line has the certificate whose signature is wrong, and not the one below it.
///
/// Faults: those of the test above; in `Search::dead_end`, name the end entity always; in `Search::refusal`, leave the
/// schemes of the program out.
#[test]
fn a_certificate_with_a_changed_half_is_refused_at_either_end() {
    let chain = Chain::new();
    for (what, change) in CHANGES {
        for (forger, own) in [(0, "CN=a"), (1, "CN=b")] {
            for (signer, subject) in [(0, "CN=inter"), (1, own)] {
                let mut all = [[NOTHING; 3]; 2];
                all[forger] = only(signer, *change);
                let why = format!(
                    "certificate {subject:?} has a signature by {NAME} that does not verify by the key of its CA"
                );
                refuses(chain.both(all, [NAME, NAME]).build(), forger, &why, what);
            }
        }
    }
}

/// The two certificates of one CA exchange their Ed25519 halves, which are the last octets.
///
/// Faults: those of the tests above.
#[test]
fn certificates_that_exchange_halves_are_refused_at_either_end() {
    let chain = Chain::new();
    let own = [0, 1].map(|host| chain.credential(host, [NOTHING; 3]));
    let [one, other] = own.each_ref().map(|own| own.certificate().unwrap().der());
    let exchanged = |to: &[u8], from: &[u8]| {
        let (front, _) = to.split_at(to.len() - 64);
        let octets = [front, &from[from.len() - 64..]].concat();
        Arc::new(Certificate::from_der(&octets).unwrap())
    };
    let changed = [exchanged(one, other), exchanged(other, one)];
    for (forger, subject) in [(0, "CN=a"), (1, "CN=b")] {
        let (key, inter) = (Arc::clone(own[forger].key()), Arc::clone(&chain.inter.certificate));
        let mut shown = own.clone();
        shown[forger] = Credential::new(key, Arc::clone(&changed[forger]), &[inter]).unwrap();
        let setup = chain.both_by(shown, [NAME, NAME]);
        let why = format!(
            "certificate {subject:?} has a signature by {NAME} that does not verify by the key of its CA"
        );
        refuses(setup.build(), forger, &why, "exchanged halves");
    }
}

/// The scheme that is not named is not even verified: a wrong signature is told in the same way.
///
/// Fault: in `Search::signature`, verify by all schemes of the program.
#[test]
fn a_chain_of_a_scheme_that_is_not_named_is_told_with_its_certificate_at_either_end() {
    let chain = Chain::new();
    for change in [NOTHING, CHANGES[0].1] {
        for forger in [0, 1] {
            let mut all = [[NOTHING; 3]; 2];
            all[forger] = only(0, change);
            let mut auth = [NAME, NAME];
            auth[1 - forger] = "ike:composite_mldsa65_ed25519";
            let why = format!(
                "certificate \"CN=inter\" has signature scheme {NAME}, which `auth` does not name for certificates: name {NAME} before `ike:`, or without it, to accept it"
            );
            refuses(chain.both(all, auth).build(), forger, &why, "unnamed");
        }
    }
}
