//! Key exchange methods (transform type 4, and 6 to 12 of RFC 9370): one file per family.
//!
//! Wire formats are those of IKEv2: no point-format octet in front of an ECP point, MODP values padded
//! to the length of the prime, and for a KEM the encapsulation key one way and the ciphertext the
//! other (RFC 9370 §2.2.1).
//!
//! X25519, MODP and FrodoKEM draw private keys from the source they are given. ECP and ML-KEM take
//! them from AWS-LC's own, so that an exchange with one of them does not repeat under a seeded source.
//!
//! The features `backend-rustcrypto` and `backend-pqcrypto` add further backends of ML-KEM, to be put
//! into a [`CryptoProvider`](ipsec_types::crypto::CryptoProvider) in place of the default ones.

use ipsec_types::crypto::KeMethod;

#[cfg(feature = "backend-pqcrypto")]
pub mod pqcrypto;
#[cfg(feature = "backend-rustcrypto")]
pub mod rustcrypto;

mod ecp;
mod frodo;
mod mlkem;
mod modp;
mod x25519;

pub use ecp::{ECP_256, ECP_384, ECP_521, Ecp};
pub use frodo::{EFRODOKEM, FRODOKEM, FrodoKem, FrodoSet, renumbered};
pub use mlkem::{ML_KEM_512, ML_KEM_768, ML_KEM_1024, MlKem};
pub use modp::{MODP_2048, MODP_3072, MODP_4096, Modp};
pub use x25519::X25519;

/// Every method, in order of preference: classical groups first, since a KEM of RFC 9370 is
/// chosen for its own transform type and not against them.
pub const ALL: &[&dyn KeMethod] = &[
    &X25519,
    &ECP_256,
    &ECP_384,
    &ECP_521,
    &MODP_3072,
    &MODP_4096,
    &MODP_2048,
    &ML_KEM_768,
    &ML_KEM_1024,
    &ML_KEM_512,
    &FRODOKEM[1],
    &FRODOKEM[2],
    &FRODOKEM[0],
    &FRODOKEM[4],
    &FRODOKEM[5],
    &FRODOKEM[3],
    &EFRODOKEM[1],
    &EFRODOKEM[2],
    &EFRODOKEM[0],
    &EFRODOKEM[4],
    &EFRODOKEM[5],
    &EFRODOKEM[3],
];
