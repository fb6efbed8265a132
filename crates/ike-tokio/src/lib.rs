//! The asynchronous runtime of IKE: sockets, timers, shards and TCP connections around the engine [`ike_proto`].
//!
//! A [`Builder`] takes a configuration, cryptography and bound [`Sockets`], and starts one driver for each shard. A
//! [`Handle`] takes commands, and returns SAs and events. The crate reads no configuration file.
//!
//! The program can supply three parts:
//!
//! - A [`Plane`] carries traffic: ESP in this process ([`Plane::userspace`], or [`Plane::memory`] for tests), or a data
//!   plane of the program's own ([`Plane::new`]). The default is [`Plane::none`].
//! - An [`Answerer`] has the credentials that the engine does not have. The default is [`NoCredentials`], which serves
//!   peers that authenticate by pre-shared keys.
//! - An [`Observer`] gets events and messages. The default ignores them.
//!
//! # Contract
//!
//! - A single shard runs as a task of the tokio runtime in which [`Sockets::bind`] and [`Builder::start`] are called.
//!   With several shards each driver has a thread and a runtime of its own.
//! - A driver executes the engine's outputs in their order: an SA is in the data plane before the response that
//!   reports it leaves.
//! - A driver waits for [`Answerer::answer_at_once`] and for an [`Observer`], and peers wait meanwhile. A slow answer
//!   belongs in [`Answerer::answer`], which the driver runs as a task.
//! - The engine has finished a command when [`Handle::command`] returns. After the drivers have ended, a request
//!   returns [`Stopped`].
//! - The program answers each [`Wanted`], because it knows the host names of the peers. A program that ignores
//!   [`Wanted`] gets no tunnels on demand, and no restarts.
//! - The program calls [`Handle::network`] when addresses of the host change. Without these calls MOBIKE does
//!   not notice that this host has moved.
//! - [`Handle::shutdown`] deletes the SAs at the peers. Dropping [`Drivers`] neither tells the peers nor empties the
//!   data plane.
//!
//! # Features
//!
//! Both are on by default. `kernel` is for sockets beside ESP in the Linux kernel ([`Listen::kernel`]), and logs the
//! commands of a data plane. `tcp` is for IKE and ESP over TCP ([`Listen::tcp`]). Without a feature [`Sockets::bind`]
//! refuses what needs it.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey};
//! use ike_proto::crypto::Secret;
//! use ike_tokio::{Builder, Crypto, Listen, Ports, Sockets};
//! use tokio::sync::broadcast::error::RecvError;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut site = ConnectionConfig::new("site");
//! site.children.push(Arc::new(ChildConfig::new("net")));
//! let mut config = EndpointConfig::default();
//! config.connections.push(Arc::new(site));
//! let secret = Secret::copy_from(b"correct horse battery staple");
//! config.secrets.push(Arc::new(PreSharedKey { ids: Vec::new(), secret }));
//!
//! let crypto = Crypto {
//!     provider: Arc::new(pq_kem::provider()),
//!     random: || Box::new(pq_kem::os_random()),
//! };
//! let sockets = Sockets::bind(&Listen::default(), Ports::default())?;
//! let (drivers, _wanted) = Builder::new(config, crypto, sockets).start();
//! let mut events = drivers.handle().events();
//! loop {
//!     match events.recv().await {
//!         Ok(event) => println!("{event:?}"),
//!         Err(RecvError::Lagged(missed)) => println!("{missed} events were missed"),
//!         Err(RecvError::Closed) => break,
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod clock;
mod crypto;
mod delegate;
mod driver;
mod handle;
pub mod net;
#[cfg(not(feature = "tcp"))]
mod no_streams;
mod plane;
mod report;
mod shards;
mod sockets;
mod start;
#[cfg(feature = "tcp")]
mod streams;
mod target;

pub use clock::now;
pub use crypto::Crypto;
pub use delegate::{Answerer, NoCredentials, Observer, Work};
pub use driver::Wanted;
pub use handle::{Handle, Outcome, PAGE, Stopped};
pub use ike_proto::config::Ports;
pub use net::outside::OutsideTunnels;
pub use net::resolver::{Resolver, SystemResolver, Unresolved};
#[cfg(not(feature = "tcp"))]
use no_streams as streams;
pub use plane::{Adopted, NoPlane, Plane, PlaneHandle, ShuntsAlone, UserspaceOptions};
pub use report::{
    CHILD_STATES, ChildView, Counters, Counts, Direction, IKE_STATES, IkeView, Message, PolicyView,
    ShardState, Tally, Values,
};
pub use sockets::{Listen, Sockets};
pub use start::{Builder, Drivers, Lost};
pub use target::Target;

/// Tests count what is allocated.
#[cfg(test)]
#[global_allocator]
static HEAP: ike_tests::heap::Counting = ike_tests::heap::Counting;
