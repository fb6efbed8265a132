//! Certificates, revocation lists and OCSP responses with a signature scheme that the program brings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ike_proto::config::{AuthConfig, SchemeConstraints};
use ike_proto::crypto::sign::{OutsideScheme, SchemeLengths, SubjectPublicKeyInfo};
use ike_proto::crypto::{
    CryptoError, Scheme, SchemeRegister, Secret, SignatureScheme, SignatureVerifier, SigningKey,
};
use ike_proto::wire::payload::Cert;
use ike_proto::wire::registry::{AuthMethod, CertEncoding, HashId};
use ike_proto::{
    Answer, OwnedCert, PeerCertificate, PeerCredentials, Question, ResumeClaim, UsedAuth,
};
use pki::issue::{self, CertificateStatus, Issuer, Request, RevokedEntry, Template, ocsp_response};
use pki::{
    Answerer, Certificate, Credential, Crl, ExtendedKeyUsagePolicy, FetchKind, LoadError,
    PeerPolicy, PkiError, RawKey, Record, Revocation, RevocationPolicy, TrustNow, TrustStore,
    TrustedPeer, verify_peer,
};
use pq_kem::sign::{AwsLc, KeyType, generate, load_private_key, load_private_key_with};

use crate::anchors::{ca_template, leaf_template};
use crate::common::{id, now, x509};
use crate::outside_curves::Curved;

const LEAF: &str = "leaf.example.org";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Ed25519 over the message with a word before it, under an identifier of its own.
#[derive(Debug, Clone)]
struct Worded;

/// 1.3.6.1.4.1.99999.7.
const IDENTIFIER: &[u8] = &[0x30, 0x0b, 6, 9, 0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 7];
const WORD: &[u8] = b"worded ";

impl Scheme for Worded {
    fn name(&self) -> &str {
        "worded"
    }

    fn algorithm_identifier(&self) -> &[u8] {
        IDENTIFIER
    }

    fn hash(&self) -> HashId {
        HashId::IDENTITY
    }

    fn is_post_quantum(&self) -> bool {
        false
    }

    fn lengths(&self) -> SchemeLengths {
        SchemeLengths { public_key: 32, signature: 64 }
    }

    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let scheme = SignatureScheme::Ed25519;
        let spki =
            SubjectPublicKeyInfo { algorithm: scheme.key_algorithm_identifier(), key }.encode();
        AwsLc.verify(&scheme, &spki, &[WORD, message].concat(), signature)
    }

    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let inner = load_private_key(octets).map_err(|_| CryptoError::Length)?;
        let key = SubjectPublicKeyInfo::parse(inner.public_key()).ok_or(CryptoError::Length)?.key;
        let spki = SubjectPublicKeyInfo { algorithm: IDENTIFIER, key }.encode();
        Ok(Box::new(Key { schemes: [worded()], inner, spki }))
    }

    fn generate(&self) -> Result<Secret, CryptoError> {
        Ok(Secret::copy_from(&generate(KeyType::Scheme(SignatureScheme::Ed25519))?))
    }
}

#[derive(Debug)]
struct Key {
    schemes: [SignatureScheme; 1],
    inner: Box<dyn SigningKey>,
    spki: Vec<u8>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, _: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.inner.sign(&SignatureScheme::Ed25519, &[WORD, message].concat())
    }
}

/// Signs without the word.
#[derive(Debug)]
struct Bare([SignatureScheme; 1], Box<dyn SigningKey>);

impl SigningKey for Bare {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.0
    }

    fn public_key(&self) -> &[u8] {
        self.1.public_key()
    }

    fn sign(&self, _: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.1.sign(&SignatureScheme::Ed25519, message)
    }
}

fn worded() -> SignatureScheme {
    SignatureScheme::Outside(OutsideScheme::from(Arc::new(Worded) as Arc<dyn Scheme>))
}

pub(crate) fn register() -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    register.add(Arc::new(Worded) as Arc<dyn Scheme>).unwrap();
    register.add(Arc::new(Curved) as Arc<dyn Scheme>).unwrap();
    register
}

fn new_key(scheme: &SignatureScheme) -> Box<dyn SigningKey> {
    let pkcs8 = generate(KeyType::Scheme(scheme.clone())).unwrap();
    load_private_key_with(&register(), &pkcs8).unwrap()
}

