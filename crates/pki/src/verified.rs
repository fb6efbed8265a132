//! Certificates whose signatures were found good, so that a peer that connects again costs one verification less
//! (`cert_cache` of strongswan.conf).
//!
//! The remembered facts hold for ever and in every configuration: that a key signed a message, and the parsed
//! content of a certificate. Validity, constraints, usages and revocation are checked again each time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};

use crate::certificate::Certificate;
use crate::signed::{Schemes, Signature, Signed};

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
    schemes: Schemes,
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
        Self { known: Some(Arc::default()), schemes: Schemes::default() }
    }
}

impl Verified {
    /// Remembers nothing.
    pub fn off() -> Self {
        Self { known: None, schemes: Schemes::default() }
    }

    /// False if nothing is remembered.
    pub fn remembers(&self) -> bool {
        self.known.is_some()
    }

    /// As this, and signatures of these schemes are verified, too.
    pub fn with(self, schemes: Schemes) -> Self {
        Self { schemes, ..self }
    }

    /// The schemes of the program.
    pub fn schemes(&self) -> &Schemes {
        &self.schemes
    }

    /// Whether `spki` made the signature. A good one is remembered. Use this only with a trusted key, since otherwise
    /// strangers would fill the memory.
    pub fn check(&self, signed: &Signed<'_>, spki: &[u8]) -> Signature {
        if self.known.is_none() {
            return signed.check(spki, &self.schemes);
        }
        let hash = hash([spki, signed.algorithm, signed.message, signed.signature]);
        if self.has(&hash) {
            return Signature::Good;
        }
        let checked = signed.check(spki, &self.schemes);
        if checked == Signature::Good {
            self.add(hash);
        }
        checked
    }

    /// True if `ca` is self-signed.
    pub fn is_self_signed(&self, ca: &Certificate) -> bool {
        ca.is_self_signed_by(|signed| self.check(signed, ca.spki()))
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

    use ike_proto::crypto::sign::{Scheme, SchemeLengths, SubjectPublicKeyInfo};
    use ike_proto::crypto::{CryptoError, SchemeRegister, Secret, SigningKey};
    use ike_proto::wire::der::Der;
    use ike_proto::wire::registry::HashId;

    /// Takes a signature that is the message backwards with the key before it.
    #[derive(Debug, Default)]
    struct Backwards(AtomicUsize);

    impl Scheme for Backwards {
        fn name(&self) -> &str {
            "backwards"
        }

        fn algorithm_identifier(&self) -> &[u8] {
            // 1.3.6.1.4.1.99999.1, in an arc that names nobody.
            &[0x30, 0x0b, 6, 9, 0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 1]
        }

        fn hash(&self) -> HashId {
            HashId::IDENTITY
        }

        fn is_post_quantum(&self) -> bool {
            false
        }

        fn lengths(&self) -> SchemeLengths {
            SchemeLengths { public_key: 9, signature: 99 }
        }

        fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let good: Vec<u8> = key.iter().chain(message.iter().rev()).copied().collect();
            (good == signature).then_some(()).ok_or(CryptoError::Integrity)
        }

        fn private_key(&self, _: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
            Err(CryptoError::Unsupported)
        }

        fn generate(&self) -> Result<Secret, CryptoError> {
            Err(CryptoError::Unsupported)
        }
    }

    /// The same memory with a scheme of its own, which counts.
    fn of(here: &Verified) -> (Arc<Backwards>, Verified) {
        let scheme: Arc<Backwards> = Arc::default();
        let mut register = SchemeRegister::built_in();
        register.add(Arc::clone(&scheme) as Arc<dyn Scheme>).unwrap();
        (scheme, here.clone().with(Schemes::of(&register)))
    }

    fn check(here: &Verified, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let algorithm = Backwards::default().algorithm_identifier().to_vec();
        let spki = SubjectPublicKeyInfo { algorithm: &algorithm, key }.encode();
        let signed = Signed { message, algorithm: &algorithm, signature, rest: Der::new(&[]) };
        match here.check(&signed, &spki) {
            Signature::Good => true,
            Signature::Wrong => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_good_is_not_verified_again_and_nothing_else_is_good() {
        let here = Verified::default();
        let (scheme, known) = of(&here);
        let verified = || scheme.0.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(check(&known, b"k", b"abc", b"kcba"));
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
                assert!(!check(&known, key, message, signature));
            }
            assert_eq!(verified(), before + 2);
        }
        // Clones know it, others do not.
        let (other, clone) = (Verified::default(), here.clone());
        for (place, count) in [(&clone, 0), (&other, 1), (&Verified::off(), 1)] {
            let (scheme, known) = of(place);
            assert!(check(&known, b"k", b"abc", b"kcba"));
            assert_eq!(scheme.0.load(Ordering::Relaxed), count);
        }
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let (scheme, here) = of(&Verified::default());
        let verify = |n: usize| {
            let before = scheme.0.load(Ordering::Relaxed);
            let message = n.to_be_bytes();
            let signature: Vec<u8> = message.iter().rev().copied().collect();
            assert!(check(&here, b"", &message, &signature));
            scheme.0.load(Ordering::Relaxed) - before
        };
        assert_eq!((0..=MOST).map(verify).sum::<usize>(), MOST + 1);
        assert_eq!(format!("{here:?}"), format!("Verified(Some({MOST}))"));
        assert_eq!((verify(MOST), verify(1), verify(0)), (0, 0, 1));
    }
}
