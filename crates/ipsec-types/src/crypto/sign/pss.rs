//! Parameters of RSASSA-PSS (RFC 4055 §3.1).

use std::fmt;

use super::SignatureScheme;
use ike_wire::der::{self, Der};
use ike_wire::registry::HashId;

/// What the parameters of an id-RSASSA-PSS `AlgorithmIdentifier` say, defaults filled in. The trailer
/// field has one legal value and is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PssParameters {
    /// Hash of the message; SHA-1 by default.
    pub hash: HashId,
    /// Hash of the mask generation function MGF1; SHA-1 by default.
    pub mgf1_hash: HashId,
    /// Octets of salt; 20 by default. Not larger than 65,535: no RSA key could hold more.
    pub salt_len: u16,
}

impl PssParameters {
    /// Parses a DER `AlgorithmIdentifier` with id-RSASSA-PSS and parameters. `None` if it is something
    /// else or malformed, for an unknown hash or mask generation function, a negative or absurd
    /// length of the salt, and a trailer field other than 1.
    pub fn from_algorithm_identifier(identifier: &[u8]) -> Option<Self> {
        Self::parse(identifier)?.ok()
    }

    /// As [`from_algorithm_identifier`](Self::from_algorithm_identifier); `None` only if the identifier
    /// is not one of id-RSASSA-PSS.
    ///
    /// # Errors
    /// The property that is malformed or unknown.
    pub fn parse(identifier: &[u8]) -> Option<Result<Self, PssProperty>> {
        let mut inner = Der::new(identifier).nested(der::SEQUENCE)?;
        (inner.content(der::OBJECT_IDENTIFIER)? == ID_RSASSA_PSS).then(|| Self::read(identifier))
    }

    /// The scheme with these parameters, if it is one of those in use: both hashes alike, of the SHA-2
    /// family, and a salt as long as the hash.
    pub fn scheme(self) -> Option<SignatureScheme> {
        (usize::from(self.salt_len) == self.hash_len()?).then(|| self.scheme_of_hash())?
    }

    /// The scheme that a key with these parameters can verify: the salt of a signature is at least as
    /// long as the key's parameters say (RFC 4055 §3.3).
    pub(super) fn scheme_of_key(self) -> Option<SignatureScheme> {
        (usize::from(self.salt_len) <= self.hash_len()?).then(|| self.scheme_of_hash())?
    }

    /// The scheme with these hashes, whatever the length of the salt. `None` unless both are alike and
    /// of the SHA-2 family.
    pub fn scheme_of_hash(self) -> Option<SignatureScheme> {
        let scheme = match self.hash {
            HashId::SHA2_256 => SignatureScheme::RsaPssSha256,
            HashId::SHA2_384 => SignatureScheme::RsaPssSha384,
            HashId::SHA2_512 => SignatureScheme::RsaPssSha512,
            _ => return None,
        };
        (self.hash == self.mgf1_hash).then_some(scheme)
    }

    /// Octets of the hash, if it is of the SHA-2 family.
    fn hash_len(self) -> Option<usize> {
        match self.hash {
            HashId::SHA2_256 => Some(32),
            HashId::SHA2_384 => Some(48),
            HashId::SHA2_512 => Some(64),
            _ => None,
        }
    }

    fn read(identifier: &[u8]) -> Result<Self, PssProperty> {
        let form = PssProperty::Form;
        let mut outer = Der::new(identifier);
        let mut inner = outer.nested(der::SEQUENCE).ok_or(form)?;
        outer.end().ok_or(form)?;
        inner.content(der::OBJECT_IDENTIFIER).ok_or(form)?;
        let mut fields = inner.nested(der::SEQUENCE).ok_or(form)?;
        inner.end().ok_or(form)?;
        let mut this = Self { hash: HashId::SHA1, mgf1_hash: HashId::SHA1, salt_len: 20 };
        if let Some(mut field) = optional(&mut fields, 0).ok_or(form)? {
            this.hash = hash(&mut field).ok_or(PssProperty::Hash)?;
            field.end().ok_or(form)?;
        }
        if let Some(mut field) = optional(&mut fields, 1).ok_or(form)? {
            this.mgf1_hash = mask_hash(&mut field).ok_or(PssProperty::MaskFunction)?;
        }
        if let Some(mut field) = optional(&mut fields, 2).ok_or(form)? {
            this.salt_len = match field.unsigned().ok_or(PssProperty::SaltLength)? {
                [] => 0,
                [low] => u16::from(*low),
                [high, low] => u16::from_be_bytes([*high, *low]),
                _ => return Err(PssProperty::SaltLength),
            };
            field.end().ok_or(form)?;
        }
        if let Some(mut field) = optional(&mut fields, 3).ok_or(form)? {
            if field.unsigned() != Some(&[1]) {
                return Err(PssProperty::Trailer);
            }
            field.end().ok_or(form)?;
        }
        fields.end().map(|()| this).ok_or(form)
    }
}

/// A property of RSASSA-PSS parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PssProperty {
    /// The encoding: DER in the order of RFC 4055 §3.1. Parameters that a signature lacks are of this kind.
    Form,
    /// The hash of the message.
    Hash,
    /// The mask generation function, or its hash.
    MaskFunction,
    /// The length of the salt.
    SaltLength,
    /// The trailer field.
    Trailer,
}

impl fmt::Display for PssProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "form of the parameters",
            Self::Hash => "hash",
            Self::MaskFunction => "mask generation function",
            Self::SaltLength => "salt length",
            Self::Trailer => "trailer field",
        })
    }
}

/// The element `[number]` if it is next: `Some(None)` if another one is, `None` if it is malformed.
fn optional<'a>(fields: &mut Der<'a>, number: u8) -> Option<Option<Der<'a>>> {
    if fields.peek() == Some(der::context(number)) {
        fields.nested(der::context(number)).map(Some)
    } else {
        Some(None)
    }
}

/// The hash of the `AlgorithmIdentifier` of MGF1, the only thing in `field`.
fn mask_hash(field: &mut Der<'_>) -> Option<HashId> {
    let mut mgf = field.nested(der::SEQUENCE)?;
    field.end()?;
    if mgf.content(der::OBJECT_IDENTIFIER)? != ID_MGF1 {
        return None;
    }
    let hash = hash(&mut mgf)?;
    mgf.end().map(|()| hash)
}

/// The `AlgorithmIdentifier` of a hash, with NULL parameters or none: "All implementations MUST accept
/// both NULL and absent parameters as legal and equivalent encodings" (RFC 4055 §2.1).
fn hash(fields: &mut Der<'_>) -> Option<HashId> {
    let mut inner = fields.nested(der::SEQUENCE)?;
    let hash = match inner.content(der::OBJECT_IDENTIFIER)? {
        [0x2b, 0x0e, 0x03, 0x02, 0x1a] => HashId::SHA1,
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, arc] => match arc {
            1 => HashId::SHA2_256,
            2 => HashId::SHA2_384,
            3 => HashId::SHA2_512,
            _ => return None,
        },
        _ => return None,
    };
    if !inner.is_empty() && !inner.content(der::NULL)?.is_empty() {
        return None;
    }
    inner.end().map(|()| hash)
}

/// 1.2.840.113549.1.1.10
const ID_RSASSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];

/// 1.2.840.113549.1.1.8
const ID_MGF1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08];
