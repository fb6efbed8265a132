//! What every backend must do, whatever it is.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod backends;
mod falcon_kat;
mod frodo_kat;
mod ke;
mod ml_dsa_kat;
mod private_keys;
mod sign;
mod sign_kat;
mod suites;

#[path = "../vectors/data.rs"]
mod data;
