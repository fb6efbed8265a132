//! Session resumption (RFC 5723): `session_resumption` of a connection, and the keys with which a gateway seals
//! tickets.

use std::sync::Arc;
use std::time::Duration;

use crate::crypto::Secret;

/// A key under which tickets are sealed. Gateways that accept one another's tickets share it.
#[derive(Debug)]
pub struct TicketKey {
    /// The name of the key in tickets; it is not secret.
    pub id: [u8; Self::ID_LEN],
    /// [`SECRET_LEN`](Self::SECRET_LEN) octets from a good random source, used for nothing else.
    pub secret: Secret,
}

impl TicketKey {
    /// Octets of an id.
    pub const ID_LEN: usize = 8;
    /// Octets of a secret.
    pub const SECRET_LEN: usize = 32;
}

/// A gateway's settings for tickets.
#[derive(Debug, Clone)]
pub struct ResumptionConfig {
    /// The first key seals tickets, and all keys open them. Without a key no ticket is given or accepted.
    pub keys: Vec<Arc<TicketKey>>,
    /// How long a ticket is valid at most. It is never valid for longer than the rest of the IKE SA's life or the
    /// time until the next authentication (RFC 5723 §6.2).
    pub lifetime: Duration,
}

impl Default for ResumptionConfig {
    fn default() -> Self {
        Self { keys: Vec::new(), lifetime: Duration::from_secs(3600) }
    }
}
