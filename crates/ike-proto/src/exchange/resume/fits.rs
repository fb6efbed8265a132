//! Is what a ticket has still what the configuration wants?

use super::former::{Former, Held};
use super::ticket::{DIGEST_LEN, TicketState};
use crate::config::lookup::Lookup;
use crate::config::{
    AuthConfig, ConnectionConfig, DowngradePrevention, EndpointConfig, LocalAuth, RemoteAuth,
};
use crate::crypto::{CryptoProvider, Prf};
use crate::event::{Path, UsedAuth};
use crate::exchange::auth::{is_signature, matches_id, peer_psk, round_id};
use crate::exchange::ppk::key_of;
use crate::wire::registry::AuthMethod;

/// Says why a gateway does not take a ticket of `connection` by `path` any more.
pub(crate) fn check(
    config: &EndpointConfig,
    lookup: &Lookup,
    prf: &dyn Prf,
    (connection, path): (&ConnectionConfig, Path),
    ticket: &TicketState,
) -> Result<(), &'static str> {
    let former = &ticket.former;
    rounds_fit(connection, path, former)?;
    if connection.downgrade_prevention == DowngradePrevention::Require && !former.full_transcript {
        return Err("downgrade prevention is required");
    }
    // Whoever has turned it off may have had to.
    if connection.downgrade_prevention == DowngradePrevention::No && former.full_transcript {
        return Err("downgrade prevention is off");
    }
    match &former.ppk {
        None if connection.requires_ppk() => return Err("a PPK is required"),
        Some(id) if !connection.ppk.covers(id) || key_of(config, id).is_none() => {
            return Err("its PPK is not configured any more");
        }
        _ => {}
    }
    let same = ct_eq(&ticket.secrets, &secrets(config, lookup, prf, former));
    if same { Ok(()) } else { Err("a secret has changed") }
}

fn ct_eq(a: &[u8; DIGEST_LEN], b: &[u8; DIGEST_LEN]) -> bool {
    subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]).into()
}

/// A digest of the pre-shared keys and the PPK that `former` was made with, as they are configured now.
pub(crate) fn secrets(
    config: &EndpointConfig,
    lookup: &Lookup,
    prf: &dyn Prf,
    former: &Former,
) -> [u8; DIGEST_LEN] {
    let by_psk = |used: &&UsedAuth| used.method == AuthMethod::PSK && used.eap.is_none();
    let (local, remote) = (former.local_id(), former.remote_id());
    let mut found = Vec::new();
    if let (Some(local), Some(remote)) = (local, remote) {
        let ours = former.local.iter().filter(by_psk).map(|used| (&used.id, remote));
        let theirs = former.remote.iter().filter(by_psk).map(|used| (local, &used.id));
        for (local, remote) in ours.chain(theirs) {
            found.extend(peer_psk(lookup, local, remote).map(|psk| psk.padded(prf)));
        }
    }
    if let Some(key) = former.ppk.as_ref().and_then(|id| key_of(config, id)) {
        found.push(prf.prf(key.secret.expose(), &[]));
    }
    let parts: Vec<_> = found.iter().map(|secret| secret.expose()).collect();
    let digest = prf.prf(former.sk_d.expose(), &parts);
    let mut out = [0; DIGEST_LEN];
    for (to, from) in out.iter_mut().zip(digest.expose()) {
        *to = *from;
    }
    out
}

//= RFC 5723 §6.2
//# when credentials associated with the IKE SA are invalidated
/// True if a client may keep `held`: the connection authenticates as it did then, by the same credentials.
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
/// changed that both ends rely on.
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

fn rounds_fit(
    connection: &ConnectionConfig,
    path: Path,
    former: &Former,
) -> Result<(), &'static str> {
    let (local, remote) = (&former.local, &former.remote);
    if (local.len(), remote.len()) != (connection.local.len(), connection.remote.len())
        || local.is_empty()
        || remote.is_empty()
    {
        return Err("other rounds of authentication are configured");
    }
    let own = |(round, used): (&LocalAuth, &UsedAuth)| {
        is_by(&round.auth, used) && round_id(connection, round, path) == used.id
    };
    if !connection.local.iter().zip(local).all(own) {
        return Err("this end authenticates otherwise");
    }
    let theirs = |(round, used): (&RemoteAuth, &UsedAuth)| {
        is_by(&round.auth, used) && matches_id(&round.id, &used.id)
    };
    if !connection.remote.iter().zip(remote).all(theirs) {
        return Err("the peer must authenticate otherwise");
    }
    Ok(())
}

/// True if `used` is what `auth` asks for.
fn is_by(auth: &AuthConfig, used: &UsedAuth) -> bool {
    match auth {
        AuthConfig::Psk => used.method == AuthMethod::PSK && used.eap.is_none(),
        AuthConfig::Pubkey(pubkey) => {
            is_signature(used.method) && used.scheme.is_none_or(|scheme| pubkey.ike.allows(scheme))
        }
        AuthConfig::Eap => used.eap.is_some(),
        AuthConfig::Null => false,
    }
}
