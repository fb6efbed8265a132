//! Control of an IKEv2 engine that runs on [`ike_tokio`].
//!
//! An [`Operator`] carries out commands by the names of the configuration: it brings connections up and down, rekeys,
//! redirects and lists SAs, resolves the names of hosts, does what `start_action` says, and puts another configuration
//! in force. Three sockets serve clients with it:
//!
//! - [`control::ControlSocket`] takes one JSON object a line. [`control::client`] is the other end.
//! - With the feature `vici`, [`vici::ViciSocket`] speaks strongSwan's VICI, for `swanctl` and other tools.
//! - With the feature `metrics`, [`exporter::MetricsSocket`] is scraped by Prometheus. [`metrics::Meters`] counts, as
//!   an [`Observer`](ike_tokio::Observer) of the drivers.
//!
//! Both features are on by default.
//!
//! The crate knows neither keys nor certificates. The trait [`Program`] asks the program around the operator about
//! them, and the trait [`Loader`] passes on what control clients load. All methods of [`Program`] have defaults:
//! `()` is a program with a fixed configuration.
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use ike_control::control::ControlSocket;
//! use ike_control::vici::ViciSocket;
//! use ike_control::{Configuration, Operator};
//! use ike_tokio::{Builder, Crypto, Listen, Plane, Ports, Sockets};
//!
//! # async fn example(crypto: Crypto) -> Result<(), Box<dyn std::error::Error>> {
//! let text = std::fs::read_to_string("/etc/ike/site.toml")?;
//! let settings = ike_config::parse(&text).map_err(|mistakes| mistakes[0].to_string())?;
//! let configuration = Configuration::from(settings);
//! let sockets = Sockets::bind(&Listen::default(), Ports::default())?;
//! let (ports, plane) = (sockets.ports(), Plane::none());
//! let capabilities = plane.capabilities();
//! let (drivers, wanted) =
//!     Builder::new(configuration.unresolved(ports), crypto, sockets).plane(plane).start();
//! let handle = drivers.handle().clone();
//! let operator = Operator::new(handle, configuration, ports, capabilities, Arc::new(()));
//! operator.start_actions().await;
//! let control = ControlSocket::bind(Path::new("/run/ike.sock"))?;
//! let vici = ViciSocket::bind(Path::new("/run/charon.vici"))?;
//! tokio::join!(
//!     operator.attend(wanted),
//!     operator.keep_resolved(),
//!     control.serve(operator.clone(), None),
//!     vici.serve(operator.clone(), None),
//! );
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod control;
mod demands;
mod error;
#[cfg(feature = "metrics")]
pub mod exporter;
mod local;
#[cfg(feature = "vici")]
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
mod operator;
mod program;
#[cfg(feature = "vici")]
pub mod vici;
pub mod views;

pub use demands::unmet;
pub use error::OperatorError;
pub use operator::resolve::{StartWaits, choose, choose_again};
pub use operator::{Operator, Reloaded};
pub use program::{
    About, AuthorityView, Candidate, CertificateKind, CertificateView, Configuration, Evidence,
    Loader, Program, RevocationCounts,
};
