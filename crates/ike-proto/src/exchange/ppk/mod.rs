//! Post-quantum preshared keys: announced, offered and accepted (RFC 8784, RFC 9867).
//!
//! ```text
//!    IKE_SA_INIT       N(USE_PPK), N(USE_PPK_INT)  -->
//!                                            <--  N(USE_PPK) or N(USE_PPK_INT)
//!    IKE_INTERMEDIATE  N(PPK_IDENTITY_KEY)+  -->
//!                                            <--  [N(PPK_IDENTITY)]            after USE_PPK_INT
//!    IKE_AUTH          N(PPK_IDENTITY), [N(NO_PPK_AUTH)]  -->
//!                                            <--  [N(PPK_IDENTITY)]            after USE_PPK
//!    CREATE_CHILD_SA   N(PPK_IDENTITY_KEY)+  -->
//!                                            <--  [N(PPK_IDENTITY)]
//! ```

pub(crate) mod auth;
pub(crate) mod create_child;

use std::sync::Arc;

use super::Payloads;
use crate::channel::PpkPlace;
use crate::config::{
    ConnectionConfig, EndpointConfig, PostQuantumKey, PpkConfig, PpkExchange, PpkId,
};
use crate::crypto::{Prf, Secret};
use crate::ike_sa::notify;
use crate::keys::schedule::{AuthKeys, PPK_CONFIRMATION_LEN, ppk_confirmation};
use crate::reason::DropReason;
use crate::table::HashSeed;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// PPK_ID types (RFC 8784 §5.1). The first is for identifiers whose format the two ends agree on; here it is that
/// of the second.
const PPK_ID_OPAQUE: u8 = 1;
const PPK_ID_FIXED: u8 = 2;

/// PPKs that are offered in one message, and that are examined in one.
const MAX_OFFERED: usize = 16;

/// The PPK of an IKE SA.
#[derive(Debug, Default)]
pub(crate) enum PpkStage {
    /// None, or none yet.
    #[default]
    Without,
    /// Initiator: offered in IKE_AUTH and mixed in; with the keys before that, in case the peer declines.
    Offered(PpkId, Box<Unmixed>),
    /// The keys depend on it. The number is the [`print`](HashSeed::print) of its key.
    Used(PpkId, u64),
}

/// What an initiator needs when the peer has answered.
#[derive(Debug)]
pub(crate) struct Unmixed {
    keys: AuthKeys,
    print: u64,
}

impl PpkStage {
    /// The PPK on which the keys depend.
    pub(crate) fn used(&self) -> Option<&PpkId> {
        match self {
            Self::Used(id, _) => Some(id),
            Self::Without | Self::Offered(..) => None,
        }
    }

    /// True if `config` still has the key of the PPK on which the keys depend, or if there is none.
    pub(crate) fn is_in_force(&self, seed: HashSeed, config: &EndpointConfig) -> bool {
        let Self::Used(id, print) = self else { return true };
        let mut keys = config.ppks.iter().filter(|key| key.ids.contains(id));
        keys.any(|key| seed.print(&key.secret) == *print)
    }
}

/// The ways to use a PPK that an IKE_SA_INIT message announces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) auth: bool,
    pub(crate) intermediate: bool,
}

impl Announced {
    /// The notify for `place`.
    pub(crate) fn only(place: PpkPlace) -> Self {
        Self { auth: place == PpkPlace::Auth, intermediate: place == PpkPlace::Intermediate }
    }

    /// The peer's announcement.
    pub(crate) fn read(payloads: &Payloads<'_, '_>) -> Self {
        let has = |kind| payloads.notify(kind).is_some();
        Self {
            auth: has(NotifyType::USE_PPK),
            //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
            //# The IKE initiator, which supports the IKE_INTERMEDIATE exchange and
            //# wants to use a PPK to protect the initial IKE SA, includes the
            //# INTERMEDIATE_EXCHANGE_SUPPORTED notification and a notification of
            //# type USE_PPK_INT in the IKE_SA_INIT request.
            intermediate: has(NotifyType::USE_PPK_INT)
                && has(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED),
        }
    }

    /// Initiator: the ways that this end has for `connection`; none without a key.
    pub(crate) fn by(config: &EndpointConfig, connection: &ConnectionConfig) -> Self {
        Self::with(&connection.ppk, has_usable(config, &connection.ppk))
    }

    /// Responder: the same, with a key that the initiator may name.
    fn by_responder(config: &EndpointConfig, connection: &ConnectionConfig) -> Self {
        let mut ids = config.ppks.iter().flat_map(|key| &key.ids);
        Self::with(&connection.ppk, ids.any(|id| connection.takes_ppk(id)))
    }

