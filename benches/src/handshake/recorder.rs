//! Backends that write down what the engine asks of them, with its input.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use ike_proto::PeerCredentials;
use ike_proto::crypto::{
    CipherKey, CipherLengths, CipherProvider, CipherSuite, CryptoError, CryptoProvider, Frame,
    KeLengths, KeMethod, KeyExchange, PendingKe, Prf, Secret, SecureRandom, SignatureScheme,
    SignatureVerifier, SigningKey,
};
use ike_proto::wire::der::{self, Der};
use ike_proto::wire::registry::{KeMethodId, PrfId};
use pki::TrustStore;

/// One call of a backend by one end.
pub struct Recorded {
    /// Which end.
    pub end: usize,
    /// The call.
    pub call: Call,
}

/// A call with its input.
#[derive(Clone)]
pub enum Call {
    /// The initiator's half of a key exchange.
    Initiate(KeyExchange),
    /// The responder's, with the initiator's public value.
    Respond(KeyExchange, Vec<u8>),
    /// The initiator's end of it, with the responder's public value.
    Complete(Arc<dyn PendingKe>, Vec<u8>),
    /// A PRF, with key and input.
    Prf(PrfId, Vec<u8>, Vec<u8>),
    /// Keys for a cipher suite.
    Key(CipherSuite, Vec<u8>, Vec<u8>),
    /// Sealing.
    Seal(Sealed),
    /// Opening.
    Open(Sealed),
    /// A signature.
    Sign(Arc<dyn SigningKey>, SignatureScheme, Vec<u8>),
    /// Its verification, with public key, message and signature. Certificates are among these.
    Verify(SignatureScheme, Vec<u8>, Vec<u8>, Vec<u8>),
    /// SHA-1, of NAT detection.
    Sha1(Vec<u8>),
}

/// What a suite seals or opens, and with which keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The suite.
    pub suite: CipherSuite,
    /// Encryption key, salt last.
    pub encr: Vec<u8>,
    /// Integrity key.
    pub integ: Vec<u8>,
    /// IV.
    pub iv: Vec<u8>,
    /// What is authenticated alone.
    pub aad: Vec<u8>,
    /// What is sealed or opened.
    pub data: Vec<u8>,
    /// The ICV, if it is opened.
    pub icv: Vec<u8>,
}

thread_local! {
    static LOG: RefCell<Option<Vec<Recorded>>> = const { RefCell::new(None) };
    static END: Cell<usize> = const { Cell::new(0) };
}

/// Calls from now on are made by this end.
pub fn at_end(end: usize) {
    END.set(end);
}

/// What this thread's calls are while `f` runs.
pub fn record<T>(f: impl FnOnce() -> T) -> (T, Vec<Recorded>) {
    LOG.set(Some(Vec::new()));
    let result = f();
    (result, LOG.take().unwrap_or_default())
}

fn note(call: impl FnOnce() -> Call) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            log.push(Recorded { end: END.get(), call: call() });
        }
    });
}

/// The peer's certificate is verified by a CA of `trust`, outside the engine.
pub fn judged(peer: &PeerCredentials, trust: &TrustStore) {
    for cert in &peer.certs {
        let verify = || {
            let mut certificate = Der::new(&cert.data).nested(der::SEQUENCE)?;
            let message = certificate.element(der::SEQUENCE)?;
            let algorithm = certificate.element(der::SEQUENCE)?;
            let scheme = SignatureScheme::from_built_in_identifier(algorithm)?;
            let ca = trust.cas().first()?.spki().to_vec();
            Some(Call::Verify(scheme, ca, message.to_vec(), certificate.bits()?.to_vec()))
        };
        if let Some(call) = verify() {
            note(|| call);
        }
    }
}

