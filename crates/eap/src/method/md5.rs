//! MD5-Challenge (RFC 3748 §5.4, RFC 1994): the digest of identifier, password and challenge. It does not
//! authenticate the server to the peer, and makes no key.

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{PeerMethod, PeerStep, ServerMethod, ServerStep};
use crate::conversation::{Fill, Msk};
use crate::packet::EapType;

type Password = Zeroizing<Vec<u8>>;

fn digest(identifier: u8, password: &[u8], challenge: &[u8]) -> [u8; 16] {
    let mut md5 = Md5::new();
    md5.update([identifier]);
    md5.update(password);
    md5.update(challenge);
    md5.finalize().into()
}

/// Value-Size, Value, Name.
fn value(data: &[u8]) -> Option<&[u8]> {
    let (&size, rest) = data.split_first()?;
    rest.get(..usize::from(size))
}

pub(crate) struct Md5Peer {
    name: Vec<u8>,
    password: Password,
    answered: bool,
}

impl Md5Peer {
    pub(crate) fn new(name: Vec<u8>, password: Password) -> Self {
        Self { name, password, answered: false }
    }
}

impl PeerMethod for Md5Peer {
    fn kind(&self) -> EapType {
        EapType::MD5
    }

    fn process(&mut self, identifier: u8, data: &[u8]) -> PeerStep {
        let Some(challenge) = value(data).filter(|value| !value.is_empty()) else {
            return PeerStep::Fail("malformed MD5-Challenge".to_owned());
        };
        if std::mem::replace(&mut self.answered, true) {
            return PeerStep::Fail("a second MD5-Challenge".to_owned());
        }
        let digest = digest(identifier, &self.password, challenge);
        PeerStep::Respond([&[16][..], &digest, &self.name].concat())
    }

    fn finish(&mut self) -> Option<Option<Msk>> {
        self.answered.then_some(None)
    }
}

pub(crate) struct Md5Server {
    name: Vec<u8>,
    password: Option<Password>,
    identifier: u8,
    challenge: [u8; 16],
}

impl Md5Server {
    pub(crate) fn new(name: Vec<u8>, password: Option<Password>, random: &Fill) -> Self {
        let mut challenge = [0; 16];
        random(&mut challenge);
        Self { name, password, identifier: 0, challenge }
    }
}

impl ServerMethod for Md5Server {
    fn kind(&self) -> EapType {
        EapType::MD5
    }

    fn start(&mut self, identifier: u8) -> Vec<u8> {
        self.identifier = identifier;
        [&[16][..], &self.challenge, &self.name].concat()
    }

    fn process(&mut self, _identifier: u8, data: &[u8]) -> ServerStep {
        let Some(password) = &self.password else {
            return ServerStep::Fail("no EAP secret".to_owned());
        };
        let expected = digest(self.identifier, password, &self.challenge);
        match value(data) {
            Some(value) if bool::from(expected.ct_eq(value)) => ServerStep::Success(None),
            _ => ServerStep::Fail("wrong password".to_owned()),
        }
    }

    fn has_begun(&self) -> bool {
        false
    }
}
