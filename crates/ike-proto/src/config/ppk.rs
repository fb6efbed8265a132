//! Post-quantum preshared keys (RFC 8784, RFC 9867): `secrets.ppk<suffix>`, and what a connection does
//! with them.

use std::fmt;

use crate::crypto::Secret;

/// The identifier of a PPK: the octets after the type octet of a PPK_ID (RFC 8784 §5.1).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PpkId(Box<[u8]>);

impl PpkId {
    /// An identifier of these octets.
    pub fn new(octets: impl Into<Box<[u8]>>) -> Self {
        Self(octets.into())
    }

    /// The octets.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for PpkId {
    /// As text, with escapes for octets that are not printable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for PpkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PpkId(\"{self}\")")
    }
}

/// A post-quantum preshared key and its identifiers: `secrets.ppk<suffix>`.
#[derive(Debug)]
pub struct PostQuantumKey {
    /// Identifiers, at least one.
    pub ids: Vec<PpkId>,
    /// The key: at least 32 octets from a good random source (RFC 8784 §6).
    pub secret: Secret,
}

/// Which PPKs a connection may use: an entry of `ppk_id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PpkMatch {
    /// `%any`, or `*` alone.
    Any,
    /// The PPK with this identifier.
    Exact(PpkId),
    /// `*` in front: PPKs whose identifier has this end, in upper or lower case.
    Suffix(PpkId),
}

impl PpkMatch {
    /// True if the PPK `id` is covered.
    pub fn covers(&self, id: &PpkId) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == id,
            Self::Suffix(PpkId(suffix)) => {
                let octets = id.octets();
                let at = octets.len().checked_sub(suffix.len());
                at.and_then(|at| octets.get(at..))
                    .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
        }
    }
}

/// `ppk_exchange`: where an initial IKE SA may take its PPK in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PpkExchange {
    /// In IKE_INTERMEDIATE where the peer can, else in IKE_AUTH.
    #[default]
    Any,
    /// In IKE_AUTH (RFC 8784). The keys of the first IKE SA itself do not depend on the PPK.
    Auth,
    /// In IKE_INTERMEDIATE (RFC 9867).
    Intermediate,
}

/// `ppk_rekey`: PPKs in CREATE_CHILD_SA exchanges (RFC 9867 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PpkRekey {
    /// Neither offered nor accepted. A PPK of the IKE SA still affects its successors and children.
    #[default]
    No,
    /// Offered, and accepted if offered. An SA is possible without one.
    Yes,
    /// Required for every SA. A peer that answers the rekey of an IKE SA without a PPK has moved the children to
    /// an SA that this end must not use: the IKE SA ends.
    Require,
}

/// What a connection does with PPKs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PpkConfig {
    /// `ppk_id`, in order of preference; empty for no PPK.
    pub ids: Vec<PpkMatch>,
    /// `ppk_required`: no IKE SA without a PPK.
    pub required: bool,
    /// `ppk_exchange`.
    pub exchange: PpkExchange,
    /// `ppk_rekey`.
    pub rekey: PpkRekey,
}

impl PpkConfig {
    /// True if the PPK `id` may be used.
    pub fn covers(&self, id: &PpkId) -> bool {
        self.ids.iter().any(|pattern| pattern.covers(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> PpkId {
        PpkId::new(text.as_bytes())
    }

    #[test]
    fn patterns_cover_what_they_say() {
        let suffix = PpkMatch::Suffix(id(".example.org"));
        assert!(suffix.covers(&id("a.example.org")));
        assert!(suffix.covers(&id("a.EXAMPLE.org")));
        assert!(suffix.covers(&id(".example.org")));
        assert!(!suffix.covers(&id("example.org")));
        assert!(!suffix.covers(&id("a.example.org.evil")));
        assert!(PpkMatch::Exact(id("a")).covers(&id("a")));
        assert!(!PpkMatch::Exact(id("a")).covers(&id("A")));
        assert!(!PpkMatch::Exact(id("a")).covers(&id("aa")));
        assert!(PpkMatch::Any.covers(&id("whatever")));
        assert!(!PpkConfig::default().covers(&id("a")));
    }

    #[test]
    fn an_identifier_prints_escaped() {
        let odd = PpkId::new([b'a', 0x1b, b'"', 0xff]);
        assert_eq!(odd.to_string(), r#"a\x1b\"\xff"#);
    }
}
