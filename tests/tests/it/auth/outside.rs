//! Signature schemes that the program brings.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use ike_proto::config::AuthConfig;
use ike_proto::crypto::sign::{SchemeLengths, SubjectPublicKeyInfo};
use ike_proto::crypto::{
    CryptoError, CryptoProvider, Scheme, SchemeRegister, Secret, SignatureScheme, SigningKey,
};
use ike_proto::wire::registry::{HashId, NotifyType};
use ike_proto::wire::{Message, Payload};
use ike_proto::{Event, Failure};
use ike_tests::setup::identity;
use ike_tests::{Pair, Setup, Side, cheap};
use pki::{Credential, PeerPolicy, RawKey};
use pq_kem::sign::{KeyType, generate, load_private_key_with};

use super::{comes_up, refused};

/// ECDSA on P-256 with SHA-256 under identifiers of its own.
#[derive(Debug, Clone)]
struct Brought {
    name: &'static str,
    /// `1.3.6.1.4.1.99999.arc`.
    identifier: Vec<u8>,
    hash: HashId,
    preferred_to: Option<SignatureScheme>,
}

impl Brought {
    fn new(name: &'static str, arc: u8) -> Self {
        let oid = [0x2b, 0x06, 0x01, 0x04, 0x01, 0x86, 0x8d, 0x1f, arc];
        let identifier = [&[0x30, 11, 6, 9][..], &oid].concat();
        Self { name, identifier, hash: HashId::SHA2_256, preferred_to: None }
    }

    fn shared(name: &'static str, arc: u8) -> Arc<dyn Scheme> {
        Arc::new(Self::new(name, arc))
    }
}

impl Scheme for Brought {
    fn name(&self) -> &str {
        self.name
    }

    fn algorithm_identifier(&self) -> &[u8] {
        &self.identifier
    }

    fn hash(&self) -> HashId {
        self.hash
    }

    fn preferred_to(&self) -> Option<SignatureScheme> {
        self.preferred_to.clone()
    }

    fn is_post_quantum(&self) -> bool {
        false
    }

    fn lengths(&self) -> SchemeLengths {
        SchemeLengths { public_key: 65, signature: 72 }
    }

    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
        key.verify(message, signature).map_err(|_| CryptoError::Integrity)
    }

    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, octets);
        let pair = pair.map_err(|_| CryptoError::Length)?;
        let key = pair.public_key().as_ref();
        let spki = SubjectPublicKeyInfo { algorithm: &self.identifier, key }.encode();
        let this: Arc<dyn Scheme> = Arc::new(self.clone());
        Ok(Box::new(Key { schemes: [SignatureScheme::Outside(this.into())], pair, spki }))
    }

    fn generate(&self) -> Result<Secret, CryptoError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        let pair = pair.and_then(|pair| pair.to_pkcs8v1());
        Ok(Secret::copy_from(pair.map_err(|_| CryptoError::Backend)?.as_ref()))
    }
}

#[derive(Debug)]
struct Key {
    schemes: [SignatureScheme; 1],
    pair: EcdsaKeyPair,
    spki: Vec<u8>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        let signature = self.pair.sign(&SystemRandom::new(), message);
        Ok(signature.map_err(|_| CryptoError::Backend)?.as_ref().to_vec())
    }
}

/// A register with these schemes.
fn register(brought: &[Arc<dyn Scheme>]) -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    for scheme in brought {
        register.add(Arc::clone(scheme)).unwrap();
    }
    register
}

/// A new key of the first scheme that the program has added, read from PKCS#8.
pub(super) fn key_of(register: &SchemeRegister) -> Arc<dyn SigningKey> {
    let scheme = register.outside().next().unwrap().clone();
    let pkcs8 = generate(KeyType::Scheme(SignatureScheme::Outside(scheme))).unwrap();
    Arc::from(load_private_key_with(register, &pkcs8).unwrap())
}

/// Both ends have raw keys of the first scheme in their registers, and want `auth`.
fn both_by(auth: [&str; 2], registers: [&SchemeRegister; 2]) -> Setup {
    both_with(auth, registers, registers.map(key_of))
}

/// As [`both_by`], with these keys.
pub(super) fn both_with(
    auth: [&str; 2],
    registers: [&SchemeRegister; 2],
    keys: [Arc<dyn SigningKey>; 2],
) -> Setup {
    let mut setup = Setup::new(12);
    for (n, side) in [&mut setup.a, &mut setup.b].into_iter().enumerate() {
        knows(side, registers[n]);
        let own = registers[n].outside().next().unwrap().name();
        let own = AuthConfig::parse_with(registers[n], own).unwrap();
        side.show_in("local", own, Credential::raw(keys[n].clone()));
        let spki = keys[1 - n].public_key().to_vec();
        let pubkeys = vec![RawKey { id: identity(2 - n as u8), spki }];
        let policy = PeerPolicy { pubkeys, ..PeerPolicy::default() };
        side.answerer.set_policy("ab", "remote", policy);
        side.connection.remote[0].auth = AuthConfig::parse_with(registers[n], auth[n]).unwrap();
        side.connection.remote[0].certreqs = side.answerer.certreqs("ab", "remote");
    }
    setup
}

