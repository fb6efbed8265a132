//! The responder: its answer, which makes the keys.

use crate::channel::{Extensions, NatStatus};
use std::sync::Arc;

use super::{NatHashes, detect_nat, header, invalid_ke, status};
use crate::channel::pmtu::max_message;
use crate::config::candidates::Candidates;
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::config::{Childless, ConnectionConfig, DowngradePrevention, SeparateTransports};
use crate::crypto::{CryptoError, Secret};
use crate::event::{Path, Transport};
use crate::exchange::auth::announce::{Announcements, INIT_ROOM, OwnAnnouncements};
use crate::exchange::key_exchange::{Halt, Undone};
use crate::exchange::ppk::{self, Announced};
use crate::exchange::resume::ticket::TicketState;
use crate::exchange::{Payloads, required};
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::state::InitTranscript;
use crate::keys::Spis;
use crate::keys::int_auth::IntAuth;
use crate::wire::payload::{Ke, Notify, Payload, Sa, Spi};
use crate::wire::registry::{NotifyType, ProtocolId};
use crate::wire::{Message, encode_message};

/// A request that a responder can answer with an IKE SA.
pub(crate) struct Answer {
    pub(crate) selected: Selected,
    /// The shared secret, from which the keys are made if the peer continues.
    pub(crate) shared: Secret,
    pub(crate) transcript: InitTranscript,
    pub(crate) extensions: Extensions,
    pub(crate) announced: Announcements,
    /// SUPPORTED_AUTH_METHODS comes in IKE_INTERMEDIATE.
    pub(crate) deferred: bool,
    pub(crate) nat: NatStatus,
    pub(crate) spi_r: u64,
    /// Connections whose addresses fit. The one whose proposal was chosen comes first.
    pub(crate) connections: Candidates,
    /// The ticket, if this answers IKE_SESSION_RESUME. Then `shared` is SK_d.
    pub(crate) resume: Option<Box<TicketState>>,
}

/// Judges a request and makes the answer. `connections` fit the addresses. `spi_r` is the SPI of this end if it
/// has one already.
pub(crate) fn respond(
    ctx: &mut Context<'_>,
    spi_r: Option<u64>,
    mut connections: Candidates,
    path: Path,
    message: &Message<'_>,
    octets: &[u8],
) -> Result<Answer, Halt> {
    let payloads = Payloads(&message.payloads);
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.3.1
    //# For an initial IKE SA negotiation, this field
    //# MUST be zero; the SPI is obtained from the outer header.
    let sa = &*required(payloads.sa()?)?.with_spi(Spi::is_empty);
    let ke = required(payloads.ke()?)?;
    let ni = required(payloads.nonce()?)?;
    let ppks = Announced::read(&payloads);
    let full = payloads.notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH).is_some();
    let possible = |connection: &&Arc<ConnectionConfig>| {
        ppk::is_possible(ctx.io.config, connection, ppks)
            && (full || connection.downgrade_prevention != DowngradePrevention::Require)
    };
    if !connections.iter().all(|connection| possible(&connection)) {
        connections = connections.iter().filter(possible).cloned().collect();
    }
    // RFC 9370 §2.2.1: without both notifies additional key exchanges are unknown transforms
    let intermediate = payloads.notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some();
    let (chosen, selected) = connections
        .iter()
        .enumerate()
        .find_map(|(index, connection)| {
            let options = SelectOptions { intermediate, ..SelectOptions::default() };
            Some((index, proposal::select(&connection.proposals, sa, options)?))
        })
        .ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
    if chosen > 0 {
        let (passed_over, rest) = connections.split_at(chosen);
        connections = rest.iter().chain(passed_over).cloned().collect();
    }
    let ppk = ppk::choose_place(ctx.io.config, connections.iter(), ppks);
    let method = ctx.crypto.ke(selected.ke).ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
    if ke.method != selected.ke {
        return Err(invalid_ke(selected.ke).into());
    }
    if ke.data.len() != method.lengths().initiator {
        return Err(NotifyType::INVALID_SYNTAX.into());
    }
    let (public, shared) = ctx.respond_to(method, ke.data).map_err(|undone| match undone {
        Undone::Ask(exchange) => Halt::Ask(exchange),
        Undone::Failed(CryptoError::InvalidPublic) => NotifyType::INVALID_SYNTAX.into(),
        Undone::Failed(_) => NotifyType::NO_PROPOSAL_CHOSEN.into(),
    })?;
    let spi_i = message.header.spi_i;
    let spi_r = spi_r.unwrap_or_else(|| ctx.ids.ike_spi(ctx.io.rng));
    let nr = ctx.nonce();
    // `connections` cannot be empty: a proposal of one of them was chosen.
    let connection = connections.first().ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?.clone();
    let force_nat = connection.encap.fakes_nat(ctx.plane);
    let mut extensions =
        Extensions::negotiate(&connection, ctx.io.config.fragment_ack, &payloads, ppk);
    let tcp = path.transport == Transport::Tcp;
    extensions.separate = connection.separate_transports != SeparateTransports::No
        && (tcp || ctx.io.config.accepts_tcp)
        && payloads.notify(NotifyType(ctx.io.config.separate_transports)).is_some();
    if tcp && !extensions.separate && !ctx.plane.tcp_esp {
        return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
    }
    let mut nat = detect_nat(ctx.crypto, &payloads, Spis::new(spi_i, 0), path);
    nat.local |= force_nat && nat.supported;
    let own = OwnAnnouncements::new(ctx.io.config, ctx.crypto, connections.iter().map(|c| &**c));
    let mut announced = Announcements::default();
    announced.read_hashes(ctx.io.config, &payloads);
    let mut response = Response {
        spis: Spis::new(spi_i, spi_r),
        selected: &selected,
        public: &public,
        nonce: &nr,
        connection: &connection,
        extensions,
        nat: nat
            .supported
            .then(|| NatHashes::new(ctx.crypto, Spis::new(spi_i, spi_r), path, force_nat)),
        own,
        separate: extensions.separate.then_some(NotifyType(ctx.io.config.separate_transports)),
    };
    let mut encoded = response.encode();
    let room = max_message(ctx.io.mtus.size(ctx.io.now.mono, path.remote.ip()), path);
    let deferred = encoded.len() > room && extensions.intermediate && response.own.defer();
    if deferred {
        encoded = response.encode();
    }
    let (prf, lengths) = (ctx.crypto.prf(selected.prf), ctx.crypto.ciphers.lengths(selected.suite));
    if prf.is_none() || lengths.is_none() {
        return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
    }
    let transcript = InitTranscript {
        request: octets.into(),
        cookies: None,
        response: encoded.into(),
        ni: (*ni).into(),
        nr: nr.as_slice().into(),
        int_auth: IntAuth::default(),
    };
    Ok(Answer {
        selected,
        shared,
        transcript,
        extensions,
        announced,
        deferred,
        nat,
        spi_r,
        connections,
        resume: None,
    })
}

