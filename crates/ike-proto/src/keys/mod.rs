//! Key derivation (RFC 7296 §2.13–2.18), the octets an AUTH payload covers, and the keys that
//! protect messages.

pub mod epoch;
pub mod int_auth;
pub mod schedule;
pub mod signed_octets;

pub use epoch::{Epoch, OpenError, Opened, Outgoing};
pub use schedule::{
    AuthKeys, ChildKeys, DirectionKeys, IkeKeys, Nonces, OldKeys, OwnNonces, PPK_CONFIRMATION_LEN,
    Seed, Spis, mixed_in_create_child, ppk_confirmation, prf_plus,
};
pub use signed_octets::{
    AuthFailure, PeerAuthenticated, SignedOctets, Transcript, psk_auth, verify_psk,
};
