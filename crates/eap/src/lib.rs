//! EAP (RFC 3748) as IKEv2 uses it (RFC 7296 §2.16): both ends of a conversation, without I/O.
//!
//! [`Peer`] is the end that is authenticated, an IKE initiator. [`Authenticator`] is the other end. Each is a
//! [`Conversation`]: a packet in, a [`Step`] out. There are no timers, because IKE itself retransmits. Limits
//! apply to input from strangers: the size and number of packets, and the octets of collected fragments.
//!
//! Methods: MSCHAPv2, MD5 and GTC by password, TLS and TTLS by certificates ([`Method`], [`Offer`]).
//! [`radius`] has the parts with which a pass-through authenticator hands the conversation to a server.

#![forbid(unsafe_code)]

pub mod accounting;
mod authenticator;
mod conversation;
pub mod dynamic;
mod method;
mod packet;
mod peer;
pub mod radius;

pub use authenticator::{Authenticator, AuthenticatorConfig, Method, TlsServer};
pub use conversation::{Conversation, Fill, Msk, Secrets, Step, Success};
pub use method::mschapv2::crypto as mschapv2;
pub use method::tls::{FRAGMENT_SIZE, MAX_MESSAGES, TlsLimits};
pub use packet::{Code, EapType, MAX_PACKET, Malformed, Packet};
pub use peer::{Offer, Peer, PeerConfig, TlsClient};
pub use rustls;
