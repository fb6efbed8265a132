//! How the ends of a connection authenticate: the `local<suffix>` and `remote<suffix>` sections of
//! swanctl.conf(5), and their option `auth`.

use super::IdRegex;
use crate::crypto::sign::SubjectPublicKeyInfo;
use crate::crypto::{SchemeRegister, SignatureScheme};
use crate::wire::payload::{CertReq, IdData};
use crate::wire::registry::{CertEncoding, IdType};

mod parse;

pub use parse::AuthParseError;

/// Which identities a peer may assert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdMatch {
    /// `%any`, the default.
    Any,
    /// Exactly this.
    Exact(IdData),
    /// An FQDN or e-mail address beginning with `*`: the rest must match, without regard to case.
    Suffix(IdData),
    /// A distinguished name with `*` for some of its values (RFC 4945 §3.1.5).
    DnPattern(IdData),
    /// All identities that a regular expression matches.
    Regex(IdRegex),
}

impl IdMatch {
    /// True if `id` is one of them. ID_NULL names no one, and is admitted only if it is configured.
    pub fn admits(&self, id: &IdData) -> bool {
        match self {
            Self::Any => id.kind != IdType::NULL,
            Self::Exact(exact) => exact.matches(id.as_id()),
            Self::DnPattern(pattern) => pattern.covers(id.as_id()),
            Self::Regex(regex) => regex.admits(id),
            Self::Suffix(pattern) => {
                let suffix = pattern.data.strip_prefix(b"*").unwrap_or(&pattern.data);
                pattern.kind == id.kind
                    && id.data.len() > suffix.len()
                    && id.data[id.data.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
            }
        }
    }

    /// How exactly the pattern identifies a peer. Of several patterns that admit an identity, the one with the
    /// largest number is the most exact. A pattern is more exact the more of it is literal. A regular expression
    /// is less exact than any pattern, and `*` alone is the least exact.
    pub(crate) fn exactness(&self) -> usize {
        match self {
            Self::Any => 0,
            Self::Suffix(pattern) if pattern.data == b"*" => 0,
            Self::Regex(_) => 1,
            Self::Suffix(pattern) | Self::DnPattern(pattern) => pattern.data.len(),
            Self::Exact(_) => usize::MAX,
        }
    }
}

/// How one end authenticates in one round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AuthConfig {
    /// `psk`: a pre-shared key (RFC 7296 §2.15).
    #[default]
    Psk,
    /// `pubkey` and more exact values: a signature.
    Pubkey(PubkeyAuth),
    /// `null`: no authentication (RFC 7619).
    Null,
    /// `eap`: the answers to [`Question::Eap`](crate::Question::Eap) decide (RFC 7296 §2.16). For the initiator
    /// this is the last round. In the responder's round beside it, it means EAP alone (RFC 5998).
    Eap,
}

/// The requirements of an `auth` with public keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PubkeyAuth {
    /// On the key and the signature in AUTH.
    pub ike: SchemeConstraints,
    /// On the keys and signatures of the certificate path, which the engine does not see.
    pub chain: SchemeConstraints,
}

/// Signature schemes and key sizes that are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemeConstraints {
    /// Schemes allowed. Empty: all but those that [must be named](SignatureScheme::must_be_named).
    pub schemes: Vec<SignatureScheme>,
    /// The shortest RSA modulus, in bits; 0 leaves it to the backend.
    pub rsa_bits: u32,
}

/// One `local<suffix>` section: how this end authenticates in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAuth {
    /// The section's name, which identifies the key that signs.
    pub name: String,
    /// `auth`.
    pub auth: AuthConfig,
    /// `id`; `None` for the local address, or for ID_NULL with `auth = null` and no PPK. The loader of
    /// certificates sets the certificate's identity here.
    pub id: Option<IdData>,
}

/// One `remote<suffix>` section: how the peer must authenticate in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAuth {
    /// The section's name, which identifies the rules for the peer's certificate.
    pub name: String,
    /// `auth`.
    pub auth: AuthConfig,
    /// `id`.
    pub id: IdMatch,
    /// The contents of CERTREQ payloads to the peer; empty with `send_certreq = no`.
    pub certreqs: Vec<CertRequest>,
    /// The settings of EAP as a text that differs whenever they differ: a ticket (RFC 5723) with another text is
    /// not accepted. 256 octets at most; empty without EAP.
    pub eap: String,
}

/// The body of a CERTREQ payload that owns its data (RFC 7296 §3.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertRequest {
    /// The requested kind of certificate.
    pub encoding: CertEncoding,
    /// SHA-1 hashes, 20 octets each, of the CAs' SubjectPublicKeyInfo; empty for raw public keys.
    pub authorities: Vec<u8>,
}

/// `send_cert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendCert {
    /// If the peer sent a CERTREQ.
    #[default]
    IfAsked,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl CertRequest {
    /// The same as a payload body.
    pub fn as_req(&self) -> CertReq<'_> {
        CertReq { encoding: self.encoding, authorities: &self.authorities }
    }
}

impl From<CertReq<'_>> for CertRequest {
    fn from(request: CertReq<'_>) -> Self {
        Self { encoding: request.encoding, authorities: request.authorities.to_vec() }
    }
}

impl LocalAuth {
    /// A round called `name` with `auth`, with this end's address as identity.
    pub fn new(name: impl Into<String>, auth: AuthConfig) -> Self {
        Self { name: name.into(), auth, id: None }
    }
}

