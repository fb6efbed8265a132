//! Choosing one suite: as responder from the peer's offer, as initiator from the peer's answer.

use std::fmt;

use super::ProposalConfig;
use crate::crypto::CipherSuite;
use crate::wire::payload::{Proposal, Sa, Spi, Transform};
use crate::wire::registry::{
    EncrId, IntegId, KeMethodId, PrfId, ProtocolId, SequenceNumbers, TransformType,
};

/// The agreed suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Number of the accepted proposal, which the answer repeats.
    pub number: u8,
    /// The peer's SPI from its proposal.
    pub spi: Spi,
    /// Encryption and integrity.
    pub suite: CipherSuite,
    /// Pseudorandom function; 0 for ESP.
    pub prf: PrfId,
    /// First key exchange; NONE is possible for ESP.
    pub ke: KeMethodId,
    /// Additional key exchanges (RFC 9370); NONE where there is none.
    pub additional_ke: [KeMethodId; 7],
    /// Extended sequence numbers; false for IKE.
    pub esn: bool,
    /// The transforms of the answer: one of each type the proposal has.
    pub transforms: Vec<Transform>,
}

impl Selected {
    /// True if `proposals` would choose just these algorithms if a peer offered no others.
    pub(crate) fn is_chosen_by(&self, proposals: &[ProposalConfig]) -> bool {
        let offer = Sa { proposals: vec![self.to_wire(Spi::None)] };
        let options = SelectOptions { intermediate: true, ..SelectOptions::default() };
        select(proposals, &offer, options).is_some()
    }
}

/// The rules of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectOptions {
    /// Additional key exchanges may be used: in IKE_SA_INIT if both ends have announced
    /// INTERMEDIATE_EXCHANGE_SUPPORTED, in CREATE_CHILD_SA always. Without this, proposals with additional key
    /// exchanges are skipped.
    pub intermediate: bool,
    /// Key exchange methods are left out on both sides, because the child of IKE_AUTH has none.
    pub ignore_ke: bool,
    /// The method of the KE payload of a request for a child. Among the alternatives of a proposal it is chosen
    /// first, because another one costs a round trip (INVALID_KE_PAYLOAD), and not every peer asks again.
    pub sent: Option<KeMethodId>,
}

/// Why an answer is not one of our proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptError {
    /// Not exactly one proposal.
    ProposalCount,
    /// Its number, protocol or kind of SPI belongs to no proposal of ours.
    UnknownProposal,
    /// Not exactly one transform of this type.
    TransformCount(TransformType),
    /// A transform that we did not offer.
    NotOffered(TransformType),
    /// Transforms that do not fit together: AEAD with integrity, neither of the two, or one key exchange method
    /// twice (RFC 9370 §2.2.1).
    Inconsistent,
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProposalCount => f.write_str("answer does not hold exactly one proposal"),
            Self::UnknownProposal => f.write_str("answer is to no proposal of ours"),
            Self::TransformCount(kind) => write!(f, "answer does not hold exactly one {kind}"),
            Self::NotOffered(kind) => write!(f, "answer holds a {kind} we did not offer"),
            Self::Inconsistent => f.write_str("answer holds algorithms that do not go together"),
        }
    }
}

impl std::error::Error for AcceptError {}

/// Chooses, as responder, the first of `configured` that fits one of the proposals in `offered`. Our order of
/// preference counts, across proposals and within them.
pub fn select(
    configured: &[ProposalConfig],
    offered: &Sa,
    options: SelectOptions,
) -> Option<Selected> {
    configured.iter().find_map(|ours| {
        offered.proposals.iter().find_map(|theirs| {
            let transforms = choose(ours, theirs, options)?;
            Selected::new(theirs, transforms)
        })
    })
}

