//! Endpoints on a virtual clock, joined by a simulated network: what the tests of the engine run on.
//!
//! * [`World`]: any number of endpoints, one clock, one seed. Nothing sleeps, and the same seed gives
//!   the same run.
//! * [`Pair`]: two endpoints that can reach each other, made by a [`Setup`].
//! * [`network`]: loss, duplication, delay, NAT, and a mailbox for tests that deliver by hand.
//! * [`streams`]: TCP connections, and how they break.
//! * [`link`]: rate, queue, jitter and loss in bursts, for links that are more than that.
//! * [`machine`]: suspends, crashes and wrong clocks of hosts, and several shards of one.
//! * [`packets`]: what the data planes make of a packet, and that none leaves in clear.
//! * [`plane`]: a data plane that can be slow or refuse, and tells keys apart.
//! * [`traffic`]: would a packet sent now arrive?
//! * [`disturbed`]: lives in which wanted children come back, whatever happens.
//! * [`mod@digest`]: whether two builds of the engine behave alike.
//! * [`road`]: the routes of a host, where it has any of its own.
//! * [`audit`]: message IDs and IVs as an eavesdropper sees them.
//! * [`credentials`]: keys, CAs and certificates.
//! * [`explore`]: every order in which datagrams can arrive.
//! * [`forge`]: what somebody without keys can send.
//! * [`wiretap`]: what somebody can do who breaks the key exchange.
//! * [`heap`]: what is on the heap.
//! * [`guard`]: figures that must not grow unnoticed.
//! * [`handmade`]: a peer that has the keys and no manners; [`mod@bench`] puts one endpoint before it.

mod agreement;
pub mod audit;
pub mod bench;
mod byhand;
pub mod cheap;
pub mod credentials;
pub mod digest;
pub mod disturbed;
pub mod eap;
pub mod explore;
pub mod forge;
pub mod guard;
pub mod handmade;
pub mod heap;
mod host;
pub mod life;
pub mod link;
pub mod machine;
pub mod network;
pub mod packets;
mod pair;
pub mod plane;
mod prober;
mod random;
pub mod road;
pub mod setup;
mod story;
pub mod streams;
pub mod traffic;
pub mod wiretap;
mod world;

pub use host::{ExchangeFate, Host, Leaser, SignedRecord};
pub use pair::{A, B, Pair};
pub use random::Seeded;
pub use setup::{Setup, Side};
pub use world::World;