/// A CA, or an end entity, with its key.
pub(crate) struct Node {
    pub certificate: Arc<Certificate>,
    pub key: Box<dyn SigningKey>,
}

impl Node {
    fn root(template: &Template, scheme: &SignatureScheme) -> Self {
        let key = new_key(scheme);
        let issuer = Issuer { key: &*key, scheme: scheme.clone(), name: &template.subject };
        let der = issue::certificate(template, key.public_key(), &issuer).unwrap();
        Self { certificate: Arc::new(Certificate::from_der(&der).unwrap()), key }
    }

    pub fn issuer(&self) -> Issuer<'_> {
        let scheme = self.key.schemes()[0].clone();
        Issuer { key: &*self.key, scheme, name: self.certificate.subject() }
    }

    fn below(&self, template: &Template, scheme: &SignatureScheme) -> Self {
        let key = new_key(scheme);
        let der = issue::certificate(template, key.public_key(), &self.issuer()).unwrap();
        Self { certificate: Arc::new(Certificate::from_der(&der).unwrap()), key }
    }
}

/// A chain of root, intermediate and end entity, by these schemes.
pub(crate) fn chain(schemes: [SignatureScheme; 3]) -> [Node; 3] {
    let [root, inter, leaf] = schemes;
    let root = Node::root(&ca_template("Root"), &root);
    let inter = root.below(&ca_template("Inter"), &inter);
    let leaf = inter.below(&leaf_template(), &leaf);
    [root, inter, leaf]
}

pub(crate) fn trust_in(register: &SchemeRegister, root: &Node) -> TrustStore {
    let mut trust = TrustStore::with_schemes(register);
    // As a file of x509ca/: only a self-signed CA becomes an anchor.
    trust.add((*root.certificate).clone()).unwrap();
    trust
}

pub(crate) fn policy(auth: &str) -> PeerPolicy {
    let chain = match AuthConfig::parse_with(&register(), auth) {
        Ok(AuthConfig::Pubkey(pubkey)) => pubkey.chain,
        other => panic!("{other:?}"),
    };
    PeerPolicy { chain, ..PeerPolicy::default() }
}

pub(crate) fn verdict(
    [_, inter, leaf]: &[Node; 3],
    policy: &PeerPolicy,
    trust: &TrustStore,
) -> Result<TrustedPeer, PkiError> {
    let shown = [x509(leaf.certificate.der()), x509(inter.certificate.der())];
    verify_peer(&id(LEAF), &shown, policy, trust, now())
}

/// Faults: in `Search::signature`, verify by all schemes (the unnamed one is accepted); in `Signed::check`, leave
/// `of_signature` out (nothing is accepted); in `TrustStore::add`, ask the certificate itself (the root is no anchor).
#[test]
fn a_chain_of_the_scheme_is_accepted_where_auth_names_it() {
    let nodes = chain([worded(), worded(), worded()]);
    let trust = trust_in(&register(), &nodes[0]);
    for auth in ["worded", "pubkey-worded", "mldsa-worded"] {
        let peer = verdict(&nodes, &policy(auth), &trust).unwrap();
        assert_eq!(peer.spki, nodes[2].key.public_key(), "{auth}");
    }
    for auth in ["pubkey", "ike:worded"] {
        let why = verdict(&nodes, &policy(auth), &trust).unwrap_err();
        let PkiError::UnnamedScheme { scheme, .. } = &why else { panic!("{auth}: {why:?}") };
        assert_eq!(scheme, "worded", "{auth}");
    }
    for auth in ["mldsa", "pubkey-sha256-identity"] {
        let why = verdict(&nodes, &policy(auth), &trust).unwrap_err();
        assert!(matches!(why, PkiError::UnnamedScheme { .. }), "{auth}: {why:?}");
    }
    // In EAP no scheme of the program can be named.
    let mut answerer = Answerer::new(trust.clone());
    answerer.set_policy("site", "remote", policy("worded"));
    let usage = ExtendedKeyUsagePolicy::EapPeer;
    let why = answerer.judge_in_tls(&peer(&nodes, "pubkey"), usage, now()).unwrap_err().to_string();
    assert_eq!(
        why,
        "certificate \"O=Acme, CN=Inter\" has signature scheme worded, which EAP does not take: use a path of built-in schemes"
    );
    // A program without the scheme.
    let mut bare = TrustStore::new();
    bare.add_ca((*nodes[0].certificate).clone()).unwrap();
    let why = verdict(&nodes, &policy("worded"), &bare).unwrap_err().to_string();
    assert_eq!(
        why,
        "certificate \"O=Acme, CN=Inter\" has a signature by algorithm 1.3.6.1.4.1.99999.7, which is not accepted"
    );
}

