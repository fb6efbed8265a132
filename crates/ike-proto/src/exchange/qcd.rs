//! Quick crash detection (RFC 6290): each end gives the other a token for their IKE SA, and sends the token again,
//! unprotected, when it has lost the SA. An end that receives the right token believes that. `endpoint/crash.rs`
//! decides when this end sends one.
//!
//! ```text
//!    HDR, SK {IDi, AUTH, N(QCD_TOKEN), SAi2, TSi, TSr}  -->
//!                               <--  HDR, SK {IDr, AUTH, N(QCD_TOKEN), SAr2, TSi, TSr}
//!                   ---- the responder restarts ----
//!    HDR, SK {}  -->
//!                               <--  HDR, N(INVALID_IKE_SPI), N(QCD_TOKEN)+
//! ```
//!
//! `token = prf(secret, label | maker's role | SPIi | SPIr)`, cut to 16 octets, in the manner of RFC 6290 §5.1, so
//! that no token has to be kept. It includes the role because a message may name the SPIs of a live IKE SA and
//! claim to come from the other end. The answer to such a message is not the token that the peer has.

use std::ops::RangeInclusive;

use super::Payloads;
use crate::channel::Channel;
use crate::config::EndpointConfig;
use crate::crypto::{CryptoProvider, Secret};
use crate::event::{Failure, IkeSaId};
use crate::exchange::parts::Started;
use crate::exchange::sent::Sent;
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::keys::Spis;
use crate::wire::payload::{Notify, Payload, Spi};
use crate::wire::registry::{ExchangeType, NotifyType, PrfId, ProtocolId};
use crate::wire::{Header, Message};

//= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
//# the token taker MUST support at least four QCD_TOKEN
//# notifications in a single packet.
//= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
//# The token maker MAY
//# generate up to four QCD_TOKEN notifications, based on several
//# generations of keys.
/// Tokens in one message.
const MOST_TOKENS: usize = 4;

//= https://www.rfc-editor.org/rfc/rfc6290#section-5
//# Tokens MUST be at least 16 octets long, and no more than 128
//# octets long
/// Octets of a token.
const LENGTHS: RangeInclusive<usize> = 16..=128;

/// Octets of our own tokens. An attacker can try one only with the peer, which keeps one for each IKE SA.
const LENGTH: usize = 16;

/// The fewest octets of IV, ciphertext and ICV, of all ciphers: 8, 1 and 8.
const SHORTEST_BODY: usize = 17;
// The answer to a forged address is at most three times as long as the request.
const _: () = {
    let answer = 28 + 8 + MOST_TOKENS * (8 + LENGTH);
    assert!(answer <= 3 * (28 + 4 + SHORTEST_BODY));
};

/// Separates tokens from other uses of the secret.
const LABEL: &[u8] = b"QCD_TOKEN";

/// A token that this end makes for an IKE SA.
#[derive(Debug)]
pub(crate) struct OwnToken(Secret);

impl OwnToken {
    /// The one for the SA of `channel`; `None` if this end makes none for its connection.
    pub(crate) fn of(channel: &Channel, ctx: &Context<'_>) -> Option<Self> {
        let link = channel.link();
        let secret = ctx.io.config.qcd.secrets.first().filter(|_| link.connection().qcd)?;
        Self::make(ctx.crypto, secret, link.is_initiator(), link.spis())
    }

    /// The same for the SA with these SPIs that the peer's rekey makes.
    pub(crate) fn of_responder(channel: &Channel, ctx: &Context<'_>, spis: Spis) -> Option<Self> {
        let secret = ctx.io.config.qcd.secrets.first().filter(|_| channel.connection().qcd)?;
        Self::make(ctx.crypto, secret, false, spis)
    }

    /// Those that this end may have given for the IKE SA of `request`.
    pub(crate) fn all_for(
        crypto: &CryptoProvider,
        config: &EndpointConfig,
        request: &Header,
    ) -> Vec<Self> {
        let (initiator, spis) = (!request.flags.initiator, Spis::of(request));
        let secrets = config.qcd.secrets.iter().take(MOST_TOKENS);
        secrets.filter_map(|secret| Self::make(crypto, secret, initiator, spis)).collect()
    }

    /// The token for an IKE SA; `initiator` if its maker is the original initiator.
    fn make(crypto: &CryptoProvider, secret: &Secret, initiator: bool, spis: Spis) -> Option<Self> {
        // Always the same PRF, whatever is negotiated or configured later.
        let prf = crypto.prf(PrfId::HMAC_SHA2_256)?;
        let (role, [spi_i, spi_r]) = ([u8::from(initiator)], spis.octets());
        let token = prf.prf(secret.expose(), &[LABEL, &role, &spi_i, &spi_r]);
        token.expose().get(..LENGTH).map(Secret::copy_from).map(Self)
    }

