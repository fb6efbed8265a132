//! EAP by the methods themselves, for a [`Host`](crate::Host).

use std::sync::Mutex;

use ::eap::{Conversation, Step};
use ike_proto::crypto::Secret;
use ike_proto::{EapAnswer, EapMessage, EapState, EapSuccess};

/// What answers a host's questions about EAP packets.
pub type End = Box<dyn FnMut(EapMessage) -> EapAnswer>;

/// Whole conversations, each of which `start` begins.
pub fn conversations(start: impl Fn() -> Box<dyn Conversation> + 'static) -> End {
    Box::new(move |message| {
        let held = message.state.take::<Mutex<Box<dyn Conversation>>>();
        let held = held.unwrap_or_else(|| Box::new(Mutex::new(start())));
        let step = match held.lock() {
            Ok(mut conversation) => conversation.handle(message.packet.as_deref()),
            Err(_) => Step::Failure(None, "it has panicked before".to_owned()),
        };
        match step {
            Step::Send(packet) => EapAnswer::Send(packet, EapState::new(*held)),
            Step::Success(success) => EapAnswer::Success(EapSuccess {
                packet: success.packet,
                msk: success.msk.map(|msk| Secret::copy_from(msk.expose())),
                method: format!("{:?}", success.method),
                identity: Some(success.identity),
                password: None,
                authorization: None,
                certificate: None,
            }),
            Step::Failure(packet, why) => EapAnswer::Failure { packet, why },
        }
    })
}
