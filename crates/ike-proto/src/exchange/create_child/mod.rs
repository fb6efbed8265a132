//! CREATE_CHILD_SA (RFC 7296 §1.3) for new and rekeyed Child SAs. The initiator is
//! [`requested_child`](crate::exchange::requested_child). For the IKE SA see [`rekey_ike`](crate::exchange::rekey_ike).
//!
//! ```text
//!    HDR, SK {[N(REKEY_SA),] SA, Ni, [KEi,] TSi, TSr}  -->
//!                               <--  HDR, SK {SA, Nr, [KEr,] TSi, TSr}
//! ```

mod responder;

pub(crate) use responder::answer_notifies;

use crate::channel::Channel;
use crate::event::{Event, Failure};
use crate::ike_sa::context::{Context, Effect};
use crate::wants::Ended;
use crate::wants::aftermath::End;
use crate::wire::registry::NotifyType;

/// Reports that the child `name` of the SA of `channel` was not made.
pub(crate) fn child_failed(ctx: &mut Context<'_>, channel: &Channel, name: &str, reason: Failure) {
    let link = channel.link();
    if ctx.wants.has(&link.connection().name, name) {
        let mut ended = Ended::of(channel, Some(name), &reason, false, None);
        ended.end = End::of_attempt(&reason);
        ctx.effects.push_back(Effect::Ended(Box::new(ended)));
    }
    ctx.io.event(Event::ChildFailed { ike: link.id(), name: name.to_owned(), reason });
}

/// The peer has chosen an SPI that another child at its address has.
pub(super) fn taken() -> Failure {
    Failure::Refused(NotifyType::NO_ADDITIONAL_SAS)
}
