//! What both ends know of an IKE SA from the start: its names, its configuration, what the peer supports, and how far
//! the peer is trusted. Nothing of it changes once the peer is authenticated.

use std::sync::Arc;
use std::time::Instant;

use super::io::Io;
use super::memory::{Payer, Pool};
use super::nat::NatStatus;
use crate::config::{ConnectionConfig, FragmentAckTypes, Fragmentation};
use crate::event::{IkeSaId, Path};
use crate::keys::Spis;
use crate::shares::Origin;
use crate::wire::payload::IdData;
use crate::wire::registry::IdType;

/// Extensions that both ends announced.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extensions {
    /// RFC 7383.
    pub(crate) fragmentation: bool,
    /// draft-antony-ipsecme-ikev2-fragment-acknowledgment, and the agreed numbers.
    pub(crate) fragment_ack: Option<FragmentAckTypes>,
    /// RFC 6023, announced by a responder.
    pub(crate) childless: bool,
    /// RFC 9242.
    pub(crate) intermediate: bool,
    /// AUTH covers both IKE_SA_INIT messages (draft-ietf-ipsecme-ikev2-downgrade-prevention).
    pub(crate) full_transcript: bool,
    /// Where a PPK is mixed in.
    pub(crate) ppk: Option<PpkPlace>,
    /// IKE uses TCP, and ESP does not (draft-ietf-ipsecme-ikev2-reliable-transport).
    pub(crate) separate: bool,
    /// Responder: the peer follows redirects (RFC 5685).
    pub(crate) redirect: bool,
    /// This end began the first IKE SA, whichever end has rekeyed it since.
    pub(crate) client: bool,
}

/// Where the two ends have agreed to mix a PPK in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PpkPlace {
    /// In IKE_AUTH (RFC 8784).
    Auth,
    /// In the last IKE_INTERMEDIATE (RFC 9867 §3.1).
    Intermediate,
}

/// What the channel of an IKE SA knows of the SA and of the peer.
pub(crate) struct Link {
    id: IkeSaId,
    /// True if this end is the original initiator, which sets the I flag.
    initiator: bool,
    spis: Spis,
    /// The connection. Until the peer is authenticated, the most likely one.
    connection: Arc<ConnectionConfig>,
    extensions: Extensions,
    /// When the first message of the exchange that made the SA was sent or received.
    started: Instant,
    trust: Trust,
    /// Initiator, until the peer is authenticated: IKE_SA_INIT responses with the keys of this SA.
    twins: Box<[Twin]>,
}

/// What an IKE SA knows of its peer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trust {
    Unauthenticated,
    /// An initiator has authenticated it in one round, and the IKE SA is not established yet.
    Genuine,
    /// With the account of its identity, unless the identity proves nothing.
    Authenticated(Option<Origin>),
}

/// An IKE_SA_INIT response that makes the same keys as another one and differs from it elsewhere. One of the two
/// is forged. The peer's AUTH tells which.
pub(crate) struct Twin {
    pub(crate) response: Arc<[u8]>,
    pub(crate) extensions: Extensions,
    pub(crate) nat: NatStatus,
}

/// The names of a new IKE SA, and what its ends have agreed.
pub(crate) struct NewLink {
    pub(super) id: IkeSaId,
    pub(super) initiator: bool,
    pub(super) spis: Spis,
    pub(super) connection: Arc<ConnectionConfig>,
    pub(super) extensions: Extensions,
    pub(super) started: Instant,
}

impl Link {
    /// For an SA whose peer is not authenticated.
    pub(super) fn new(new: NewLink) -> Self {
        let NewLink { id, initiator, spis, connection, extensions, started } = new;
        let trust = Trust::Unauthenticated;
        Self { id, initiator, spis, connection, extensions, started, trust, twins: Box::default() }
    }

    /// The number of the SA.
    pub(crate) fn id(&self) -> IkeSaId {
        self.id
    }

    /// True if this end is the original initiator, which sets the I flag.
    pub(crate) fn is_initiator(&self) -> bool {
        self.initiator
    }

    /// The SPIs of both ends.
    pub(crate) fn spis(&self) -> Spis {
        self.spis
    }

    /// The SPI that this end chose.
    pub(crate) fn local_spi(&self) -> u64 {
        if self.initiator { self.spis.i() } else { self.spis.r() }
    }

    /// The connection. Until the peer is authenticated, the most likely one.
    pub(crate) fn connection(&self) -> &Arc<ConnectionConfig> {
        &self.connection
    }

    /// Replaces the connection by another one to which the peer may belong.
    pub(super) fn set_connection(&mut self, connection: Arc<ConnectionConfig>) {
        self.connection = connection;
    }

