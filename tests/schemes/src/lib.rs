//! Signature schemes as a program brings them: no crate of the engine knows them.
//!
//! [`Ed448`] is for the identity hash (RFC 8420).
//!
//! ```
//! use ipsec_types::crypto::SchemeRegister;
//!
//! let mut register = SchemeRegister::built_in();
//! register.add(ike_test_schemes::ed448()).unwrap();
//! assert!(register.by_name("ed448").is_some());
//! ```

#![forbid(unsafe_code)]

mod ed448;

pub use ed448::{Ed448, scheme as ed448};