pub(super) fn knows(side: &mut Side, register: &SchemeRegister) {
    let crypto = CryptoProvider { schemes: register.clone(), ..(*cheap::real()).clone() };
    side.crypto = Arc::new(crypto);
}

pub(super) fn used(pair: &Pair) -> [String; 2] {
    [pair.a(), pair.b()].map(|host| {
        let scheme = host.ike().remote_auth.swap_remove(0).scheme;
        scheme.expect("a scheme").to_string()
    })
}

/// Fault: in `CryptoProvider::signature_schemes`, leave out the schemes of the program.
#[test]
fn a_scheme_of_the_program_authenticates_both_ends() {
    // Each end has a value of its own.
    let [a, b] = [1, 1].map(|arc| register(&[Brought::shared("mine", arc)]));
    for auth in ["mine-ecdsa", "pubkey-mine"] {
        let pair = comes_up(both_by(["mine", auth], [&a, &b]));
        assert_eq!(used(&pair), ["mine", "mine"]);
    }
}

/// An AlgorithmIdentifier of this many octets, which are 131 or more.
fn identifier_of(len: usize) -> Vec<u8> {
    let mut content = vec![6, 9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x86, 0x8d, 0x1f, 1];
    let parameters = vec![7; len - 3 - content.len() - 3];
    content.extend([4, 0x81, parameters.len() as u8]);
    content.extend(parameters);
    let identifier = [&[0x30, 0x81, content.len() as u8], &content[..]].concat();
    assert_eq!(identifier.len(), len);
    identifier
}

/// The longest name and the longest AlgorithmIdentifier, with which an announcement has 255 octets (RFC 9593 §3.2.3).
///
/// Faults: in `register.rs`, another limit; in `Announcements`, a length without its own octet.
#[test]
fn names_and_identifiers_have_their_greatest_lengths() {
    let name: &'static str = "a234567890123456789012345678901234567890123456789012345678901234";
    let of = |len| Brought { identifier: identifier_of(len), ..Brought::new(name, 1) };
    let known = register(&[Arc::new(of(252))]);
    let pair = comes_up(both_by([name, name], [&known, &known]));
    assert_eq!(used(&pair), [name, name]);
    let methods = announcement(&pair, 1, NotifyType::SUPPORTED_AUTH_METHODS).unwrap();
    assert_eq!((methods.len(), methods[0]), (255, 255));
    assert!(methods.ends_with(&identifier_of(252)));
    let refused = |scheme: Brought| {
        let scheme: Arc<dyn Scheme> = Arc::new(scheme);
        SchemeRegister::built_in().add(scheme).unwrap_err().to_string()
    };
    assert!(refused(of(253)).contains("is a DER SEQUENCE of at most 252 octets"));
    let longer = "a2345678901234567890123456789012345678901234567890123456789012345";
    assert!(refused(Brought::new(longer, 1)).contains("a name has 1 to 64"));
}

/// Fault: in `SignatureScheme::must_be_named`, leave `Outside` out.
#[test]
fn a_scheme_that_the_configuration_does_not_name_is_refused() {
    let known = register(&[Brought::shared("mine", 1)]);
    for auth in [["mine", "pubkey"], ["mine", "ecdsa"], ["any", "mine"]] {
        refused(&mut both_by(auth, [&known, &known]).build());
    }
}

/// One end has registered the name for another identifier. Faults: names in `OutsideScheme::eq`; in
/// `signature::disbelief`, `WrongSignature` always.
#[test]
fn a_scheme_is_its_identifier_and_not_its_name() {
    let [a, b] = [1, 2].map(|arc| register(&[Brought::shared("mine", arc)]));
    assert_ne!(a, b);
    let mut pair = both_by(["mine", "mine"], [&a, &b]).build();
    refused(&mut pair);
    let why = pair.b().events(|event| match event {
        Event::PeerRefused(refused) => Some(refused.why.to_string()),
        _ => None,
    });
    assert_eq!(why[0], "the signature scheme 1.3.6.1.4.1.99999.1 is not known here");
    // Without the right register this end neither signs by the scheme nor announces an empty list of methods, which
    // would promise a later one.
    let mut setup = both_by(["mine", "mine"], [&a, &a]);
    knows(&mut setup.a, &SchemeRegister::built_in());
    let (at_a, _) = refused(&mut setup.build());
    assert!(matches!(at_a, Failure::Credentials(_)), "{at_a}");
    let mut setup = both_by(["mine", "mine"], [&a, &a]);
    knows(&mut setup.b, &SchemeRegister::built_in());
    let mut pair = setup.build();
    refused(&mut pair);
    assert_eq!(announcement(&pair, 1, NotifyType::SUPPORTED_AUTH_METHODS), None);
}

