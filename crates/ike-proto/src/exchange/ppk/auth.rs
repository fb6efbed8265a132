//! PPKs and IKE_AUTH: mixed in there (RFC 8784), or in IKE_INTERMEDIATE before (RFC 9867 §3.1).

use std::sync::Arc;

use super::{PpkStage, Unmixed, key_of, read_id, usable, wire_id};
use crate::channel::link::Link;
use crate::channel::{Channel, PpkPlace};
use crate::config::{ConnectionConfig, EndpointConfig, PostQuantumKey, PpkExchange, PpkId};
use crate::event::{Disbelief, Event, Failure};
use crate::exchange::Payloads;
use crate::exchange::resume::fits::InForce;
use crate::ike_sa::context::Context;
use crate::reason::PolicyReason;
use crate::wire::registry::NotifyType;

/// The place of the initiator's Authentication Data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthData<'a> {
    /// In the AUTH payload.
    Payload,
    /// In NO_PPK_AUTH, made by the method that the AUTH payload names (RFC 8784 §3).
    NoPpkAuth(&'a [u8]),
}

/// How a connection handles the PPK of an IKE_AUTH request.
#[derive(Debug, Clone)]
pub(crate) enum PpkChoice<'a> {
    /// Nothing is left to do in IKE_AUTH.
    Settled,
    /// This PPK is mixed in.
    Use(PpkId, Arc<PostQuantumKey>),
    /// No PPK is mixed in, and this is the Authentication Data without one.
    Without(&'a [u8]),
}

impl PpkChoice<'_> {
    /// True if the keys are the same with `other`.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Settled, Self::Settled) | (Self::Without(_), Self::Without(_)) => true,
            (Self::Use(one, _), Self::Use(other, _)) => one == other,
            _ => false,
        }
    }
}

impl PpkStage {
    // ---- initiator ----

    /// True if IKE_AUTH offers a PPK that the peer may decline. Then NO_PPK_AUTH is made before
    /// [`mix_in_auth`](Self::mix_in_auth).
    pub(crate) fn is_optional(link: &Link) -> bool {
        link.extensions().ppk == Some(PpkPlace::Auth) && !link.connection().requires_ppk()
    }