/// `auth = ike:…` says nothing about the path, and the engine judges the key of the peer by it.
///
/// Fault: in `check_strength`, give `of_certificate` the key of the certificate itself.
#[test]
fn the_key_of_a_peer_is_judged_by_the_engine_where_auth_leaves_paths_free() {
    let ed25519 = SignatureScheme::Ed25519;
    let nodes = chain([ed25519.clone(), ed25519.clone(), worded()]);
    let trust = trust_in(&register(), &nodes[0]);
    for auth in ["ike:worded", "pubkey", "ed25519-worded"] {
        assert!(verdict(&nodes, &policy(auth), &trust).is_ok(), "{auth}");
    }
    for auth in ["ed25519", "mldsa"] {
        assert!(verdict(&nodes, &policy(auth), &trust).is_err(), "{auth}");
    }
    // One link of the scheme is enough to be refused.
    for at in 0..2 {
        let mut schemes = [ed25519.clone(), ed25519.clone(), ed25519.clone()];
        schemes[at] = worded();
        let nodes = chain(schemes);
        let trust = trust_in(&register(), &nodes[0]);
        let why = verdict(&nodes, &policy("pubkey"), &trust).unwrap_err();
        assert!(matches!(why, PkiError::UnnamedScheme { .. }), "{at}: {why:?}");
        assert!(verdict(&nodes, &policy("ed25519-worded"), &trust).is_ok());
    }
}

/// Fault: in `Signed::check`, take `Err` of the scheme for good.
#[test]
fn a_wrong_signature_of_the_scheme_is_refused() {
    let nodes = chain([worded(), worded(), worded()]);
    let trust = trust_in(&register(), &nodes[0]);
    let whole = nodes[2].certificate.der().to_vec();
    // In the signature, and in the key.
    let spki = nodes[2].key.public_key();
    let key_at = whole.windows(spki.len()).position(|part| part == spki).unwrap() + spki.len() - 1;
    for at in [whole.len() - 1, whole.len() - 64, key_at] {
        let mut forged = whole.clone();
        forged[at] ^= 1;
        let shown = [x509(&forged), x509(nodes[1].certificate.der())];
        let why = verify_peer(&id(LEAF), &shown, &policy("worded"), &trust, now()).unwrap_err();
        assert!(matches!(why, PkiError::BadSignature { .. }), "{at}: {why:?}");
    }
    // A signature by the key of Ed25519, without the word.
    let pkcs8 = Worded.generate().unwrap();
    let key = Worded.private_key(pkcs8.expose()).unwrap();
    let bare = Bare([worded()], load_private_key(pkcs8.expose()).unwrap());
    let (template, spki) = (ca_template("Inter"), key.public_key().to_vec());
    let der = issue::certificate(&template, &spki, &nodes[0].issuer()).unwrap();
    let inter = Certificate::from_der(&der).unwrap();
    for (key, good) in [(&*key, true), (&bare as &dyn SigningKey, false)] {
        let issuer = Issuer { key, scheme: worded(), name: inter.subject() };
        let leaf =
            issue::certificate(&leaf_template(), nodes[2].key.public_key(), &issuer).unwrap();
        let verdict = verify_peer(
            &id(LEAF),
            &[x509(&leaf), x509(inter.der())],
            &policy("worded"),
            &trust,
            now(),
        );
        assert_eq!(verdict.is_ok(), good);
        assert!(good || matches!(verdict, Err(PkiError::BadSignature { .. })));
    }
}