    /// The payload of the token.
    pub(crate) fn payload(&self) -> Payload<'_> {
        //= https://www.rfc-editor.org/rfc/rfc6290#section-4.1
        //# Protocol ID (1 octet) MUST be 1, as this message is related to an
        //# IKE SA.
        let kind = NotifyType::QUICK_CRASH_DETECTION;
        let (protocol, spi, data) = (ProtocolId::IKE, Spi::None, self.0.expose());
        Payload::Notify(Notify { protocol, spi, kind, data })
    }

    /// The task that gives the peer the token of the SA of `channel`, which this end's rekey has made.
    pub(crate) fn to_give(channel: &Channel, ctx: &Context<'_>) -> Option<Task> {
        //= https://www.rfc-editor.org/rfc/rfc6290#section-4.3
        //# If the initiator is also a token maker, it SHOULD initiate an
        //# INFORMATIONAL exchange immediately after the CREATE_CHILD_SA exchange
        Self::of(channel, ctx).map(|_| Task::Token)
    }

    /// Sends the peer the token of this SA (RFC 6290 §4.3). The response counts as that of a liveness check.
    pub(crate) fn request(stem: &mut Stem<'_>, ctx: &mut Context<'_>) -> Started {
        let Some(token) = Self::of(stem.channel, ctx) else {
            // A reload has turned tokens off since the task was queued.
            return Started::Not;
        };
        let sent =
            stem.channel.request(&mut ctx.io, ExchangeType::INFORMATIONAL, &[token.payload()]);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        Started::Sent(Sent::Liveness)
    }
}

/// The token that the peer sends if it loses an IKE SA.
#[derive(Default)]
pub(crate) struct PeerToken(Option<Secret>);

impl PeerToken {
    //= https://www.rfc-editor.org/rfc/rfc6290#section-4.4
    //# A token taker MUST accept such gratuitous QCD_TOKEN notifications as
    //# long as they are carried in protected exchanges.
    /// Stores the token in a protected message of `channel`. It replaces an earlier one.
    pub(crate) fn take(&mut self, channel: &Channel, payloads: &[Payload<'_>]) {
        if let Some(token) = tokens(payloads).next().filter(|_| channel.connection().qcd) {
            self.0 = Some(Secret::copy_from(token));
        }
    }

    /// Compares the token in an unprotected message with this one, for the SA of `channel`; `None` if there is
    /// nothing to compare.
    pub(crate) fn judge(&self, channel: &Channel, message: &Message<'_>) -> Option<bool> {
        let (header, link) = (&message.header, channel.link());
        let ours = Spis::of(header) == link.spis() && header.flags.initiator != link.is_initiator();
        let known = self.0.as_ref().filter(|_| ours)?;
        //= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
        //# The token is considered verified
        //# if any of the QCD_TOKEN notifications matches.
        Some(tokens(&message.payloads).take(MOST_TOKENS).any(|token| known.ct_eq(token)))
    }
}

/// True for an unprotected message with a token.
pub(crate) fn is_in_clear(message: &Message<'_>) -> bool {
    !is_protected(message) && tokens(&message.payloads).next().is_some()
}

/// True if the message is sealed by some key.
fn is_protected(message: &Message<'_>) -> bool {
    sealed_body(message).is_some()
}

/// True if the message is long enough to have been sealed with the keys of an IKE SA.
pub(crate) fn deserves_tokens(message: &Message<'_>) -> bool {
    sealed_body(message).is_some_and(|body| body.len() >= SHORTEST_BODY)
}

fn sealed_body<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    match message.payloads.last()? {
        Payload::Sk(sk) => Some(sk.body),
        Payload::Skf(skf) => Some(skf.body),
        _ => None,
    }
}

fn tokens<'a, 'b>(payloads: &'b [Payload<'a>]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'b> {
    let kind = NotifyType::QUICK_CRASH_DETECTION;
    let notifies = Payloads(payloads).notifies().filter(move |notify| notify.kind == kind);
    notifies.map(|notify| notify.data).filter(|token| LENGTHS.contains(&token.len()))
}

impl Established {
    //= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
    //# If the QCD_TOKEN verifies OK, the receiver MUST silently discard the
    //# IKE SA and all associated child SAs.
    /// Handles that the peer has lost this SA: as if it did not answer, except that it cannot be alive on the SA
    /// of a rekey of its own that crossed ours.
    pub(crate) fn on_peer_lost(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        // The children of a replaced SA belong to its successor, which has a token of its own.
        if !matches!(self.phase, IkePhase::Replaced(_))
            && let Some(sent) = &mut self.sent
        {
            sent.uncross();
        }
        self.on_peer_dead(stem, ctx, Failure::LostByPeer);
    }

    /// Handles that the peer has lost the SA `from`. The peer began the rekey that made this SA. The children have
    /// not moved to this SA, and the peer could not send its token for it.
    pub(crate) fn on_crossed_lost(&mut self, stem: &mut Stem<'_>, from: IkeSaId) {
        if self.phase == IkePhase::Crossed(from) {
            stem.ending.end(Failure::LostByPeer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_tokens() {
        let octets = [7; 200];
        for (length, good) in [(0, 0), (15, 0), (16, 1), (32, 1), (128, 1), (129, 0), (200, 0)] {
            let data = &octets[..length];
            let notify = Notify::new(NotifyType::QUICK_CRASH_DETECTION, data);
            assert_eq!(tokens(&[Payload::Notify(notify)]).count(), good, "{length}");
        }
    }
}
