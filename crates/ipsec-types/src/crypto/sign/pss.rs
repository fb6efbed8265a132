//! Parameters of RSASSA-PSS (RFC 4055 §3.1).

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
        let mut outer = Der::new(identifier);
        let mut inner = outer.nested(der::SEQUENCE)?;
        outer.end()?;
        if inner.content(der::OBJECT_IDENTIFIER)? != ID_RSASSA_PSS {
            return None;
        }
        let fields = inner.nested(der::SEQUENCE)?;
        inner.end()?;
        Self::from_fields(fields)
    }

    /// The scheme with these parameters, if it is one of those in use: both hashes alike, of the SHA-2
    /// family, and a salt as long as the hash.
    pub fn scheme(self) -> Option<SignatureScheme> {
        let scheme = match (self.hash, self.salt_len) {
            (HashId::SHA2_256, 32) => SignatureScheme::RsaPssSha256,
            (HashId::SHA2_384, 48) => SignatureScheme::RsaPssSha384,
            (HashId::SHA2_512, 64) => SignatureScheme::RsaPssSha512,
            _ => return None,
        };
        (self.hash == self.mgf1_hash).then_some(scheme)
    }

    fn from_fields(mut fields: Der<'_>) -> Option<Self> {
        let mut this = Self { hash: HashId::SHA1, mgf1_hash: HashId::SHA1, salt_len: 20 };
        if let Some(mut field) = optional(&mut fields, 0)? {
            this.hash = hash(&mut field)?;
            field.end()?;
        }
        if let Some(mut field) = optional(&mut fields, 1)? {
            let mut mgf = field.nested(der::SEQUENCE)?;
            field.end()?;
            if mgf.content(der::OBJECT_IDENTIFIER)? != ID_MGF1 {
                return None;
            }
            this.mgf1_hash = hash(&mut mgf)?;
            mgf.end()?;
        }
        if let Some(mut field) = optional(&mut fields, 2)? {
            this.salt_len = match field.unsigned()? {
                [] => 0,
                [low] => u16::from(*low),
                [high, low] => u16::from_be_bytes([*high, *low]),
                _ => return None,
            };
            field.end()?;
        }
        if let Some(mut field) = optional(&mut fields, 3)? {
            if field.unsigned()? != [1] {
                return None;
            }
            field.end()?;
        }
        fields.end().map(|()| this)
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
