//! Cryptography as the parts of a program share it.

use std::fmt;
use std::sync::Arc;

use ike_proto::crypto::{CryptoProvider, SecureRandom};

/// The algorithms of a program, and its source of randomness.
#[derive(Clone)]
pub struct Crypto {
    /// The algorithms.
    pub provider: Arc<CryptoProvider>,
    /// Makes a source of random octets. Each engine, each slow key exchange and each sender of ESP gets its own.
    pub random: fn() -> Box<dyn SecureRandom>,
}

impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crypto")
    }
}
