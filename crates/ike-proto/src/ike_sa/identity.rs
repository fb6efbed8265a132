//! Who is at the two ends of an IKE SA, as both have proven.

use std::sync::Arc;
use std::time::Instant;

use crate::channel::Channel;
use crate::child::selectors::narrow;
use crate::config::{ChildConfig, Unique};
use crate::dataplane::TrafficSelector;
use crate::exchange::auth::rounds::Authenticated;
use crate::exchange::config::resolve;
use crate::ike_sa::Seen;
use crate::wire::payload::IdData;
use crate::wire::registry::IdType;

/// Who authenticated, how and when. It does not change while the SA exists, and a rekeyed SA has a copy.
pub(crate) struct Identity {
    local_id: IdData,
    remote_id: IdData,
    authenticated: Arc<Authenticated>,
    since: Instant,
}

impl Identity {
    /// The identity of an SA whose ends have authenticated each other by `now`.
    pub(crate) fn new(authenticated: Authenticated, now: Instant) -> Self {
        Self {
            local_id: Authenticated::id(&authenticated.local, false),
            remote_id: Authenticated::id(&authenticated.remote, true),
            authenticated: Arc::new(authenticated),
            since: now,
        }
    }

    /// That of the SA which replaces this one by a rekey.
    pub(crate) fn rekeyed(&self, now: Instant) -> Self {
        Self {
            local_id: self.local_id.clone(),
            remote_id: self.remote_id.clone(),
            authenticated: Arc::clone(&self.authenticated),
            since: now,
        }
    }

    /// This end's identity.
    pub(crate) fn local_id(&self) -> &IdData {
        &self.local_id
    }

    /// The peer's identity of its first round.
    pub(crate) fn remote_id(&self) -> &IdData {
        &self.remote_id
    }

    /// How both ends authenticated.
    pub(crate) fn authenticated(&self) -> &Authenticated {
        &self.authenticated
    }

    /// When the SA was established.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The peer's identity for `unique` and INITIAL_CONTACT: its EAP identity if it has one.
    pub(crate) fn owner_id(&self) -> &IdData {
        let mut used = self.authenticated.remote.iter().rev();
        used.find_map(|used| used.eap.as_ref()?.id.as_ref()).unwrap_or(&self.remote_id)
    }

    /// This end's identity and the owner's, in the form for comparisons.
    pub(crate) fn both(&self) -> (IdData, IdData) {
        (self.local_id.folded(), self.owner_id().folded())
    }

    /// True if the peers authenticated in an earlier SA (RFC 5723).
    pub(crate) fn is_resumed(&self) -> bool {
        self.authenticated.resumed.is_some()
    }

    /// True if a round of the peer was EAP.
    pub(crate) fn has_eap(&self) -> bool {
        self.authenticated.remote.iter().any(|used| used.eap.is_some())
    }

    /// True if a certificate of the peer limits its addresses.
    pub(crate) fn has_certified_addresses(&self) -> bool {
        self.authenticated.remote.iter().any(|used| used.addresses.is_some())
    }

    /// The part of the peer's selectors within the addresses of its certificates, in each round of authentication
    /// (RFC 3779).
    pub(crate) fn narrow_to_certified(
        &self,
        mut remote_ts: Vec<TrafficSelector>,
    ) -> Vec<TrafficSelector> {
        for used in &self.authenticated.remote {
            if let Some(allowed) = &used.addresses
                && !remote_ts.iter().all(|ts| allowed.iter().any(|range| range.contains(ts)))
            {
                remote_ts = narrow(allowed, &remote_ts);
            }
        }
        remote_ts
    }

    /// True if INITIAL_CONTACT ends all other SAs of the peer.
    pub(crate) fn forgets_others(&self, channel: &Channel, initial_contact: bool) -> bool {
        initial_contact
            && !channel.link().is_initiator()
            && channel.connection().unique != Unique::Never
            //= https://www.rfc-editor.org/rfc/rfc7619#section-2.3
            //# INITIAL_CONTACT
            //# notifications MUST NOT be used to delete any other IKE SAs based on
            //# the same peer identity without additional verification
            && self.owner_id().kind != IdType::NULL
    }

    /// True if this end may make a new IKE SA to replace this one. A gateway that has authenticated its client by
    /// EAP, or gave it an address, may not: only the client can begin that.
    pub(crate) fn may_reauthenticate(&self, seen: Seen<'_>) -> bool {
        let eap = self.has_eap();
        let gave = seen.peer.assigned().given().is_some();
        seen.channel.link().extensions().client || !(eap || gave)
    }

    /// The selectors of one end of `config`, with its virtual IPs for `dynamic`, or otherwise its address.
    pub(crate) fn resolve(
        &self,
        seen: Seen<'_>,
        config: &ChildConfig,
        local: bool,
    ) -> Vec<TrafficSelector> {
        let resolved = resolve(
            config,
            seen.channel.route().path(),
            local,
            seen.peer.assigned().virtual_ips(local),
        );
        if local { resolved } else { self.narrow_to_certified(resolved) }
    }
}
