//! The Linux kernel's IPsec over netlink (XFRM), and data planes for an IKE engine such as `ike-proto`.
//!
//! By itself this is a library for ESP states and policies:
//!
//! * [`kernel::Kernel`] has typed calls for [`state::State`]s and [`policy::Policy`]s. [`netlink::Socket`]
//!   carries them, a blocking socket in the network namespace of the thread that opened it.
//! * [`event::Events`] reports packets without a state, limits reached, and changed NAT mappings.
//! * [`probe::Features`] are the features of the running kernel, found by asking it.
//! * [`netlink::FaultyTransport`] fails requests on demand, for tests of code above it.
//!
//! A tunnel with fixed keys, one direction of it:
//!
//! ```no_run
//! use ipsec_types::crypto::Secret;
//! use ipsec_types::dataplane::{Direction, Mode};
//! use xfrm::kernel::Kernel;
//! use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, PriorityClass, Template, priority};
//! use xfrm::selector::{Prefix, Selector};
//! use xfrm::state::{Algorithm, Protection, State, StateId};
//!
//! let (here, there) = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
//! let key = Secret::new(vec![0x5a; 36]); // 256 bits and the salt
//! let aead = Protection::Aead(Algorithm { name: "rfc4106(gcm(aes))".into(), key, icv_bits: 128 });
//! let state = State::new(StateId::new(0xc000_0001, there), here, Mode::Tunnel, aead);
//! let state = State { reqid: 1, direction: Some(Direction::Out), ..state };
//!
//! let selector =
//!     Selector::between(Prefix::new("10.1.0.0".parse()?, 16), Prefix::new("10.2.0.0".parse()?, 16));
//! let template = Template::new(here, there, 1, Mode::Tunnel);
//! let policy = Policy::new(
//!     PolicyId::new(selector, PolicyDirection::Out),
//!     priority(&selector, PriorityClass::Protect),
//!     Action::Allow(vec![template]),
//! );
//!
//! let mut kernel = Kernel::open()?;
//! kernel.add_state(&state)?;
//! kernel.set_policy(&policy)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Keys are wiped where this crate holds them: in states, in requests once they are sent, and in the kernel's
//! answers. The crate does not print keys.
//!
//! [`XfrmNetlink`] is the data plane of an IKE engine on it. There are also doubles for tests:
//!
//! * [`SimKernel`] stands in for the kernel: policies and states meet packets as in Linux.
//! * [`Recording`] records commands, without keys, and knows which SAs and policies exist.
//! * [`Tracer`] logs the calls of a data plane.
//! * [`Faulty`] fails commands on demand.
//!
//! The last two of these wrap any [`DataPlane`](ipsec_types::dataplane::DataPlane), and implement that trait
//! themselves.

#![deny(missing_docs)]
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