    fn with(ppk: &PpkConfig, keyed: bool) -> Self {
        Self {
            auth: keyed && ppk.exchange != PpkExchange::Intermediate,
            intermediate: keyed && ppk.exchange != PpkExchange::Auth,
        }
    }

    /// The notifies, without INTERMEDIATE_EXCHANGE_SUPPORTED.
    pub(crate) fn kinds(self) -> impl Iterator<Item = NotifyType> {
        let kinds = [
            self.intermediate.then_some(NotifyType::USE_PPK_INT),
            self.auth.then_some(NotifyType::USE_PPK),
        ];
        kinds.into_iter().flatten()
    }

    fn and(self, other: Self) -> Self {
        Self {
            auth: self.auth && other.auth,
            intermediate: self.intermediate && other.intermediate,
        }
    }

    /// The best of the remaining ways, because a response announces only one.
    fn best(self) -> Option<PpkPlace> {
        match self {
            Self { intermediate: true, .. } => Some(PpkPlace::Intermediate),
            Self { auth: true, .. } => Some(PpkPlace::Auth),
            _ => None,
        }
    }
}

/// Responder: false if `theirs` excludes the connection.
pub(crate) fn is_possible(
    config: &EndpointConfig,
    connection: &Arc<ConnectionConfig>,
    theirs: Announced,
) -> bool {
    //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
    //# If the initiator did not propose using this extension in the
    //# IKE_SA_INIT request and the responder's policy mandates protecting
    //# initial IKE SA with a PPK, then the responder MUST return the
    //# NO_PROPOSAL_CHOSEN notification.
    !connection.requires_ppk() || choose_place(config, [connection], theirs).is_some()
}

/// Responder: chooses for the first of `connections` that has a PPK.
pub(crate) fn choose_place<'a>(
    config: &EndpointConfig,
    connections: impl IntoIterator<Item = &'a Arc<ConnectionConfig>>,
    theirs: Announced,
) -> Option<PpkPlace> {
    let place = |connection: &ConnectionConfig| {
        Announced::by_responder(config, connection).and(theirs).best()
    };
    connections.into_iter().find_map(|connection| place(connection))
}

/// Initiator: the choice of the response `theirs` to our `ours`. The error says why it cannot be genuine.
pub(crate) fn chosen_place(
    ours: Announced,
    theirs: Announced,
) -> Result<Option<PpkPlace>, DropReason> {
    let common = ours.and(theirs);
    //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
    //# it MUST
    //# return either a USE_PPK_INT or a USE_PPK notification in the response
    //# but not both.
    if common.auth && common.intermediate {
        return Err(DropReason::BothPpkNotifies);
    }
    Ok(common.best())
}

/// True if there is a key for a PPK that `ppk` allows.
pub(crate) fn has_usable(config: &EndpointConfig, ppk: &PpkConfig) -> bool {
    !ppk.ids.is_empty() && config.ppks.iter().flat_map(|key| &key.ids).any(|id| ppk.covers(id))
}

/// The PPKs that `ppk` allows and that have a key, in order of preference.
pub(crate) fn usable(
    config: &EndpointConfig,
    ppk: &PpkConfig,
) -> Vec<(PpkId, Arc<PostQuantumKey>)> {
    let mut found: Vec<(PpkId, Arc<PostQuantumKey>)> = Vec::new();
    for pattern in &ppk.ids {
        for key in &config.ppks {
            for id in key.ids.iter().filter(|id| pattern.covers(id)) {
                if found.len() < MAX_OFFERED && found.iter().all(|(other, _)| other != id) {
                    found.push((id.clone(), Arc::clone(key)));
                }
            }
        }
    }
    found
}

/// The first key of `id`.
pub(crate) fn key_of<'a>(
    config: &'a EndpointConfig,
    id: &PpkId,
) -> Option<&'a Arc<PostQuantumKey>> {
    config.ppks.iter().find(|key| key.ids.contains(id))
}

/// PPK_ID on the wire: type PPK_ID_FIXED and the identifier.
pub(crate) fn wire_id(id: &PpkId) -> Vec<u8> {
    [&[PPK_ID_FIXED], id.octets()].concat()
}

/// Reads a PPK_ID; `None` if it is empty, or of a type that names none of our keys.
pub(crate) fn read_id(data: &[u8]) -> Option<PpkId> {
    match data {
        [PPK_ID_FIXED | PPK_ID_OPAQUE, octets @ ..] if !octets.is_empty() => {
            Some(PpkId::new(octets))
        }
        _ => None,
    }
}

