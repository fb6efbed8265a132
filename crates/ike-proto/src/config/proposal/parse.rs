//! Proposal strings: `aes256gcm16-prfsha384-x25519-ke1_mlkem768`.

use std::fmt;

use super::{ProposalConfig, keywords};
use crate::wire::payload::Transform;
use crate::wire::registry::{
    EncrId, IntegId, KeMethodId, PrfId, ProtocolId, SequenceNumbers, TransformType,
};

/// Why a string is not a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProposalError {
    /// Not a keyword.
    UnknownToken {
        /// The word as written.
        token: String,
        /// The known keyword nearest to it.
        nearest: Option<String>,
    },
    /// `default` stands for a whole list: [`ProposalConfig::default_ike`] and `default_esp`.
    Default,
    /// AEAD and other encryption algorithms in one proposal (RFC 7296 §2.7); both are named.
    MixedAead(String, String),
    /// The proposal needs a transform of this type and has none.
    Missing(ProtocolId, TransformType),
    /// IKE must not be encrypted with `null` (RFC 7296 §5) or `aes…gmac`.
    NullInIke,
    /// AH is not implemented.
    Protocol(ProtocolId),
    /// More than 255 transforms.
    TooMany,
}

impl fmt::Display for ProposalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownToken { token, nearest } => {
                write!(f, "unknown algorithm `{}`", token.escape_default())?;
                nearest.iter().try_for_each(|known| write!(f, ", did you mean `{known}`?"))
            }
            Self::Default => f.write_str("`default` must stand alone"),
            Self::MixedAead(aead, other) => write!(
                f,
                "`{aead}` protects integrity itself and `{other}` does not: they need a proposal each"
            ),
            Self::Missing(protocol, kind) => {
                let what = match *kind {
                    TransformType::ENCR => "an encryption algorithm, as `aes256gcm16`",
                    TransformType::PRF => "a PRF, as `prfsha256`",
                    TransformType::INTEG => "an integrity algorithm, as `sha256`",
                    _ => "a key exchange method, as `x25519`",
                };
                write!(f, "{protocol} proposal needs {what}")
            }
            Self::NullInIke => f.write_str("IKE proposal must encrypt"),
            Self::Protocol(protocol) => write!(f, "no proposals for {protocol}"),
            Self::TooMany => f.write_str("more than 255 algorithms in one proposal"),
        }
    }
}

impl std::error::Error for ProposalError {}

impl ProposalConfig {
    /// Parses keywords joined by `-`, by strongSwan's rules.
    ///
    /// Several of one type are alternatives, best first. IKE: PRFs are derived from the integrity
    /// algorithms if none is named; with AEADs a PRF must be named, or an integrity algorithm to
    /// derive it from, which is then dropped; a key exchange is needed. ESP: PRFs are dropped;
    /// sequence numbers are 32 bits (`noesn`) unless `esn` is named. Unlike strongSwan, ESP without
    /// integrity protection is refused (RFC 8221 §4).
    pub fn parse(protocol: ProtocolId, text: &str) -> Result<Self, ProposalError> {
        if protocol != ProtocolId::IKE && protocol != ProtocolId::ESP {
            return Err(ProposalError::Protocol(protocol));
        }
        let mut transforms = Vec::new();
        for token in text.split('-').map(str::trim) {
            let keyword = token.to_ascii_lowercase();
            if keyword == "default" {
                return Err(ProposalError::Default);
            }
            let transform = keywords::lookup(&keyword).ok_or_else(|| unknown(token, &keyword))?;
            if !transforms.contains(&transform) {
                transforms.push(transform);
            }
        }
        check_encr(protocol, &transforms)?;
        if protocol == ProtocolId::IKE {
            complete_ike(&mut transforms)
        } else {
            complete_esp(&mut transforms)
        }
        transforms.sort_by_key(|t| t.kind);
        if transforms.len() > usize::from(u8::MAX) {
            return Err(ProposalError::TooMany);
        }
        let config = Self { protocol, transforms };
        config.check_complete()?;
        Ok(config)
    }

