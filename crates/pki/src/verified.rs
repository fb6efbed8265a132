//! Certificates whose signatures were found good, so that a peer that connects again costs one verification less
//! (`cert_cache` of strongswan.conf).
//!
//! The remembered facts hold for ever and in every configuration: that a key signed a message, and the parsed
//! content of a certificate. Validity, constraints, usages and revocation are checked again each time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};

use crate::certificate::Certificate;
use crate::signed::ALGORITHMS;

/// Most signatures remembered; the oldest makes room.
const MOST: usize = 8192;

/// Most certificates remembered in parsed form; the oldest makes room.
const MOST_PARSED: usize = 1024;
/// Most octets of a certificate that is remembered in parsed form.
const MOST_OCTETS: usize = 4096;

/// Certificates whose signatures were found good. Clones share them.
#[derive(Clone)]
pub(crate) struct Verified {
    /// `None` if nothing is remembered.
    known: Option<Arc<Mutex<Known>>>,
}

#[derive(Default)]
struct Known {
    signatures: Bounded<()>,
    certificates: Bounded<Arc<Certificate>>,
}

/// The entries added last.
struct Bounded<T> {
    all: HashMap<Hash, T>,
    oldest_first: VecDeque<Hash>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { all: HashMap::new(), oldest_first: VecDeque::new() }
    }
}

impl<T> Bounded<T> {
    fn put(&mut self, hash: Hash, thing: T, most: usize) {
        if self.all.insert(hash, thing).is_some() {
            return;
        }
        self.oldest_first.push_back(hash);
        if self.oldest_first.len() > most
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

/// A hash of everything that a verification depends on.
type Hash = [u8; 32];

impl Default for Verified {
    fn default() -> Self {
        Self { known: Some(Arc::default()) }
    }
}

impl Verified {
    /// Remembers nothing.
    pub fn off() -> Self {
        Self { known: None }
    }

    /// False if nothing is remembered.
    pub fn remembers(&self) -> bool {
        self.known.is_some()
    }

    /// [`ALGORITHMS`] that look here first. Use them only with a trusted key, since otherwise strangers would fill
    /// the memory.
    pub fn algorithms(&self) -> Vec<Remembering<'_>> {
        ALGORITHMS
            .iter()
            .map(|algorithm| Remembering { algorithm: *algorithm, here: self })
            .collect()
    }

    /// True if `ca` is self-signed.
    pub fn is_self_signed(&self, ca: &Certificate) -> bool {
        let algorithms = self.algorithms();
        let algorithms: Vec<_> = algorithms.iter().map(|algorithm| algorithm as _).collect();
        ca.is_self_signed_by(&algorithms)
    }

    /// The certificate in `octets`, parsed only if it is not remembered.
    pub fn parsed(&self, octets: &[u8]) -> Result<Arc<Certificate>, &'static str> {
        if octets.len() <= MOST_OCTETS
            && let Some(known) = &self.known
        {
            let hash = hash([octets]);
            if let Some(certificate) = lock(known).certificates.all.get(&hash) {
                return Ok(Arc::clone(certificate));
            }
        }
        Certificate::from_der(octets).map(Arc::new)
    }

    /// Remembers a certificate that leads to a trusted CA. Strangers have no such certificate, and get no room
    /// here.
    pub fn keep(&self, certificate: &Arc<Certificate>) {
        if certificate.der().len() <= MOST_OCTETS
            && let Some(known) = &self.known
        {
            let (hash, kept) = (hash([certificate.der()]), Arc::clone(certificate));
            lock(known).certificates.put(hash, kept, MOST_PARSED);
        }
    }

    fn has(&self, hash: &Hash) -> bool {
        let locked = |known: &Arc<Mutex<Known>>| lock(known).signatures.all.contains_key(hash);
        self.known.as_ref().is_some_and(locked)
    }

    fn add(&self, hash: Hash) {
        if let Some(known) = &self.known {
            lock(known).signatures.put(hash, (), MOST);
        }
    }
}