/// Checks, as initiator, that `answer` is one suite of `offered`, our proposals.
///
/// A type that we offered with NONE among its alternatives may be missing. A peer without RFC 9370 may ignore the
/// unknown transforms, although it should ignore the proposals that have them. Then it has chosen the first
/// proposal without additional key exchanges that has its suite.
pub fn accept(offered: &[Proposal], answer: &Sa) -> Result<Selected, AcceptError> {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.3.6
    //# The initiator of an exchange MUST check that the accepted offer is consistent with one
    //# of its proposals, and if not MUST terminate the exchange.
    let [answer] = answer.proposals.as_slice() else {
        return Err(AcceptError::ProposalCount);
    };
    let fits = |p: &&Proposal| p.protocol == answer.protocol && p.spi.len() == answer.spi.len();
    let ours = offered
        .iter()
        .filter(fits)
        .find(|p| p.number == answer.number)
        .ok_or(AcceptError::UnknownProposal)?;
    let additional = |p: &Proposal| p.transforms.iter().any(|t| t.kind.additional_ke().is_some());
    let result = is_one_of(ours, answer);
    if result.is_err() && additional(ours) && !additional(answer) {
        let classical = offered.iter().filter(fits).filter(|p| !additional(p));
        let other = classical.map(|p| is_one_of(p, answer)).find(Result::is_ok);
        return other.unwrap_or(result);
    }
    result
}

/// Checks that `answer` is one suite of the proposal `ours`.
fn is_one_of(ours: &Proposal, answer: &Proposal) -> Result<Selected, AcceptError> {
    for transform in &answer.transforms {
        if answer.of_type(transform.kind).count() != 1 {
            return Err(AcceptError::TransformCount(transform.kind));
        }
        if transform.unknown_attribute || !ours.transforms.contains(transform) {
            return Err(AcceptError::NotOffered(transform.kind));
        }
    }
    for transform in &ours.transforms {
        let kind = transform.kind;
        let optional = ours.of_type(kind).any(is_none);
        if !optional && answer.of_type(kind).next().is_none() {
            return Err(AcceptError::TransformCount(kind));
        }
    }
    Selected::new(answer, answer.transforms.clone()).ok_or(AcceptError::Inconsistent)
}

impl Selected {
    /// The additional key exchanges to run, in the order of their transform types (RFC 9370 §2.2.2).
    pub fn additional(&self) -> impl Iterator<Item = KeMethodId> {
        self.additional_ke.into_iter().filter(|method| *method != KeMethodId::NONE)
    }

    /// The answer's proposal, with our `spi`.
    pub fn to_wire(&self, spi: Spi) -> Proposal {
        let protocol = if self.prf == PrfId(0) { ProtocolId::ESP } else { ProtocolId::IKE };
        Proposal { number: self.number, protocol, spi, transforms: self.transforms.clone() }
    }

    /// `transforms` has at most one of each type. `None` if they do not form a suite.
    fn new(proposal: &Proposal, transforms: Vec<Transform>) -> Option<Self> {
        let of = |kind| transforms.iter().find(|t| t.kind == kind);
        let id_of = |kind| of(kind).map_or(0, |t| t.id);
        let encr = of(TransformType::ENCR)?;
        let suite = CipherSuite {
            encr: EncrId(encr.id),
            key_bits: encr.key_bits.unwrap_or(0),
            integ: IntegId(id_of(TransformType::INTEG)),
        };
        let ike = proposal.protocol == ProtocolId::IKE;
        let selected = Self {
            number: proposal.number,
            spi: proposal.spi,
            suite,
            prf: PrfId(id_of(TransformType::PRF)),
            ke: KeMethodId(id_of(TransformType::KE)),
            additional_ke: std::array::from_fn(|slot| {
                KeMethodId(TransformType::from_additional_ke(slot).map_or(0, id_of))
            }),
            esn: id_of(TransformType::SN) == SequenceNumbers::EXT_SEQ.0,
            transforms,
        };
        //= https://www.rfc-editor.org/rfc/rfc7296#section-5
        //# implementations MUST NOT negotiate NONE as the IKE integrity protection algorithm or
        //# ENCR_NULL as the IKE encryption algorithm.
        let complete = if ike {
            selected.prf != PrfId(0) && selected.ke != KeMethodId::NONE
        } else {
            selected.prf == PrfId(0) && selected.has(TransformType::SN)
        };
        let sound = suite.encr.is_aead() == (suite.integ == IntegId::NONE);
        (complete && sound && !selected.repeats_a_method()).then_some(selected)
    }