    /// What both ends support.
    pub(crate) fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// When the first message of the exchange that made the SA was sent or received.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    // ---- trust ----

    /// True if the peer is authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        matches!(self.trust, Trust::Authenticated(_))
    }

    /// True if the peer has been authenticated in at least one round.
    pub(crate) fn is_genuine(&self) -> bool {
        !matches!(self.trust, Trust::Unauthenticated)
    }

    /// True until the peer is authenticated.
    pub(crate) fn is_stranger(&self) -> bool {
        !self.is_authenticated()
    }

    /// Records that the peer is authenticated in one round. The IKE_SA_INIT response in use is genuine.
    pub(super) fn note_genuine(&mut self) {
        self.twins = Box::default();
        self.trust = Trust::Genuine;
    }

    /// Records that the peer is authenticated as `owner`.
    pub(super) fn set_authenticated(&mut self, io: &Io<'_>, owner: &IdData) {
        let owner = owner.folded();
        // Such an identity proves nothing.
        let nobody = owner.kind == IdType::NULL;
        let digest = || io.hash((owner.kind.0, &owner.data));
        self.trust = Trust::Authenticated((!nobody).then(|| Origin::of_peer(digest())));
    }

    /// Trusts the peer of this SA as that of the SA which this one replaces by a rekey.
    pub(super) fn trust_as(&mut self, old: &Self) {
        self.trust = old.trust;
    }

    /// The account to which octets are charged that the SA keeps of the peer on `path`.
    pub(crate) fn payer(&self, path: Path) -> Payer {
        let address = || Origin::of(path.remote.ip());
        let (pool, origin) = match self.trust {
            Trust::Authenticated(account) => (Pool::Peers, account.unwrap_or_else(address)),
            Trust::Unauthenticated | Trust::Genuine if self.initiator => (Pool::Own, address()),
            Trust::Unauthenticated | Trust::Genuine => (Pool::Strangers, address()),
        };
        Payer { pool, ike: self.id, origin }
    }

    // ---- twins ----

    /// Records another IKE_SA_INIT response that makes the same keys.
    pub(super) fn add_twin(&mut self, twin: Twin) {
        let mut twins = std::mem::take(&mut self.twins).into_vec();
        twins.push(twin);
        self.twins = twins.into();
    }

    /// Replaces the IKE_SA_INIT response in use by the next one with the same keys. Returns that one, and its verdict
    /// about NATs. `None` if there is none left.
    pub(super) fn trust_twin(&mut self) -> Option<(Arc<[u8]>, NatStatus)> {
        let mut twins = std::mem::take(&mut self.twins).into_vec();
        let Twin { response, extensions, nat } = twins.pop()?;
        self.twins = twins.into();
        self.extensions = extensions;
        Some((response, nat))
    }

    // ---- fragments ----

    /// True if this end may send fragments.
    pub(crate) fn may_fragment(&self) -> bool {
        self.extensions.fragmentation
            && matches!(self.connection.fragmentation, Fragmentation::Yes | Fragmentation::Force)
    }

    /// True if the peer may send fragments: it announced them in the IKE_SA_INIT response in use, or in one with
    /// the same keys. It is not known yet which of these is genuine.
    pub(crate) fn takes_fragments(&self) -> bool {
        self.extensions.fragmentation || self.twins.iter().any(|twin| twin.extensions.fragmentation)
    }

    /// The numbers that this end, as initiator, announced to a peer that is not authenticated. If the peer
    /// acknowledges fragments although its IKE_SA_INIT response did not agree, an attacker has removed the
    /// announcement.
    pub(crate) fn announced(&self, io: &Io<'_>) -> Option<FragmentAckTypes> {
        let unproven = self.initiator && !self.is_authenticated();
        let may = unproven && self.connection.fragmentation != Fragmentation::No;
        io.config.fragment_ack.filter(|_| may)
    }

    /// The agreed numbers, if fragments are acknowledged. Before the peer is authenticated, one of several
    /// IKE_SA_INIT responses with the same keys may have announced it. A peer that has not agreed takes an
    /// acknowledgement for an unexpected response, and drops it.
    pub(crate) fn acknowledges(&self) -> Option<FragmentAckTypes> {
        let twins = self.twins.iter().map(|twin| twin.extensions.fragment_ack);
        self.extensions.fragment_ack.or_else(|| twins.flatten().next())
    }

    /// True if the peer acknowledges fragments, whichever IKE_SA_INIT response is genuine. Only then does this end
    /// wait for acknowledgements.
    pub(crate) fn surely_acknowledged(&self) -> bool {
        let twins = self.twins.iter().map(|twin| twin.extensions.fragment_ack);
        [self.extensions.fragment_ack].into_iter().chain(twins).all(|types| types.is_some())
    }
}
