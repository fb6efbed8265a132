//! Whether the contents of a ticket still fit the configuration.

use std::sync::Arc;

use super::former::{Former, Held};
use super::ticket::{DIGEST_LEN, TicketState};
use crate::channel::Channel;
use crate::config::lookup::{Lookup, Psk};
use crate::config::{
    AuthConfig, ConnectionConfig, DowngradePrevention, EndpointConfig, LocalAuth, PpkId, RemoteAuth,
};
use crate::crypto::{CryptoProvider, Prf, Secret};
use crate::event::{Path, SecretsNow, UsedAuth};
use crate::exchange::auth::rounds::Authenticated;
use crate::exchange::auth::{matches_id, peer_psk, round_id};
use crate::exchange::ppk::key_of;
use crate::ike_sa::Peer;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::Established;
use crate::reason::TicketReason;
use crate::table::HashSeed;
use crate::wire::payload::IdData;

/// Says why a gateway no longer accepts a ticket of `connection` by `path`.
pub(crate) fn check(
    config: &EndpointConfig,
    lookup: &Lookup,
    prf: &dyn Prf,
    (connection, path): (&ConnectionConfig, Path),
    ticket: &TicketState,
) -> Result<(), TicketReason> {
    let former = &ticket.former;
    rounds_fit(connection, path, former)?;
    if ticket.eap != eap_of(connection) {
        return Err(TicketReason::OtherEap);
    }
    if connection.downgrade_prevention == DowngradePrevention::Require && !former.full_transcript {
        return Err(TicketReason::DowngradePreventionRequired);
    }
    // The operator may have had to turn it off.
    if connection.downgrade_prevention == DowngradePrevention::No && former.full_transcript {
        return Err(TicketReason::DowngradePreventionOff);
    }
    match &former.ppk {
        None if connection.requires_ppk() => return Err(TicketReason::PpkRequired),
        Some(id) if !connection.takes_ppk(id) || key_of(config, id).is_none() => {
            return Err(TicketReason::PpkGone);
        }
        _ => {}
    }
    let same = ct_eq(&ticket.secrets, &secrets(config, lookup, prf, former));
    if same { Ok(()) } else { Err(TicketReason::SecretChanged) }
}

fn ct_eq(a: &[u8; DIGEST_LEN], b: &[u8; DIGEST_LEN]) -> bool {
    subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]).into()
}

/// How two ends have authenticated.
#[derive(Clone, Copy)]
pub(crate) struct Used<'a> {
    pub(crate) local: &'a [UsedAuth],
    pub(crate) remote: &'a [UsedAuth],
    pub(crate) ppk: Option<&'a PpkId>,
}

impl<'a> Used<'a> {
    /// That of an SA with this `peer`.
    pub(crate) fn of(peer: &'a Peer, authenticated: &'a Authenticated) -> Self {
        let Authenticated { local, remote, .. } = authenticated;
        Self { local, remote, ppk: peer.ppk().used() }
    }

    /// This end's identity and the peer's, for each pre-shared key of that authentication.
    fn pairs(self) -> impl Iterator<Item = (&'a IdData, &'a IdData)> {
        let first = self.local.first().zip(self.remote.first());
        first.into_iter().flat_map(move |(local, remote)| {
            let by_psk = |used: &&UsedAuth| used.is_by_psk();
            let ours = self.local.iter().filter(by_psk).map(|used| (&used.id, &remote.id));
            let theirs = self.remote.iter().filter(by_psk).map(|used| (&local.id, &used.id));
            ours.chain(theirs)
        })
    }

    /// This end's identity and the peer's, for each pre-shared key by which the peer has authenticated.
    fn pairs_of_peer(self) -> impl Iterator<Item = (&'a IdData, &'a IdData)> {
        let local = self.local.first();
        let by_psk = self.remote.iter().filter(|used| used.is_by_psk());
        by_psk.filter_map(move |used| Some((&local?.id, &used.id)))
    }

    /// The same for this end, without the pairs of [`pairs_of_peer`](Self::pairs_of_peer): those have the same key.
    fn pairs_of_own(self) -> impl Iterator<Item = (&'a IdData, &'a IdData)> {
        let remote = self.remote.first();
        let by_psk = self.local.iter().filter(|used| used.is_by_psk());
        let pairs = by_psk.filter_map(move |used| Some((&used.id, &remote?.id)));
        pairs.filter(move |pair| !self.pairs_of_peer().any(|other| other == *pair))
    }

    /// The pre-shared keys of that authentication, as they are configured now.
    fn psks(self, lookup: &'a Lookup) -> impl Iterator<Item = Arc<Psk>> {
        self.pairs().filter_map(|(local, remote)| peer_psk(lookup, local, remote))
    }

