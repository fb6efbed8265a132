//! Whether the contents of a ticket still fit the configuration.

use std::hash::{BuildHasher, Hash, Hasher};
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
use crate::exchange::auth::{is_signature, matches_id, peer_psk, round_id};
use crate::exchange::ppk::key_of;
use crate::ike_sa::Peer;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::Established;
use crate::reason::TicketReason;
use crate::table::HashSeed;
use crate::wire::payload::IdData;
use crate::wire::registry::AuthMethod;

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
        let by_psk = |used: &&UsedAuth| used.method == AuthMethod::PSK && used.eap.is_none();
        let first = self.local.first().zip(self.remote.first());
        first.into_iter().flat_map(move |(local, remote)| {
            let ours = self.local.iter().filter(by_psk).map(|used| (&used.id, &remote.id));
            let theirs = self.remote.iter().filter(by_psk).map(|used| (&local.id, &used.id));
            ours.chain(theirs)
        })
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

/// A number for the secrets of an IKE SA as they are configured now, for this run and this end only.
pub(crate) fn print(ctx: &Context<'_>, used: Used<'_>) -> u64 {
    print_by((ctx.registry.seed(), ctx.lookup, ctx.io.config), used)
}

/// The seed of [`print()`], and what is in force at an endpoint.
pub(crate) type InForce<'a> = (HashSeed, &'a Lookup, &'a EndpointConfig);

fn print_by((seed, lookup, config): InForce<'_>, used: Used<'_>) -> u64 {
    let mut hasher = seed.build_hasher();
    // With one round at each end, both have the same key.
    let most = if used.local.len().max(used.remote.len()) == 1 { 1 } else { usize::MAX };
    let psks = used.psks(lookup).take(most);
    psks.for_each(|psk| psk.secret().expose().hash(&mut hasher));
    if let Some(key) = used.ppk.and_then(|id| key_of(config, id)) {
        key.secret.expose().hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the secrets by which an IKE SA with this `peer` was `authenticated` are in force.
pub(crate) fn secrets_now(
    in_force: InForce<'_>,
    peer: &Peer,
    authenticated: &Authenticated,
) -> SecretsNow {
    let (_, lookup, config) = in_force;
    let used = Used::of(peer, authenticated);
    let lacks_psk = used.pairs().any(|(local, remote)| peer_psk(lookup, local, remote).is_none());
    if lacks_psk || used.ppk.is_some_and(|id| key_of(config, id).is_none()) {
        return SecretsNow::Removed;
    }
    // A rekey may have added the PPK.
    let all = [used, Used { ppk: None, ..used }];
    match all.iter().any(|used| print_by(in_force, *used) == authenticated.secrets) {
        true => SecretsNow::Same,
        false => SecretsNow::Replaced,
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
        && authenticated.secrets == print(ctx, Used::of(peer, authenticated));
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

/// True if `used` is what `auth` requires.
fn is_by(auth: &AuthConfig, used: &UsedAuth) -> bool {
    match auth {
        AuthConfig::Psk => used.method == AuthMethod::PSK && used.eap.is_none(),
        AuthConfig::Pubkey(pubkey) => {
            is_signature(used.method)
                && used.scheme.as_ref().is_none_or(|scheme| pubkey.ike.allows(scheme))
        }
        AuthConfig::Eap => used.eap.is_some(),
        AuthConfig::Null => false,
    }
}
