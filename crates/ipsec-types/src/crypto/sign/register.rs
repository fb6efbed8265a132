//! The schemes that a program knows.

use std::fmt;

use super::{OutsideScheme, SignatureScheme};
use ike_wire::der::{self, Der};

/// The signature schemes that an endpoint knows: the built-in ones, and those that its program has brought.
///
/// A register is a value. Two endpoints of one process may have different ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemeRegister {
    schemes: Vec<SignatureScheme>,
}

/// Why a scheme is not taken into a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// Its name is not of the form `[a-z0-9_]+`, or is longer than 64 octets.
    Name(String),
    /// Its name is a word of configuration text, or begins as one that has a meaning.
    Reserved(String),
    /// A scheme of this name is there already.
    SameName(String),
    /// The scheme of this name has an OBJECT IDENTIFIER of a scheme that is there, for signatures or for keys, and the
    /// keys of the two are not told apart by their curves.
    SameIdentifier(String),
    /// An `AlgorithmIdentifier` of the scheme of this name is not DER, or is longer than 252 octets.
    Identifier(String),
}

impl SchemeRegister {
    /// The built-in schemes.
    pub fn built_in() -> Self {
        let mut register = Self { schemes: Vec::with_capacity(SignatureScheme::BUILT_IN.len()) };
        register.schemes.extend_from_slice(SignatureScheme::BUILT_IN);
        register
    }

    /// Adds a scheme that the program brings.
    ///
    /// # Errors
    /// See [`RegisterError`]. Nothing that is there can be replaced.
    pub fn add(&mut self, scheme: impl Into<OutsideScheme>) -> Result<(), RegisterError> {
        let scheme = scheme.into();
        let name = scheme.name().to_owned();
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_of_a_name) {
            return Err(RegisterError::Name(name));
        }
        if is_reserved(&name) {
            return Err(RegisterError::Reserved(name));
        }
        let identifiers = [scheme.algorithm_identifier(), scheme.key_algorithm_identifier()];
        let fits = |one: &[u8]| one.len() <= LONGEST_IDENTIFIER && oid(one).is_some();
        if !identifiers.into_iter().all(fits) {
            return Err(RegisterError::Identifier(name));
        }
        if self.schemes.iter().any(|known| known.name() == name) {
            return Err(RegisterError::SameName(name));
        }
        if self.schemes.iter().any(|known| clash(identifiers, known)) {
            return Err(RegisterError::SameIdentifier(name));
        }
        self.schemes.push(SignatureScheme::Outside(scheme));
        Ok(())
    }

    /// All schemes. Their order means nothing.
    pub fn iter(&self) -> impl Iterator<Item = &SignatureScheme> {
        self.schemes.iter()
    }

    /// The schemes that the program has brought.
    pub fn outside(&self) -> impl Iterator<Item = &OutsideScheme> {
        self.brought().iter().filter_map(|scheme| match scheme {
            SignatureScheme::Outside(outside) => Some(outside),
            _ => None,
        })
    }

    /// `built_in`, and the schemes that the program has brought at their places among them: see
    /// [`Scheme::preferred_to`](super::Scheme::preferred_to).
    pub fn with_brought<'a>(
        &'a self,
        built_in: &'a [SignatureScheme],
    ) -> impl Iterator<Item = &'a SignatureScheme> {
        let place = |scheme: &SignatureScheme| match scheme {
            SignatureScheme::Outside(outside) => outside.preferred_to(),
            _ => None,
        };
        let before = move |known: &'a SignatureScheme| {
            let brought = self.brought().iter();
            brought.filter(move |scheme| place(scheme).as_ref() == Some(known)).chain([known])
        };
        let last = self
            .brought()
            .iter()
            .filter(move |scheme| place(scheme).is_none_or(|place| !built_in.contains(&place)));
        built_in.iter().flat_map(before).chain(last)
    }

    fn brought(&self) -> &[SignatureScheme] {
        self.schemes.get(SignatureScheme::BUILT_IN.len()..).unwrap_or_default()
    }

    /// The scheme that a DER `AlgorithmIdentifier` of a signature names; `None` if it names none of these, is malformed,
    /// or names SHA-1. [`SignatureScheme::from_built_in_identifier`] says in which forms a built-in one may be written.
    ///
    /// Others that the program has brought may have the same: [`of_signature`](Self::of_signature) asks the key.
    pub fn from_algorithm_identifier(&self, identifier: &[u8]) -> Option<SignatureScheme> {
        SignatureScheme::from_built_in_identifier(identifier).or_else(|| {
            let named = |scheme: &&OutsideScheme| scheme.algorithm_identifier() == identifier;
            self.outside().find(named).cloned().map(SignatureScheme::Outside)
        })
    }

    /// As [`from_algorithm_identifier`](Self::from_algorithm_identifier), for a signature by the key in `spki`, a DER
    /// `SubjectPublicKeyInfo`: of several schemes with this identifier it is the one that has such keys. If none has, it
    /// is the first, because a signature of ECDSA may come with the hash of another curve (RFC 7427 §6).
    pub fn of_signature(&self, identifier: &[u8], spki: &[u8]) -> Option<SignatureScheme> {
        let of_key = self.of_key(spki).filter(|own| own.algorithm_identifier() == identifier);
        match of_key {
            Some(own) => Some(SignatureScheme::Outside(own.clone())),
            None => self.from_algorithm_identifier(identifier),
        }
    }

    /// The scheme that the program has brought for the key in `spki`, a DER `SubjectPublicKeyInfo`.
    pub fn of_key(&self, spki: &[u8]) -> Option<&OutsideScheme> {
        self.outside().find(|scheme| scheme.key_in(spki).is_some())
    }

    /// The scheme that the program has brought under `name`.
    pub fn by_name(&self, name: &str) -> Option<&OutsideScheme> {
        self.outside().find(|scheme| scheme.name() == name)
    }
}

