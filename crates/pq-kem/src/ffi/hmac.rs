//! HMAC that takes its input in parts, keeps its key for the next input, and writes its output where it
//! is wanted: AWS-LC's safe binding returns the tag in a value that nothing wipes.

use std::mem::MaybeUninit;
use std::ptr;

use aws_lc_sys as sys;

/// A hash to make an HMAC of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// Octets of its output.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// A keyed HMAC. What it holds of the key and of its input is wiped on drop.
pub(crate) struct Hmac {
    context: sys::HMAC_CTX,
    hash: Hash,
}

impl Hmac {
    /// What `f` does with `hash` keyed; a key may have any length. `None` if AWS-LC fails. A keyed one is
    /// never moved, for what was left behind would not be wiped.
    pub(crate) fn with_key<T>(
        hash: Hash,
        key: &[u8],
        f: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let mut context = MaybeUninit::uninit();
        // SAFETY: it writes the whole of what the pointer is to, and reads nothing.
        unsafe { sys::HMAC_CTX_init(context.as_mut_ptr()) };
        // SAFETY: it was initialised by the call above. It holds no pointers into itself, so that it
        // may be moved; from here on it is freed by `drop`, once.
        let mut hmac = Self { context: unsafe { context.assume_init() }, hash };
        // SAFETY: these take nothing and return pointers to static objects.
        let method = unsafe {
            match hash {
                Hash::Sha1 => sys::EVP_sha1(),
                Hash::Sha256 => sys::EVP_sha256(),
                Hash::Sha384 => sys::EVP_sha384(),
                Hash::Sha512 => sys::EVP_sha512(),
            }
        };
        // SAFETY: the context is live and ours; pointer and length are those of a live slice, which is
        // read during the call only; no engine is named.
        let ok = unsafe {
            sys::HMAC_Init_ex(
                &mut hmac.context,
                key.as_ptr().cast(),
                key.len(),
                method,
                ptr::null_mut(),
            )
        };
        if ok == 1 { f(&mut hmac) } else { None }
    }

    /// The HMAC of `parts`, one behind the other, into `out`, which must have the hash's length, else
    /// `None`.
    pub(crate) fn compute<'a>(
        &mut self,
        parts: impl IntoIterator<Item = &'a [u8]>,
        out: &mut [u8],
    ) -> Option<()> {
        if out.len() != self.hash.len() {
            return None;
        }
        // SAFETY: the context is live, ours, and keyed; without key and method it starts anew with those
        // it has.
        let mut ok = unsafe {
            sys::HMAC_Init_ex(&mut self.context, ptr::null(), 0, ptr::null(), ptr::null_mut())
        };
        for part in parts {
            // SAFETY: the context is live and ours; pointer and length are those of a live slice, which
            // is read during the call only.
            ok &= unsafe { sys::HMAC_Update(&mut self.context, part.as_ptr(), part.len()) };
        }
        let mut written = 0;
        // SAFETY: the context is live and ours, and `out` has room for the whole output, as was checked;
        // `written` outlives the call.
        ok &= unsafe { sys::HMAC_Final(&mut self.context, out.as_mut_ptr(), &mut written) };
        (ok == 1 && usize::try_from(written) == Ok(out.len())).then_some(())
    }
}

impl Drop for Hmac {
    fn drop(&mut self) {
        // SAFETY: the context is live and ours, and not used again; the call wipes it.
        unsafe { sys::HMAC_CTX_cleanup(&mut self.context) };
    }
}
