//! Older IKE SAs of the peer, which end as soon as a new one is authenticated: those that the peer does not know
//! any more (INITIAL_CONTACT, RFC 7296 §2.4), and the one that is resumed (RFC 5723 §4.3.4). They end before the
//! child of the new one is made, because that child needs their traffic and addresses.

use super::Payloads;
use super::rounds::AuthReply;
use crate::channel::Channel;
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, InitTranscript};
use crate::keys::epoch::Opened;
use crate::wire::decode_inner_payloads;
use crate::wire::registry::NotifyType;

/// The answer to the last IKE_AUTH request without its child, the PPK_IDENTITY in it, and why there is no child.
pub(crate) type LastReply = (AuthReply, Option<Vec<u8>>, Option<NotifyType>);

/// The end of IKE_AUTH at a responder, which waits until other SAs have ended.
pub(crate) struct LastAnswer {
    /// The first request, which requests the child.
    pub(super) request: Opened,
    pub(super) transcript: InitTranscript,
    pub(super) reply: LastReply,
    /// The peer has sent INITIAL_CONTACT.
    pub(crate) initial_contact: bool,
}

impl Established {
    /// True if this SA, which is established and has not answered yet, ends other IKE SAs without a Delete.
    pub(super) fn ends_others(
        &self,
        channel: &Channel,
        ctx: &Context<'_>,
        initial_contact: bool,
    ) -> bool {
        let resumed = self.identity.is_resumed();
        (self.identity.forgets_others(channel, initial_contact) || resumed)
            && ctx.registry.has_another(self.identity.both(), channel.link().id())
    }

    /// Answers now: the other SAs have ended.
    pub(crate) fn answer_now(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: LastAnswer,
    ) {
        let LastAnswer { request, transcript, reply, .. } = answer;
        match decode_inner_payloads(request.first, &request.octets) {
            Ok(payloads) => {
                self.answer_last(stem, ctx, &Payloads(&payloads), &transcript, reply);
            }
            // It was decoded once already.
            Err(error) => stem.refuse(ctx, error.into()),
        }
    }
}
