//! Requirements of RFC 7296, one test each, named by section; the peer is made by hand.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod acquire;
mod collisions;
mod configuration;
mod errors;
mod intermediate;
mod messages;
mod negotiation;
mod paths;
mod retransmissions;
