//! IKE_SA_INIT (RFC 7296 §1.2).
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, [N(COOKIE)], SAi1, KEi, Ni,
//!      N(NAT_DETECTION_*)  -->
//!                               <--  HDR, SAr1, KEr, Nr, N(NAT_DETECTION_*)
//! ```
//!
//! Nothing here is authenticated yet: a message is judged by reference, and only a result that can
//! be used changes anything.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::auth::announce::{Announcements, INIT_ROOM, OwnAnnouncements};
use super::key_exchange::{Halt, Undone};
use super::ppk::{self, Announced, PpkPlace};
use super::redirect::{gateway_data, is_supported};
use super::{Payloads, Refusal, required};
use crate::config::EndpointConfig;
use crate::config::candidates::Candidates;
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::config::{
    Childless, ConnectionConfig, DowngradePrevention, FragmentAckTypes, Fragmentation,
    ProposalConfig, SeparateTransports,
};
use crate::crypto::{CryptoError, CryptoProvider, PendingKe, Secret};
use crate::event::{Path, Transport};
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::pmtu::max_message;
use crate::ike_sa::state::{Extensions, InitTranscript, NatStatus, Session};
use crate::keys::epoch::Epoch;
use crate::keys::int_auth::IntAuth;
use crate::keys::schedule::IkeKeys;
use crate::question::Exchange;
use crate::wire::payload::{Ke, Notify, Payload, Proposal, Sa, Spi};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType, PayloadType, ProtocolId};
use crate::wire::{Flags, Header, Message, encode_message};

/// The port a peer with NAT traversal listens on (RFC 7296 §2.23).
pub(crate) const NATT_PORT: u16 = 4500;

/// Why IKE over TCP is of no use.
const NO_ESP_IN_TCP: &str =
    "the data plane has no ESP in TCP, and the peer takes no separate transports";

/// What an IKE_SA_INIT request is made of; kept to make it again with a cookie or another method.
pub(crate) struct Request<'a> {
    pub(crate) spi_i: u64,
    pub(crate) connection: &'a ConnectionConfig,
    pub(crate) proposals: &'a [Proposal],
    pub(crate) path: Path,
    pub(crate) method: KeMethodId,
    pub(crate) public: &'a [u8],
    pub(crate) nonce: &'a [u8],
    pub(crate) cookie: Option<&'a [u8]>,
    /// Makes the peer see a NAT, so that ESP is UDP-encapsulated.
    pub(crate) force_nat: bool,
    /// The ways this end can take a PPK in.
    pub(crate) ppk: Announced,
    /// SEPARATE_TRANSPORTS is in it.
    pub(crate) separate: bool,
    /// What is said of fragment acknowledgements.
    pub(crate) fragment_ack: Option<FragmentAckTypes>,
    /// Redirects are followed; and the gateway that has sent this client.
    pub(crate) redirect: Option<Option<IpAddr>>,
}

