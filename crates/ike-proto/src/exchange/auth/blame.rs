//! Why a peer is not believed. This is for the log of this end only: the peer gets the same answer for every
//! reason.

use std::sync::Arc;

use super::eap::NO_AUTH;
use super::psk::peer_psk;
use super::{answers_to, local_id, matches_id, signature};
use crate::channel::Channel;
use crate::config::lookup::Lookup;
use crate::config::{AuthConfig, ConnectionConfig};
use crate::event::{AuthKind, Disbelief, Distrust, Event, PeerRefused};
use crate::exchange::Refusal;
use crate::ike_sa::context::Context;
use crate::ike_sa::{Seen, Stem};
use crate::wire::payload::{Id, IdData};
use crate::wire::registry::{AuthMethod, NotifyType};

/// What is wrong with a claim, and for which connection.
#[derive(Debug, Clone)]
pub(crate) struct Blame {
    /// Empty if no connection could be tried.
    pub(crate) connection: String,
    pub(crate) why: Disbelief,
    /// If certificates or a key were refused.
    pub(crate) distrust: Option<Distrust>,
}

impl Blame {
    pub(crate) fn of(connection: Option<&ConnectionConfig>, why: Disbelief) -> Self {
        let connection = connection.map_or_else(String::new, |found| found.name.clone());
        Self { connection, why, distrust: None }
    }

    /// The same, for certificates or a key that were refused.
    pub(crate) fn distrusting(self, kind: Distrust) -> Self {
        Self { distrust: Some(kind), ..self }
    }

    /// Reports to the log that the peer is not believed.
    pub(crate) fn tell(
        self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        ids: (Option<IdData>, Option<IdData>),
    ) {
        let path = if channel.link().is_initiator() {
            channel.route().path()
        } else {
            channel.route().answer_to()
        };
        let (remote_id, local_id) = ids;
        let Self { connection, why, distrust } = self;
        let ike = channel.link().id();
        let refused = PeerRefused { ike, path, connection, local_id, remote_id, distrust, why };
        ctx.io.event(Event::PeerRefused(Box::new(refused)));
    }

    /// Why none of `connections` accepts the claim: the nearest of them, and what it lacks.
    pub(super) fn for_none(
        channel: &Channel,
        connections: &[Arc<ConnectionConfig>],
        claim: Claim<'_>,
    ) -> Self {
        let connections = connections.iter().map(|connection| &**connection);
        let takes_id = |connection: &&ConnectionConfig| {
            let round = connection.remote.get(claim.index);
            round.is_some_and(|round| {
                round.auth == AuthConfig::Null || matches_id(&round.id, claim.id)
            })
        };
        let known = connections.filter(takes_id);
        let Some(first) = known.clone().next() else {
            return Self::of(None, Disbelief::NoConnection);
        };
        let answers = |connection: &&ConnectionConfig| {
            claim.index > 0 || claim.wanted.is_none_or(|id| answers_to(connection, channel, id))
        };
        let mut answering = known.filter(answers);
        let Some(nearest) = answering.clone().next() else {
            return Self::of(Some(first), Disbelief::OtherIdentityWanted);
        };
        let right = answering.find(|connection| {
            let round = connection.remote.get(claim.index);
            round.is_some_and(|round| is_of_kind(&round.auth, claim.method))
        });
        match (right, nearest.remote.get(claim.index)) {
            (Some(right), _) => Self::of(Some(right), Disbelief::OtherProposalOrRounds),
            (None, round) => {
                let wanted = round.map(|round| AuthKind::from(&round.auth));
                let shown = shown(claim.method);
                Self::of(Some(nearest), Disbelief::OtherMethod { shown, wanted })
            }
        }
    }

    /// Why a secret did not prove a claim that `connection` accepts.
    pub(super) fn for_secret(
        seen: Seen<'_>,
        lookup: &Lookup,
        connection: &ConnectionConfig,
        claim: Claim<'_>,
    ) -> Self {
        let own = local_id(connection, seen.channel);
        let psk = claim.method == AuthMethod::PSK;
        if psk && peer_psk(lookup, &own, claim.id).is_none() {
            let why = Disbelief::NoPsk { local: own, remote: claim.id.clone() };
            return Self::of(Some(connection), why);
        }
        // A wrong PPK shows only in AUTH.
        let why = match (psk, seen.peer.ppk().used()) {
            (true, None) => Disbelief::WrongPsk,
            (true, Some(_)) => Disbelief::WrongPskOrPpk,
            (false, _) => Disbelief::WrongAuth,
        };
        Self::of(Some(connection), why)
    }
}

/// Why a request cannot be judged.
pub(super) enum Unbelieved {
    /// It violates the protocol.
    Malformed(Refusal),
    /// The peer's identity is wrong, or unknown here.
    Peer(Blame),
}

/// A peer's claims in one round.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) index: usize,
    pub(super) id: &'a IdData,
    /// The identity that it requests of this end.
    pub(super) wanted: Option<&'a Id<'a>>,
    pub(super) method: AuthMethod,
}

impl Stem<'_> {
    /// As [`refuse`](Self::refuse) with AUTHENTICATION_FAILED. The log gets the reason.
    pub(super) fn refuse_peer(
        &mut self,
        ctx: &mut Context<'_>,
        ids: (Option<IdData>, Option<IdData>),
        blame: Blame,
    ) {
        blame.tell(self.channel, ctx, ids);
        self.refuse(ctx, NotifyType::AUTHENTICATION_FAILED.into());
    }
}

fn is_of_kind(auth: &AuthConfig, method: AuthMethod) -> bool {
    match auth {
        AuthConfig::Psk => method == AuthMethod::PSK,
        AuthConfig::Pubkey(_) => signature::is_signature(method),
        AuthConfig::Null => method == AuthMethod::NULL,
        AuthConfig::Eap => method == NO_AUTH,
    }
}

fn shown(method: AuthMethod) -> AuthKind {
    match method {
        AuthMethod::PSK => AuthKind::Psk,
        AuthMethod::NULL => AuthKind::Null,
        NO_AUTH => AuthKind::Eap,
        method if signature::is_signature(method) => AuthKind::Signature,
        other => AuthKind::Other(other),
    }
}
