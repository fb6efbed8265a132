//! Digital signatures: backends that verify, and private keys that sign.
//!
//! * [`VERIFIERS`]: [`AwsLc`] for RSA, ECDSA, Ed25519 and ML-DSA, and [`SlhDsa`].
//! * [`load_private_key`]: a key from DER or PEM, and [`load_private_key_with`] for schemes that the program has brought.
//!   [`generate`]: a new key, as PKCS#8.
//! * [`RsaSha1`] is for old peers, and in no list.
//! * The features `backend-rustcrypto` and `backend-pqcrypto` add further backends of ML-DSA, and
//!   `experimental-falcon` one of Falcon-512: modules to take from, which change no list.
//!
//! Every backend takes public keys through the same checks: the algorithm named in the
//! `SubjectPublicKeyInfo` must be that of the scheme, lengths must fit, and an RSA key must have
//! 2048 to 8192 bits and a public exponent of 65537 or more, below 2^32 (NIST SP 800-56B §6.2 asks
//! for at least 65537; the upper bound keeps verification cheap). Messages are hashed here, where a
//! scheme hashes at all. Randomness for signatures comes from AWS-LC's own source.

use ipsec_types::crypto::SignatureVerifier;

#[cfg(feature = "experimental-falcon")]
pub mod falcon;
#[cfg(feature = "backend-pqcrypto")]
pub mod pqcrypto;
#[cfg(feature = "backend-rustcrypto")]
pub mod rustcrypto;

mod aws_lc;
mod private_key;
mod public_key;
mod signing_key;
mod slh_dsa;

pub use aws_lc::{AwsLc, RsaSha1};
pub use private_key::{KeyError, KeyType, generate, load_private_key, load_private_key_with};
pub use slh_dsa::SlhDsa;

/// Every default backend, whatever features are on.
pub const VERIFIERS: &[&dyn SignatureVerifier] = &[&AwsLc, &SlhDsa];
