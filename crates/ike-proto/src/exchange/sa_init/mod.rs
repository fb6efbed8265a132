//! IKE_SA_INIT (RFC 7296 §1.2).
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, [N(COOKIE)], SAi1, KEi, Ni,
//!      N(NAT_DETECTION_*)  -->
//!                               <--  HDR, SAr1, KEr, Nr, N(NAT_DETECTION_*)
//! ```
//!
//! Nothing here is authenticated yet. A message is judged by reference, and only a usable result changes anything.

mod cookie;
mod initiator;
mod nat;
mod responder;
mod unprotected;

pub(crate) use cookie::{other_forms, without_cookie};
pub(crate) use initiator::{
    Accepted, Reading, Request, Sent, Unfit, accept_response, read_response,
};
pub(crate) use nat::{NatHashes, detect_nat};
pub(crate) use responder::{Answer, respond};
pub(crate) use unprotected::{answer_alone, answer_unknown_spi, demand_cookie, refusal_of, refuse};

use super::redirect::is_supported;
use super::{Payloads, Refusal};
use crate::channel::PpkPlace;
use crate::channel::{Extensions, Session};
use crate::config::proposal::Selected;
use crate::config::{ConnectionConfig, DowngradePrevention, FragmentAckTypes, Fragmentation};
use crate::crypto::{CryptoError, CryptoProvider, Secret};
use crate::keys::{IkeKeys, Seed, Spis};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType, PayloadType};
use crate::wire::{Flags, Header};

/// The notify that names the requested method (RFC 7296 §1.3).
pub(crate) fn invalid_ke(wanted: KeMethodId) -> Refusal {
    Refusal { kind: NotifyType::INVALID_KE_PAYLOAD, data: wanted.0.to_be_bytes().to_vec() }
}

impl Extensions {
    pub(crate) fn negotiate(
        connection: &ConnectionConfig,
        fragment_ack: Option<FragmentAckTypes>,
        peer: &Payloads<'_, '_>,
        ppk: Option<PpkPlace>,
    ) -> Self {
        let full = peer.notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH).is_some();
        let fragmentation = connection.fragmentation != Fragmentation::No
            && peer.notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED).is_some();
        //= https://www.ietf.org/archive/id/draft-antony-ipsecme-ikev2-fragment-acknowledgment-02#section-4
        //# In addition, both peers MUST also signal
        //# support for IKEv2 Fragmentation by sending the
        //# IKEV2_FRAGMENTATION_SUPPORTED notification
        let fragment_ack = fragment_ack.filter(|types| {
            let announced = peer.notify(NotifyType(types.supported)).is_some();
            fragmentation && (announced || peer.is_by(&types.vendor_id()))
        });
        Self {
            fragmentation,
            fragment_ack,
            childless: peer.notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some(),
            intermediate: peer.notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some(),
            //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-downgrade-prevention-08#section-6
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

/// True if `connection` requires downgrade prevention and the peer has not announced it.
pub(crate) fn refuses_short_transcript(
    connection: &ConnectionConfig,
    extensions: Extensions,
) -> bool {
    connection.downgrade_prevention == DowngradePrevention::Require && !extensions.full_transcript
}

/// The keys of an IKE SA that begins with the secret `shared`.
pub(crate) fn session(
    crypto: &CryptoProvider,
    selected: Selected,
    shared: &Secret,
    seed: &Seed<'_>,
    initiator: bool,
) -> Result<Session, CryptoError> {
    Session::new(crypto, selected, initiator, |prf, lengths| {
        IkeKeys::initial(prf, &[shared], seed, lengths)
    })
}

/// A status notify without data.
pub(crate) fn status(kind: NotifyType) -> Payload<'static> {
    Payload::Notify(Notify::new(kind, &[]))
}

fn header(response: bool, spis: Spis) -> Header {
    Header {
        spi_i: spis.i(),
        spi_r: spis.r(),
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags { initiator: !response, version: false, response },
        message_id: 0,
        length: 0,
    }
}
