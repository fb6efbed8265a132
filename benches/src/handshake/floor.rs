//! The least that a handshake costs: the calls of cryptographic libraries that it must make, and nothing
//! else.
//!
//! Each end makes each call once: what an engine computes twice counts as one call, and an HMAC key that
//! serves several times is set up once. PRFs, AES-GCM and SHA-1 are AWS-LC's own calls without the traits
//! of the engine, on input that lies ready in one piece.

use std::hint::black_box;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{digest, hmac};
use ike_proto::crypto::{
    CipherKey, CipherProvider, CipherSuite, CryptoProvider, Frame, KeyExchange, PendingKe,
    SignatureScheme, SigningKey,
};
use ike_proto::wire::registry::{EncrId, PrfId};

use super::recorder::{Call, Recorded, Sealed};

/// What a step is for, in the columns of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Key exchange, signatures, verifications.
    PublicKey,
    /// PRFs and hashes.
    Prf,
    /// Cipher keys, sealing, opening.
    Aead,
}

/// The calls of one handshake, ready to be made again.
pub struct Floor {
    steps: Vec<(Kind, Step)>,
    crypto: CryptoProvider,
    buffer: Vec<u8>,
    /// Calls that the engine made more often than it must.
    pub repeated: usize,
}

enum Step {
    Initiate(KeyExchange),
    Respond(KeyExchange, Vec<u8>),
    Complete(Arc<dyn PendingKe>, Vec<u8>),
    HmacKey(hmac::Algorithm, Vec<u8>),
    Hmac(Box<hmac::Key>, Vec<u8>),
    Key(CipherSuite, Vec<u8>, Vec<u8>),
    Seal(Bare, Sealed),
    Open(Bare, Sealed),
    Sign(Arc<dyn SigningKey>, SignatureScheme, Vec<u8>),
    Verify(SignatureScheme, Vec<u8>, Vec<u8>, Vec<u8>),
    Sha1(Vec<u8>),
}

/// A keyed cipher without the engine's traits where it is AES-GCM.
enum Bare {
    Gcm(LessSafeKey, [u8; 4]),
    Other(Box<dyn CipherKey>),
}

impl Floor {
    /// Of the calls of one handshake.
    ///
    /// # Errors
    /// If one cannot be made again.
    pub fn of(calls: &[Recorded]) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut hmac_keys: Vec<(usize, PrfId, &[u8])> = Vec::new();
        let mut repeated = 0;
        for (index, recorded) in calls.iter().enumerate() {
            let before = calls.get(..index).unwrap_or_default();
            if before.iter().any(|other| same(other, recorded)) {
                repeated += 1;
                continue;
            }
            let step = match recorded.call.clone() {
                Call::Initiate(method) => (Kind::PublicKey, Step::Initiate(method)),
                Call::Respond(method, peer) => (Kind::PublicKey, Step::Respond(method, peer)),
                Call::Complete(pending, peer) => (Kind::PublicKey, Step::Complete(pending, peer)),
                Call::Prf(prf, key, input) => {
                    let algorithm = algorithm(prf)?;
                    if let Call::Prf(_, key, _) = &recorded.call {
                        let known = (recorded.end, prf, key.as_slice());
                        if !hmac_keys.contains(&known) {
                            hmac_keys.push(known);
                            steps.push((Kind::Prf, Step::HmacKey(algorithm, key.clone())));
                        }
                    }
                    (Kind::Prf, Step::Hmac(Box::new(hmac::Key::new(algorithm, &key)), input))
                }
                Call::Key(suite, encr, integ) => (Kind::Aead, Step::Key(suite, encr, integ)),
                Call::Seal(sealed) => (Kind::Aead, Step::Seal(Bare::of(&sealed)?, sealed)),
                Call::Open(sealed) => (Kind::Aead, Step::Open(Bare::of(&sealed)?, sealed)),
                Call::Sign(key, scheme, message) => {
                    (Kind::PublicKey, Step::Sign(key, scheme, message))
                }
                Call::Verify(scheme, spki, message, signature) => {
                    (Kind::PublicKey, Step::Verify(scheme, spki, message, signature))
                }
                Call::Sha1(input) => (Kind::Prf, Step::Sha1(input)),
            };
            steps.push(step);
        }
        let mut floor = Self { steps, crypto: pq_kem::provider(), buffer: Vec::new(), repeated };
        floor.run(&[Kind::PublicKey, Kind::Prf, Kind::Aead])?;
        Ok(floor)
    }

    /// Calls it makes.
    pub fn calls(&self, kind: Kind) -> usize {
        self.steps.iter().filter(|(of, _)| *of == kind).count()
    }

    /// Makes all calls of these kinds.
    ///
    /// # Errors
    /// Which one failed.
    pub fn run(&mut self, kinds: &[Kind]) -> Result<(), String> {
        let mut rng = pq_kem::os_random();
        for (kind, step) in &self.steps {
            if !kinds.contains(kind) {
                continue;
            }
            let failed = |_| format!("{} cannot be made again", step.name());
            match step {
                Step::Initiate(method) => {
                    black_box(method.initiate(&mut rng).map_err(failed)?);
                }
                Step::Respond(method, peer) => {
                    black_box(method.respond(peer, &mut rng).map_err(failed)?);
                }
                Step::Complete(pending, peer) => {
                    black_box(pending.complete(peer).map_err(failed)?);
                }
                Step::HmacKey(algorithm, key) => {
                    black_box(hmac::Key::new(*algorithm, key));
                }
                Step::Hmac(key, input) => {
                    black_box(hmac::sign(key, input));
                }
                Step::Key(suite, encr, integ) => match bare_gcm(*suite, encr) {
                    Some(key) => {
                        black_box(key);
                    }
                    None => {
                        let ciphers = pq_kem::sym::Ciphers;
                        black_box(ciphers.key(*suite, encr, integ).map_err(failed)?);
                    }
                },
                Step::Seal(key, sealed) => key.seal(sealed, &mut self.buffer)?,
                Step::Open(key, sealed) => key.open(sealed, &mut self.buffer)?,
                Step::Sign(key, scheme, message) => {
                    black_box(key.sign(scheme, message).map_err(failed)?);
                }
                Step::Verify(scheme, spki, message, signature) => {
                    self.crypto.verify(scheme, spki, message, signature).map_err(failed)?;
                }
                Step::Sha1(input) => {
                    black_box(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, input));
                }
            }
        }
        Ok(())
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Initiate(_) | Self::Respond(..) | Self::Complete(..) => "a key exchange",
            Self::HmacKey(..) | Self::Hmac(..) => "a PRF",
            Self::Key(..) | Self::Seal(..) | Self::Open(..) => "an AEAD",
            Self::Sign(..) => "a signature",
            Self::Verify(..) => "a verification",
            Self::Sha1(_) => "a hash",
        }
    }
}