/// The data of the notify `kind` in the IKE_SA_INIT message that is the `index`th datagram.
pub(super) fn announcement(pair: &Pair, index: usize, kind: NotifyType) -> Option<Vec<u8>> {
    let message = Message::decode(&pair.net.trace[index].octets).unwrap();
    message.payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == kind => Some(notify.data.to_vec()),
        _ => None,
    })
}

/// Fault: in `OwnAnnouncements::new`, keep all schemes if there are no constraints.
#[test]
fn nothing_of_a_scheme_is_announced_where_no_connection_names_it() {
    let hash = HashId(0xff07);
    let known = register(&[Arc::new(Brought { hash, ..Brought::new("mine", 1) })]);
    let first = |remote: &str| {
        let mut setup = both_by(["mine", "mine"], [&known, &known]);
        setup.a.connection.remote[0].auth =
            AuthConfig::parse_with(&known, remote).expect("an auth");
        let mut pair = setup.build();
        pair.initiate(0, Some("net"));
        pair.settle();
        let hashes = announcement(&pair, 0, NotifyType::SIGNATURE_HASH_ALGORITHMS).unwrap();
        hashes.as_chunks().0.contains(&hash.0.to_be_bytes())
    };
    for remote in ["psk", "null", "pubkey", "ecdsa"] {
        assert!(!first(remote), "{remote}");
    }
    assert!(first("mine"));
}

/// Faults: `SchemeRegister::with_brought` puts all last; `CryptoProvider::signature_schemes` does not call it.
#[test]
fn a_scheme_is_announced_at_its_place() {
    let preferred_to = Some(SignatureScheme::EcdsaP256Sha256);
    let known = register(&[
        Arc::new(Brought { preferred_to, ..Brought::new("first", 1) }),
        Brought::shared("last", 2),
    ]);
    let auth = "last-ecdsa-256-first";
    let pair = comes_up(both_by([auth, auth], [&known, &known]));
    let announced = announcement(&pair, 1, NotifyType::SUPPORTED_AUTH_METHODS).unwrap();
    let place = |name: &str| {
        let identifier = match known.by_name(name) {
            Some(scheme) => scheme.algorithm_identifier().to_vec(),
            None => SignatureScheme::EcdsaP256Sha256.algorithm_identifier().to_vec(),
        };
        announced.windows(identifier.len()).position(|window| *window == identifier).expect(name)
    };
    assert!(place("first") < place("ecdsa") && place("ecdsa") < place("last"));
}

#[test]
fn nothing_registered_can_be_replaced() {
    let mut known = register(&[Brought::shared("mine", 1)]);
    let mut refused = |scheme: Arc<dyn Scheme>| known.add(scheme).unwrap_err().to_string();
    assert_eq!(
        refused(Brought::shared("mine", 2)),
        "signature scheme mine: a scheme of this name is registered already; choose another name"
    );
    assert_eq!(
        refused(Brought::shared("other", 1)),
        "signature scheme other: another scheme has its OBJECT IDENTIFIER; use one of your own"
    );
    // `rsa-3072-rsax` would ask for no size of RSA, if `rsax` were a kind of RSA.
    for name in ["pubkey", "slhdsa_mine", "sha256", "384", "rsax", "eapsig", "xauthsig"] {
        let said = format!(
            "signature scheme {name}: the name has a meaning in `auth`; choose another name"
        );
        assert_eq!(refused(Brought::shared(name, 3)), said);
    }
    for name in ["", "Mine", "mi-ne"] {
        assert!(refused(Brought::shared(name, 3)).contains("a name has 1 to 64"), "{name}");
    }
    for scheme in SignatureScheme::BUILT_IN {
        for identifier in [scheme.algorithm_identifier(), scheme.key_algorithm_identifier()] {
            // Without its parameters, or with a NULL in their place, it is the same algorithm.
            let oid = &identifier[2..4 + usize::from(identifier[3])];
            let len = oid.len() as u8;
            let bare = [&[0x30, len], oid].concat();
            let null = [&[0x30, len + 2], oid, &[5, 0]].concat();
            for identifier in [identifier.to_vec(), bare, null] {
                let squatter = Brought { identifier, ..Brought::new("squatter", 3) };
                let said = refused(Arc::new(squatter));
                assert!(said.ends_with("has its OBJECT IDENTIFIER; use one of your own"), "{said}");
            }
        }
    }
    for identifier in [
        &[][..],
        &[0x30, 0],
        &[0x30, 3, 6, 1, 0x2b, 0],
        &[0x05, 0],
        // Octets behind the parameters, an arc that ends nowhere, and Ed25519 with an arc that begins with a zero.
        &[0x30, 7, 6, 1, 0x2b, 5, 0, 5, 0],
        &[0x30, 4, 6, 2, 0x2b, 0x81],
        &[0x30, 6, 6, 4, 0x2b, 0x80, 0x65, 0x70],
    ] {
        let malformed = Brought { identifier: identifier.to_vec(), ..Brought::new("malformed", 3) };
        let said = refused(Arc::new(malformed));
        assert!(said.contains("is a DER SEQUENCE of at most 252 octets"), "{said}");
    }
}