    /// The pre-shared keys and the PPK of that authentication, as they are configured now.
    fn secrets(self, config: &EndpointConfig, lookup: &'a Lookup, prf: &dyn Prf) -> Vec<Secret> {
        let mut found: Vec<_> = self.psks(lookup).map(|psk| psk.padded(prf)).collect();
        if let Some(key) = self.ppk.and_then(|id| key_of(config, id)) {
            found.push(prf.prf(key.secret.expose(), &[]));
        }
        found
    }
}

/// What is in force at an endpoint, and the seed of numbers for its secrets.
#[derive(Clone, Copy)]
pub(crate) struct InForce<'a> {
    seed: HashSeed,
    lookup: &'a Lookup,
    config: &'a EndpointConfig,
}

impl<'a> InForce<'a> {
    /// The configuration, in both forms, and the seed of the endpoint.
    pub(crate) fn new(seed: HashSeed, lookup: &'a Lookup, config: &'a EndpointConfig) -> Self {
        Self { seed, lookup, config }
    }

    /// What is in force at the endpoint of an SA.
    pub(crate) fn at(ctx: &Context<'a>) -> Self {
        Self::new(ctx.registry.seed(), ctx.lookup, ctx.io.config)
    }

    /// The seed of numbers for secrets.
    pub(crate) fn seed(self) -> HashSeed {
        self.seed
    }

    /// What is found by name or identity.
    pub(crate) fn lookup(self) -> &'a Lookup {
        self.lookup
    }

    /// The configuration.
    pub(crate) fn config(self) -> &'a EndpointConfig {
        self.config
    }

    /// A number for the pre-shared keys of these pairs of identities.
    fn print<'b>(self, pairs: impl Iterator<Item = (&'b IdData, &'b IdData)>) -> u64 {
        let psks = pairs.filter_map(|(local, remote)| peer_psk(self.lookup, local, remote));
        psks.fold(0, |sum, psk| sum.wrapping_add(self.seed.print(psk.secret())))
    }

    /// A number for the pre-shared keys by which the peer has authenticated, as they are configured now.
    pub(super) fn peer_print(self, used: Used<'_>) -> u64 {
        self.print(used.pairs_of_peer())
    }

    /// The same for the keys of this end that the peer has not used.
    pub(crate) fn own_print(self, used: Used<'_>) -> u64 {
        self.print(used.pairs_of_own())
    }

    /// The number of [`peer_print`](Self::peer_print) for an SA that a client has resumed from `held`. It is another one if
    /// the secrets of the ticket are not in force any more.
    pub(super) fn print_of_held(self, prf: &dyn Prf, held: &Held) -> u64 {
        let Former { local, remote, .. } = &held.former;
        let print = self.peer_print(Used { local, remote, ppk: None });
        match ct_eq(&held.secrets, &secrets(self.config, self.lookup, prf, &held.former)) {
            true => print,
            false => !print,
        }
    }

    /// The [`print`](HashSeed::print) of the PPK of a ticket.
    pub(super) fn ppk_print(self, id: &PpkId) -> u64 {
        key_of(self.config, id).map_or(0, |key| self.seed.print(&key.secret))
    }

    /// Says why a ticket by which the SA of `channel` is to be resumed is not accepted any more.
    pub(super) fn still_takes(
        self,
        channel: &Channel,
        ticket: &TicketState,
    ) -> Result<(), TicketReason> {
        let connection = self.lookup.connection(&ticket.connection);
        let connection = connection.filter(|known| known.session_resumption);
        let connection = connection.ok_or(TicketReason::ConnectionGone)?;
        let (prf, place) = (channel.session().prf, (&**connection, channel.route().path()));
        check(self.config, self.lookup, prf, place, ticket)
    }

    /// Whether the secrets by which an IKE SA with this `peer` was `authenticated` are in force.
    pub(crate) fn secrets(self, peer: &Peer, authenticated: &Authenticated) -> SecretsNow {
        let Self { seed, lookup, config } = self;
        let used = Used::of(peer, authenticated);
        let mut pairs = used.pairs();
        let lacks_psk = pairs.any(|(local, remote)| peer_psk(lookup, local, remote).is_none());
        if lacks_psk || used.ppk.is_some_and(|id| key_of(config, id).is_none()) {
            return SecretsNow::Removed;
        }
        let psks = self.peer_print(used).wrapping_add(self.own_print(used));
        match psks == authenticated.secrets && peer.ppk().is_in_force(seed, config) {
            true => SecretsNow::Same,
            false => SecretsNow::Replaced,
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc5723#section-6.2
//# when credentials associated with the IKE SA are invalidated (e.g., when a user logs out), the
//# ticket MUST be deleted.
/// The connection by which a gateway gives a ticket for the SA of `channel`: its configuration and its secrets are those with
/// which the peers authenticated. Otherwise they have to authenticate again.
pub(crate) fn may_grant<'a>(
    ctx: &Context<'a>,
    channel: &Channel,
    peer: &Peer,
    established: &Established,
) -> Option<&'a ConnectionConfig> {
    let (then, now) = (channel.connection(), ctx.lookup.connection(&channel.connection().name)?);
    let same = Arc::ptr_eq(then, now)
        || (&then.local, &then.remote, then.credentials)
            == (&now.local, &now.remote, now.credentials);
    let authenticated = established.identity.authenticated();
    let kept = same
        && then.session_resumption
        && super::responder::is_gateway(ctx.io.config, now)
        && InForce::at(ctx).secrets(peer, authenticated) == SecretsNow::Same;
    kept.then_some(now)
}

