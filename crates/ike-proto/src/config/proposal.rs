//! Algorithm proposals in strongSwan's spelling, and choosing among them (RFC 7296 §2.7, §3.3).

use std::fmt;

use crate::crypto::{CipherSuite, CryptoProvider};
use crate::wire::payload::{Proposal, Spi, Transform};
use crate::wire::registry::{
    EncrId, IntegId, KeMethodId, PrfId, ProtocolId, SequenceNumbers, TransformType,
};

mod keywords;
mod parse;
mod select;

pub use parse::ProposalError;
pub use select::{AcceptError, SelectOptions, Selected, accept, select};

/// One configured proposal: for each transform type the alternatives, best first.
///
/// Made by [`ProposalConfig::parse`], so it always has what its protocol needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalConfig {
    /// IKE or ESP.
    pub protocol: ProtocolId,
    /// Transforms, grouped by type in the order ENCR, PRF, INTEG, KE, SN, ADDKE1 to ADDKE7.
    pub transforms: Vec<Transform>,
}

impl ProposalConfig {
    /// The value of `default` for IKE: X25519 together with ML-KEM-768 (RFC 9370) first, then classical key
    /// exchanges, for peers without RFC 9370. AEADs come before CBC with a MAC, and elliptic curves before MODP.
    /// Nothing has less than 128 bits of security, except MODP-2048 as the last resort.
    ///
    /// The list is short on purpose: an IKE_SA_INIT request is one datagram of at most 600 octets, with the
    /// longest possible cookie (RFC 7296 §2.6).
    pub fn default_ike() -> Vec<Self> {
        const KE: &str = "x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048";
        const PRF: &str = "prfsha256-prfsha384-prfsha512";
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.3.6
        //# If the responder receives a proposal that contains a Transform Type
        //# it does not understand, or a proposal that is missing a mandatory
        //# Transform Type, it MUST consider this proposal unacceptable; however,
        //# other proposals in the same SA payload are processed as usual.
        [
            "aes256gcm16-prfsha256-prfsha384-x25519-ke1_mlkem768",
            &format!("aes256gcm16-aes128gcm16-chacha20poly1305-{PRF}-{KE}"),
            &format!("aes256-aes128-sha256-sha384-sha512-{PRF}-{KE}"),
        ]
        .iter()
        .filter_map(|text| Self::parse(ProtocolId::IKE, text).ok())
        .collect()
    }

    /// The value of `default` for ESP: the algorithms of [`default_ike`](Self::default_ike), in more combinations.
    /// A key exchange is offered and accepted, but not required: a child that CREATE_CHILD_SA makes or rekeys has
    /// one with each peer that wants one, and uses the keys of the IKE SA with other peers.
    pub fn default_esp() -> Vec<Self> {
        const AEAD: &str = "aes256gcm16-aes128gcm16-chacha20poly1305";
        const CBC: &str = "aes256-aes128-sha256-sha384-sha512";
        const HYBRID: &str = "-x25519-ecp256-ecp384-ke1_mlkem768";
        const CLASSICAL: &str = "-x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048-none";
        // A peer that does not know NONE as a key exchange accepts a proposal without any.
        const WITHOUT: &str = "";
        [HYBRID, CLASSICAL, WITHOUT]
            .iter()
            .flat_map(|methods| [AEAD, CBC].map(|suites| format!("{suites}{methods}")))
            .filter_map(|text| Self::parse(ProtocolId::ESP, &text).ok())
            .collect()
    }

    /// The proposal substructure with `number` (from 1) and `spi`.
    pub fn to_wire(&self, number: u8, spi: Spi) -> Proposal {
        Proposal { number, protocol: self.protocol, spi, transforms: self.transforms.clone() }
    }

    /// Methods of the first key exchange (transform type 4), best first, NONE left out.
    pub fn ke_methods(&self) -> impl Iterator<Item = KeMethodId> {
        self.of_type(TransformType::KE)
            .map(|t| KeMethodId(t.id))
            .filter(|id| *id != KeMethodId::NONE)
    }

    /// True if an additional key exchange (RFC 9370) is proposed.
    pub fn has_additional_ke(&self) -> bool {
        self.transforms.iter().any(|t| t.kind.additional_ke().is_some())
    }

    /// The proposal that was probably meant, if this one only looks hybrid: it has Diffie-Hellman groups and KEMs
    /// as alternatives of the first key exchange, of which peers use one, and no additional key exchange (RFC
    /// 9370). `None` for any other proposal.
    pub fn meant_as_hybrid(&self) -> Option<Self> {
        let kem = |t: &Transform| t.kind == TransformType::KE && KeMethodId(t.id).is_kem();
        let group = |method: KeMethodId| !method.is_kem();
        if self.has_additional_ke()
            || !self.transforms.iter().any(kem)
            || !self.ke_methods().any(group)
        {
            return None;
        }
        let first = TransformType::from_additional_ke(0)?;
        let moved = |t: &Transform| if kem(t) { Transform { kind: first, ..*t } } else { *t };
        let mut transforms: Vec<_> = self.transforms.iter().map(moved).collect();
        transforms.sort_by_key(|t| t.kind);
        Some(Self { protocol: self.protocol, transforms })
    }

