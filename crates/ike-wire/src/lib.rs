//! IKEv2 messages on the wire (RFC 7296 §3): numbers, header, payloads, and nothing of their meaning.
//!
//! Decoding borrows from the datagram. The same types encode. No function here panics on any input.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod codec;
pub mod der;
pub mod header;
pub mod message;
pub mod payload;
pub mod registry;

pub use codec::{DecodeError, Reader};
pub use header::{Flags, HEADER_LEN, Header};
pub use message::{
    Message, decode_inner_payloads, decode_payloads, encode_message, encode_payloads,
};
pub use payload::Payload;
