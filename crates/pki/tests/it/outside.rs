//! Certificates, revocation lists and OCSP responses with a signature scheme that the program brings.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{AuthConfig, SchemeConstraints};
use ike_proto::crypto::sign::{OutsideScheme, SchemeLengths, SubjectPublicKeyInfo};
use ike_proto::crypto::{
    CryptoError, Scheme, SchemeRegister, Secret, SignatureScheme, SignatureVerifier, SigningKey,
};
use ike_proto::wire::registry::HashId;
use pki::issue::{self, CertificateStatus, Issuer, Request, RevokedEntry, Template, ocsp_response};
use pki::{
    Certificate, Crl, FetchKind, LoadError, PeerPolicy, PkiError, RawKey, Revocation,
    RevocationPolicy, TrustStore, TrustedPeer, verify_peer,
};
use pq_kem::sign::{AwsLc, KeyType, generate, load_private_key, load_private_key_with};

use crate::anchors::{ca_template, leaf_template};
use crate::common::{id, now, x509};

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

fn register() -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    register.add(Arc::new(Worded) as Arc<dyn Scheme>).unwrap();
    register
}

fn new_key(scheme: &SignatureScheme) -> Box<dyn SigningKey> {
    let pkcs8 = generate(KeyType::Scheme(scheme.clone())).unwrap();
    load_private_key_with(&register(), &pkcs8).unwrap()
}

/// A CA, or an end entity, with its key.
struct Node {
    certificate: Arc<Certificate>,
    key: Box<dyn SigningKey>,
}

impl Node {
    fn root(template: &Template, scheme: &SignatureScheme) -> Self {
        let key = new_key(scheme);
        let issuer = Issuer { key: &*key, scheme: scheme.clone(), name: &template.subject };
        let der = issue::certificate(template, key.public_key(), &issuer).unwrap();
        Self { certificate: Arc::new(Certificate::from_der(&der).unwrap()), key }
    }

    fn issuer(&self) -> Issuer<'_> {
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
fn chain(schemes: [SignatureScheme; 3]) -> [Node; 3] {
    let [root, inter, leaf] = schemes;
    let root = Node::root(&ca_template("Root"), &root);
    let inter = root.below(&ca_template("Inter"), &inter);
    let leaf = inter.below(&leaf_template(), &leaf);
    [root, inter, leaf]
}

fn trust_in(register: &SchemeRegister, root: &Node) -> TrustStore {
    let mut trust = TrustStore::with_schemes(register);
    // As a file of x509ca/: only a self-signed CA becomes an anchor.
    trust.add((*root.certificate).clone()).unwrap();
    trust
}

fn policy(auth: &str) -> PeerPolicy {
    let chain = match AuthConfig::parse_with(&register(), auth) {
        Ok(AuthConfig::Pubkey(pubkey)) => pubkey.chain,
        other => panic!("{other:?}"),
    };
    PeerPolicy { chain, ..PeerPolicy::default() }
}

fn verdict(
    [_, inter, leaf]: &[Node; 3],
    policy: &PeerPolicy,
    trust: &TrustStore,
) -> Result<TrustedPeer, PkiError> {
    let shown = [x509(leaf.certificate.der()), x509(inter.certificate.der())];
    verify_peer(&id(LEAF), &shown, policy, trust, now())
}

/// Faults: in `check_strength`, return at once for `any` (the unnamed one is accepted); in `Signed::check`, leave
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
    // A program without the scheme.
    let mut bare = TrustStore::new();
    bare.add_ca((*nodes[0].certificate).clone()).unwrap();
    let why = verdict(&nodes, &policy("worded"), &bare).unwrap_err();
    assert!(
        matches!(why, PkiError::UnsupportedAlgorithm(_) | PkiError::UnknownCa { .. }),
        "{why:?}"
    );
}

/// `auth = ike:…` says nothing about the path, and the engine judges the key of the peer by it.
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
