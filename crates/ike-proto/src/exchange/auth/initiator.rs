//! The initiator's side of IKE_AUTH.

use super::psk::{own_psk, peer_psk};
use super::{closed_placeholder, matches_id};
use crate::config::{EndpointConfig, IdMatch};
use crate::dataplane::{Mode, TrafficSelector};
use crate::event::Failure;
use crate::exchange::sa_init::floated;
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::{ChildOffer, ExpectAuthResponse, State};
use crate::ike_sa::{IkeSa, Twin, notify};
use crate::keys::signed_octets::{AuthFailure, PeerAuthenticated, psk_auth, verify_psk};
use crate::wire::payload::{Auth, IdData, Payload, Sa};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};

impl IkeSa {
    /// Initiator: sends the request. `initial_contact` if no other SA with this peer is known.
    pub(crate) fn send_auth_request(&mut self, ctx: &mut Context<'_>, initial_contact: bool) {
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let Some(psk) = own_psk(ctx.config, &waiting.local_id, self.connection.remote_id()) else {
            let text = format!("no pre-shared key for {}", waiting.local_id);
            return self.close(ctx, Failure::Config(text));
        };
        let auth = psk_auth(
            self.session.prf,
            &psk.secret,
            &self.own_octets(&waiting.transcript, &waiting.local_id),
        );
        let local_id = waiting.local_id.clone();
        let child = waiting.child.as_ref().map(|offer| OfferParts::of(offer));
        let mut payloads = vec![Payload::IdI(local_id.as_id())];
        if initial_contact {
            payloads.push(notify(NotifyType::INITIAL_CONTACT, &[]));
        }
        let remote_id = match self.connection.remote_id() {
            IdMatch::Exact(id) => Some(id.clone()),
            IdMatch::Any | IdMatch::Suffix(_) | IdMatch::DnPattern(_) => None,
        };
        if let Some(id) = &remote_id {
            payloads.push(Payload::IdR(id.as_id()));
        }
        payloads.push(Payload::Auth(Auth { method: AuthMethod::PSK, data: auth.expose() }));
        if let Some(child) = child {
            payloads.extend(child.payloads());
        }
        self.request(ctx, ExchangeType::IKE_AUTH, &payloads);
    }

    /// Initiator: judges the response. An error here ends this candidate, not the attempt.
    pub(crate) fn on_auth_response(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let parsed = Payloads(payloads);
        let remote_id = loop {
            let State::ExpectAuthResponse(waiting) = &self.state else { return };
            match self.authenticate_responder(ctx.config, waiting, &parsed) {
                Ok(remote_id) => break remote_id,
                Err(Failure::Authentication) if self.take_twin(ctx) => {}
                Err(failure @ Failure::Peer(_)) => return self.close(ctx, failure),
                Err(failure) => {
                    let refusal = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
                    return self.reject_response(ctx, &refusal, failure);
                }
            }
        };
        if let Some(kind) = parsed.fatal_in_auth() {
            return self.close(ctx, Failure::Peer(kind));
        }
        self.twins = Vec::new();
        let State::ExpectAuthResponse(waiting) =
            std::mem::replace(&mut self.state, closed_placeholder())
        else {
            return;
        };
        let ExpectAuthResponse { transcript, child, local_id, queue, .. } = *waiting;
        self.establish(ctx, local_id, remote_id, queue);
        ctx.effects.push_back(Effect::Established { ike: self.id, initial_contact: false });
        if let Some(offer) = child {
            self.finish_offer(ctx, offer, payloads, (&transcript.ni, &transcript.nr), &[]);
        }
    }

    /// Puts another IKE_SA_INIT response with the same keys in the place of the one in use; false if
    /// there is none left.
    fn take_twin(&mut self, ctx: &Context<'_>) -> bool {
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return false };
        let Some(Twin { response, extensions, nat }) = self.twins.pop() else { return false };
        waiting.transcript.response = response;
        self.extensions = extensions;
        self.nat = nat;
        self.path = floated(self.path, nat, ctx.config.natt_port);
        true
    }

    fn authenticate_responder(
        &self,
        config: &EndpointConfig,
        waiting: &ExpectAuthResponse,
        payloads: &Payloads<'_, '_>,
    ) -> Result<IdData, Failure> {
        let (Some(id_r), Some(auth)) = (payloads.id_r()?, payloads.auth()?) else {
            // No AUTH: the exchange failed as a whole (RFC 7296 §2.21.2).
            let error = payloads.error().map(|notify| notify.kind);
            return Err(match error {
                Some(kind) => Failure::Peer(kind),
                None => Failure::Refused(NotifyType::INVALID_SYNTAX),
            });
        };
        let remote_id = id_r.to_owned();
        let psk = peer_psk(config, &waiting.local_id, &remote_id);
        if !matches_id(self.connection.remote_id(), &remote_id) || auth.method != AuthMethod::PSK {
            return Err(Failure::Authentication);
        }
        let psk = psk.ok_or(Failure::Authentication)?;
        verify_psk(
            self.session.prf,
            &psk.secret,
            &self.peer_octets(&waiting.transcript, *id_r),
            auth.data,
        )
        .map(|_: PeerAuthenticated| remote_id)
        .map_err(|AuthFailure| Failure::Authentication)
    }
}

/// The offer's payloads, owned, so that the SA is free to send them.
struct OfferParts {
    sa: Sa,
    ts_i: Vec<TrafficSelector>,
    ts_r: Vec<TrafficSelector>,
    transport: bool,
}

impl OfferParts {
    fn of(offer: &ChildOffer) -> Self {
        Self {
            sa: Sa { proposals: offer.proposals.clone() },
            ts_i: offer.local_ts.clone(),
            ts_r: offer.remote_ts.clone(),
            transport: offer.mode == Mode::Transport,
        }
    }

    fn payloads(self) -> Vec<Payload<'static>> {
        let transport = self.transport.then(|| notify(NotifyType::USE_TRANSPORT_MODE, &[]));
        let rest = [Payload::Sa(self.sa), Payload::TsI(self.ts_i), Payload::TsR(self.ts_r)];
        transport.into_iter().chain(rest).collect()
    }
}