fn lock(known: &Arc<Mutex<Known>>) -> std::sync::MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.known.as_ref().map(|known| lock(known).signatures.all.len());
        f.debug_tuple("Verified").field(&count).finish()
    }
}

/// An algorithm that does not verify again what it has verified.
#[derive(Debug)]
pub(crate) struct Remembering<'a> {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    here: &'a Verified,
}

impl SignatureVerificationAlgorithm for Remembering<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let verify = || self.algorithm.verify_signature(public_key, message, signature);
        if self.here.known.is_none() {
            return verify();
        }
        let (key, by) = (self.public_key_alg_id(), self.signature_alg_id());
        let hash = hash([key.as_ref(), by.as_ref(), public_key, message, signature]);
        if self.here.has(&hash) {
            return Ok(());
        }
        verify()?;
        self.here.add(hash);
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }

    fn fips(&self) -> bool {
        self.algorithm.fips()
    }
}

/// The hash covers each part with its length, so that no octet can move from one part to another.
fn hash<const N: usize>(parts: [&[u8]; N]) -> Hash {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Takes a signature that is the message backwards with the key before it.
    #[derive(Debug, Default)]
    struct Backwards(AtomicUsize);

    impl SignatureVerificationAlgorithm for Backwards {
        fn verify_signature(
            &self,
            key: &[u8],
            message: &[u8],
            signature: &[u8],
        ) -> Result<(), InvalidSignature> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let good: Vec<u8> = key.iter().chain(message.iter().rev()).copied().collect();
            (good == signature).then_some(()).ok_or(InvalidSignature)
        }

        fn public_key_alg_id(&self) -> AlgorithmIdentifier {
            AlgorithmIdentifier::from_slice(b"key")
        }

        fn signature_alg_id(&self) -> AlgorithmIdentifier {
            AlgorithmIdentifier::from_slice(b"by")
        }
    }

    fn of(here: &Verified) -> (&'static Backwards, Remembering<'_>) {
        let algorithm: &'static Backwards = Box::leak(Box::default());
        (algorithm, Remembering { algorithm, here })
    }

    #[test]
    fn what_was_good_is_not_verified_again_and_nothing_else_is_good() {
        let here = Verified::default();
        let (algorithm, remembering) = of(&here);
        let verified = || algorithm.0.load(Ordering::Relaxed);
        for _ in 0..3 {
            remembering.verify_signature(b"k", b"abc", b"kcba").unwrap();
        }
        assert_eq!(verified(), 1);
        // Another key, message or signature; octets that move from one to another; and again, for what is
        // wrong is not remembered either.
        for (key, message, signature) in [
            (&b"l"[..], &b"abc"[..], &b"kcba"[..]),
            (b"k", b"abd", b"kcba"),
            (b"k", b"abc", b"kcbb"),
            (b"ka", b"bc", b"kcba"),
            (b"k", b"abck", b"cba"),
        ] {
            let before = verified();
            for _ in 0..2 {
                assert!(remembering.verify_signature(key, message, signature).is_err());
            }
            assert_eq!(verified(), before + 2);
        }
        // Clones know it, others do not.
        let (other, clone) = (Verified::default(), here.clone());
        for (place, count) in [(&clone, 0), (&other, 1), (&Verified::off(), 1)] {
            let (algorithm, remembering) = of(place);
            remembering.verify_signature(b"k", b"abc", b"kcba").unwrap();
            assert_eq!(algorithm.0.load(Ordering::Relaxed), count);
        }
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let here = Verified::default();
        let (algorithm, remembering) = of(&here);
        let verify = |n: usize| {
            let before = algorithm.0.load(Ordering::Relaxed);
            let message = n.to_be_bytes();
            let signature: Vec<u8> = message.iter().rev().copied().collect();
            remembering.verify_signature(b"", &message, &signature).unwrap();
            algorithm.0.load(Ordering::Relaxed) - before
        };
        assert_eq!((0..=MOST).map(verify).sum::<usize>(), MOST + 1);
        assert_eq!(format!("{here:?}"), format!("Verified(Some({MOST}))"));
        assert_eq!((verify(MOST), verify(1), verify(0)), (0, 0, 1));
    }
}
