//! Data-plane backends of [`ike_proto`] for the Linux kernel, and data planes to test with.
//!
//! * [`Recording`] keeps what it is told, without keys, and knows which SAs and policies exist.
//! * [`Tracer`] logs what goes through it.
//! * [`Faulty`] fails the commands it is told to.
//!
//! The last two wrap any [`DataPlane`](ike_proto::dataplane::DataPlane) and are one themselves.

#![deny(unsafe_code)]

mod address;
pub mod event;
mod faulty;
pub mod kernel;
pub mod netlink;
pub mod policy;
pub mod probe;
mod recording;
pub mod selector;
pub mod state;
mod summary;
mod tracer;

pub use faulty::{Fault, Faulty};
pub use recording::{RecordedSa, Recording};
pub use summary::{CommandKind, Summary};
pub use tracer::Tracer;