    fn has(&self, kind: TransformType) -> bool {
        self.transforms.iter().any(|t| t.kind == kind)
    }

    /// RFC 9370 §2.2.1 forbids the same method twice among the additional key exchanges, and leaves open whether
    /// the first key exchange counts. This responder counts it ([`assign`]): the same method again adds nothing,
    /// and "non-duplicated algorithm for each proposed key exchange" can be read so. This initiator accepts the
    /// answer of a responder that does not count it.
    fn repeats_a_method(&self) -> bool {
        self.additional_ke.iter().enumerate().any(|(place, id)| {
            *id != KeMethodId::NONE && self.additional_ke.split_at(place).0.contains(id)
        })
    }
}

/// One transform of each type of `theirs`, by our preference.
fn choose(
    ours: &ProposalConfig,
    theirs: &Proposal,
    options: SelectOptions,
) -> Option<Vec<Transform>> {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.3.6
    //# If the responder receives a proposal that contains a Transform Type it does not
    //# understand, or a proposal that is missing a mandatory Transform Type, it MUST consider
    //# this proposal unacceptable
    if ours.protocol != theirs.protocol
        || !theirs.transforms.iter().all(|t| belongs(ours.protocol, t.kind))
    {
        return None;
    }
    let addke = |t: &Transform| t.kind.additional_ke().is_some();
    if !options.ignore_ke && !options.intermediate && theirs.transforms.iter().any(addke) {
        return None;
    }
    let (encr, integ) = choose_cipher(ours, theirs)?;
    let mut chosen = Vec::with_capacity(4);
    chosen.push(encr);
    chosen.extend(integ);
    let mandatory =
        if ours.protocol == ProtocolId::IKE { TransformType::PRF } else { TransformType::SN };
    chosen.push(*common(ours, theirs, mandatory).next()?);
    if !options.ignore_ke && !choose_ke(ours, theirs, options.sent, &mut chosen) {
        return None;
    }
    chosen.sort_by_key(|t| t.kind);
    Some(chosen)
}

/// True if a proposal for `protocol` may have transforms of type `kind` (RFC 7296 §3.3.3).
fn belongs(protocol: ProtocolId, kind: TransformType) -> bool {
    match kind {
        TransformType::ENCR | TransformType::INTEG => true,
        TransformType::PRF => protocol == ProtocolId::IKE,
        TransformType::SN => protocol == ProtocolId::ESP,
        kind => kind.is_ke(),
    }
}

/// Our transforms of type `kind` that the peer offers too, in our order. NONE is not among them.
fn common<'a>(
    ours: &'a ProposalConfig,
    theirs: &'a Proposal,
    kind: TransformType,
) -> impl Iterator<Item = &'a Transform> {
    let usable = move |t: &&Transform| kind == TransformType::SN || !is_none(t);
    ours.of_type(kind).filter(usable).filter(|t| theirs.transforms.contains(t))
}

/// An encryption algorithm and the integrity algorithm that it needs.
fn choose_cipher(
    ours: &ProposalConfig,
    theirs: &Proposal,
) -> Option<(Transform, Option<Transform>)> {
    common(ours, theirs, TransformType::ENCR).find_map(|encr| {
        if !EncrId(encr.id).is_aead() {
            return Some((*encr, Some(*common(ours, theirs, TransformType::INTEG).next()?)));
        }
        let mut integ = theirs.of_type(TransformType::INTEG).peekable();
        if integ.peek().is_none() {
            return Some((*encr, None));
        }
        Some((*encr, Some(*integ.find(|t| is_none(t))?)))
    })
}

