//! Key exchange methods (transform type 4, and 6 to 12 of RFC 9370): one file per family.
//!
//! Wire formats are those of IKEv2: no point-format octet in front of an ECP point, MODP values padded
//! to the length of the prime, and for a KEM the encapsulation key one way and the ciphertext the
//! other (RFC 9370 §2.2.1).
//!
//! X25519 and MODP draw private keys from the source they are given. ECP and ML-KEM take them from
//! AWS-LC's own, so that an exchange with one of them does not repeat under a seeded source.

use ike_proto::crypto::KeMethod;

mod ecp;
mod mlkem;
mod modp;
mod x25519;

pub use ecp::{ECP_256, ECP_384, ECP_521, Ecp};
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
];