/// A digest of the pre-shared keys and the PPK of `former`, as they are configured now.
pub(crate) fn secrets(
    config: &EndpointConfig,
    lookup: &Lookup,
    prf: &dyn Prf,
    former: &Former,
) -> [u8; DIGEST_LEN] {
    let Former { local, remote, ppk, .. } = former;
    let found = Used { local, remote, ppk: ppk.as_ref() }.secrets(config, lookup, prf);
    let parts: Vec<_> = found.iter().map(|secret| secret.expose()).collect();
    let digest = prf.prf(former.sk_d.expose(), &parts);
    let mut out = [0; DIGEST_LEN];
    for (to, from) in out.iter_mut().zip(digest.expose()) {
        *to = *from;
    }
    out
}

//= https://www.rfc-editor.org/rfc/rfc5723#section-6.2
//# when credentials associated with the IKE SA are invalidated
/// True if a client may keep `held`: the connection authenticates in the same way, with the same credentials.
pub(crate) fn may_keep(
    config: &EndpointConfig,
    lookup: &Lookup,
    crypto: &CryptoProvider,
    connection: &ConnectionConfig,
    held: &Held,
) -> bool {
    let then = &held.connection;
    let prf = || crypto.prf(held.former.select(connection)?.prf);
    let same = |prf| ct_eq(&held.secrets, &secrets(config, lookup, prf, &held.former));
    connection.session_resumption
        && (&connection.local, &connection.remote) == (&then.local, &then.remote)
        && connection.credentials == then.credentials
        && prf().is_some_and(same)
}

/// True if a client may present `held`, which it [may keep](may_keep), for `connection` by `path`: nothing has
/// changed on which both ends rely.
pub(crate) fn may_present(
    config: &EndpointConfig,
    connection: &ConnectionConfig,
    path: Path,
    held: &Held,
) -> bool {
    let (former, then) = (&held.former, &held.connection);
    let ppk = match &former.ppk {
        None => !connection.requires_ppk(),
        Some(id) => connection.ppk.covers(id) && key_of(config, id).is_some(),
    };
    let required = connection.downgrade_prevention == DowngradePrevention::Require;
    rounds_fit(connection, path, former).is_ok()
        && former.select(connection).is_some()
        && (former.full_transcript || !required)
        && connection.downgrade_prevention == then.downgrade_prevention
        && ppk
}

/// The settings of the peer's EAP rounds, in the form of tickets.
pub(super) fn eap_of(connection: &ConnectionConfig) -> &str {
    // There is at most one (RFC 4739 §2).
    connection.remote.iter().map(|round| &*round.eap).find(|eap| !eap.is_empty()).unwrap_or("")
}

fn rounds_fit(
    connection: &ConnectionConfig,
    path: Path,
    former: &Former,
) -> Result<(), TicketReason> {
    let (local, remote) = (&former.local, &former.remote);
    if (local.len(), remote.len()) != (connection.local.len(), connection.remote.len())
        || local.is_empty()
        || remote.is_empty()
    {
        return Err(TicketReason::OtherRounds);
    }
    let own = |(round, used): (&LocalAuth, &UsedAuth)| {
        is_by(&round.auth, used) && round_id(connection, round, path) == used.id
    };
    if !connection.local.iter().zip(local).all(own) {
        return Err(TicketReason::OtherOwnAuth);
    }
    let theirs = |(round, used): (&RemoteAuth, &UsedAuth)| {
        is_by(&round.auth, used) && matches_id(&round.id, &used.id)
    };
    if !connection.remote.iter().zip(remote).all(theirs) {
        return Err(TicketReason::OtherPeerAuth);
    }
    Ok(())
}

/// True if `used` is what `auth` requires. A ticket is of no use without an identity.
fn is_by(auth: &AuthConfig, used: &UsedAuth) -> bool {
    let allows_scheme = match auth {
        AuthConfig::Pubkey(pubkey) => {
            used.scheme.as_ref().is_none_or(|scheme| pubkey.ike.allows(scheme))
        }
        AuthConfig::Psk | AuthConfig::Eap | AuthConfig::Null => true,
    };
    *auth != AuthConfig::Null && allows_scheme && used.is_by(auth)
}