impl Request<'_> {
    pub(crate) fn encode(&self, config: &EndpointConfig, crypto: &CryptoProvider) -> Vec<u8> {
        let nat = NatHashes::new(crypto, self.spi_i, 0, self.path, self.force_nat);
        let mut payloads = Vec::with_capacity(12);
        if let Some(cookie) = self.cookie {
            payloads.push(Payload::Notify(Notify::new(NotifyType::COOKIE, cookie)));
        }
        payloads.push(Payload::Sa(Sa { proposals: self.proposals.to_vec() }));
        payloads.push(Payload::Ke(Ke { method: self.method, data: self.public }));
        payloads.push(Payload::Nonce(self.nonce));
        nat.push(&mut payloads);
        if self.connection.fragmentation != Fragmentation::No {
            payloads.push(status(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
            payloads.extend(self.fragment_ack.map(|types| status(NotifyType(types.supported))));
        }
        if self.ppk.intermediate || wants_intermediate(self.connection) {
            payloads.push(status(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED));
        }
        payloads.extend(self.ppk.kinds().map(|kind| notify(kind, &[])));
        if self.connection.downgrade_prevention != DowngradePrevention::No {
            payloads.push(status(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH));
        }
        if self.separate {
            payloads.push(status(NotifyType(config.separate_transports)));
        }
        let own = OwnAnnouncements::new(config, crypto, [self.connection]);
        payloads.extend(own.hash_payload());
        let from = self.redirect.flatten().map(|from| gateway_data(from, &[]));
        payloads.extend(match (&from, self.redirect) {
            (Some(from), _) => Some(notify(NotifyType::REDIRECTED_FROM, from)),
            (None, Some(_)) => Some(status(NotifyType::REDIRECT_SUPPORTED)),
            (None, None) => None,
        });
        encode_message(&header(self.spi_i, 0, false), &payloads)
    }
}

/// An IKE_SA_INIT response that an IKE_AUTH request can be built on.
pub(crate) struct Accepted {
    pub(crate) session: Session,
    pub(crate) transcript: InitTranscript,
    pub(crate) extensions: Extensions,
    pub(crate) announced: Announcements,
    pub(crate) nat: NatStatus,
    pub(crate) spi_r: u64,
}

/// What an initiator makes of a message that claims to be the response.
pub(crate) enum Reading {
    /// Send again with this cookie first.
    Cookie(Vec<u8>),
    /// Send again with this key exchange method.
    OtherMethod(KeMethodId),
    /// Go to another gateway: Notification Data of REDIRECT.
    Redirect(Vec<u8>),
    /// An error notify: remembered, not acted upon (RFC 7296 §2.21.1).
    Error(NotifyType),
    /// Not usable; says why.
    Useless(&'static str),
    /// Looks right.
    Usable,
}

/// Sorts a response without touching any state.
pub(crate) fn read_response(message: &Message<'_>) -> Reading {
    let payloads = Payloads(&message.payloads);
    // A response with an SA is the answer, whatever else it carries.
    if matches!(payloads.sa(), Ok(None)) {
        if let Some(cookie) = payloads.notify(NotifyType::COOKIE) {
            return match cookie.data.len() {
                1..=64 => Reading::Cookie(cookie.data.to_vec()),
                _ => Reading::Useless("cookie of wrong length"),
            };
        }
        if let Some(notify) = payloads.notify(NotifyType::INVALID_KE_PAYLOAD) {
            return match notify.data.try_into() {
                Ok(id) => Reading::OtherMethod(KeMethodId(u16::from_be_bytes(id))),
                Err(_) => Reading::Useless("INVALID_KE_PAYLOAD of wrong length"),
            };
        }
        if let Some(notify) = payloads.notify(NotifyType::REDIRECT) {
            return Reading::Redirect(notify.data.to_vec());
        }
        if let Some(error) = payloads.error() {
            return Reading::Error(error.kind);
        }
    }
    if message.header.spi_r == 0 {
        return Reading::Useless("IKE_SA_INIT response without responder SPI");
    }
    Reading::Usable
}

/// The initiator's half of a key exchange in an IKE_SA_INIT request that was sent.
pub(crate) struct Sent {
    pub(crate) octets: Arc<[u8]>,
    pub(crate) method: KeMethodId,
    pub(crate) ke: Arc<dyn PendingKe>,
}

/// Why a response cannot be built on.
pub(crate) enum Unfit {
    /// It is not what the genuine peer would answer to `sent`; says why.
    Useless(&'static str),
    /// It is sound, but the peer, or somebody in its name, does not do what policy requires.
    Policy(&'static str),
    /// This has to be done first.
    Ask(Exchange),
}

impl From<&'static str> for Unfit {
    fn from(why: &'static str) -> Self {
        Self::Useless(why)
    }
}

/// Derives what an initiator needs from a usable response to `sent`.
pub(crate) fn accept_response(
    ctx: &Context<'_>,
    request: &Request<'_>,
    sent: &Sent,
    message: &Message<'_>,
    octets: &[u8],
) -> Result<Accepted, Unfit> {
    let payloads = Payloads(&message.payloads);
    let single = |_| "payload repeated";
    let sa = payloads.sa().map_err(single)?.ok_or("no SA payload")?;
    let ke = payloads.ke().map_err(single)?.ok_or("no KE payload")?;
    let nr = payloads.nonce().map_err(single)?.ok_or("no nonce")?;
    let selected = proposal::accept(request.proposals, sa).map_err(|_| "proposal never offered")?;
    if ke.method != selected.ke || ke.method != sent.method {
        return Err("key exchange method differs from the proposal".into());
    }
    let method = ctx.crypto.ke(ke.method).ok_or("key exchange method not supported")?;
    if ke.data.len() != method.lengths().responder {
        return Err("key exchange data of wrong length".into());
    }
    let ppk = ppk::chosen_place(request.ppk, Announced::read(&payloads))?;
    let mut extensions =
        Extensions::negotiate(request.connection, request.fragment_ack, &payloads, ppk);
    let separate = NotifyType(ctx.config.separate_transports);
    extensions.client = true;
    extensions.separate = request.separate && payloads.notify(separate).is_some();
    if request.path.transport == Transport::Tcp && !extensions.separate && !ctx.plane.tcp_esp {
        return Err(Unfit::Policy(NO_ESP_IN_TCP));
    }
    if !extensions.intermediate && selected.additional().next().is_some() {
        return Err("additional key exchanges without IKE_INTERMEDIATE".into());
    }
    if request.connection.requires_ppk() && ppk.is_none() {
        return Err(Unfit::Policy("the peer does not take a PPK"));
    }
    if refuses_short_transcript(request.connection, extensions) {
        return Err(Unfit::Policy("the peer does not announce downgrade prevention"));
    }
    let shared = ctx.complete(ke.method, &sent.ke, ke.data).map_err(|undone| match undone {
        Undone::Ask(exchange) => Unfit::Ask(exchange),
        Undone::Failed(_) => "public value refused".into(),
    })?;
    let header = &message.header;
    let spis = (header.spi_i, header.spi_r);
    let session = session(ctx.crypto, selected, &shared, (request.nonce, nr), spis, true)
        .map_err(|_| "keys cannot be derived")?;
    let mut nat = NatStatus::detect(ctx.crypto, &payloads, spis, request.path);
    nat.local |= request.force_nat && nat.supported;
    let mut announced = Announcements::default();
    announced.read_hashes(ctx.config, &payloads);
    announced.read(&payloads);
    Ok(Accepted {
        session,
        transcript: InitTranscript {
            request: sent.octets.clone(),
            response: octets.into(),
            ni: request.nonce.into(),
            nr: (*nr).into(),
            int_auth: IntAuth::default(),
        },
        extensions,
        announced,
        nat,
        spi_r: header.spi_r,
    })
}

/// A request a responder can answer with an IKE SA.
pub(crate) struct Answer {
    pub(crate) selected: Selected,
    /// What the keys are made of when the peer goes on: that may be never.
    pub(crate) shared: Secret,
    pub(crate) transcript: InitTranscript,
    pub(crate) extensions: Extensions,
    pub(crate) announced: Announcements,
    /// SUPPORTED_AUTH_METHODS comes in IKE_INTERMEDIATE.
    pub(crate) deferred: bool,
    pub(crate) nat: NatStatus,
    pub(crate) spi_r: u64,
    /// Connections whose addresses fit, the one whose proposal was chosen first.
    pub(crate) connections: Candidates,
}

/// Judges a request and makes the answer. `connections` fit the addresses; `spi_r` is the SPI of this end if
/// it has one already.
pub(crate) fn respond(
    ctx: &mut Context<'_>,
    spi_r: Option<u64>,
    mut connections: Candidates,
    path: Path,
    message: &Message<'_>,
    octets: &[u8],
) -> Result<Answer, Halt> {
    let payloads = Payloads(&message.payloads);
    //= RFC 7296 §3.3.1
    //# For an initial IKE SA negotiation, this field
    //# MUST be zero; the SPI is obtained from the outer header.
    let sa = &*required(payloads.sa()?)?.with_spi(Spi::is_empty);
    let ke = required(payloads.ke()?)?;
    let ni = required(payloads.nonce()?)?;
    let ppks = Announced::read(&payloads);
    let full = payloads.notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH).is_some();
    let possible = |connection: &&Arc<ConnectionConfig>| {
        ppk::is_possible(ctx.config, connection, ppks)
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
    let ppk = ppk::choose_place(ctx.config, connections.iter(), ppks);
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
    let spi_r = spi_r.unwrap_or_else(|| ctx.ids.ike_spi(ctx.rng));
    let nr = ctx.nonce();
    // `connections` cannot be empty: a proposal of one of them was chosen.
    let connection = connections.first().ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?.clone();
    let force_nat = connection.encap || !ctx.plane.plain_esp;
    let mut extensions =
        Extensions::negotiate(&connection, ctx.config.fragment_ack, &payloads, ppk);
    let tcp = path.transport == Transport::Tcp;
    extensions.separate = connection.separate_transports != SeparateTransports::No
        && (tcp || ctx.config.accepts_tcp)
        && payloads.notify(NotifyType(ctx.config.separate_transports)).is_some();
    if tcp && !extensions.separate && !ctx.plane.tcp_esp {
        return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
    }
    let mut nat = NatStatus::detect(ctx.crypto, &payloads, (spi_i, 0), path);
    nat.local |= force_nat && nat.supported;
    let own = OwnAnnouncements::new(ctx.config, ctx.crypto, connections.iter().map(|c| &**c));
    let mut announced = Announcements::default();
    announced.read_hashes(ctx.config, &payloads);
    let mut response = Response {
        spis: (spi_i, spi_r),
        selected: &selected,
        public: &public,
        nonce: &nr,
        connection: &connection,
        extensions,
        nat: nat.supported.then(|| NatHashes::new(ctx.crypto, spi_i, spi_r, path, force_nat)),
        own,
        separate: extensions.separate.then_some(NotifyType(ctx.config.separate_transports)),
    };
    let mut encoded = response.encode();
    let room = max_message(ctx.mtus.size(ctx.now.mono, path.remote.ip()), path);
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
    })
}

/// What an IKE_SA_INIT response is made of.
struct Response<'a> {
    spis: (u64, u64),
    selected: &'a Selected,
    public: &'a [u8],
    nonce: &'a [u8],
    connection: &'a ConnectionConfig,
    extensions: Extensions,
    nat: Option<NatHashes>,
    own: OwnAnnouncements,
    /// The type of SEPARATE_TRANSPORTS, if it is in it.
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
        let chosen = self.extensions.ppk.map(PpkPlace::announced);
        reply.extend(chosen.unwrap_or_default().kinds().map(|kind| notify(kind, &[])));
        if self.connection.downgrade_prevention != DowngradePrevention::No {
            //= draft-ietf-ipsecme-ikev2-downgrade-prevention §6
            //# If the responder supports this extension, then it also includes this
            //# notification in the response message regardless of whether it was
            //# received in the request or not.
            reply.push(status(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH));
        }
        if self.connection.childless != Childless::Never {
            let kind = NotifyType::CHILDLESS_IKEV2_SUPPORTED;
            //= RFC 6023 §4
            //# Protocol ID (1 octet) MUST be 1, as this message is related to an
            //# IKEv2 SA.
            let notify = Notify { protocol: ProtocolId::IKE, ..Notify::new(kind, &[]) };
            reply.push(Payload::Notify(notify));
        }
        reply.extend(self.separate.map(status));
        reply.extend(self.own.hash_payload());
        reply.extend(self.own.payloads(INIT_ROOM));
        encode_message(&header(self.spis.0, self.spis.1, true), &reply)
    }
}

