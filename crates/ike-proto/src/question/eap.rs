//! EAP packets (RFC 7296 §2.16). The engine carries them and does not read them.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::crypto::Secret;
use crate::ids::Path;
use crate::question::PeerCertificate;
use crate::wire::payload::IdData;

/// An EAP packet has arrived, or it is time for the first one. Answered by [`Answer::Eap`](super::Answer::Eap), or
/// by [`Answer::Failed`](super::Answer::Failed), which sends no packet.
pub struct EapMessage {
    /// Connection name.
    pub connection: String,
    /// Name of the round: on an initiator, which EAP authenticates, that of
    /// [`LocalAuth`](crate::config::LocalAuth); on a responder that of [`RemoteAuth`](crate::config::RemoteAuth).
    pub round: String,
    /// True on the initiator: EAP's peer. False on the responder: its authenticator.
    pub initiator: bool,
    /// EAP alone authenticates the responder (RFC 5998). Then the method must authenticate both ends, make a key
    /// and resist dictionary attacks. The engine itself requires the key.
    pub alone: bool,
    /// This end's identity in IKE.
    pub local_id: IdData,
    /// The identity that the peer claims. On a responder it is not proven yet.
    pub remote_id: IdData,
    /// The path of the peer.
    pub path: Path,
    /// The packet; `None` if this end is to begin.
    pub packet: Option<Vec<u8>>,
    /// Other connections that the peer may belong to, and their rounds, the best first. Everything before this
    /// round fits them, too. See [`Authorization::connection`].
    pub others: Vec<(String, String)>,
    /// The state that the last answer has left; empty at the first question.
    pub state: EapState,
}

/// The state of a conversation, kept for the answering side. It lives as long as the IKE SA is in IKE_AUTH. On a
/// responder unauthenticated peers fill it, so its size counts against
/// [`reassembly_memory`](crate::config::EndpointConfig::reassembly_memory).
#[derive(Default)]
pub struct EapState {
    state: Option<Box<dyn Any + Send + Sync>>,
    octets: usize,
}

/// The result of an EAP packet.
#[derive(Debug)]
pub enum EapAnswer {
    /// Send this packet, and continue.
    Send(Vec<u8>, EapState),
    /// The conversation has succeeded.
    Success(EapSuccess),
    /// The conversation has failed.
    Failure {
        /// EAP-Failure, on a responder.
        packet: Option<Vec<u8>>,
        /// Why, for the log only.
        why: String,
    },
}

/// A successful conversation.
#[derive(Debug)]
pub struct EapSuccess {
    /// EAP-Success, on a responder.
    pub packet: Option<Vec<u8>>,
    /// The MSK, if the method makes a key.
    pub msk: Option<Secret>,
    /// The method and the EAP identity as text that is safe in a log line.
    pub method: String,
    /// On a responder: the EAP identity that was authenticated. This identity, not IDi, identifies the peer for
    /// `unique`, INITIAL_CONTACT and leases, because clients often have an address of their own network as IDi.
    /// `None` if the method does not prove an identity. Then the peer has none for these purposes, as with NULL
    /// authentication.
    pub identity: Option<Vec<u8>>,
    /// On a responder: a number for the password, if the answering side has it. It is in tickets: it must tell nobody the
    /// password, and all gateways that share the ticket keys must have the same one.
    pub password: Option<NonZeroU64>,
    /// On a responder: what the peer is granted, if its account says more than the password.
    pub authorization: Option<Box<Authorization>>,
    /// On a responder: the certificate that the peer has shown in EAP, if it has.
    pub certificate: Option<Arc<PeerCertificate>>,
}

/// What a peer is granted by its account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authorization {
    /// The connection that the peer is to have: that of the question or one of [`EapMessage::others`]. `None` for
    /// that of the question.
    pub connection: Option<String>,
    /// The peer must authenticate again within this time (RFC 4478).
    pub lifetime: Option<Duration>,
    /// Other data, which the engine does not read. It is in [`LeaseRequest`](super::LeaseRequest), in
    /// [`IkeStatus`](crate::IkeStatus) and in tickets, which must not become too long because of it.
    pub granted: Box<[u8]>,
}

impl EapState {
    /// Keeps `state`. It counts as 1 KiB.
    pub fn new(state: impl Any + Send + Sync) -> Self {
        Self::of_size(state, 1024)
    }

    /// Keeps `state`, which the other end can make as large as `octets`.
    pub fn of_size(state: impl Any + Send + Sync, octets: usize) -> Self {
        Self { state: Some(Box::new(state)), octets }
    }

    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// The kept state, if it is a `T`.
    pub fn take<T: Any>(self) -> Option<Box<T>> {
        self.state?.downcast().ok()
    }
}

impl fmt::Debug for EapState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.state.is_some() { "EapState(..)" } else { "EapState(none)" })
    }
}

impl fmt::Debug for EapMessage {
    // Packets may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EapMessage")
            .field("connection", &self.connection)
            .field("round", &self.round)
            .field("initiator", &self.initiator)
            .field("octets", &self.packet.as_ref().map(Vec::len))
            .finish_non_exhaustive()
    }
}
