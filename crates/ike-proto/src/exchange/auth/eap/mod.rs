//! EAP in IKE_AUTH (RFC 7296 §2.16), alone (RFC 5998) or in the last round of several (RFC 4739).
//!
//! ```text
//!    HDR, SK {IDi, [IDr,] [N(EAP_ONLY_AUTHENTICATION),] SAi2, TSi, TSr}  -->
//!                               <--  HDR, SK {IDr, [CERT,] [AUTH,] EAP}
//!    HDR, SK {EAP}  -->
//!                               <--  HDR, SK {EAP (success)}
//!    HDR, SK {AUTH}  -->
//!                               <--  HDR, SK {AUTH, SAr2, TSi, TSr}
//! ```
//!
//! The last two AUTH payloads use the key of EAP. The answering side of [`Question::Eap`] handles the packets. Two
//! requirements of IKE are here: an initiator handles no packet before the responder is authenticated, unless both
//! ends have agreed on EAP alone; and success in EAP proves nothing before the AUTH with its key.

mod initiator;
mod responder;

use std::sync::Arc;

use crate::channel::Channel;
use crate::config::{AuthConfig, ConnectionConfig};
use crate::crypto::{Prf, Secret};
use crate::event::{Ticket, UsedAuth};
use crate::exchange::auth::questions::ask;
use crate::ike_sa::context::Context;
use crate::keys::signed_octets::padded;
use crate::question::{Answer, EapAnswer, EapMessage, EapState, EapSuccess, Question};
use crate::wire::payload::{Id, IdData};
use crate::wire::registry::{AuthMethod, IdType};

/// The method of an absent AUTH payload. It is reserved on the wire.
pub(crate) const NO_AUTH: AuthMethod = AuthMethod(0);

/// EAP packets of the other end in one conversation. Every method needs fewer.
const MAX_PACKETS: u32 = 150;

/// A round by EAP, and its progress.
pub(crate) struct EapRound {
    /// The other end's identity as its AUTH covers it: IDi on a responder, IDr on an initiator.
    id: IdData,
    reserved: [u8; 3],
    /// True if EAP alone authenticates the responder.
    pub(in crate::exchange::auth) alone: bool,
    pub(in crate::exchange::auth) stage: EapStage,
    state: EapState,
    packets: u32,
    /// Octets of memory that it uses on a responder.
    held: usize,
    /// Other connections that the initiator may belong to, for which everything so far is the same.
    others: Vec<Arc<ConnectionConfig>>,
    /// The one that was selected, if it is one of them.
    chosen: Option<Arc<ConnectionConfig>>,
}

/// The progress of EAP.
pub(in crate::exchange::auth) enum EapStage {
    /// No EAP packet was exchanged yet. On a responder the first one may be ready.
    Begun(Option<Vec<u8>>),
    /// The other end's next packet is expected.
    Talking,
    /// EAP has succeeded. The other end's AUTH is expected.
    Through(Option<Secret>, UsedAuth),
}

/// An EAP packet is being handled.
pub(crate) struct AwaitEap<W> {
    pub(crate) ticket: Ticket,
    pub(crate) waiting: Box<W>,
    /// The round by EAP.
    eap: Box<EapRound>,
    /// The packet was EAP-Failure: the other end has given up.
    failure: bool,
}

impl EapRound {
    fn new(id: Option<Id<'_>>, alone: bool) -> Self {
        let id = id.unwrap_or(Id { kind: IdType::NULL, reserved: [0; 3], data: &[] });
        Self {
            id: id.to_owned(),
            reserved: id.reserved,
            alone,
            stage: EapStage::Begun(None),
            state: EapState::default(),
            packets: 0,
            held: 0,
            others: Vec::new(),
            chosen: None,
        }
    }

    /// True if the next response at an initiator is judged by this round. Otherwise it has the responder's AUTH.
    pub(in crate::exchange::auth) fn judges_response(&self) -> bool {
        self.alone || !matches!(self.stage, EapStage::Begun(_))
    }