/// Faults: in `Proof::is_by`, verify with no schemes; in `is_known`, leave `schemes` out.
#[test]
fn lists_of_the_scheme_revoke() {
    let nodes = chain([worded(), worded(), worded()]);
    let list = |by: &Node, revoked: &[&Node]| {
        let entry = |one: &&Node| RevokedEntry {
            serial: one.certificate.serial().to_vec(),
            at: now(),
            reason: RevokedEntry::reason("key-compromise"),
        };
        let entries: Vec<_> = revoked.iter().map(entry).collect();
        issue::revocation_list(&by.issuer(), now(), now() + YEAR, 1, &entries).unwrap()
    };
    let strict = PeerPolicy { revocation: RevocationPolicy::Strict, ..policy("worded") };
    let mut trust = trust_in(&register(), &nodes[0]);
    trust.revocation.add_crl(&list(&nodes[0], &[])).unwrap();
    let mut revoking = trust.clone();
    trust.revocation.add_crl(&list(&nodes[1], &[])).unwrap();
    let peer = verdict(&nodes, &strict, &trust).unwrap();
    assert!(matches!(peer.revocation, Revocation::Settled));
    let of_leaf = list(&nodes[1], &[&nodes[2]]);
    revoking.revocation.add_crl(&of_leaf).unwrap();
    let why = verdict(&nodes, &strict, &revoking).unwrap_err();
    assert!(matches!(why, PkiError::Revoked { .. }), "{why:?}");
    // One that another key of the scheme has signed counts for nothing.
    let other = Node::root(&ca_template("Inter"), &worded());
    let mut fooled = trust_in(&register(), &nodes[0]);
    fooled.revocation.add_crl(&list(&other, &[&nodes[2]])).unwrap();
    assert!(verdict(&nodes, &policy("worded"), &fooled).is_ok());
    // A program without the scheme reads no such list.
    let refused = LoadError::Unsupported("signature algorithm of the revocation list");
    assert_eq!(Crl::load(&of_leaf).map(|_| ()), Err(refused));
    let whole = Crl::load_whole(&register(), &of_leaf).unwrap();
    assert!(whole.is_signed_by(&nodes[1].certificate) && !whole.is_signed_by(&other.certificate));
    assert!(
        trust
            .revocation
            .read_crl_stream(of_leaf.as_slice())
            .unwrap()
            .revokes(&nodes[2].certificate)
    );
}

/// Faults: in `ocsp::read`, or in `Signed::delegate`, always use the schemes of the program.
#[test]
fn responses_by_the_scheme_count_if_the_ca_has_it() {
    let ed25519 = SignatureScheme::Ed25519;
    let responder = |ca: &Node| {
        let template = Template {
            subject: issue::distinguished_name("O=Acme, CN=responder").unwrap(),
            extended_key_usage: vec!["1.3.6.1.5.5.7.3.9".to_owned()],
            ca: false,
            crl: Vec::new(),
            ..ca_template("responder")
        };
        ca.below(&template, &worded())
    };
    for (ca, direct, delegated) in [(worded(), true, true), (ed25519.clone(), true, false)] {
        let template =
            Template { ocsp: vec!["http://ocsp.example.org".to_owned()], ..leaf_template() };
        let root = Node::root(&ca_template("Root"), &ca);
        let leaf = root.below(&template, &ed25519);
        let delegate = responder(&root);
        for (by, shown, counts) in
            [(&root, None, direct), (&delegate, Some(&*delegate.certificate), delegated)]
        {
            let mut trust = trust_in(&register(), &root);
            let strict =
                PeerPolicy { revocation: RevocationPolicy::Strict, ..policy("ed25519-worded") };
            let judge = |trust: &TrustStore| {
                verify_peer(&id(LEAF), &[x509(leaf.certificate.der())], &strict, trust, now())
            };
            let Revocation::Pending(requests) = judge(&trust).unwrap().revocation else {
                panic!("nothing is asked")
            };
            let ocsp =
                |request: &&pki::FetchRequest| matches!(request.kind, FetchKind::Ocsp { .. });
            let request = requests.iter().find(ocsp).expect("a request");
            let status = CertificateStatus {
                certificate: &leaf.certificate,
                issuer: &root.certificate,
                revoked: None,
            };
            let response =
                ocsp_response(&by.issuer(), shown, &[status], now(), Some(now() + YEAR)).unwrap();
            let taken = trust.revocation.deliver(request, Some(&response), now());
            assert_eq!(taken.is_ok(), counts, "{ca} {taken:?}");
            if shown.is_some() {
                // As a file of x509ocsp/, without its certificate in the response.
                let mut trust = trust_in(&register(), &root);
                trust.revocation.add_responder(Arc::clone(&delegate.certificate)).unwrap();
                let response =
                    ocsp_response(&by.issuer(), None, &[status], now(), Some(now() + YEAR));
                let taken = trust.revocation.deliver(request, Some(&response.unwrap()), now());
                assert_eq!(taken.is_ok(), counts, "{ca} {taken:?}");
            }
        }
    }
}

