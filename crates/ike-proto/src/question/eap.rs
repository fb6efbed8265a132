//! EAP packets (RFC 7296 §2.16), which the engine carries and does not understand.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::crypto::Secret;
use crate::event::Path;
use crate::wire::payload::IdData;

/// An EAP packet has come, or it is time for the first. Answered by [`Answer::Eap`](super::Answer::Eap), or by
/// [`Answer::Failed`](super::Answer::Failed), which sends no packet.
pub struct EapMessage {
    /// Connection name.
    pub connection: String,
    /// Name of the round: that of [`LocalAuth`](crate::config::LocalAuth) on an initiator, the end that EAP
    /// authenticates, and of [`RemoteAuth`](crate::config::RemoteAuth) on a responder.
    pub round: String,
    /// True on the initiator: EAP's peer. False on the responder: its authenticator.
    pub initiator: bool,
    /// Nothing but EAP authenticates the responder (RFC 5998): only a method that authenticates both ends, makes
    /// a key and withstands dictionaries will do. The engine itself insists on a key.
    pub alone: bool,
    /// This end's identity in IKE.
    pub local_id: IdData,
    /// The peer's, as it claims; nothing is proven yet on a responder.
    pub remote_id: IdData,
    /// Where the peer is.
    pub path: Path,
    /// The packet; `None` if this end is to begin.
    pub packet: Option<Vec<u8>>,
    /// Other connections that the peer may turn out to be, and their rounds, the best first: all that went before fits
    /// them, too. See [`Authorization::connection`].
    pub others: Vec<(String, String)>,
    /// What the last answer left; empty at the first question.
    pub state: EapState,
}

/// What whoever answers keeps of a conversation. It lives as long as the IKE SA is in IKE_AUTH. On a responder
/// strangers fill it: its size counts against
/// [`reassembly_memory`](crate::config::EndpointConfig::reassembly_memory).
#[derive(Default)]
pub struct EapState {
    state: Option<Box<dyn Any + Send + Sync>>,
    octets: usize,
}

/// What comes of an EAP packet.
#[derive(Debug)]
pub enum EapAnswer {
    /// Send this packet, and go on.
    Send(Vec<u8>, EapState),
    /// The conversation has come to a good end.
    Success(EapSuccess),
    /// It has come to a bad one.
    Failure {
        /// EAP-Failure, on a responder.
        packet: Option<Vec<u8>>,
        /// Why, for the log alone.
        why: String,
    },
}

/// A good end.
#[derive(Debug)]
pub struct EapSuccess {
    /// EAP-Success, on a responder.
    pub packet: Option<Vec<u8>>,
    /// The MSK, if the method makes a key.
    pub msk: Option<Secret>,
    /// The method and the EAP identity as text that is safe in a log line.
    pub method: String,
    /// On a responder: the EAP identity that was authenticated. It, and not IDi, is who the peer is to `unique`,
    /// INITIAL_CONTACT and leases: clients often have an address of their own network as IDi. `None` if the
    /// method leaves open who the peer is: it is nobody to them then, as with NULL authentication.
    pub identity: Option<Vec<u8>>,
    /// On a responder: what the peer is granted, if somebody knows more of it than its password.
    pub authorization: Option<Box<Authorization>>,
}

/// What a peer is granted by whoever knows its account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authorization {
    /// The connection that it is to have, the one that was asked for or one of [`EapMessage::others`]; `None` for the
    /// one that was asked for.
    pub connection: Option<String>,
    /// It must authenticate anew within that (RFC 4478).
    pub lifetime: Option<Duration>,
    /// Anything else, which the engine does not understand: it is in [`LeaseRequest`](super::LeaseRequest), in what
    /// [`IkeStatus`](crate::IkeStatus) shows, and in tickets, which must not become too long by it.
    pub granted: Box<[u8]>,
}

impl EapState {
    /// Keeps `state`, which counts as 1 KiB.
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

    /// What was kept, if it is a `T`.
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
