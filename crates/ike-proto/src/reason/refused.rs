//! Why policy forbids something, and why a ticket is refused.

use std::fmt;

use crate::wire::registry::NotifyType;

/// What policy forbids.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyReason {
    /// The peer begins an EAP conversation that does not end.
    TooManyEapPackets,
    /// A probe of a path was answered with the COOKIE2 of another one.
    OtherCookie2,
    /// The PPK was removed from the configuration during the handshake.
    PpkGone,
    /// The configuration in force does not admit the peer.
    NotAdmitted,
    /// The responder authenticates without the PPK that it was offered.
    PpkNotTaken,
    /// The responder announces no PPK.
    PpkNotAnnounced,
    /// A rekey is answered without a PPK.
    NoPpkInRekey,
    /// A rekey needs a PPK for which no key is configured.
    NoPpkKey,
    /// The peer names a PPK that this end has not offered.
    PpkNotOffered,
    /// The peer takes none of the PPKs that this end has offered.
    NoCommonPpk,
    /// There is no memory for messages that have to wait.
    NoMemory,
    /// The peer does not answer to the check of its address.
    AddressUnproven,
    /// A redirect of an established SA cannot be followed.
    RedirectNotFollowed,
    /// A redirect to an address of a family that this end has not.
    RedirectFamily,
    /// One redirect too many.
    RedirectedTooOften,
    /// A half-open SA had to make room.
    GaveWay,
    /// IKE over TCP needs ESP in TCP or separate transports.
    NoEspInTcp,
    /// Downgrade prevention is required.
    NoDowngradePrevention,
}

impl fmt::Debug for PolicyReason {
    /// The text, in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

impl fmt::Display for PolicyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyEapPackets => "too many EAP packets",
            Self::OtherCookie2 => "the peer answers with another COOKIE2",
            Self::PpkGone => "the PPK is not configured any more",
            Self::NotAdmitted => "the configuration does not admit the peer any more",
            Self::PpkNotTaken => "the peer did not take the PPK",
            Self::PpkNotAnnounced => "the peer does not take a PPK",
            Self::NoPpkInRekey => "the peer takes no PPK",
            Self::NoPpkKey => "there is no key for ppk_id",
            Self::PpkNotOffered => "the peer names a PPK that was not offered",
            Self::NoCommonPpk => "the peer has none of the PPKs offered",
            Self::NoMemory => "other peers hold the memory for waiting messages",
            Self::AddressUnproven => "the peer does not show that it is where it says",
            Self::RedirectNotFollowed => "redirected too often, or to another address family",
            Self::RedirectFamily => "redirected to another address family",
            Self::RedirectedTooOften => "redirected too often",
            Self::GaveWay => "the half-open IKE SA gave way to a newer one",
            Self::NoEspInTcp => {
                "the data plane has no ESP in TCP, and the peer takes no separate transports"
            }
            Self::NoDowngradePrevention => "the peer does not announce downgrade prevention",
        })
    }
}

/// Why a ticket cannot be used (RFC 5723).
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketReason {
    /// Client: the gateway answered with this notify.
    Answered(NotifyType),
    /// Client: the gateway does not answer.
    NoAnswer,
    /// The request has a payload twice.
    RepeatedPayload,
    /// The request has no nonce.
    NoNonce,
    /// The request has no ticket.
    NoTicket,
    /// No connection of this gateway fits the addresses.
    NoConnection,
    /// It is not sealed by a key of this gateway.
    Foreign,
    /// It has expired.
    Expired,
    /// Its connection is gone, or does not resume any more.
    ConnectionGone,
    /// Its algorithms are not configured any more.
    AlgorithmsGone,
    /// Its algorithms are not supported.
    AlgorithmsUnknown,
    /// Its IKE SA was resumed, rekeyed or deleted.
    Spent,
    /// IKE over TCP needs ESP in TCP or separate transports.
    NoEspInTcp,
    /// EAP is configured otherwise.
    OtherEap,
    /// Downgrade prevention is required now.
    DowngradePreventionRequired,
    /// Downgrade prevention is off now.
    DowngradePreventionOff,
    /// A PPK is required now.
    PpkRequired,
    /// Its PPK is not configured any more.
    PpkGone,
    /// A pre-shared key or a PPK has changed.
    SecretChanged,
    /// Other rounds of authentication are configured.
    OtherRounds,
    /// This end authenticates in another way.
    OtherOwnAuth,
    /// The peer must authenticate in another way.
    OtherPeerAuth,
}

impl fmt::Debug for TicketReason {
    /// The text, in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

impl fmt::Display for TicketReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered(kind) => return write!(f, "the gateway answered {kind}"),
            Self::NoAnswer => "the peer does not answer",
            Self::RepeatedPayload => "payload repeated",
            Self::NoNonce => "no nonce",
            Self::NoTicket => "no ticket",
            Self::NoConnection => "no connection fits the addresses",
            Self::Foreign => "not sealed by a key of this gateway",
            Self::Expired => "it has expired",
            Self::ConnectionGone => "its connection is not configured here",
            Self::AlgorithmsGone => "its algorithms are not configured any more",
            Self::AlgorithmsUnknown => "its algorithms are not supported",
            Self::Spent => "its IKE SA was resumed, rekeyed or deleted",
            Self::NoEspInTcp => "the data plane has no ESP in TCP",
            Self::OtherEap => "EAP is to be done otherwise",
            Self::DowngradePreventionRequired => "downgrade prevention is required",
            Self::DowngradePreventionOff => "downgrade prevention is off",
            Self::PpkRequired => "a PPK is required",
            Self::PpkGone => "its PPK is not configured any more",
            Self::SecretChanged => "a secret has changed",
            Self::OtherRounds => "other rounds of authentication are configured",
            Self::OtherOwnAuth => "this end authenticates otherwise",
            Self::OtherPeerAuth => "the peer must authenticate otherwise",
        })
    }
}
