//! The responder's side of IKE_AUTH.

use std::collections::VecDeque;
use std::sync::Arc;

use super::psk::peer_psk;
use super::{answers_to, auth_payloads, closed_placeholder, local_id, matches_id};
use crate::config::proposal::{self, SelectOptions};
use crate::config::{Childless, ConnectionConfig, EndpointConfig, PreSharedKey};
use crate::crypto::Secret;
use crate::dataplane::Mode;
use crate::exchange::child_sa::ChildRequest;
use crate::exchange::{Payloads, Refusal, required};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::{ExpectAuthRequest, Reply, State};
use crate::keys::signed_octets::{PeerAuthenticated, psk_auth, verify_psk};
use crate::wire::payload::{IdData, Payload, Sa, Spi};
use crate::wire::registry::{AuthMethod, NotifyType};

impl IkeSa {
    /// Responder: judges the request. Only an authenticated peer changes anything beyond this SA.
    pub(crate) fn on_auth_request(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let State::ExpectAuthRequest(waiting) = &self.state else { return };
        match self.authenticate_initiator(ctx.config, waiting, &Payloads(payloads)) {
            Ok(peer) => self.answer_auth(ctx, payloads, peer),
            Err(refusal) => self.refuse(ctx, refusal),
        }
    }

    fn authenticate_initiator(
        &self,
        config: &EndpointConfig,
        waiting: &ExpectAuthRequest,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Peer, Refusal> {
        let id_i = required(payloads.id_i()?)?;
        let id_r = payloads.id_r()?;
        let auth = payloads.auth()?;
        let remote_id = id_i.to_owned();
        let connection = waiting
            .connections
            .iter()
            .filter(|connection| matches_id(connection.remote_id(), &remote_id))
            .filter(|connection| id_r.is_none_or(|wanted| answers_to(connection, self, wanted)))
            .find(|connection| self.still_fits(connection));
        let local_id = match (connection, id_r) {
            (Some(connection), _) => local_id(connection, self),
            (None, Some(wanted)) => wanted.to_owned(),
            (None, None) => local_id(&self.connection, self),
        };
        // Without a connection or a key the check runs all the same, on a key nobody has: an unknown
        // identity and a wrong secret must take the same way (bug class 43).
        let psk = connection.and_then(|_| peer_psk(config, &local_id, &remote_id));
        let nobody = Secret::copy_from(&[0x5a; 32]);
        let secret = psk.as_deref().map_or(&nobody, |psk| &psk.secret);
        let method = auth.map(|auth| auth.method);
        let data = auth.map_or(&[][..], |auth| auth.data);
        let verdict = verify_psk(
            self.session.prf,
            secret,
            &self.peer_octets(&waiting.transcript, *id_i),
            data,
        );
        match (connection, psk, verdict) {
            (Some(connection), Some(psk), Ok(evidence)) if method == Some(AuthMethod::PSK) => {
                Ok(Peer {
                    connection: Arc::clone(connection),
                    local_id,
                    remote_id,
                    psk,
                    _evidence: evidence,
                })
            }
            _ => Err(NotifyType::AUTHENTICATION_FAILED.into()),
        }
    }

    /// True if the algorithms in use are among those `connection` wants.
    fn still_fits(&self, connection: &ConnectionConfig) -> bool {
        let chosen = Sa { proposals: vec![self.session.selected.to_wire(Spi::None)] };
        let options =
            SelectOptions { intermediate: self.extensions.intermediate, ..Default::default() };
        proposal::select(&connection.proposals, &chosen, options).is_some()
    }

    /// Responder: the peer is authenticated; makes the child it asks for, and answers once that is
    /// installed.
    fn answer_auth(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>], peer: Peer) {
        let parsed = Payloads(payloads);
        if peer.connection.childless == Childless::Never && matches!(parsed.sa(), Ok(None)) {
            //= RFC 6023 §3
            //# It MUST NOT advertise the capability with a
            //# notification, and it SHOULD reply with an INVALID_SYNTAX Notify
            //# payload if the client sends an IKE_AUTH request that is modified as
            //# described in Section 5.
            return self.refuse(ctx, NotifyType::INVALID_SYNTAX.into());
        }
        self.connection = Arc::clone(&peer.connection);
        let State::ExpectAuthRequest(waiting) =
            std::mem::replace(&mut self.state, closed_placeholder())
        else {
            return;
        };
        let auth = psk_auth(
            self.session.prf,
            &peer.psk.secret,
            &self.own_octets(&waiting.transcript, &peer.local_id),
        );
        let initial_contact = parsed.notify(NotifyType::INITIAL_CONTACT).is_some();
        let transcript = &waiting.transcript;
        self.establish(ctx, peer.local_id.clone(), peer.remote_id, VecDeque::new());
        let child = match parsed.sa() {
            Ok(None) => None,
            Ok(Some(_)) if self.connection.childless == Childless::Force => {
                Some(Err(Refusal::new(NotifyType::NO_ADDITIONAL_SAS)))
            }
            Ok(Some(_)) => {
                let request = ChildRequest { rekeys: None, with_ke: false };
                Some(self.answer_child(ctx, &parsed, &request, None))
            }
            Err(refusal) => return self.refuse(ctx, refusal),
        };
        let auth = auth.expose().to_vec();
        match child {
            None => self.respond(ctx, &auth_payloads(&peer.local_id, &auth)),
            // RFC 7296 §2.21.2: fatal in both peers, so there is no AUTH beside it.
            Some(Err(refusal)) if refusal.ends_sa() => return self.refuse(ctx, refusal),
            Some(Err(refusal)) => {
                let mut reply = auth_payloads(&peer.local_id, &auth);
                reply.push(refusal.payload());
                self.respond(ctx, &reply);
                self.child_failed(ctx, "", refusal.into());
            }
            Some(Ok(answered)) => {
                let child = &answered.child;
                let reply = Reply {
                    auth: Some((peer.local_id, auth)),
                    proposal: Some(child.selected.to_wire(Spi::Esp(child.spi_in))),
                    ke: None,
                    nonce: None,
                    ts_i: child.remote_ts.clone(),
                    ts_r: child.local_ts.clone(),
                    transport: child.mode == Mode::Transport,
                };
                let nonces = (&*transcript.ni, &*transcript.nr);
                match self.keyed(ctx, answered.child, &[], nonces) {
                    Ok(ready) => self.install_then_respond(ctx, ready, reply),
                    Err(refusal) => return self.refuse(ctx, refusal),
                }
            }
        }
        ctx.effects.push_back(Effect::Established { ike: self.id, initial_contact });
    }
}

/// An authenticated initiator.
struct Peer {
    connection: Arc<ConnectionConfig>,
    local_id: IdData,
    remote_id: IdData,
    psk: Arc<PreSharedKey>,
    _evidence: PeerAuthenticated,
}
