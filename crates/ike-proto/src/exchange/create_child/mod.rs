//! CREATE_CHILD_SA (RFC 7296 §1.3) for new and rekeyed Child SAs. The initiator is
//! [`requested_child`](crate::exchange::requested_child). For the IKE SA see [`rekey_ike`](crate::exchange::rekey_ike).
//!
//! ```text
//!    HDR, SK {[N(REKEY_SA),] SA, Ni, [KEi,] TSi, TSr}  -->
//!                               <--  HDR, SK {SA, Nr, [KEr,] TSi, TSr}
//! ```

mod responder;

pub(crate) use responder::answer_notifies;

use crate::event::{Event, Failure};
use crate::ike_sa::Core;
use crate::ike_sa::context::{Context, Effect};
use crate::wants::aftermath::End;
use crate::wire::registry::NotifyType;

impl Core {
    pub(crate) fn child_failed(&mut self, ctx: &mut Context<'_>, name: &str, reason: Failure) {
        if ctx.wants.has(&self.connection().name, name) {
            let mut ended = self.ending(Some(name), &reason, false, None);
            ended.end = End::of_attempt(&reason);
            ctx.effects.push_back(Effect::Ended(Box::new(ended)));
        }
        ctx.io.event(Event::ChildFailed { ike: self.id(), name: name.to_owned(), reason });
    }
}

/// The peer has chosen an SPI that another child at its address has.
pub(super) fn taken() -> Failure {
    Failure::Refused(NotifyType::NO_ADDITIONAL_SAS)
}