/// Fault: in `InBand`, verify with no schemes.
#[test]
fn responses_of_the_scheme_count_in_cert_payloads() {
    let ed25519 = SignatureScheme::Ed25519;
    let root = Node::root(&ca_template("Root"), &worded());
    let leaf = root.below(&leaf_template(), &ed25519);
    let trust = trust_in(&register(), &root);
    let (certificate, issuer) = (&*leaf.certificate, &*root.certificate);
    let settled = |revoked, change: u8, ocsp| {
        let status = CertificateStatus { certificate, issuer, revoked };
        let response = ocsp_response(&root.issuer(), None, &[status], now(), Some(now() + YEAR));
        let mut response = response.unwrap();
        *response.last_mut().unwrap() ^= change;
        let shown =
            [x509(certificate.der()), Cert { encoding: CertEncoding::OCSP, data: &response }];
        let revocation = RevocationPolicy::Strict;
        let strict = PeerPolicy { revocation, ocsp, ..policy("ed25519-worded") };
        let peer = verify_peer(&id(LEAF), &shown, &strict, &trust, now())?;
        Ok(matches!(peer.revocation, Revocation::Settled))
    };
    assert_eq!(settled(None, 0, true), Ok(true));
    assert!(matches!(settled(Some(now()), 0, true), Err(PkiError::Revoked { .. })));
    for (change, ocsp) in [(1, true), (0, false)] {
        assert_ne!(settled(None, change, ocsp), Ok(true));
    }
}

/// An anchor of the scheme says nothing to connections that do not name it: a pin and a raw key stand by themselves.
///
/// Faults: in `verify::certificate`, leave `UnnamedScheme` out; in `raw_key`, leave `check_named` out.
#[test]
fn a_pin_and_a_raw_key_need_no_path_of_the_scheme() {
    let nodes = chain([worded(), worded(), SignatureScheme::Ed25519]);
    let trust = trust_in(&register(), &nodes[0]);
    assert!(verdict(&nodes, &policy("pubkey"), &trust).is_err());
    let pinned = PeerPolicy { certs: vec![Arc::clone(&nodes[2].certificate)], ..policy("pubkey") };
    assert!(verdict(&nodes, &pinned, &trust).is_ok());
    let key = RawKey { id: id(LEAF), spki: nodes[2].key.public_key().to_vec() };
    let raw = |auth| PeerPolicy {
        pubkeys: vec![key.clone()],
        revocation: RevocationPolicy::Strict,
        ..policy(auth)
    };
    let peer = verdict(&nodes, &raw("pubkey"), &trust).unwrap();
    assert!(peer.path.is_empty() && matches!(peer.revocation, Revocation::Settled));
    // Where it is named, the path counts.
    assert!(!matches!(
        verdict(&nodes, &raw("pubkey-worded"), &trust),
        Ok(TrustedPeer { revocation: Revocation::Settled, .. })
    ));
}

/// The same peer as [`verdict`] judges, as the engine asks about it.
fn peer([_, inter, leaf]: &[Node; 3], auth: &str) -> PeerCredentials {
    let shown = [x509(leaf.certificate.der()), x509(inter.certificate.der())];
    PeerCredentials {
        connection: "site".to_owned(),
        round: "remote".to_owned(),
        id: id(LEAF),
        certs: shown.into_iter().map(OwnedCert::from).collect(),
        chain: policy(auth).chain,
    }
}

/// A scheme whose verifications are counted.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Scheme for Counted {
    fn name(&self) -> &str {
        Worded.name()
    }

    fn algorithm_identifier(&self) -> &[u8] {
        IDENTIFIER
    }

    fn hash(&self) -> HashId {
        Worded.hash()
    }

    fn is_post_quantum(&self) -> bool {
        Worded.is_post_quantum()
    }

    fn lengths(&self) -> SchemeLengths {
        Worded.lengths()
    }

    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Worded.verify(key, message, signature)
    }

    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        Worded.private_key(octets)
    }

    fn generate(&self) -> Result<Secret, CryptoError> {
        Worded.generate()
    }
}

