//! A sans-IO IKEv2 engine (RFC 7296).
//!
//! [`Endpoint`] turns (time, input) into one ordered list of outputs. Sockets, clocks, the system's random source,
//! the kernel and key files are outside this crate.
//!
//! [`wire`] is the crate `ike-wire`; [`crypto`] and [`dataplane`] are those of `ipsec-types`. A backend depends on
//! these two and does without the engine.
//!
//! Errors may get further variants in any release; scripts can rely on [`Failure::word`]. [`Output`], [`Event`],
//! [`Question`] and [`dataplane::Command`] are matched exhaustively on purpose: a driver that does not handle a
//! new variant is incomplete.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod channel;
pub mod child;
pub mod config;
mod endpoint;
mod event;
mod exchange;
mod ids;
mod ike_sa;
pub mod keys;
mod question;
mod reason;
mod shares;
mod table;
mod wants;

pub use endpoint::{ChildBrief, Endpoint, IkeBrief, Registry, TrapStatus, Void};
pub use event::{
    AuthKind, BothSelectors, ChildSaId, ChildState, ChildStatus, Command, Disbelief, Event, Hint,
    IkeSaId, IkeState, IkeStatus, Input, Network, Notice, Now, Output, Path, PeerRefused,
    RequestId, SecretsNow, StreamCommand, StreamEvent, Ticket, Transmit, TransmitKind, Transport,
    UsedAuth, UsedEap,
};
pub use ike_wire as wire;
pub use ipsec_types::{crypto, dataplane};
pub use question::{
    AcceptedScheme, Answer, Assignment, Authorization, EapAnswer, EapMessage, EapState, EapSuccess,
    Exchange, Exchanged, Lease, LeaseRequest, OwnedCert, PeerCertificate, PeerCredentials, PeerKey,
    Question, ResumeClaim, SignRequest, Signed,
};
pub use reason::{Distrust, DropClass, DropReason, Failure, PolicyReason, TicketReason};
