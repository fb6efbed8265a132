//! Data-plane backends of [`ike_proto`] for the Linux kernel, and data planes to test with.
//!
//! * [`Recording`] keeps what it is told, without keys, and knows which SAs and policies exist.
//! * [`Tracer`] logs what goes through it.
//! * [`Faulty`] fails the commands it is told to.
//!
//! The last two wrap any [`DataPlane`](ike_proto::dataplane::DataPlane) and are one themselves.

#![deny(unsafe_code)]

mod address;
mod doubles;
pub mod event;
pub mod kernel;
pub mod netlink;
pub mod offload;
pub mod plane;
pub mod policy;
pub mod probe;
pub mod selector;
pub mod socket;
pub mod state;
mod summary;

pub use doubles::{
    Fault, Faulty, Packet, RecordedSa, Recording, SimKernel, Tracer, Verdict, judge,
};
pub use plane::XfrmNetlink;
pub use summary::{CommandKind, Summary};