/// Strangers show certificates before anybody is authenticated: what the connection does not name costs no verification,
/// and what it names is verified on a thread of its own.
///
/// Faults: in `Search::signature`, verify by all schemes of the program; in `Answerer::is_quick`, leave `is_outside` out.
#[test]
fn a_scheme_that_is_not_named_never_verifies() {
    let counted: Arc<Counted> = Arc::default();
    let mut known = SchemeRegister::built_in();
    known.add(Arc::clone(&counted) as Arc<dyn Scheme>).unwrap();
    let mut trust = TrustStore::with_schemes(&known);
    let nodes = chain([worded(), worded(), worded()]);
    trust.add_ca((*nodes[0].certificate).clone()).unwrap();
    trust.set_cert_cache(false);
    let mut answerer = Answerer::new(trust);
    for (auth, verified) in [("pubkey", 0), ("ike:worded", 0), ("ed25519", 0), ("worded", 2)] {
        answerer.set_policy("site", "remote", policy(auth));
        let before = counted.0.load(Ordering::Relaxed);
        let question = Question::Judge(peer(&nodes, auth));
        assert_eq!(answerer.is_quick(&question), verified == 0, "{auth}");
        let answer = answerer.answer(&question, now());
        assert_eq!(matches!(answer, Answer::Key(_)), verified > 0, "{auth}: {answer:?}");
        assert_eq!(counted.0.load(Ordering::Relaxed) - before, verified, "{auth}");
    }
}

/// Fault: in `Answerer::certreqs`, leave `is_named` out.
#[test]
fn no_ca_is_asked_for_whose_scheme_is_not_named() {
    let roots = [Node::root(&ca_template("Root"), &worded()), {
        Node::root(&ca_template("Plain"), &SignatureScheme::Ed25519)
    }];
    let mut trust = TrustStore::with_schemes(&register());
    for root in &roots {
        trust.add_ca((*root.certificate).clone()).unwrap();
    }
    let hash = |root: &Node| pki::ca_hash(root.certificate.spki()).to_vec();
    let mut answerer = Answerer::new(trust);
    for (auth, asked) in [
        ("pubkey", hash(&roots[1])),
        ("ike:worded", hash(&roots[1])),
        ("pubkey-worded", [hash(&roots[0]), hash(&roots[1])].concat()),
    ] {
        answerer.set_policy("site", "remote", policy(auth));
        let requests = answerer.certreqs("site", "remote");
        assert_eq!(requests.len(), 1, "{auth}");
        assert_eq!(requests[0].authorities, asked, "{auth}");
    }
    // No CA is left. The peer may show any certificate, and the refusal names the scheme.
    let alone = Answerer::new(trust_in(&register(), &roots[0]));
    assert_eq!(alone.certreqs("site", "remote")[0].authorities, []);
}

/// A peer that was accepted by the scheme is judged by the `auth` in force.
///
/// Faults, each by itself: in `TrustedPeer::shown`, write no schemes; in `Judged::trust`, leave `all_named` out; in
/// `PathSchemes::are_named`, answer for the first one.
#[test]
fn a_path_stands_as_long_as_auth_names_its_scheme() {
    let ed25519 = SignatureScheme::Ed25519;
    let by = |schemes: [SignatureScheme; 3], auth: &str| {
        let nodes = chain(schemes);
        let trust = trust_in(&register(), &nodes[0]);
        let shown = verdict(&nodes, &policy(auth), &trust).unwrap().shown();
        (nodes, trust, shown)
    };
    let now_by = |trust: &TrustStore, shown: &Arc<PeerCertificate>, policy: Option<PeerPolicy>| {
        let mut answerer = Answerer::new(trust.clone());
        if let Some(policy) = policy {
            answerer.set_policy("site", "remote", policy);
        }
        let used = UsedAuth {
            id: id(LEAF),
            method: AuthMethod::DIGITAL_SIGNATURE,
            scheme: Some(worded()),
            certificate: Some(Arc::clone(shown)),
            eap: None,
            addresses: None,
        };
        let judged = TrustNow::of(&answerer, ("site", "remote"), &used);
        let claim = ResumeClaim {
            connection: "site".to_owned(),
            rounds: vec![("remote".to_owned(), used)],
        };
        let resumed = matches!(answerer.resume(&claim, now()), Answer::Resumable);
        assert_eq!(resumed, judged == TrustNow::Same);
        judged
    };
    for schemes in [
        [worded(), worded(), worded()],
        [worded(), ed25519.clone(), worded()],
        [ed25519.clone(), worded(), ed25519.clone()],
    ] {
        let (nodes, trust, shown) = by(schemes, "pubkey-worded");
        for (auth, expected) in [
            ("worded", TrustNow::Same),
            ("pubkey-worded", TrustNow::Same),
            ("pubkey", TrustNow::SchemeRemoved),
            ("ike:worded", TrustNow::SchemeRemoved),
            ("mldsa", TrustNow::SchemeRemoved),
        ] {
            assert_eq!(now_by(&trust, &shown, Some(policy(auth))), expected, "{auth}");
        }
        // A pin needs no path.
        let certs = vec![Arc::clone(&nodes[2].certificate)];
        let pinned = PeerPolicy { certs, ..policy("pubkey") };
        assert_eq!(now_by(&trust, &shown, Some(pinned)), TrustNow::Same);
        assert_eq!(Record::of_path(&shown.path).len(), 2);
    }
    // The key alone is of the scheme: AUTH is judged by the engine.
    let (_, trust, shown) = by([ed25519.clone(), ed25519.clone(), worded()], "ike:worded");
    assert_eq!(now_by(&trust, &shown, Some(policy("pubkey"))), TrustNow::Same);
    // A round of another method has no policy.
    assert_eq!(now_by(&trust, &shown, None), TrustNow::Same);
}