/// The data of an IKE_SA_INIT response.
struct Response<'a> {
    spis: Spis,
    selected: &'a Selected,
    public: &'a [u8],
    nonce: &'a [u8],
    connection: &'a ConnectionConfig,
    extensions: Extensions,
    nat: Option<NatHashes>,
    own: OwnAnnouncements,
    /// The type of SEPARATE_TRANSPORTS, if the response has it.
    separate: Option<NotifyType>,
}

impl Response<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut reply = Vec::with_capacity(12);
        reply.extend([
            Payload::Sa(Sa { proposals: vec![self.selected.to_wire(Spi::None)] }),
            Payload::Ke(Ke { method: self.selected.ke, data: self.public }),
            Payload::Nonce(self.nonce),
        ]);
        if let Some(hashes) = &self.nat {
            hashes.push(&mut reply);
        }
        if self.extensions.fragmentation {
            reply.push(status(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
        }
        if let Some(types) = self.extensions.fragment_ack {
            reply.push(status(NotifyType(types.supported)));
        }
        if self.extensions.intermediate {
            reply.push(status(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED));
        }
        let chosen = self.extensions.ppk.map(Announced::only);
        reply.extend(chosen.unwrap_or_default().kinds().map(|kind| notify(kind, &[])));
        if self.connection.downgrade_prevention != DowngradePrevention::No {
            //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-downgrade-prevention-08#section-6
            //# If the responder supports this extension, then it also includes this
            //# notification in the response message regardless of whether it was
            //# received in the request or not.
            reply.push(status(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH));
        }
        if self.connection.childless != Childless::Never {
            let kind = NotifyType::CHILDLESS_IKEV2_SUPPORTED;
            //= https://www.rfc-editor.org/rfc/rfc6023#section-4
            //# Protocol ID (1 octet) MUST be 1, as this message is related to an
            //# IKEv2 SA.
            let notify = Notify { protocol: ProtocolId::IKE, ..Notify::new(kind, &[]) };
            reply.push(Payload::Notify(notify));
        }
        reply.extend(self.separate.map(status));
        reply.extend(self.own.hash_payload());
        reply.extend(self.own.payloads(INIT_ROOM));
        encode_message(&header(true, self.spis), &reply)
    }
}