/// A PPK as offered in PPK_IDENTITY_KEY.
pub(crate) struct OfferedPpk {
    pub(crate) id: PpkId,
    pub(crate) key: Arc<PostQuantumKey>,
    /// Notification Data: PPK_ID and PPK Confirmation.
    pub(crate) data: Vec<u8>,
}

/// All PPKs that `ppk` allows, ready to offer. The confirmation covers `parts`.
pub(crate) fn offer(
    config: &EndpointConfig,
    ppk: &PpkConfig,
    prf: &dyn Prf,
    parts: &[&[u8]],
) -> Vec<OfferedPpk> {
    let offered = usable(config, ppk).into_iter().map(|(id, key)| {
        let confirmation = ppk_confirmation(prf, &key.secret, parts);
        let data = [&wire_id(&id), confirmation.expose()].concat();
        OfferedPpk { id, key, data }
    });
    offered.collect()
}

/// The notifies that offer `ppks`.
pub(crate) fn offer_payloads(ppks: &[OfferedPpk]) -> impl Iterator<Item = Payload<'_>> {
    ppks.iter().map(|ppk| notify(NotifyType::PPK_IDENTITY_KEY, &ppk.data))
}

/// A response names a PPK that was not offered, or that cannot be read.
pub(crate) struct NotOffered;

/// Initiator: the PPK of `offered` that the response has accepted, if any.
pub(crate) fn taken<'a>(
    offered: &'a [OfferedPpk],
    payloads: &Payloads<'_, '_>,
) -> Result<Option<&'a OfferedPpk>, NotOffered> {
    let Some(answer) = payloads.notify(NotifyType::PPK_IDENTITY).filter(|_| !offered.is_empty())
    else {
        return Ok(None);
    };
    //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
    //# If the responder returns
    //# a PPK identity that was not proposed by the initiator, then the
    //# initiator MUST treat this as fatal and abort the IKE SA
    //# establishment.
    let id = read_id(answer.data).ok_or(NotOffered)?;
    offered.iter().find(|ppk| ppk.id == id).map(Some).ok_or(NotOffered)
}

/// A PPK that both ends have.
pub(crate) struct CommonPpk {
    pub(crate) id: PpkId,
    /// PPK_ID as the peer wrote it.
    pub(crate) wire: Vec<u8>,
    pub(crate) key: Arc<PostQuantumKey>,
}

/// Responder: the first PPK of the peer's offer that `allowed` permits and whose confirmation shows that both ends
/// have the same one.
pub(crate) fn choose(
    config: &EndpointConfig,
    allowed: impl Fn(&PpkId) -> bool,
    prf: &dyn Prf,
    payloads: &Payloads<'_, '_>,
    parts: &[&[u8]],
) -> Option<CommonPpk> {
    offers(payloads).take(MAX_OFFERED).find_map(|data| {
        let at = data.len().checked_sub(PPK_CONFIRMATION_LEN)?;
        let (wire, confirmation) = data.split_at_checked(at)?;
        let id = read_id(wire).filter(&allowed)?;
        let same = |key: &&Arc<PostQuantumKey>| {
            key.ids.contains(&id) && ppk_confirmation(prf, &key.secret, parts).ct_eq(confirmation)
        };
        let key = Arc::clone(config.ppks.iter().find(same)?);
        Some(CommonPpk { id, wire: wire.to_vec(), key })
    })
}

/// The data of every PPK_IDENTITY_KEY.
pub(crate) fn offers<'a>(payloads: &Payloads<'a, '_>) -> impl Iterator<Item = &'a [u8]> {
    payloads
        .notifies()
        .filter(|notify| notify.kind == NotifyType::PPK_IDENTITY_KEY)
        .map(|notify| notify.data)
}

/// SK_d with a PPK mixed in, for one CREATE_CHILD_SA (RFC 9867 §3.2.1).
pub(crate) struct MixedPpk {
    id: PpkId,
    key: Arc<PostQuantumKey>,
    pub(crate) sk_d: Secret,
}

impl MixedPpk {
    /// Its ID.
    pub(crate) fn into_id(self) -> PpkId {
        self.id
    }

    /// Its ID and the [`print`](HashSeed::print) of its key, for the SA whose keys depend on it.
    pub(crate) fn used(self, seed: HashSeed) -> (PpkId, u64) {
        (self.id, seed.print(&self.key.secret))
    }
}