    fn check_complete(&self) -> Result<(), ProposalError> {
        let aead = self.of_type(TransformType::ENCR).any(|t| EncrId(t.id).is_aead());
        let ike = self.protocol == ProtocolId::IKE;
        let needed = [
            (TransformType::ENCR, true),
            (TransformType::INTEG, !aead),
            (TransformType::PRF, ike),
            (TransformType::KE, ike),
        ];
        match needed
            .into_iter()
            .find(|(kind, needed)| *needed && self.of_type(*kind).next().is_none())
        {
            Some((kind, _)) => Err(ProposalError::Missing(self.protocol, kind)),
            None => Ok(()),
        }
    }
}

fn unknown(token: &str, keyword: &str) -> ProposalError {
    ProposalError::UnknownToken { token: token.to_owned(), nearest: keywords::nearest(keyword) }
}

fn check_encr(protocol: ProtocolId, transforms: &[Transform]) -> Result<(), ProposalError> {
    let encr = || transforms.iter().filter(|t| t.kind == TransformType::ENCR);
    let aead = encr().find(|t| EncrId(t.id).is_aead());
    let other = encr().find(|t| !EncrId(t.id).is_aead());
    if let (Some(aead), Some(other)) = (aead, other) {
        let name = |t| keywords::spell(t).unwrap_or_default().to_string();
        return Err(ProposalError::MixedAead(name(aead), name(other)));
    }
    let clear = |t: &Transform| t.id == EncrId::NULL.0 || t.id == EncrId::NULL_AES_GMAC.0;
    if protocol == ProtocolId::IKE && encr().any(clear) {
        return Err(ProposalError::NullInIke);
    }
    Ok(())
}

fn complete_ike(transforms: &mut Vec<Transform>) {
    let has = |list: &[Transform], kind| list.iter().any(|t| t.kind == kind);
    if !has(transforms, TransformType::PRF) {
        let derived = derived_prfs(transforms.iter().filter(|t| t.kind == TransformType::INTEG));
        transforms.extend(derived);
    }
    let aead = has_aead(transforms);
    transforms.retain(|t| match t.kind {
        TransformType::INTEG => !aead,
        // The first key exchange is not optional (RFC 7296 §3.3.3).
        TransformType::KE => t.id != KeMethodId::NONE.0,
        TransformType::SN => false,
        _ => true,
    });
}

fn complete_esp(transforms: &mut Vec<Transform>) {
    let aead = has_aead(transforms);
    transforms.retain(|t| match t.kind {
        TransformType::PRF => false,
        TransformType::INTEG => !aead,
        _ => true,
    });
    if !transforms.iter().any(|t| t.kind == TransformType::SN) {
        transforms.push(Transform::new(TransformType::SN, SequenceNumbers::NO_EXT_SEQ.0));
    }
}

fn has_aead(transforms: &[Transform]) -> bool {
    transforms.iter().any(|t| t.kind == TransformType::ENCR && EncrId(t.id).is_aead())
}

/// The PRF that goes with each integrity algorithm, in their order.
pub(super) fn derived_prfs<'a>(integ: impl Iterator<Item = &'a Transform>) -> Vec<Transform> {
    let mut prfs = Vec::new();
    for transform in integ {
        let prf = match IntegId(transform.id) {
            IntegId::HMAC_SHA1_96 | IntegId::HMAC_SHA1_160 => PrfId::HMAC_SHA1,
            IntegId::HMAC_SHA2_256_128 => PrfId::HMAC_SHA2_256,
            IntegId::HMAC_SHA2_384_192 => PrfId::HMAC_SHA2_384,
            IntegId::HMAC_SHA2_512_256 => PrfId::HMAC_SHA2_512,
            IntegId::AES_XCBC_96 => PrfId::AES128_XCBC,
            IntegId::AES_CMAC_96 => PrfId::AES128_CMAC,
            _ => continue,
        };
        let prf = Transform::prf(prf);
        if !prfs.contains(&prf) {
            prfs.push(prf);
        }
    }
    prfs
}
