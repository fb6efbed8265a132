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
use crate::config::EndpointConfig;
use crate::crypto::{CryptoProvider, Secret};
use crate::event::{Failure, IkeSaId};
use crate::ike_sa::Core;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::keys::Spis;
use crate::wire::payload::{Notify, Payload, Spi};
use crate::wire::registry::{NotifyType, PrfId, ProtocolId};
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

/// The payload of a token.
pub(crate) fn payload(token: &Secret) -> Payload<'_> {
    //= https://www.rfc-editor.org/rfc/rfc6290#section-4.1
    //# Protocol ID (1 octet) MUST be 1, as this message is related to an
    //# IKE SA.
    let kind = NotifyType::QUICK_CRASH_DETECTION;
    let (protocol, spi, data) = (ProtocolId::IKE, Spi::None, token.expose());
    Payload::Notify(Notify { protocol, spi, kind, data })
}

/// The token for an IKE SA; `initiator` if its maker is the original initiator.
fn make(crypto: &CryptoProvider, secret: &Secret, initiator: bool, spis: Spis) -> Option<Secret> {
    // Always the same PRF, whatever is negotiated or configured later.
    let prf = crypto.prf(PrfId::HMAC_SHA2_256)?;
    let (role, [spi_i, spi_r]) = ([u8::from(initiator)], spis.octets());
    let token = prf.prf(secret.expose(), &[LABEL, &role, &spi_i, &spi_r]);
    token.expose().get(..LENGTH).map(Secret::copy_from)
}

/// The tokens that this end may have given for the IKE SA of `request`.
pub(crate) fn all_for(
    crypto: &CryptoProvider,
    config: &EndpointConfig,
    request: &Header,
) -> Vec<Secret> {
    let spis = Spis::of(request);
    let secrets = config.qcd.secrets.iter().take(MOST_TOKENS);
    secrets.filter_map(|secret| make(crypto, secret, !request.flags.initiator, spis)).collect()
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
    /// Sends the peer the token of this SA, which this end's rekey has made.
    pub(crate) fn give_token(&mut self, core: &mut Core, ctx: &Context<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc6290#section-4.3
        //# If the initiator is also a token maker, it SHOULD initiate an
        //# INFORMATIONAL exchange immediately after the CREATE_CHILD_SA exchange
        if core.own_token(ctx).is_some() {
            self.queue.push(Task::Token);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
    //# If the QCD_TOKEN verifies OK, the receiver MUST silently discard the
    //# IKE SA and all associated child SAs.
    /// Handles that the peer has lost this SA: as if it did not answer, except that it cannot be alive on the SA
    /// of a rekey of its own that crossed ours.
    pub(crate) fn on_peer_lost(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        // The children of a replaced SA belong to its successor, which has a token of its own.
        if !matches!(self.phase, IkePhase::Replaced(_))
            && let Some(sent) = &mut self.sent
        {
            sent.uncross();
        }
        self.on_peer_dead(core, ctx, Failure::LostByPeer);
    }

    /// Handles that the peer has lost the SA `from`. The peer began the rekey that made this SA. The children have
    /// not moved to this SA, and the peer could not send its token for it.
    pub(crate) fn on_crossed_lost(&mut self, core: &mut Core, from: IkeSaId) {
        if self.phase == IkePhase::Crossed(from) {
            core.end(Failure::LostByPeer);
        }
    }
}

impl Core {
    /// This end's token for this SA; `None` if this end makes none for this connection.
    pub(crate) fn own_token(&self, ctx: &Context<'_>) -> Option<Secret> {
        let secret = ctx.io.config.qcd.secrets.first().filter(|_| self.connection().qcd)?;
        make(ctx.crypto, secret, self.is_initiator(), self.spis())
    }

    /// The same for the SA with these SPIs that the peer's rekey makes.
    pub(crate) fn responders_token(&self, ctx: &Context<'_>, spis: Spis) -> Option<Secret> {
        let secret = ctx.io.config.qcd.secrets.first().filter(|_| self.connection().qcd)?;
        make(ctx.crypto, secret, false, spis)
    }

    //= https://www.rfc-editor.org/rfc/rfc6290#section-4.4
    //# A token taker MUST accept such gratuitous QCD_TOKEN notifications as
    //# long as they are carried in protected exchanges.
    /// Stores the peer's token for this SA from a protected message. It replaces an earlier one.
    pub(crate) fn take_token(&mut self, payloads: &[Payload<'_>]) {
        if let Some(token) = tokens(payloads).next().filter(|_| self.connection().qcd) {
            self.peer_token = Some(Secret::copy_from(token));
        }
    }

    /// Compares the token in an unprotected message with the peer's for this SA; `None` if there is nothing to
    /// compare.
    pub(crate) fn judge_token(&self, message: &Message<'_>) -> Option<bool> {
        let header = &message.header;
        let ours = Spis::of(header) == self.spis() && header.flags.initiator != self.is_initiator();
        let known = self.peer_token.as_ref().filter(|_| ours)?;
        //= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
        //# The token is considered verified
        //# if any of the QCD_TOKEN notifications matches.
        Some(tokens(&message.payloads).take(MOST_TOKENS).any(|token| known.ct_eq(token)))
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
