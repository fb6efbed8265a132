//! Crypto backends for an IKE engine such as `ike-proto`: implementations of the traits of
//! [`ipsec_types::crypto`] on maintained libraries.
//!
//! * [`provider`] is everything below in one [`CryptoProvider`]; take fields out of it, or put others
//!   in, to narrow or widen what an endpoint can negotiate.
//! * [`ke`]: X25519, ECP, MODP, ML-KEM and FrodoKEM.
//! * [`sign`]: RSA, ECDSA, Ed25519, ML-DSA and SLH-DSA.
//! * [`sym`]: AEADs, and ciphers with a MAC, for IKE's SK payload and for ESP.
//! * [`prf`] and [`hash`]: HMAC PRFs, and the SHA-1 of NAT detection.
//! * [`os_random`]: the operating system's random source.
//!
//! The library behind all of it is AWS-LC, but for AES-CCM and SLH-DSA, which are RustCrypto's, and
//! FrodoKEM, which is `frodo-kem-rs`.
//!
//! Features, none of them a default, add backends and change nothing else: `backend-rustcrypto`
//! (ML-KEM and ML-DSA in pure Rust), `backend-pqcrypto` (ML-KEM and ML-DSA of PQClean, unmaintained:
//! RUSTSEC-2026-0161, -0162, -0163 and -0166) and `experimental-falcon`.
//!
//! ```
//! use ike_wire::registry::KeMethodId;
//!
//! let provider = pq_kem::provider();
//! let mut rng = pq_kem::os_random();
//! let method = provider.ke(KeMethodId::CURVE_25519).ok_or("no X25519")?;
//! let ours = method.initiate(&mut rng)?;
//! let (theirs, shared) = method.respond(ours.public(), &mut rng)?;
//! assert!(shared.ct_eq(ours.complete(&theirs)?.expose()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![deny(unsafe_code)]

use ipsec_types::crypto::{CryptoProvider, KeyExchange, SchemeRegister, SecureRandom};

pub mod hash;
pub mod ke;
pub mod prf;
pub mod sign;
pub mod sym;

mod ffi;
mod rng;

#[cfg(test)]
#[path = "../tests/vectors/data.rs"]
mod data;

/// All backends of this crate. Lists are in order of preference; what is weak or slow comes last, and
/// whether it is offered at all is the configuration's decision.
pub fn provider() -> CryptoProvider {
    CryptoProvider {
        ke: ke::ALL.iter().copied().map(KeyExchange::from).collect(),
        prf: prf::ALL.to_vec(),
        ciphers: &sym::Ciphers,
        verifiers: sign::VERIFIERS.to_vec(),
        schemes: SchemeRegister::built_in(),
        sha1: hash::sha1,
    }
}

/// The operating system's random source. Never blocks after start-up. Nothing is drawn ahead: neither a child of `fork`
/// nor a copy of a virtual machine has octets that the other has as well.
pub fn os_random() -> impl SecureRandom + 'static {
    rng::OsRandom::new()
}