    fn id(&self) -> Id<'_> {
        Id { reserved: self.reserved, ..self.id.as_id() }
    }
}

/// True if a round of `connection` by EAP, with this `index`, is possible: it is the last round of both ends.
fn is_last(connection: &ConnectionConfig, initiator: bool, index: usize) -> bool {
    let (local, remote) = (connection.local.len(), connection.remote.len());
    let (eap, other) = if initiator { (local, remote) } else { (remote, local) };
    eap == index + 1 && other <= index + 1
}

/// True if a client that does EAP for `one` may belong to `other`: this end has shown the same, and EAP follows.
fn may_be(other: &ConnectionConfig, one: &ConnectionConfig, index: usize) -> bool {
    let eap = other.remote.get(index).is_some_and(|round| round.auth == AuthConfig::Eap);
    eap && is_last(other, false, index)
        && other.local == one.local
        && other.ppk == one.ppk
        && other.requires_ppk() == one.requires_ppk()
}

/// True if the responder's `rounds` have a signature, which must authenticate the responder if EAP does not.
//= https://www.rfc-editor.org/rfc/rfc7296#section-2.16
//# For this reason, these protocols are typically used to authenticate
//# the initiator to the responder and MUST be used in conjunction with a
//# public-key-signature-based authentication of the responder to the
//# initiator.
fn signs<'a>(mut rounds: impl Iterator<Item = &'a AuthConfig>) -> bool {
    rounds.any(|auth| matches!(auth, AuthConfig::Pubkey(_)))
}

/// The key of AUTH for an end that has done EAP: the MSK, otherwise its own SK_p.
//= https://www.rfc-editor.org/rfc/rfc7296#section-2.16
//# For EAP methods that create a shared key as a side effect of
//# authentication, that shared key MUST be used by both the initiator
//# and responder to generate AUTH payloads in messages 7 and 8 using the
//# syntax for shared secrets specified in Section 2.15.
fn key(prf: &dyn Prf, msk: Option<&Secret>, sk_p: &Secret) -> Secret {
    padded(prf, msk.unwrap_or(sk_p))
}

/// What follows from an answer. An error is one of this end.
fn outcome(answer: Answer, alone: bool) -> Result<EapAnswer, String> {
    match answer {
        //= https://www.rfc-editor.org/rfc/rfc5998#section-3
        //# Both the initiator and responder MUST verify that the EAP method
        //# actually used provided mutual authentication and established a shared
        //# secret key.
        Answer::Eap(answer) => match *answer {
            EapAnswer::Success(EapSuccess { msk: None, .. }) if alone => {
                Err("the method makes no key, and EAP is all there is".to_owned())
            }
            EapAnswer::Success(EapSuccess { msk: Some(msk), .. }) if msk.is_empty() => {
                Err("an empty key".to_owned())
            }
            answer => Ok(answer),
        },
        Answer::Failed(why) => Err(why),
        _ => Err("an answer to another question".to_owned()),
    }
}

impl EapRound {
    /// Asks for the next packet of this end, which is known as `local_id`.
    fn ask(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        round: &str,
        local_id: IdData,
        packet: Option<Vec<u8>>,
    ) -> Ticket {
        let named = |other: &Arc<ConnectionConfig>| {
            Some((other.name.clone(), other.remote.last()?.name.clone()))
        };
        let path = if channel.link().is_initiator() {
            channel.route().path()
        } else {
            channel.route().answer_to()
        };
        let message = EapMessage {
            connection: channel.connection().name.clone(),
            round: round.to_owned(),
            initiator: channel.link().is_initiator(),
            alone: self.alone,
            local_id,
            remote_id: self.id.clone(),
            path,
            others: self.others.iter().filter_map(named).collect(),
            packet,
            state: std::mem::take(&mut self.state),
        };
        ask(ctx, channel, Question::Eap(Box::new(message)))
    }
}