impl Bare {
    fn of(sealed: &Sealed) -> Result<Self, String> {
        if let Some((key, salt)) = bare_gcm(sealed.suite, &sealed.encr) {
            return Ok(Self::Gcm(key, salt));
        }
        let key = pq_kem::sym::Ciphers.key(sealed.suite, &sealed.encr, &sealed.integ);
        key.map(Self::Other).map_err(|why| why.to_string())
    }

    fn seal(&self, sealed: &Sealed, buffer: &mut Vec<u8>) -> Result<(), String> {
        buffer.clear();
        buffer.extend_from_slice(&sealed.data);
        match self {
            Self::Gcm(key, salt) => {
                let nonce = nonce(salt, &sealed.iv)?;
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&sealed.aad), buffer);
                let _ = black_box(tag.map_err(|why| why.to_string())?);
                Ok(())
            }
            Self::Other(key) => {
                let mut icv = sealed.icv.clone();
                key.seal(frame(sealed), buffer, &mut icv).map_err(|why| why.to_string())
            }
        }
    }

    fn open(&self, sealed: &Sealed, buffer: &mut Vec<u8>) -> Result<(), String> {
        buffer.clear();
        buffer.extend_from_slice(&sealed.data);
        match self {
            Self::Gcm(key, salt) => {
                let (nonce, aad) = (nonce(salt, &sealed.iv)?, Aad::from(&sealed.aad));
                let opened = key.open_in_place_separate_tag(nonce, aad, &sealed.icv, buffer);
                opened.map(|_| ()).map_err(|why| why.to_string())
            }
            Self::Other(key) => {
                key.open(frame(sealed), buffer, &sealed.icv).map_err(|why| why.to_string())
            }
        }
    }
}

fn frame(sealed: &Sealed) -> Frame<'_> {
    Frame { iv: &sealed.iv, aad: &sealed.aad, trailer: &[] }
}

fn nonce(salt: &[u8; 4], iv: &[u8]) -> Result<Nonce, String> {
    let mut octets = [0; 12];
    let (front, back) = octets.split_at_mut(4);
    front.copy_from_slice(salt);
    back.copy_from_slice(iv.get(..8).ok_or("an IV too short")?);
    Ok(Nonce::assume_unique_for_key(octets))
}

fn bare_gcm(suite: CipherSuite, encr: &[u8]) -> Option<(LessSafeKey, [u8; 4])> {
    let algorithm = match (suite.encr, suite.key_bits) {
        (EncrId::AES_GCM_16, 128) => &AES_128_GCM,
        (EncrId::AES_GCM_16, 256) => &AES_256_GCM,
        _ => return None,
    };
    let (key, salt) = encr.split_last_chunk()?;
    Some((LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?), *salt))
}

fn algorithm(prf: PrfId) -> Result<hmac::Algorithm, String> {
    Ok(match prf {
        PrfId::HMAC_SHA2_256 => hmac::HMAC_SHA256,
        PrfId::HMAC_SHA2_384 => hmac::HMAC_SHA384,
        PrfId::HMAC_SHA2_512 => hmac::HMAC_SHA512,
        other => return Err(format!("{other} has no floor")),
    })
}

/// True for the same call by the same end. Key generations and signatures are never the same.
fn same(a: &Recorded, b: &Recorded) -> bool {
    a.end == b.end
        && match (&a.call, &b.call) {
            (Call::Respond(a, x), Call::Respond(b, y)) => a.id() == b.id() && x == y,
            (Call::Complete(a, x), Call::Complete(b, y)) => Arc::ptr_eq(a, b) && x == y,
            (Call::Prf(a, k, x), Call::Prf(b, l, y)) => (a, k, x) == (b, l, y),
            (Call::Key(a, k, x), Call::Key(b, l, y)) => (a, k, x) == (b, l, y),
            (Call::Seal(a), Call::Seal(b)) | (Call::Open(a), Call::Open(b)) => a == b,
            (Call::Verify(a, j, x, s), Call::Verify(b, k, y, t)) => (a, j, x, s) == (b, k, y, t),
            (Call::Sha1(a), Call::Sha1(b)) => a == b,
            _ => false,
        }
}
