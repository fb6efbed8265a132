//! A sans-IO IKEv2 engine (RFC 7296).
//!
//! [`Endpoint`] turns (now, input) into one ordered list of outputs. Whatever touches a socket, a
//! clock, an OS random source, a kernel or a key file is outside this crate.
//!
//! Errors may get further variants in any release ([`Failure::word`] is what scripts can rely on). [`Output`],
//! [`Event`], [`Question`] and [`dataplane::Command`] are matched exhaustively on purpose: who does not handle a
//! new one has a driver that is not complete.

#![deny(missing_docs)]
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
mod shares;
mod table;
pub mod wire;

pub use endpoint::{ChildBrief, Endpoint, IkeBrief, Registry, TrapStatus, Void};
pub use event::{
    BothSelectors, ChildSaId, ChildState, ChildStatus, Command, Distrust, Event, Failure, Hint,
    IkeSaId, IkeState, IkeStatus, Input, Network, Notice, Now, Output, Path, PeerRefused,
    RequestId, StreamCommand, StreamEvent, Ticket, Transmit, TransmitKind, Transport, UsedAuth,
    UsedEap,
};
pub use question::{
    AcceptedScheme, Answer, Assignment, Authorization, EapAnswer, EapMessage, EapState, EapSuccess,
    Exchange, Exchanged, Lease, LeaseRequest, OwnedCert, PeerCredentials, PeerKey, Question,
    SignRequest, Signed,
};