    /// Mixes the PPK in before AUTH is made. Returns the data of PPK_IDENTITY, if there is a PPK to offer.
    pub(crate) fn mix_in_auth(
        &mut self,
        channel: &mut Channel,
        in_force: InForce<'_>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        if channel.link().extensions().ppk != Some(PpkPlace::Auth) {
            return Ok(None);
        }
        // There was one when IKE_SA_INIT announced it. A reload may have removed it.
        let found = usable(in_force.config(), &channel.connection().ppk).into_iter().next();
        let (id, key) = found.ok_or(Failure::Policy(PolicyReason::PpkGone))?;
        let mixed = channel.session().keys.mixed_in_auth(channel.session().prf, &key.secret);
        let keys = channel.proving().replace_auth_keys(mixed);
        let data = wire_id(&id);
        let unmixed = Unmixed { keys, print: in_force.seed().print(&key.secret) };
        *self = Self::Offered(id, Box::new(unmixed));
        Ok(Some(data))
    }

    /// Reads from the response whether the peer has accepted the PPK. To be called before the peer's AUTH is
    /// checked.
    pub(crate) fn settle(
        &mut self,
        channel: &mut Channel,
        payloads: &Payloads<'_, '_>,
    ) -> Result<(), Failure> {
        let (id, unmixed) = match std::mem::take(self) {
            Self::Offered(id, unmixed) => (id, unmixed),
            settled => {
                *self = settled;
                return Ok(());
            }
        };
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# the content of the received PPK_IDENTITY (if any) MUST
        //# be ignored.
        if payloads.notify(NotifyType::PPK_IDENTITY).is_some() {
            *self = Self::Used(id, unmixed.print);
            return Ok(());
        }
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# If the initiator does not receive the PPK_IDENTITY, it
        //# MUST either fail the IKE SA negotiation sending the
        //# AUTHENTICATION_FAILED notification in the INFORMATIONAL exchange (if
        //# the PPK was configured as mandatory) or continue without using the
        //# PPK
        if channel.connection().requires_ppk() {
            return Err(Failure::Policy(PolicyReason::PpkNotTaken));
        }
        channel.proving().replace_auth_keys(unmixed.keys);
        Ok(())
    }

    // ---- responder ----

    /// Mixes in the PPK of the request, if `connection` allows it, and returns the place of the Authentication
    /// Data to check. After an error, which says why, the SA must end.
    pub(crate) fn take_in_auth<'a>(
        &mut self,
        channel: &mut Channel,
        in_force: InForce<'_>,
        connection: &ConnectionConfig,
        payloads: &Payloads<'a, '_>,
    ) -> Result<AuthData<'a>, Disbelief> {
        Ok(match self.choose_in_auth(channel.link(), in_force.config(), connection, payloads)? {
            PpkChoice::Settled => AuthData::Payload,
            PpkChoice::Without(data) => AuthData::NoPpkAuth(data),
            PpkChoice::Use(id, key) => {
                let mixed =
                    channel.session().keys.mixed_in_auth(channel.session().prf, &key.secret);
                channel.proving().replace_auth_keys(mixed);
                *self = Self::Used(id, in_force.seed().print(&key.secret));
                AuthData::Payload
            }
        })
    }

    /// How `connection` handles the PPK of the request. Changes nothing, because the peer may belong to another
    /// connection.
    pub(crate) fn choose_in_auth<'a>(
        &self,
        link: &Link,
        config: &EndpointConfig,
        connection: &ConnectionConfig,
        payloads: &Payloads<'a, '_>,
    ) -> Result<PpkChoice<'a>, Disbelief> {
        if link.extensions().ppk != Some(PpkPlace::Auth) {
            // It was decided before. The connection, which is known now, has the last word.
            return match self.used() {
                //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
                //# In this case, the
                //# responder SHOULD abort negotiation and return back the
                //# AUTHENTICATION_FAILED notification to be consistent with its policy.
                Some(id) if !connection.takes_ppk(id) => {
                    Err(Disbelief::PpkOfOtherConnection(id.clone()))
                }
                None if connection.requires_ppk() => Err(Disbelief::PpkRequired),
                _ => Ok(PpkChoice::Settled),
            };
        }
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# If no PPK_IDENTITY notification is
        //# found and the peers successfully exchanged USE_PPK notifications in
        //# the IKE_SA_INIT exchange, then the responder MUST send back an
        //# AUTHENTICATION_FAILED notification and then fail the negotiation.
        let offered = payloads.notify(NotifyType::PPK_IDENTITY).ok_or(Disbelief::NoPpkIdentity)?;
        let allowed = |id: &PpkId| {
            connection.ppk.exchange != PpkExchange::Intermediate && connection.takes_ppk(id)
        };
        let id = read_id(offered.data);
        let known = id.clone().filter(allowed).and_then(|id| Some((key_of(config, &id)?, id)));
        if let Some((key, id)) = known {
            return Ok(PpkChoice::Use(id, Arc::clone(key)));
        }
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# If using PPKs is mandatory
        //# or no NO_PPK_AUTH notification is found, then the responder MUST send
        //# back an AUTHENTICATION_FAILED notification and then fail the
        //# negotiation.
        match payloads.notify(NotifyType::NO_PPK_AUTH) {
            Some(without) if !connection.requires_ppk() => Ok(PpkChoice::Without(without.data)),
            _ => Err(match id {
                Some(id) => Disbelief::UnknownPpk(id),
                None => Disbelief::MalformedPpkIdentity,
            }),
        }
    }

    // ---- both ----

    /// True if the IKE_AUTH response reports a PPK from this exchange.
    pub(crate) fn took_in_auth(&self, link: &Link) -> bool {
        link.extensions().ppk == Some(PpkPlace::Auth) && self.used().is_some()
    }

    /// Reports an established SA without the PPK that is configured for it.
    pub(crate) fn audit(&self, link: &Link, ctx: &mut Context<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc8784#section-6
        //# if a PPK was configured but was not used for a particular IKE
        //# SA, then implementations SHOULD audit this event.
        if !link.connection().ppk.ids.is_empty() && self.used().is_none() {
            ctx.io.event(Event::WithoutPpk(link.id()));
        }
    }
}
