//! Configuration of an endpoint, in the vocabulary of swanctl.conf(5).
//!
//! Plain data with public fields and the defaults of swanctl.conf(5); parsing files is the daemon's.

pub mod auth;
pub(crate) mod candidates;
pub mod child;
pub mod connection;
pub mod endpoint;
pub mod id_regex;
pub(crate) mod lookup;
pub mod numbers;
pub mod ports;
pub mod ppk;
pub mod proposal;
pub(crate) mod qcd;
pub(crate) mod redirect;
pub mod resumption;
pub mod shard;

pub use auth::{
    AuthConfig, AuthParseError, CertRequest, IdMatch, LocalAuth, PubkeyAuth, RemoteAuth,
    SchemeConstraints, SendCert,
};
pub use child::{Action, ChildConfig, FailureShunt, ShuntConfig, Since, TsSpec};
pub use connection::{
    AddressSpec, Childless, ConnectionConfig, DowngradePrevention, EspInUdp, Fragmentation,
    PreSharedKey, SeparateTransports, TcpUse, Unique,
};
pub(crate) use endpoint::LONGEST_TIMER;
pub use endpoint::{EndpointConfig, FragmentAckTypes, Retransmission};
pub use id_regex::{IdRegex, IdRegexError};
pub use numbers::{InterfaceId, Scope, UniqueNumbers};
pub use ports::Ports;
pub use ppk::{PostQuantumKey, PpkConfig, PpkExchange, PpkId, PpkMatch, PpkRekey};
pub use proposal::ProposalConfig;
pub use qcd::QcdConfig;
pub use redirect::RedirectPolicy;
pub use resumption::{ResumptionConfig, TicketKey};
pub use shard::Shard;

pub use crate::wire::registry::FrodoNumbers;