/// An unprotected answer that refuses `request` and keeps no state.
pub(crate) fn refuse(request: &Header, refusal: &Refusal) -> Vec<u8> {
    stateless(request, request.spi_r, Notify::new(refusal.kind, &refusal.data))
}

/// An unprotected answer of one notify that keeps no state.
pub(crate) fn answer_alone(request: &Header, kind: NotifyType, data: &[u8]) -> Vec<u8> {
    stateless(request, 0, Notify::new(kind, data))
}

/// An unprotected answer that demands a cookie.
pub(crate) fn demand_cookie(request: &Header, cookie: &[u8]) -> Vec<u8> {
    stateless(request, 0, Notify::new(NotifyType::COOKIE, cookie))
}

/// The notify that names the method wanted instead (RFC 7296 §1.3).
pub(crate) fn invalid_ke(wanted: KeMethodId) -> Refusal {
    Refusal { kind: NotifyType::INVALID_KE_PAYLOAD, data: wanted.0.to_be_bytes().to_vec() }
}

impl Extensions {
    fn negotiate(
        connection: &ConnectionConfig,
        fragment_ack: Option<FragmentAckTypes>,
        peer: &Payloads<'_, '_>,
        ppk: Option<PpkPlace>,
    ) -> Self {
        let full = peer.notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH).is_some();
        let fragmentation = connection.fragmentation != Fragmentation::No
            && peer.notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED).is_some();
        //= draft-antony-ipsecme-ikev2-fragment-acknowledgment §4
        //# In addition, both peers MUST also signal
        //# support for IKEv2 Fragmentation by sending the
        //# IKEV2_FRAGMENTATION_SUPPORTED notification
        let fragment_ack = fragment_ack
            .filter(|types| fragmentation && peer.notify(NotifyType(types.supported)).is_some());
        Self {
            fragmentation,
            fragment_ack,
            childless: peer.notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some(),
            intermediate: peer.notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some(),
            //= draft-ietf-ipsecme-ikev2-downgrade-prevention §6
            //# If a peer sent and received the IKE_SA_INIT_FULL_TRANSCRIPT_AUTH
            //# notification, then it uses the modified construction of the blocks of
            //# data to be signed (or MAC'ed)
            full_transcript: full && connection.downgrade_prevention != DowngradePrevention::No,
            ppk,
            separate: false,
            redirect: is_supported(peer),
            client: false,
        }
    }
}