/// Adds a key exchange method for each type, none of them twice (RFC 9370 §2.2.1). False if that is impossible.
fn choose_ke(
    ours: &ProposalConfig,
    theirs: &Proposal,
    sent: Option<KeMethodId>,
    chosen: &mut Vec<Transform>,
) -> bool {
    let kinds = ke_types(ours, theirs);
    // A type without an alternative ends the search before combinations are tried.
    if !kinds.iter().all(|kind| ke_alternatives(ours, theirs, *kind).next().is_some()) {
        return false;
    }
    if let Some(sent) = sent
        && let Some((&TransformType::KE, rest)) = kinds.split_first()
    {
        // Alternatives after NONE are not preferred to NONE.
        let mut before_none = ke_alternatives(ours, theirs, TransformType::KE)
            .take_while(|alternative| alternative.is_some_and(|t| !is_none(&t)));
        let sent = Transform::ke(sent);
        if before_none.any(|t| t == Some(sent)) {
            let before = chosen.len();
            chosen.push(sent);
            if assign(ours, theirs, rest, chosen) {
                return true;
            }
            chosen.truncate(before);
        }
    }
    assign(ours, theirs, &kinds, chosen)
}

/// The types of key exchanges that either end has, in their order.
fn ke_types(ours: &ProposalConfig, theirs: &Proposal) -> Vec<TransformType> {
    const ALL: [TransformType; 8] = [
        TransformType::KE,
        TransformType::ADDKE1,
        TransformType::ADDKE2,
        TransformType::ADDKE3,
        TransformType::ADDKE4,
        TransformType::ADDKE5,
        TransformType::ADDKE6,
        TransformType::ADDKE7,
    ];
    let either = |kind| ours.of_type(kind).chain(theirs.of_type(kind));
    ALL.into_iter().filter(|kind| either(*kind).next().is_some()).collect()
}

/// The alternatives for `kind`, best first. `Some(NONE)` is answered with NONE; `None` means that the peer does
/// not offer the type, which has the same effect.
fn ke_alternatives<'a>(
    ours: &'a ProposalConfig,
    theirs: &'a Proposal,
    kind: TransformType,
) -> impl Iterator<Item = Option<Transform>> + use<'a> {
    let none = Transform::new(kind, KeMethodId::NONE.0);
    let they_take_none = if theirs.of_type(kind).next().is_none() {
        Some(None)
    } else {
        theirs.transforms.contains(&none).then_some(Some(none))
    };
    let unsaid = they_take_none.filter(|_| ours.of_type(kind).next().is_none());
    let said = ours.of_type(kind).filter_map(move |t| {
        if is_none(t) { they_take_none } else { theirs.transforms.contains(t).then_some(Some(*t)) }
    });
    unsaid.into_iter().chain(said)
}

/// Extends `chosen` by one alternative for each of `kinds`, and tries the better ones first.
fn assign(
    ours: &ProposalConfig,
    theirs: &Proposal,
    kinds: &[TransformType],
    chosen: &mut Vec<Transform>,
) -> bool {
    let Some((kind, rest)) = kinds.split_first() else {
        return true;
    };
    for alternative in ke_alternatives(ours, theirs, *kind) {
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-multiple-ke-12#section-2.2.1
        //# for the Additional Key Exchange types, the responder's choice MUST NOT contain
        //# duplicated algorithms (those with identical Transform ID and attributes), except for
        //# the transform ID of NONE.
        let repeated = alternative.is_some_and(|t| {
            let mut methods = chosen.iter().filter(|c| c.kind.is_ke());
            !is_none(&t) && methods.any(|c| (c.id, c.key_bits) == (t.id, t.key_bits))
        });
        if repeated {
            continue;
        }
        let before = chosen.len();
        chosen.extend(alternative);
        if assign(ours, theirs, rest, chosen) {
            return true;
        }
        chosen.truncate(before);
    }
    false
}

/// Transform ID NONE: the type is optional (RFC 7296 §3.3.6).
fn is_none(transform: &Transform) -> bool {
    transform.id == 0 && (transform.kind == TransformType::INTEG || transform.kind.is_ke())
}
