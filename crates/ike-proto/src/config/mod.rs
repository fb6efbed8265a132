//! Configuration of an endpoint, in the vocabulary of swanctl.conf(5).
//!
//! Plain data with public fields and the defaults of swanctl.conf(5); parsing files is the daemon's.

pub mod child;
pub mod connection;
pub mod endpoint;
pub mod proposal;

pub use child::{Action, ChildConfig, FailureShunt, TsSpec};
pub use connection::{
    AddressSpec, AuthConfig, Childless, ConnectionConfig, Fragmentation, IdMatch, PreSharedKey,
    Unique,
};
pub use endpoint::{EndpointConfig, Retransmission, Shard};
pub use proposal::ProposalConfig;