    /// The same without key exchange methods. IKE_AUTH proposes this for its child, whose keys come from the IKE
    /// SA (RFC 7296 §1.2).
    pub fn without_ke(&self) -> Self {
        let transforms = self.transforms.iter().filter(|t| !t.kind.is_ke()).copied().collect();
        Self { protocol: self.protocol, transforms }
    }

    /// The same with `method` as the first alternative of the first key exchange, where it is one.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.4
    //# This
    //# Diffie-Hellman Group Num MUST match a Diffie-Hellman group specified
    //# in a proposal in the SA payload that is sent in the same message, and
    //# SHOULD match the Diffie-Hellman group in the first group in the first
    //# proposal, if such exists.
    pub(crate) fn led_by(&self, method: KeMethodId) -> Self {
        let mut transforms = self.transforms.clone();
        let first = transforms.iter().position(|t| t.kind == TransformType::KE);
        let wanted = transforms.iter().position(|t| *t == Transform::ke(method));
        if let (Some(first), Some(wanted)) = (first, wanted)
            && let Some(between) = transforms.get_mut(first..=wanted)
        {
            between.rotate_right(1);
        }
        Self { protocol: self.protocol, transforms }
    }

    /// The same with only the transforms that `provider` implements; `None` if a type loses all its alternatives.
    ///
    /// An ENCR transform stays if the provider has it with at least one of the integrity algorithms.
    pub fn supported_by(&self, provider: &CryptoProvider) -> Option<Self> {
        let has_suite = |encr: &Transform, integ: IntegId| {
            let (encr, key_bits) = (EncrId(encr.id), encr.key_bits.unwrap_or(0));
            provider.ciphers.lengths(CipherSuite { encr, key_bits, integ }).is_some()
        };
        let integ_for = |encr: &Transform| -> Vec<IntegId> {
            if EncrId(encr.id).is_aead() {
                vec![IntegId::NONE]
            } else {
                self.of_type(TransformType::INTEG).map(|t| IntegId(t.id)).collect()
            }
        };
        let keep = |t: &&Transform| match t.kind {
            TransformType::ENCR => integ_for(t).into_iter().any(|integ| has_suite(t, integ)),
            TransformType::INTEG => {
                self.of_type(TransformType::ENCR).any(|encr| has_suite(encr, IntegId(t.id)))
            }
            TransformType::PRF => provider.prf(PrfId(t.id)).is_some(),
            kind if kind.is_ke() => {
                t.id == KeMethodId::NONE.0 || provider.ke(KeMethodId(t.id)).is_some()
            }
            _ => true,
        };
        let transforms: Vec<Transform> = self.transforms.iter().filter(keep).copied().collect();
        let complete = self.transforms.iter().all(|t| transforms.iter().any(|k| k.kind == t.kind));
        complete.then_some(Self { protocol: self.protocol, transforms })
    }

    /// The alternatives of one type, best first.
    pub fn of_type(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |t| t.kind == kind)
    }
}

impl fmt::Display for ProposalConfig {
    /// In keywords that [`ProposalConfig::parse`] reads back to the same proposal. Transforms that it would add by
    /// itself are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let derived: Vec<Transform> = parse::derived_prfs(self.of_type(TransformType::INTEG));
        let prf_is_derived = self.of_type(TransformType::PRF).eq(&derived);
        let noesn = Transform::new(TransformType::SN, SequenceNumbers::NO_EXT_SEQ.0);
        let sn_is_default = self.of_type(TransformType::SN).eq([&noesn]);
        let mut transforms: Vec<&Transform> = self
            .transforms
            .iter()
            .filter(|t| match t.kind {
                TransformType::PRF => !prf_is_derived,
                TransformType::SN => !sn_is_default,
                _ => true,
            })
            .collect();
        transforms.sort_by_key(|t| t.kind.display_rank());
        for (i, transform) in transforms.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "-" })?;
            if let Some(slot) = transform.kind.additional_ke() {
                write!(f, "ke{}_", slot + 1)?;
            }
            match keywords::spell(transform) {
                Some(keyword) => f.write_str(keyword)?,
                None if transform.kind.is_ke() => write!(f, "kem{}", transform.id)?,
                None => write!(f, "{transform}")?,
            }
        }
        Ok(())
    }
}