/// True if `connection` may come to need additional key exchanges, its children's among them, or if
/// this end signs, and may have to hear by what (RFC 9593 §3.1).
fn wants_intermediate(connection: &ConnectionConfig) -> bool {
    if super::auth::signs(connection) {
        return true;
    }
    let children = connection.children.iter().flat_map(|child| &child.esp_proposals);
    connection.proposals.iter().chain(children).any(ProposalConfig::has_additional_ke)
}

/// True if `connection` requires downgrade prevention and the peer has not announced it.
pub(crate) fn refuses_short_transcript(
    connection: &ConnectionConfig,
    extensions: Extensions,
) -> bool {
    connection.downgrade_prevention == DowngradePrevention::Require && !extensions.full_transcript
}

impl NatStatus {
    /// Compares the peer's hashes with the addresses its message came from and to
    /// (RFC 7296 §2.23).
    pub(crate) fn detect(
        crypto: &CryptoProvider,
        peer: &Payloads<'_, '_>,
        (spi_i, spi_r): (u64, u64),
        path: Path,
    ) -> Self {
        let source = nat_hash(crypto, spi_i, spi_r, path.remote);
        let destination = nat_hash(crypto, spi_i, spi_r, path.local);
        let mut sources = peer
            .notifies()
            .filter(|notify| notify.kind == NotifyType::NAT_DETECTION_SOURCE_IP)
            .peekable();
        let at = peer.notify(NotifyType::NAT_DETECTION_DESTINATION_IP);
        let supported = sources.peek().is_some() && at.is_some();
        Self {
            supported,
            remote: supported && !sources.any(|notify| notify.data == source),
            local: supported && at.is_some_and(|notify| notify.data != destination),
        }
    }
}

