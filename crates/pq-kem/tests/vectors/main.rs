//! Third-party vectors through the public API. Those that need a private key of their own choice are
//! beside the code in `src/ke`.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod aead;
mod data;
mod mac_suites;
mod prf;
mod x25519;
