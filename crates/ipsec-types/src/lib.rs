//! What an IKE engine and its backends say to each other.
//!
//! * [`crypto`]: secrets, cipher suites, signature schemes, and the traits that a cryptographic backend implements.
//!   [`CryptoProvider`](crypto::CryptoProvider) is what an engine is given.
//! * [`dataplane`]: commands to what carries ESP, its answers and events, and the trait
//!   [`DataPlane`](dataplane::DataPlane).
//!
//! The engine is above this crate and the backends are beside the engine, so that neither compiles the other. The
//! numbers of algorithms and the traffic selectors are those of [`ike_wire`].

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod crypto;
pub mod dataplane;
