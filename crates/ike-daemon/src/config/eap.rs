//! The rounds by EAP, for the service that answers questions about them.

use std::sync::Arc;

use ike_aaa::{EapConfig, EapRound, RadiusClient};
use ike_config::{EapId, EapMethod, RadiusOptions, Report, Way};

use super::rounds::Rounds;
use crate::signer::KeySource;

/// Hands the rounds of connection `name` that are by EAP to `book`. Reports a missing certificate of this end, and warns
/// of a missing password. What else cannot be done is known from the settings alone.
pub(super) fn collect(rounds: &Rounds, name: &str, book: &mut EapConfig, report: &mut Report) {
    let own = rounds.local.iter().find_map(|round| round.eap.as_ref());
    let theirs = rounds.remote.iter().find_map(|round| round.eap.as_ref());
    for round in &rounds.local {
        let Some(eap) = &round.eap else { continue };
        let name_in_eap = match (&eap.eap_id, &round.auth.id) {
            (Some(EapId::Exact(id)), _) => Some(id.clone()),
            (_, id) => id.as_ref().map(ToString::to_string),
        };
        // A gateway that has EAP alone says so in `local`, too, and needs none.
        let by_password = ![Way::One(EapMethod::Tls), Way::Any].contains(&eap.way);
        if by_password
            && theirs.is_none()
            && name_in_eap.is_none_or(|id| book.secrets.find(id.as_bytes(), true).is_none())
        {
            let why = "no [secrets.eap-<suffix>] has the eap_id of its `local`";
            report.warn(None, format!("connection {name}: {why}"));
        }
        let judged_by = rounds.remote.first().map(|round| round.auth.name.clone());
        let found = EapRound {
            way: eap.way,
            eap_id: eap.eap_id.clone(),
            aaa_id: eap.aaa_id.clone(),
            credentials: round.credentials.clone(),
            groups: Vec::new(),
            judged_by: judged_by.unwrap_or_default(),
        };
        book.rounds.insert((name.to_owned(), round.auth.name.clone()), Arc::new(found));
    }
    for round in &rounds.remote {
        let Some(eap) = &round.eap else { continue };
        // The reader has reported a way that is not known.
        let Some(way) = eap.way_of_peer(own) else { continue };
        let credentials: Vec<_> =
            rounds.local.iter().flat_map(|round| &round.credentials).cloned().collect();
        let tls = [Way::One(EapMethod::Tls), Way::One(EapMethod::Ttls)].contains(&way);
        if tls && own.is_none() && credentials.is_empty() {
            let message = format!("connection {name}: TLS needs a certificate of this end");
            let expected = "`auth = \"pubkey\"` and a certificate in `local`";
            report.expected(eap.place, message, expected);
        }
        let found = EapRound {
            way,
            eap_id: eap.eap_id.clone(),
            aaa_id: None,
            credentials,
            groups: round.groups.clone(),
            judged_by: round.auth.name.clone(),
        };
        book.rounds.insert((name.to_owned(), round.auth.name.clone()), Arc::new(found));
    }
}

/// Lets the keys of connection `name` that EAP uses sign for TLS.
pub(super) fn admit(rounds: &Rounds, name: &str, keys: &dyn KeySource, report: &mut Report) {
    let own = rounds.local.iter().filter_map(|round| round.eap.as_ref()).map(|eap| eap.way);
    let theirs = rounds.remote.iter().filter_map(|round| round.eap.as_ref()).map(|eap| eap.way);
    // A server decides about the others, and this end has no part in its TLS.
    let by_tls =
        |way| matches!(way, Way::Any | Way::Dynamic | Way::One(EapMethod::Tls | EapMethod::Ttls));
    if !own.chain(theirs).any(by_tls) {
        return;
    }
    let used = rounds.local.iter().flat_map(|round| &round.credentials);
    let admitted: Vec<_> = used.map(|one| keys.admit_tls(Some(one.key().public_key()))).collect();
    if admitted.contains(&false) {
        let why = "its key was not for EAP over TLS when the daemon started; restart the daemon so that the signer signs for TLS";
        report.warn(None, format!("connection {name}: {why}"));
    }
}

/// The RADIUS servers of `options`.
#[cfg(feature = "radius")]
pub(super) fn radius(options: RadiusOptions) -> Option<Arc<RadiusClient>> {
    Some(Arc::new(RadiusClient::new(options)))
}

/// `parts` has refused servers before.
#[cfg(not(feature = "radius"))]
pub(super) fn radius(_: RadiusOptions) -> Option<Arc<RadiusClient>> {
    None
}