/// The two NAT detection hashes of one message.
pub(crate) struct NatHashes {
    source: [u8; 20],
    destination: [u8; 20],
}

impl NatHashes {
    pub(crate) fn new(
        crypto: &CryptoProvider,
        spi_i: u64,
        spi_r: u64,
        path: Path,
        fake: bool,
    ) -> Self {
        // A source no packet can have makes the peer see a NAT.
        let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let source = if fake { nowhere } else { path.local };
        Self {
            source: nat_hash(crypto, spi_i, spi_r, source),
            destination: nat_hash(crypto, spi_i, spi_r, path.remote),
        }
    }

    pub(crate) fn push<'a>(&'a self, payloads: &mut Vec<Payload<'a>>) {
        for (kind, hash) in [
            (NotifyType::NAT_DETECTION_SOURCE_IP, &self.source),
            (NotifyType::NAT_DETECTION_DESTINATION_IP, &self.destination),
        ] {
            payloads.push(Payload::Notify(Notify::new(kind, hash)));
        }
    }
}

/// SHA-1 of SPIs, address and port (RFC 7296 §2.23).
fn nat_hash(crypto: &CryptoProvider, spi_i: u64, spi_r: u64, at: SocketAddr) -> [u8; 20] {
    let (v4, v6);
    let ip: &[u8] = match at.ip().to_canonical() {
        IpAddr::V4(ip) => {
            v4 = ip.octets();
            &v4
        }
        IpAddr::V6(ip) => {
            v6 = ip.octets();
            &v6
        }
    };
    let port = at.port().to_be_bytes();
    (crypto.sha1)(&[&spi_i.to_be_bytes(), &spi_r.to_be_bytes(), ip, &port])
}

