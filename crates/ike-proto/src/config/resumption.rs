//! Session resumption (RFC 5723): `session_resumption` of a connection, and what a gateway seals tickets with.

use std::sync::Arc;
use std::time::Duration;

use crate::crypto::Secret;

/// A key that tickets are sealed under. Gateways that are to take one another's tickets share it.
#[derive(Debug)]
pub struct TicketKey {
    /// What tickets name it by; it is not secret.
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

/// What a gateway does about tickets.
#[derive(Debug, Clone)]
pub struct ResumptionConfig {
    /// The first seals, all open. Without any no ticket is given, and none is taken.
    pub keys: Vec<Arc<TicketKey>>,
    /// How long a ticket is good at the most. It is never longer than what is left of the IKE SA, or until it
    /// must be authenticated again (RFC 5723 §6.2).
    pub lifetime: Duration,
}

impl Default for ResumptionConfig {
    fn default() -> Self {
        Self { keys: Vec::new(), lifetime: Duration::from_secs(3600) }
    }
}
