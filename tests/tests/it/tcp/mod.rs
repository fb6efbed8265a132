//! IKE in TCP (RFC 9329), the fallback to it, and separate transports
//! (draft-ietf-ipsecme-ikev2-reliable-transport): the engine's part, on connections that break.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cuts;
mod fallback;
mod limits;
mod lives;
mod moves;
mod separate;
mod stage;
mod whole;
