//! What AWS-LC has and its safe binding does not offer: the only `unsafe` code of this crate. Here
//! constant-time modular exponentiation, in [`hmac`] HMAC in parts.
//!
//! Three owners ([`Number`], [`Context`], [`Montgomery`]) each hold one non-null pointer that AWS-LC
//! allocated, and free it exactly once, on drop. None is shared or leaves this file, so no call can
//! see a freed or an aliased object; lengths handed over are those of Rust slices.

#![expect(unsafe_code, reason = "no safe binding has what is here")]

pub(crate) mod hmac;

use std::ptr::{self, NonNull};

use aws_lc_sys as sys;

/// `base ^ exponent mod prime` into `out`, big-endian and left-padded with zeros. All are big-endian
/// octets; `prime` must be odd, `base` less than `prime`, and `out` as long as `prime`, else `None`.
///
/// Time depends on the lengths, and not on the values, of `base` and `exponent`. `out` and every copy
/// of the inputs made here are the caller's to wipe or wiped here, respectively.
pub(crate) fn mod_exp(base: &[u8], exponent: &[u8], prime: &[u8], out: &mut [u8]) -> Option<()> {
    let base = Number::from_octets(base)?;
    let exponent = Number::from_octets(exponent)?;
    let prime = Number::from_octets(prime)?;
    let context = Context::new()?;
    let montgomery = Montgomery::new(&prime, &context)?;
    let result = Number::new()?;
    // SAFETY: all pointers are live objects of the right type, each owned by a local of this function
    // and known to nobody else, so that the two written to (`result` and `context`) alias nothing. The
    // function checks that the modulus is odd and the base reduced, and reports failure by 0.
    let ok = unsafe {
        sys::BN_mod_exp_mont_consttime(
            result.0.as_ptr(),
            base.0.as_ptr(),
            exponent.0.as_ptr(),
            prime.0.as_ptr(),
            context.0.as_ptr(),
            montgomery.0.as_ptr(),
        )
    };
    (ok == 1).then_some(())?;
    result.write_octets(out)
}

/// Which prime of RFC 3526.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rfc3526 {
    /// Group 14, 2048 bits.
    Modp2048,
    /// Group 15, 3072 bits.
    Modp3072,
    /// Group 16, 4096 bits.
    Modp4096,
}

/// A prime of RFC 3526, `len` octets big-endian; `None` if it does not fit or memory is out.
pub(crate) fn prime(which: Rfc3526, len: usize) -> Option<Vec<u8>> {
    let get = match which {
        Rfc3526::Modp2048 => sys::BN_get_rfc3526_prime_2048,
        Rfc3526::Modp3072 => sys::BN_get_rfc3526_prime_3072,
        Rfc3526::Modp4096 => sys::BN_get_rfc3526_prime_4096,
    };
    // SAFETY: a null argument asks for a new object, which is then ours to free.
    let number = Number(NonNull::new(unsafe { get(ptr::null_mut()) })?);
    let mut octets = vec![0; len];
    number.write_octets(&mut octets)?;
    Some(octets)
}

/// An owned BIGNUM, wiped when freed.
struct Number(NonNull<sys::BIGNUM>);

impl Number {
    fn new() -> Option<Self> {
        // SAFETY: no preconditions; the result is ours to free.
        Some(Self(NonNull::new(unsafe { sys::BN_new() })?))
    }

    /// The number keeps the width of `octets`, leading zeros included, so that its use takes the same
    /// time whatever they are.
    fn from_octets(octets: &[u8]) -> Option<Self> {
        // SAFETY: the pointer and length are those of a live slice, read during the call only; a null
        // last argument asks for a new object, which is then ours to free.
        let raw = unsafe { sys::BN_bin2bn(octets.as_ptr(), octets.len(), ptr::null_mut()) };
        Some(Self(NonNull::new(raw)?))
    }

    /// Writes the number big-endian, left-padded with zeros to fill `out`.
    fn write_octets(&self, out: &mut [u8]) -> Option<()> {
        // SAFETY: writes exactly `out.len()` octets to a live slice, or fails with 0 if the number
        // does not fit.
        let ok = unsafe { sys::BN_bn2bin_padded(out.as_mut_ptr(), out.len(), self.0.as_ptr()) };
        (ok == 1).then_some(())
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: allocated by AWS-LC, owned by us, freed only here. Its allocator wipes what it frees.
        unsafe { sys::BN_clear_free(self.0.as_ptr()) }
    }
}

/// Scratch space for BIGNUM functions.
struct Context(NonNull<sys::BN_CTX>);

impl Context {
    fn new() -> Option<Self> {
        // SAFETY: no preconditions; the result is ours to free.
        Some(Self(NonNull::new(unsafe { sys::BN_CTX_new() })?))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: allocated by AWS-LC, owned by us, freed only here.
        unsafe { sys::BN_CTX_free(self.0.as_ptr()) }
    }
}

/// What Montgomery multiplication needs to know of a public, odd modulus.
struct Montgomery(NonNull<sys::BN_MONT_CTX>);

impl Montgomery {
    fn new(modulus: &Number, context: &Context) -> Option<Self> {
        // SAFETY: both pointers are live and used by this call alone; the function copies the modulus and refuses an even one with
        // null; the result is ours to free.
        let raw =
            unsafe { sys::BN_MONT_CTX_new_for_modulus(modulus.0.as_ptr(), context.0.as_ptr()) };
        Some(Self(NonNull::new(raw)?))
    }
}

impl Drop for Montgomery {
    fn drop(&mut self) {
        // SAFETY: allocated by AWS-LC, owned by us, freed only here.
        unsafe { sys::BN_MONT_CTX_free(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_powers() {
        let mut out = [0xff; 1];
        mod_exp(&[3], &[5], &[251], &mut out).unwrap();
        assert_eq!(out, [243]);
        mod_exp(&[3], &[0, 6], &[251], &mut out).unwrap();
        assert_eq!(out, [(3u32.pow(6) % 251) as u8]);
        // A result shorter than the modulus is padded.
        let mut out = [0xff; 2];
        mod_exp(&[2], &[3], &[0x01, 0x01], &mut out).unwrap();
        assert_eq!(out, [0, 8]);
        // x^0 is 1.
        mod_exp(&[2], &[0], &[0x01, 0x01], &mut out).unwrap();
        assert_eq!(out, [0, 1]);
    }

    #[test]
    fn refuses_what_it_cannot_do() {
        let mut out = [0; 1];
        assert!(mod_exp(&[3], &[5], &[250], &mut out).is_none(), "even modulus");
        assert!(mod_exp(&[251], &[5], &[251], &mut out).is_none(), "base not reduced");
        assert!(mod_exp(&[3], &[5], &[], &mut out).is_none(), "no modulus");
        assert!(mod_exp(&[3], &[5], &[251], &mut []).is_none(), "no room");
        assert!(prime(Rfc3526::Modp2048, 255).is_none(), "no room for the prime");
    }
}