/// A second key of the scheme under the CA signs the lists.
///
/// Fault: in `list_signers`, leave `unnamed` out: then the other key revokes by a scheme that is not named.
#[test]
fn a_signer_of_lists_by_the_scheme_counts_where_it_is_named() {
    let ed25519 = SignatureScheme::Ed25519;
    let root = Node::root(&ca_template("Root"), &ed25519);
    let leaf = root.below(&leaf_template(), &ed25519);
    let second = Template { serial: vec![9], ..ca_template("Root") };
    let second = root.below(&second, &worded());
    let entry = RevokedEntry {
        serial: leaf.certificate.serial().to_vec(),
        at: now(),
        reason: RevokedEntry::reason("key-compromise"),
    };
    let list = issue::revocation_list(&second.issuer(), now(), now() + YEAR, 1, &[entry]).unwrap();
    let mut trust = trust_in(&register(), &root);
    trust.add_intermediate((*second.certificate).clone()).unwrap();
    trust.revocation.add_crl(&list).unwrap();
    let judge = |auth| {
        verify_peer(&id(LEAF), &[x509(leaf.certificate.der())], &policy(auth), &trust, now())
    };
    let why = judge("ed25519-worded").unwrap_err();
    assert!(matches!(why, PkiError::Revoked { .. }), "{why:?}");
    for auth in ["pubkey", "ed25519"] {
        assert!(judge(auth).is_ok(), "{auth}");
    }
}

/// The key of another algorithm with the same octets. Fault: in `same_key`, compare the keys alone.
#[test]
fn a_key_is_that_of_its_certificate_with_its_algorithm() {
    let nodes = chain([worded(), worded(), worded()]);
    let key: Arc<dyn SigningKey> = Arc::from(new_key(&worded()));
    let certify = |algorithm: &[u8]| {
        let public = SubjectPublicKeyInfo::parse(key.public_key()).unwrap().key;
        let spki = SubjectPublicKeyInfo { algorithm, key: public }.encode();
        let der = issue::certificate(&leaf_template(), &spki, &nodes[1].issuer()).unwrap();
        Arc::new(Certificate::from_der(&der).unwrap())
    };
    assert!(Credential::new(Arc::clone(&key), certify(IDENTIFIER), &[]).is_ok());
    let ed25519 = certify(SignatureScheme::Ed25519.key_algorithm_identifier());
    let refused = Credential::new(Arc::clone(&key), ed25519, &[]);
    assert_eq!(refused.err(), Some(LoadError::KeyMismatch));
}

#[test]
fn requests_of_the_scheme_are_read() {
    let key = new_key(&worded());
    let name = issue::distinguished_name("CN=leaf").unwrap();
    let requester = Issuer { key: &*key, scheme: worded(), name: &name };
    let der = Request::make(&requester, &[id(LEAF)]).unwrap();
    assert_eq!(Request::load(&register(), &der).unwrap().spki, key.public_key());
    let mut forged = der.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(matches!(Request::load(&register(), &forged), Err(LoadError::Signature)));
    assert!(matches!(Request::load(&SchemeRegister::built_in(), &der), Err(LoadError::Signature)));
}

#[test]
fn constraints_without_the_name_do_not_allow_it() {
    let none = SchemeConstraints::default();
    assert!(!none.allows(&worded()));
}
