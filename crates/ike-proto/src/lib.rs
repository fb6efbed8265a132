//! A sans-IO IKEv2 engine (RFC 7296).
//!
//! [`Endpoint`] turns (now, input) into one ordered list of outputs. Whatever touches a socket, a
//! clock, an OS random source, a kernel or a key file is outside this crate.

#![forbid(unsafe_code)]

pub mod child;
pub mod config;
pub mod crypto;
pub mod dataplane;
mod endpoint;
mod event;
mod exchange;
mod ike_sa;
pub mod keys;
mod question;
mod table;
pub mod wire;

pub use endpoint::{Endpoint, Registry};
pub use event::{
    ChildSaId, ChildState, ChildStatus, Command, Event, Failure, IkeSaId, IkeState, IkeStatus,
    Input, Notice, Now, Output, Path, PeerRefused, RequestId, StreamCommand, StreamEvent, Ticket,
    Transmit, TransmitKind, Transport, UsedAuth,
};
pub use question::{
    AcceptedScheme, Answer, Exchange, Exchanged, OwnedCert, PeerCredentials, PeerKey, Question,
    SignRequest, Signed,
};
