//! Octets that must not leak.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Secret octets: wiped on drop, never printed, compared in constant time.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes ownership of `octets`. A vector with spare capacity is copied and the original wiped.
    pub fn new(mut octets: Vec<u8>) -> Self {
        if octets.len() == octets.capacity() {
            return Self(octets.into_boxed_slice());
        }
        let copy = Self(octets.as_slice().into());
        octets.zeroize();
        copy
    }

    /// Copies `octets`; wiping the original is the caller's part.
    pub fn copy_from(octets: &[u8]) -> Self {
        Self(octets.into())
    }

    /// The octets. Named so that every use can be found.
    #[inline]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Length in octets.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True for a secret of no octets (the integrity key of an AEAD).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Constant-time comparison with `other`; lengths are not secret.
    pub fn ct_eq(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }

    /// A second copy, for the few owners that need one (a child's keys in a command).
    pub fn duplicate(&self) -> Self {
        Self(self.0.clone())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} octets)", self.0.len())
    }
}
