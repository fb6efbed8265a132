//! The choice of a pre-shared key.

use std::sync::Arc;

use super::matches_id;
use crate::config::IdMatch;
use crate::config::lookup::{Lookup, Psk};
use crate::wire::payload::IdData;

/// The key for this end's AUTH before the peer's identity is proven.
pub(super) fn own_psk(lookup: &Lookup, local: &IdData, remote: &IdMatch) -> Option<Arc<Psk>> {
    match remote {
        IdMatch::Exact(remote) => peer_psk(lookup, local, remote),
        IdMatch::Any | IdMatch::Suffix(_) | IdMatch::DnPattern(_) | IdMatch::Regex(_) => {
            best(lookup.all_secrets().iter(), |psk| {
                match psk.ids().iter().find(|id| !id.matches(local.as_id())) {
                    None => Some(u8::from(!psk.ids().is_empty())),
                    Some(other) => matches_id(remote, other).then_some(2),
                }
            })
        }
    }
}

/// The key shared with exactly this peer. A key that names identities besides this end's is valid for those only
/// (bug class 31).
pub(crate) fn peer_psk(lookup: &Lookup, local: &IdData, remote: &IdData) -> Option<Arc<Psk>> {
    best(lookup.secrets(local, remote), |psk| {
        let mine = psk.ids().iter().any(|id| id.matches(local.as_id()));
        // A peer that claims this end's own identity is none of them.
        let is_remote = |id: &IdData| id.matches(remote.as_id()) && !id.matches(local.as_id());
        if psk.ids().iter().any(is_remote) {
            return Some(2 + u8::from(mine));
        }
        psk.ids().iter().all(|id| id.matches(local.as_id())).then_some(u8::from(mine))
    })
}

fn best<'a>(
    secrets: impl DoubleEndedIterator<Item = &'a Arc<Psk>>,
    score: impl Fn(&Psk) -> Option<u8>,
) -> Option<Arc<Psk>> {
    // The first of equal keys wins, hence the reversal.
    secrets
        .rev()
        .filter_map(|psk| Some((score(psk)?, psk)))
        .max_by_key(|(score, _)| *score)
        .map(|(_, psk)| Arc::clone(psk))
}