/// The path of everything after IKE_SA_INIT: port 4500 if there is a NAT (RFC 7296 §2.23), or if there may
/// come to be one because of MOBIKE.
pub(crate) fn floated(path: Path, nat: NatStatus, mobike: bool, natt_port: u16) -> Path {
    //= RFC 9329 §6.5
    //# no change should be made for encapsulation of
    //# subsequent IKE or ESP packets since TCP encapsulation inherently
    //# supports NAT traversal.
    //= RFC 4555 §3.3
    //# implementations that support both this specification
    //# and NAT Traversal MUST change to port 4500 if the correspondent also
    //# supports both, even if no NAT was detected between them
    // Whether it supports MOBIKE shows later.
    let floats = nat.local || nat.remote || mobike && nat.supported;
    if path.transport != Transport::Udp || !floats {
        return path;
    }
    let mut floated = Path { transport: Transport::UdpEncap, ..path };
    floated.local.set_port(natt_port);
    floated.remote.set_port(NATT_PORT);
    floated
}

/// The path of ESP beside IKE over TCP: port 4500 at both ends. What a NAT makes of the peer's port shows
/// when the peer sends.
pub(crate) fn beside(path: Path, natt_port: u16) -> Path {
    let mut beside = Path { transport: Transport::UdpEncap, ..path };
    beside.local.set_port(natt_port);
    beside.remote.set_port(NATT_PORT);
    beside
}

pub(crate) fn session(
    crypto: &CryptoProvider,
    selected: Selected,
    shared: &Secret,
    (ni, nr): (&[u8], &[u8]),
    (spi_i, spi_r): (u64, u64),
    initiator: bool,
) -> Result<Session, CryptoError> {
    let prf = crypto.prf(selected.prf).ok_or(CryptoError::Unsupported)?;
    let lengths = crypto.ciphers.lengths(selected.suite).ok_or(CryptoError::Unsupported)?;
    let keys = IkeKeys::initial(prf, &[shared], ni, nr, spi_i, spi_r, &lengths);
    let epoch = Epoch::new(crypto.ciphers, selected.suite, &keys, initiator)?;
    let mut session = Session { epoch, previous: None, prf, keys, selected };
    if !initiator {
        // An initiator compares SK_ei of its candidates.
        session.wipe_cipher_keys();
    }
    Ok(session)
}

/// A status notify without data.
pub(crate) fn status(kind: NotifyType) -> Payload<'static> {
    Payload::Notify(Notify::new(kind, &[]))
}

fn header(spi_i: u64, spi_r: u64, response: bool) -> Header {
    Header {
        spi_i,
        spi_r,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags { initiator: !response, version: false, response },
        message_id: 0,
        length: 0,
    }
}

fn stateless(request: &Header, spi_r: u64, notify: Notify<'_>) -> Vec<u8> {
    let header = Header {
        spi_r,
        next_payload: PayloadType::NONE,
        flags: Flags { initiator: !request.flags.initiator, version: false, response: true },
        minor_version: 0,
        ..*request
    };
    encode_message(&header, &[Payload::Notify(notify)])
}
