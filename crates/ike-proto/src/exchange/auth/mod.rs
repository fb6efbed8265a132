//! IKE_AUTH (RFC 7296 §1.2, §2.15), in rounds as RFC 4739 has it, and childless as RFC 6023 has it.
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, SK {IDi, [CERT,] [CERTREQ,]
//!      [IDr,] AUTH, [SAi2, TSi, TSr]}  -->
//!                               <--  HDR, SK {IDr, [CERT,] AUTH, [SAr2, TSi, TSr]}
//! ```
//!
//! Signatures and verdicts on certificates come from outside: `questions.rs`.

pub(crate) mod announce;
pub(crate) mod blame;
pub(crate) mod eap;
pub(crate) mod first_contact;
mod initiator;
mod psk;
pub(crate) mod questions;
pub(crate) mod responder;
pub(crate) mod rounds;
mod signature;

use std::collections::VecDeque;

use super::Payloads;
use super::followup::Answering;
use super::resume::fits::{InForce, Used};
use crate::channel::Channel;
use crate::config::{AuthConfig, ConnectionConfig, IdMatch, LocalAuth, RemoteAuth, Unique};
use crate::event::{Event, Path};
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, Task};
use crate::wire::payload::{Id, IdData};
use crate::wire::registry::{AuthMethod, IdType};
pub(crate) use initiator::claim;
pub(crate) use psk::peer_psk;
use rounds::Authenticated;
pub(crate) use signature::is_signature;

impl Stem<'_> {
    /// Makes the established state: both ends are authenticated.
    fn establish(
        &mut self,
        ctx: &mut Context<'_>,
        mut authenticated: Authenticated,
        queue: VecDeque<Task>,
    ) -> Box<Established> {
        // The peer is authenticated by the keys of its rounds; those of this end alone are compared with later ones.
        let own = InForce::at(ctx).own_print(Used::of(self.peer, &authenticated));
        authenticated.secrets = authenticated.secrets.wrapping_add(own);
        let mut established = Box::new(Established::new(authenticated, queue, ctx.io.now.mono));
        established.answering = Answering::after_auth(self.channel);
        self.channel.proving().set_authenticated(&ctx.io, established.identity.owner_id());
        self.peer.choose_if_ids(self.channel, ctx);
        self.channel.let_go(&mut ctx.io, self.channel.kept());
        self.channel.deadlines().limit_half_open(None);
        established.life.begin(self.channel.connection(), ctx);
        established.keep_reauth_time(self.seen());
        ctx.io.event(Event::IkeUp(self.channel.link().id()));
        self.peer.ppk().audit(self.channel.link(), ctx);
        established
    }
}

/// ID_NULL (RFC 7619 §2.2).
fn null_id() -> IdData {
    IdData { kind: IdType::NULL, data: Vec::new() }
}

/// This end's identity in one round: the configured one, otherwise its address.
pub(crate) fn round_id(connection: &ConnectionConfig, round: &LocalAuth, path: Path) -> IdData {
    //= https://www.rfc-editor.org/rfc/rfc8784#section-5.2.3
    //# Additionally, since the
    //# peers are authenticated via PPKs, the ID Type in the IDi/IDr payloads
    //# SHOULD NOT be ID_NULL, despite using the NULL Authentication method.
    let nobody = round.auth == AuthConfig::Null && connection.ppk.ids.is_empty();
    match &round.id {
        Some(id) => id.clone(),
        None if nobody => null_id(),
        None => IdData::ip(path.local.ip().to_canonical()),
    }
}

/// This end's identity: that of its first round.
pub(crate) fn local_id_at(connection: &ConnectionConfig, path: Path) -> IdData {
    match connection.local.first() {
        Some(round) => round_id(connection, round, path),
        None => null_id(),
    }
}

fn local_id(connection: &ConnectionConfig, channel: &Channel) -> IdData {
    local_id_at(connection, channel.route().path())
}

fn answers_to(connection: &ConnectionConfig, channel: &Channel, wanted: &Id<'_>) -> bool {
    local_id(connection, channel).matches(*wanted)
}

/// True if `round` lets the peer be `id` with an AUTH payload of `method`.
fn takes(round: &RemoteAuth, id: &IdData, method: AuthMethod) -> bool {
    match round.auth {
        AuthConfig::Psk => method == AuthMethod::PSK && matches_id(&round.id, id),
        AuthConfig::Pubkey(_) => is_signature(method) && matches_id(&round.id, id),
        // Any name will do, because none is proven.
        AuthConfig::Null => method == AuthMethod::NULL,
        AuthConfig::Eap => method == eap::NO_AUTH && matches_id(&round.id, id),
    }
}

/// True if the peer may claim `id`.
pub(crate) fn matches_id(wanted: &IdMatch, id: &IdData) -> bool {
    wanted.admits(id)
}

/// How exactly `round` identifies the peer. Of several rounds that admit an identity, the one with the largest
/// number is the most exact.
fn exactness(round: &RemoteAuth) -> usize {
    match &round.auth {
        // The name does not matter.
        AuthConfig::Null => 0,
        _ => round.id.exactness(),
    }
}

/// True if this end makes signatures in a round of `connection`.
pub(crate) fn signs(connection: &ConnectionConfig) -> bool {
    connection.local.iter().any(|round| matches!(round.auth, AuthConfig::Pubkey(_)))
}

/// True if INITIAL_CONTACT is to be sent by `connection`.
pub(crate) fn sends_initial_contact(connection: &ConnectionConfig) -> bool {
    connection.unique != Unique::Never
}
