//! Userspace ESP (RFC 4303): a data plane for an IKE engine such as `ike-proto` where the kernel has none.
//!
//! The core does no I/O. A [`Plane`] holds the SAs ([`sad`]) and the policies ([`spd`]) that the
//! engine installs through [`DataPlane`](ipsec_types::dataplane::DataPlane); an [`Outbound`] turns a
//! packet of the protected side into ESP, and an [`Inbound`] turns ESP back into a packet. Time is an
//! argument and randomness is injected. There may be any number of workers of either kind, one per
//! thread; they share the tables and take no lock for a flow they have seen before. Packets are best handed
//! over together ([`Outbound::handle_batch`], [`Inbound::handle_batch`]): those of one SA are then accounted
//! for together.
//!
//! ```text
//!  TUN ──packet──▶ Outbound ──▶ flow cache ─▶ SPD ─▶ SA ─▶ seal ──ESP──▶ UDP or TCP 4500 / protocol 50
//!  TUN ◀─packet── selectors ◀─ open ◀─ replay window ◀─ SA ◀─ SPI ◀──ESP── Inbound
//! ```
#![deny(missing_docs)]
#![cfg_attr(
    all(feature = "tun", target_os = "linux"),
    doc = "\nThe sockets and the TUN device are in [`io`]."
)]
#![forbid(unsafe_code)]

mod buffer;
mod events;
pub mod fields;
mod flow;
mod inbound;
#[cfg(all(feature = "tun", target_os = "linux"))]
pub mod io;
pub mod ip;
#[cfg(test)]
mod looks;
mod looping;
mod mss;
mod outbound;
pub mod packet;
mod plane;
mod reassembly;
#[cfg(all(feature = "tun", target_os = "linux"))]
mod refusal;
pub mod replay;
pub mod sad;
mod search;
mod segments;
pub mod selector;
mod sizes;
mod slots;
pub mod spd;
mod split;
pub mod stats;
pub mod tcp;
#[cfg(all(feature = "tun", target_os = "linux"))]
mod too_big;
pub mod tos;
pub mod udp;

pub use buffer::Buffer;
pub use fields::Fields;
pub use inbound::{Carrier, Inbound, Outer};
pub use outbound::{Fate, Outbound, Outgoing, Sealed, Verdict};
pub use plane::{Plane, TooBig};
pub use stats::{DropReason, Stats};