impl Default for SchemeRegister {
    fn default() -> Self {
        Self::built_in()
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "signature scheme {name:?}: a name has 1 to {LONGEST_NAME} of the characters a to z, 0 to 9 and _"
            ),
            Self::Reserved(name) => {
                write!(
                    f,
                    "signature scheme {name}: the name has a meaning in `auth`; choose another name"
                )
            }
            Self::SameName(name) => write!(
                f,
                "signature scheme {name}: a scheme of this name is registered already; choose another name"
            ),
            Self::SameIdentifier(name) => {
                write!(
                    f,
                    "signature scheme {name}: another scheme has its OBJECT IDENTIFIER; use one of your own"
                )
            }
            Self::Identifier(name) => write!(
                f,
                "signature scheme {name}: an AlgorithmIdentifier is a DER SEQUENCE of at most {LONGEST_IDENTIFIER} octets that begins with an OBJECT IDENTIFIER"
            ),
        }
    }
}

impl std::error::Error for RegisterError {}

fn is_of_a_name(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'_'
}

/// True for the words of `auth` (also for those that another part of the value gives a meaning), for what begins as
/// one of them, and for numbers, which are sizes.
fn is_reserved(name: &str) -> bool {
    name.bytes().all(|octet| octet.is_ascii_digit())
        || WORDS.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// True if a scheme with these identifiers, of signatures and of keys, could be taken for `known`.
///
/// Other parameters do not tell two apart, because some forms of built-in identifiers differ by these alone. Curves do:
/// no scheme verifies with a key on a curve that is not its own.
fn clash([signature, key]: [&[u8]; 2], known: &SignatureScheme) -> bool {
    let [known_signature, known_key] =
        [known.algorithm_identifier(), known.key_algorithm_identifier()];
    let same = |one, other| oid(one) == oid(other);
    let apart = are_of_two_curves(key, known_key);
    same(signature, known_key)
        || same(key, known_signature)
        || same(key, known_key) && !apart
        || same(signature, known_signature) && !(apart && signature == known_signature)
}

/// True if both are identifiers of keys that differ by an OBJECT IDENTIFIER as the parameter alone.
fn are_of_two_curves(one: &[u8], other: &[u8]) -> bool {
    let parts = |identifier| {
        let mut inner = Der::new(identifier).nested(der::SEQUENCE)?;
        let parts = (inner.object_identifier()?, inner.object_identifier()?);
        inner.end().map(|()| parts)
    };
    match (parts(one), parts(other)) {
        (Some((oid, curve)), Some((other_oid, other_curve))) => {
            oid == other_oid && curve != other_curve
        }
        _ => false,
    }
}

/// The content of the OBJECT IDENTIFIER with which `identifier`, a DER SEQUENCE, begins. One element may follow it: the
/// parameters.
fn oid(identifier: &[u8]) -> Option<&[u8]> {
    let mut outer = Der::new(identifier);
    let mut inner = outer.nested(der::SEQUENCE)?;
    outer.end()?;
    let oid = inner.object_identifier()?;
    if let Some(parameters) = inner.peek() {
        inner.element(parameters)?;
        inner.end()?;
    }
    Some(oid)
}

/// Octets of the longest name.
const LONGEST_NAME: usize = 64;
/// Octets of the longest `AlgorithmIdentifier`: an announcement has 255 octets (RFC 9593 §3.2.3).
const LONGEST_IDENTIFIER: usize = 252;
/// Words of `auth` that stand alone.
const WORDS: &[&str] = &[
    "any", "dss", "ecdsa", "ed25519", "identity", "ike", "never", "no", "none", "null", "psk",
    "pubkey", "yes",
];
/// Beginnings that have a meaning: families of built-in schemes, hashes, and methods of EAP.
const PREFIXES: &[&str] =
    &["bliss", "eap", "falcon", "ike_", "md5", "mldsa", "rsa", "sha", "slhdsa", "xauth"];
