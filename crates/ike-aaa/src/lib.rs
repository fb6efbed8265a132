//! Authentication, authorisation and accounting of IKEv2 peers, beside the runtime [`ike_tokio`].
//!
//! The engine asks questions: who is this peer, which signature proves this end, what follows this EAP packet, which
//! address does the peer get? [`Credentials`] answers them all. It implements [`ike_tokio::Answerer`] by
//!
//! - certificates and private keys of an [`ike_pki`](::pki) answerer, whose revocation lists and OCSP responses it
//!   fetches;
//! - EAP, by the methods of [`ike_eap`](::eap) and passwords or certificates of the program ([`EapConfig`]), or by
//!   RADIUS servers ([`RadiusClient`]);
//! - addresses of [`Pools`], and addresses that a RADIUS server grants.
//!
//! [`Sessions`] is the [`ike_tokio::Observer`] beside it. It returns addresses to their pools, and keeps
//! [`Accounting`]: RADIUS servers hear of the beginning, the traffic and the end of each peer's session. By a
//! [`DaeSocket`] they end sessions, or limit their lifetime.
//!
//! The options are plain data of [`ike_config`]. The crate reads no configuration file, and opens no socket but
//! those for RADIUS and HTTP. The only file that it writes has the leases ([`Pools::keep_in`]).
//!
//! # Contract
//!
//! - An [`EapRound`] is found by the names of its connection and of the round in the engine's configuration.
//! - Without [`Sessions`] as an observer no address comes back to its pool.
//! - [`Accounting::watch`] gets the data plane before the drivers do. [`Accounting::ask`] gets the handle before the first peer. [`Accounting::finish`] comes after the drivers have
//!   ended, and [`Accounting::forget`] where a program drops the drivers instead.
//! - Passwords, shared secrets and keys of EAP are wiped when they are dropped. No `Debug` shows them.
//!
//! # Features
//!
//! `eap` and `radius`, both on by default. `radius` needs `eap`. Without `radius` there is no [`RadiusClient`], and
//! [`Accounting`] has no sessions. Without `eap` a round by EAP fails, and the error says so.
//!
//! `examples/gateway.rs` is a gateway whose clients a RADIUS server authenticates.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(feature = "radius")]
mod accounting;
mod coverage;
mod credentials;
#[cfg(feature = "radius")]
mod dae;
mod eap;
mod fetch;
mod lookup;
#[cfg(not(feature = "radius"))]
mod no_radius;
mod pools;
#[cfg(feature = "radius")]
mod radius;
mod sessions;

pub use accounting::{Accounting, Unheard};
pub use credentials::Credentials;
pub use dae::DaeSocket;
pub use eap::{EapConfig, EapRound, EapSecrets, PasswordNow};
pub use fetch::{FetchError, Fetcher};
pub use lookup::LookupRules;
#[cfg(not(feature = "radius"))]
use no_radius::{accounting, dae, radius};
pub use pools::{LeaseView, PoolConfig, PoolView, Pools, Range};
pub use radius::RadiusClient;
pub use sessions::Sessions;
