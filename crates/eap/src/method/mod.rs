//! The methods, each with both of its ends.

pub(crate) mod gtc;
pub(crate) mod md5;
pub mod mschapv2;
pub mod tls;
pub(crate) mod ttls;

use crate::conversation::Msk;
use crate::packet::EapType;

/// What the peer's end makes of a request.
pub(crate) enum PeerStep {
    /// Type-Data of the response.
    Respond(Vec<u8>),
    /// It is over.
    Fail(String),
}

/// What the authenticator's end makes of a response.
pub(crate) enum ServerStep {
    /// Type-Data of the next request.
    Request(Vec<u8>),
    /// The peer has proven itself.
    Success(Option<Msk>),
    /// It has not.
    Fail(String),
}

/// The peer's end of a method.
pub(crate) trait PeerMethod: Send {
    fn kind(&self) -> EapType;
    /// A request: its identifier and Type-Data.
    fn process(&mut self, identifier: u8, data: &[u8]) -> PeerStep;
    /// What came of it if the method itself is through and EAP-Success may be believed.
    fn finish(&mut self) -> Option<Option<Msk>>;
    /// What the authenticator said went wrong.
    fn complaint(&self) -> Option<String> {
        None
    }
}

/// The authenticator's end of a method.
pub(crate) trait ServerMethod: Send {
    fn kind(&self) -> EapType;
    /// Type-Data of the first request.
    fn start(&mut self, identifier: u8) -> Vec<u8>;
    /// A response's Type-Data; `identifier` is that of the next request.
    fn process(&mut self, identifier: u8, data: &[u8]) -> ServerStep;
    /// True if the peer has answered by the method, so that Nak is too late.
    fn has_begun(&self) -> bool;
    /// The identity that was proven, if it is another than the one told before.
    fn identity(&self) -> Option<Vec<u8>> {
        None
    }
}
