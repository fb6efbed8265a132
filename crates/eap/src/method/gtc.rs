//! Generic Token Card (RFC 3748 §5.6): the password itself. For tunnels; it makes no key.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{PeerMethod, PeerStep, ServerMethod, ServerStep};
use crate::conversation::Msk;
use crate::packet::EapType;

type Password = Zeroizing<Vec<u8>>;

pub(crate) struct GtcPeer {
    password: Password,
    answered: bool,
}

impl GtcPeer {
    pub(crate) fn new(password: Password) -> Self {
        Self { password, answered: false }
    }
}

impl PeerMethod for GtcPeer {
    fn kind(&self) -> EapType {
        EapType::GTC
    }

    fn process(&mut self, _identifier: u8, _data: &[u8]) -> PeerStep {
        if std::mem::replace(&mut self.answered, true) {
            return PeerStep::Fail("the password was asked for twice".to_owned());
        }
        PeerStep::Respond(self.password.to_vec())
    }

    fn finish(&mut self) -> Option<Option<Msk>> {
        self.answered.then_some(None)
    }
}

pub(crate) struct GtcServer {
    password: Option<Password>,
}

impl GtcServer {
    pub(crate) fn new(password: Option<Password>) -> Self {
        Self { password }
    }
}

impl ServerMethod for GtcServer {
    fn kind(&self) -> EapType {
        EapType::GTC
    }

    fn start(&mut self, _identifier: u8) -> Vec<u8> {
        b"password".to_vec()
    }

    fn process(&mut self, _identifier: u8, data: &[u8]) -> ServerStep {
        match &self.password {
            Some(password) if bool::from(password.as_slice().ct_eq(data)) => {
                ServerStep::Success(None)
            }
            Some(_) => ServerStep::Fail("wrong password".to_owned()),
            None => ServerStep::Fail("no EAP secret".to_owned()),
        }
    }

    fn has_begun(&self) -> bool {
        false
    }
}
