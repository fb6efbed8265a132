//! The initiator: its request, and which responses it can use.

use crate::channel::{Extensions, NatStatus, Session};
use std::net::IpAddr;
use std::sync::Arc;

use super::{NatHashes, detect_nat, header, refuses_short_transcript, session, status};
use crate::config::EndpointConfig;
use crate::config::proposal;
use crate::config::{
    ConnectionConfig, DowngradePrevention, FragmentAckTypes, Fragmentation, ProposalConfig,
};
use crate::crypto::{CryptoProvider, PendingKe};
use crate::event::{Path, Transport};
use crate::exchange::Payloads;
use crate::exchange::auth::announce::{Announcements, OwnAnnouncements};
use crate::exchange::key_exchange::Undone;
use crate::exchange::ppk::{self, Announced};
use crate::exchange::redirect::gateway_data;
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::state::InitTranscript;
use crate::keys::int_auth::IntAuth;
use crate::keys::{Nonces, Seed, Spis};
use crate::question::Exchange;
use crate::reason::{DropReason, PolicyReason};
use crate::wire::payload::{Ke, Notify, Payload, Proposal, Sa};
use crate::wire::registry::{KeMethodId, NotifyType};
use crate::wire::{Message, encode_message};

/// The data of an IKE_SA_INIT request, kept to make it again with a cookie or another method.
pub(crate) struct Request<'a> {
    pub(crate) spi_i: u64,
    pub(crate) connection: &'a ConnectionConfig,
    pub(crate) proposals: &'a [Proposal],
    pub(crate) path: Path,
    pub(crate) method: KeMethodId,
    pub(crate) public: &'a [u8],
    pub(crate) nonce: &'a [u8],
    pub(crate) cookie: Option<&'a [u8]>,
    /// True to make the peer see a NAT, so that ESP uses UDP.
    pub(crate) force_nat: bool,
    /// The ways in which this end can use a PPK.
    pub(crate) ppk: Announced,
    /// True if it has SEPARATE_TRANSPORTS.
    pub(crate) separate: bool,
    /// The announcement of fragment acknowledgements.
    pub(crate) fragment_ack: Option<FragmentAckTypes>,
    /// Set if redirects are followed; with the gateway that has redirected this client.
    pub(crate) redirect: Option<Option<IpAddr>>,
}

impl Request<'_> {
    pub(crate) fn encode(&self, config: &EndpointConfig, crypto: &CryptoProvider) -> Vec<u8> {
        let nat = NatHashes::new(crypto, Spis::new(self.spi_i, 0), self.path, self.force_nat);
        let vendor = self.fragment_ack.map(FragmentAckTypes::vendor_id);
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
            payloads.extend(vendor.as_deref().map(Payload::Vendor));
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
        encode_message(&header(false, Spis::new(self.spi_i, 0)), &payloads)
    }
}

/// An IKE_SA_INIT response on which an IKE_AUTH request can be built.
pub(crate) struct Accepted {
    pub(crate) session: Session,
    pub(crate) transcript: InitTranscript,
    pub(crate) extensions: Extensions,
    pub(crate) announced: Announcements,
    pub(crate) nat: NatStatus,
    pub(crate) spi_r: u64,
}

/// The kind of a message that claims to be the response.
pub(crate) enum Reading {
    /// The request has to be repeated with this cookie first.
    Cookie(Vec<u8>),
    /// The request has to be repeated with this key exchange method.
    OtherMethod(KeMethodId),
    /// A redirect to another gateway: Notification Data of REDIRECT.
    Redirect(Vec<u8>),
    /// The ticket is not accepted.
    TicketRefused(NotifyType),
    /// An error notify. It is remembered, and not acted upon (RFC 7296 §2.21.1).
    Error(NotifyType),
    /// The message cannot be used, for this reason.
    Useless(DropReason),
    /// The message looks right.
    Usable,
}

