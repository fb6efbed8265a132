//! Signature schemes as a program brings them: no crate of the engine knows them.
//!
//! [`Ed448`] is for the identity hash (RFC 8420). [`Brainpool`] is for an announced hash, and its signatures have the
//! identifier of built-in ones: only the key says that they are on another curve.
//!
//! ```
//! use ipsec_types::crypto::SchemeRegister;
//!
//! let mut register = SchemeRegister::built_in();
//! register.add(ike_test_schemes::ed448()).unwrap();
//! register.add(ike_test_schemes::brainpool()).unwrap();
//! assert!(register.by_name("ed448").is_some());
//! assert!(register.by_name("ecdsa_brainpoolp256r1").is_some());
//! ```

#![forbid(unsafe_code)]

mod brainpool;
mod ed448;

pub use brainpool::{Brainpool, scheme as brainpool};
pub use ed448::{Ed448, scheme as ed448};