/// The backends of `inner`, recorded. Those of symmetric algorithms and of signatures are never freed: one provider serves for all suites.
pub fn provider(inner: CryptoProvider) -> CryptoProvider {
    CryptoProvider {
        ke: inner.ke.into_iter().map(|ke| KeyExchange::new(RecordedKe(ke))).collect(),
        prf: inner.prf.into_iter().map(|prf| leak(RecordedPrf(prf)) as &dyn Prf).collect(),
        ciphers: leak(RecordedCiphers(inner.ciphers)),
        verifiers: inner
            .verifiers
            .into_iter()
            .map(|v| leak(RecordedVerifier(v)) as &dyn SignatureVerifier)
            .collect(),
        schemes: inner.schemes,
        sha1: |parts| {
            note(|| Call::Sha1(parts.concat()));
            pq_kem::hash::sha1(parts)
        },
    }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

#[derive(Debug)]
struct RecordedKe(KeyExchange);

impl KeMethod for RecordedKe {
    fn id(&self) -> KeMethodId {
        self.0.id()
    }

    fn lengths(&self) -> KeLengths {
        self.0.lengths()
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        note(|| Call::Initiate(self.0.clone()));
        Ok(Arc::new(RecordedPending(self.0.initiate(rng)?)))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        note(|| Call::Respond(self.0.clone(), peer.to_vec()));
        self.0.respond(peer, rng)
    }
}

struct RecordedPending(Arc<dyn PendingKe>);

impl PendingKe for RecordedPending {
    fn public(&self) -> &[u8] {
        self.0.public()
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        note(|| Call::Complete(Arc::clone(&self.0), peer.to_vec()));
        self.0.complete(peer)
    }
}

#[derive(Debug)]
struct RecordedPrf(&'static dyn Prf);

impl Prf for RecordedPrf {
    fn id(&self) -> PrfId {
        self.0.id()
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        note(|| Call::Prf(self.0.id(), key.to_vec(), parts.concat()));
        self.0.prf(key, parts)
    }
}

#[derive(Debug)]
struct RecordedCiphers(&'static dyn CipherProvider);

impl CipherProvider for RecordedCiphers {
    fn lengths(&self, suite: CipherSuite) -> Option<CipherLengths> {
        self.0.lengths(suite)
    }

    fn key(
        &self,
        suite: CipherSuite,
        encr: &[u8],
        integ: &[u8],
    ) -> Result<Box<dyn CipherKey>, CryptoError> {
        note(|| Call::Key(suite, encr.to_vec(), integ.to_vec()));
        let key = self.0.key(suite, encr, integ)?;
        let (encr, integ) = (encr.to_vec(), integ.to_vec());
        Ok(Box::new(RecordedKey { key, suite, encr, integ }))
    }
}

struct RecordedKey {
    key: Box<dyn CipherKey>,
    suite: CipherSuite,
    encr: Vec<u8>,
    integ: Vec<u8>,
}

impl RecordedKey {
    fn sealed(&self, frame: Frame<'_>, data: &[u8], icv: &[u8]) -> Sealed {
        let (encr, integ) = (self.encr.clone(), self.integ.clone());
        let (iv, aad) = (frame.iv.to_vec(), frame.aad.to_vec());
        let (data, icv) = (data.to_vec(), icv.to_vec());
        Sealed { suite: self.suite, encr, integ, iv, aad, data, icv }
    }
}

impl CipherKey for RecordedKey {
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        note(|| Call::Seal(self.sealed(frame, data, icv)));
        self.key.seal(frame, data, icv)
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        note(|| Call::Open(self.sealed(frame, data, icv)));
        self.key.open(frame, data, icv)
    }
}

#[derive(Debug)]
struct RecordedVerifier(&'static dyn SignatureVerifier);

impl SignatureVerifier for RecordedVerifier {
    fn schemes(&self) -> &[SignatureScheme] {
        self.0.schemes()
    }

    fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        let (m, s) = (message.to_vec(), signature.to_vec());
        note(|| Call::Verify(scheme.clone(), spki.to_vec(), m, s));
        self.0.verify(scheme, spki, message, signature)
    }
}

/// A private key whose signatures are recorded.
pub struct RecordedSigner(pub Arc<dyn SigningKey>);

impl SigningKey for RecordedSigner {
    fn schemes(&self) -> &[SignatureScheme] {
        self.0.schemes()
    }

    fn public_key(&self) -> &[u8] {
        self.0.public_key()
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        note(|| Call::Sign(Arc::clone(&self.0), scheme.clone(), message.to_vec()));
        self.0.sign(scheme, message)
    }
}

impl fmt::Debug for RecordedSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