/// Classifies a response without changing any state.
pub(crate) fn read_response(message: &Message<'_>) -> Reading {
    let payloads = Payloads(&message.payloads);
    // A response with an SA payload is the answer, whatever else it has.
    if matches!(payloads.sa(), Ok(None)) {
        if let Some(cookie) = payloads.notify(NotifyType::COOKIE) {
            return match cookie.data.len() {
                1..=64 => Reading::Cookie(cookie.data.to_vec()),
                _ => Reading::Useless(DropReason::CookieLength),
            };
        }
        if let Some(notify) = payloads.notify(NotifyType::INVALID_KE_PAYLOAD) {
            return match notify.data.try_into() {
                Ok(id) => Reading::OtherMethod(KeMethodId(u16::from_be_bytes(id))),
                Err(_) => Reading::Useless(DropReason::InvalidKeLength),
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
        return Reading::Useless(DropReason::InitResponseWithoutSpi);
    }
    Reading::Usable
}

/// The initiator's part of the key exchange in an IKE_SA_INIT request that was sent.
pub(crate) struct Sent {
    pub(crate) octets: Arc<[u8]>,
    pub(crate) method: KeMethodId,
    pub(crate) ke: Arc<dyn PendingKe>,
}

/// Why a response cannot be used.
pub(crate) enum Unfit {
    /// It is not what the genuine peer would answer to `sent`, for this reason.
    Useless(DropReason),
    /// It is sound, but the peer, or an attacker in its name, does not do what the policy requires.
    Policy(PolicyReason),
    /// This key exchange has to be done first.
    Ask(Exchange),
}

impl From<DropReason> for Unfit {
    fn from(why: DropReason) -> Self {
        Self::Useless(why)
    }
}

/// Derives the initiator's data from a usable response to `sent`.
pub(crate) fn accept_response(
    ctx: &Context<'_>,
    request: &Request<'_>,
    sent: &Sent,
    message: &Message<'_>,
    octets: &[u8],
) -> Result<Accepted, Unfit> {
    let payloads = Payloads(&message.payloads);
    let single = |_| DropReason::RepeatedPayload;
    let sa = payloads.sa().map_err(single)?.ok_or(DropReason::NoSaPayload)?;
    let ke = payloads.ke().map_err(single)?.ok_or(DropReason::NoKePayload)?;
    let nr = payloads.nonce().map_err(single)?.ok_or(DropReason::NoNonce)?;
    let selected =
        proposal::accept(request.proposals, sa).map_err(|_| DropReason::ProposalNeverOffered)?;
    if ke.method != selected.ke || ke.method != sent.method {
        return Err(DropReason::KeMethodDiffers.into());
    }
    let method = ctx.crypto.ke(ke.method).ok_or(DropReason::KeMethodUnknown)?;
    if ke.data.len() != method.lengths().responder {
        return Err(DropReason::KeLength.into());
    }
    let ppk = ppk::chosen_place(request.ppk, Announced::read(&payloads))?;
    let mut extensions =
        Extensions::negotiate(request.connection, request.fragment_ack, &payloads, ppk);
    let separate = NotifyType(ctx.io.config.separate_transports);
    extensions.client = true;
    extensions.separate = request.separate && payloads.notify(separate).is_some();
    if request.path.transport == Transport::Tcp && !extensions.separate && !ctx.plane.tcp_esp {
        return Err(Unfit::Policy(PolicyReason::NoEspInTcp));
    }
    if !extensions.intermediate && selected.additional().next().is_some() {
        return Err(DropReason::AdditionalKeAlone.into());
    }
    if request.connection.requires_ppk() && ppk.is_none() {
        return Err(Unfit::Policy(PolicyReason::PpkNotAnnounced));
    }
    if refuses_short_transcript(request.connection, extensions) {
        return Err(Unfit::Policy(PolicyReason::NoDowngradePrevention));
    }
    let shared = ctx.complete(ke.method, &sent.ke, ke.data).map_err(|undone| match undone {
        Undone::Ask(exchange) => Unfit::Ask(exchange),
        Undone::Failed(_) => DropReason::KeValueRefused.into(),
    })?;
    let spis = Spis::of(&message.header);
    let seed = Seed::new(Nonces { i: request.nonce, r: nr }, spis);
    let session = session(ctx.crypto, selected, &shared, &seed, true)
        .map_err(|_| DropReason::KeysNotDerived)?;
    let mut nat = detect_nat(ctx.crypto, &payloads, spis, request.path);
    nat.local |= request.force_nat && nat.supported;
    let mut announced = Announcements::default();
    announced.read_hashes(ctx.io.config, &payloads);
    announced.read(&ctx.crypto.schemes, &payloads);
    Ok(Accepted {
        session,
        transcript: InitTranscript {
            request: sent.octets.clone(),
            cookies: None,
            response: octets.into(),
            ni: request.nonce.into(),
            nr: (*nr).into(),
            int_auth: IntAuth::default(),
        },
        extensions,
        announced,
        nat,
        spi_r: spis.r(),
    })
}

/// True if `connection` may need additional key exchanges, for its children too, or if this end signs and may have
/// to learn which methods the peer accepts (RFC 9593 §3.1).
fn wants_intermediate(connection: &ConnectionConfig) -> bool {
    if crate::exchange::auth::signs(connection) {
        return true;
    }
    let children = connection.children.iter().flat_map(|child| &child.esp_proposals);
    connection.proposals.iter().chain(children).any(ProposalConfig::has_additional_ke)
}