impl RemoteAuth {
    /// A round called `name` with `auth`, for any identity.
    pub fn new(name: impl Into<String>, auth: AuthConfig) -> Self {
        let (id, certreqs, eap) = (IdMatch::Any, Vec::new(), String::new());
        Self { name: name.into(), auth, id, certreqs, eap }
    }
}

impl AuthConfig {
    /// `pubkey` without any constraint.
    pub fn pubkey() -> Self {
        Self::Pubkey(PubkeyAuth::default())
    }

    /// Parses the value of `auth`: `psk`, `null`, or key types with their requirements.
    ///
    /// A key type is `pubkey` (any), `rsa` (either padding), `rsa/pss`, `rsa/pkcs1`, `ecdsa`, `ed25519`, `mldsa`,
    /// `mldsa44`, `mldsa65`, `mldsa87`, `slhdsa`, `slhdsa_sha2_128s` and so on, or `falcon512`. After the types of
    /// RSA and after `ecdsa` a minimum size in bits may follow. After these and after `pubkey` hashes may follow:
    /// `sha256`, `sha384`, `sha512`, `sha1`, `identity`. Several types are joined by `-`, each with its own
    /// requirements. Types after `ike:` apply to the AUTH payload alone, and types before it to the certificate
    /// path. Without `ike:` they apply to both. So `ike:mldsa87` requires a post-quantum key of the peer, and
    /// `mldsa87` a post-quantum path.
    ///
    /// # Errors
    /// [`AuthParseError`] says which part is not understood.
    pub fn parse(text: &str) -> Result<Self, AuthParseError> {
        Self::parse_with(&SchemeRegister::built_in(), text)
    }

    /// As [`parse`](Self::parse). The name of a scheme that the program has added to `register` is a key type, too.
    ///
    /// # Errors
    /// [`AuthParseError`] says which part is not understood.
    pub fn parse_with(register: &SchemeRegister, text: &str) -> Result<Self, AuthParseError> {
        parse::parse(register, text)
    }
}

impl SchemeConstraints {
    /// True if a signature by `scheme` is accepted.
    pub fn allows(&self, scheme: &SignatureScheme) -> bool {
        if self.schemes.is_empty() {
            return !scheme.must_be_named();
        }
        self.schemes.contains(scheme)
    }

    /// True if all built-in schemes are accepted that need not be named, with keys of any length: nothing is asked of a
    /// certificate path but the names of schemes of the program.
    pub fn takes_all_built_in(&self) -> bool {
        let named = |scheme: &SignatureScheme| scheme.must_be_named() || self.allows(scheme);
        self.rsa_bits == 0
            && (self.schemes.is_empty() || SignatureScheme::BUILT_IN.iter().all(named))
    }

    /// True if the hash of `scheme` is allowed with schemes of its kind.
    pub(crate) fn allows_hash_of(&self, scheme: &SignatureScheme) -> bool {
        let alike = |other: &SignatureScheme| {
            other.is_ecdsa() == scheme.is_ecdsa() && other.hash() == scheme.hash()
        };
        self.allows(scheme) || self.schemes.iter().any(alike)
    }

    /// True if the key in `spki`, a DER SubjectPublicKeyInfo, can make an accepted signature and is long enough.
    pub fn allows_key(&self, spki: &[u8]) -> bool {
        let built_in = SignatureScheme::of_built_in_key(spki);
        let named = || self.schemes.iter().any(|scheme| scheme.verifies_with(spki));
        if !(built_in.iter().any(|scheme| self.allows(scheme)) || named()) {
            return false;
        }
        let bits = || SubjectPublicKeyInfo::parse(spki).and_then(|spki| spki.rsa_bits());
        let rsa = built_in.iter().any(SignatureScheme::is_rsa);
        !rsa || bits().unwrap_or(0) >= self.rsa_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::der;

    /// An RSA key whose modulus has these octets.
    fn rsa(modulus: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        der::push_unsigned(&mut key, modulus);
        der::push_unsigned(&mut key, &[1, 0, 1]);
        let mut sequence = Vec::new();
        der::push(&mut sequence, der::SEQUENCE, &[&key]);
        let algorithm = SignatureScheme::RsaPssSha256.key_algorithm_identifier();
        SubjectPublicKeyInfo { algorithm, key: &sequence }.encode()
    }

    #[test]
    fn the_length_of_an_rsa_key_is_that_of_its_modulus() {
        let asked = SchemeConstraints { schemes: Vec::new(), rsa_bits: 2048 };
        let mut modulus = [0xff; 256];
        assert!(asked.allows_key(&rsa(&modulus)));
        modulus[0] = 0x7f;
        assert!(!asked.allows_key(&rsa(&modulus)), "2047 bits");
        assert!(!asked.allows_key(&rsa(&[])));
        // A key that claims to be RSA and is nothing.
        let algorithm = SignatureScheme::RsaPssSha256.key_algorithm_identifier();
        let nothing = SubjectPublicKeyInfo { algorithm, key: &[0x30, 0x80] }.encode();
        assert!(!asked.allows_key(&nothing));
        // Other keys have no such length.
        let algorithm = SignatureScheme::Ed25519.key_algorithm_identifier();
        let ed25519 = SubjectPublicKeyInfo { algorithm, key: &[7; 32] }.encode();
        assert!(asked.allows_key(&ed25519));
        assert!(!asked.allows_key(b"no key"));
    }
}
