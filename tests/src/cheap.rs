//! Key exchange and signatures that cost nothing and protect nothing: for runs by the thousand.

use std::fmt;
use std::sync::Arc;

use ike_proto::crypto::{
    CryptoError, CryptoProvider, KeLengths, KeMethod, KeyExchange, PendingKe, Secret, SecureRandom,
    SignatureScheme, SignatureVerifier,
};
use ike_proto::keys::signed_octets::SignedOctets;
use ike_proto::wire::registry::{CertEncoding, KeMethodId};
use ike_proto::{Answer, OwnedCert, PeerKey, Question, Signed};
use pq_kem::sign::KeyType;

use crate::credentials::key;
use crate::random::Seeded;

/// A key exchange in the clothes of a real one: its number and lengths, but whoever sees both public
/// values has the secret.
pub struct CheapKe {
    id: KeMethodId,
    lengths: KeLengths,
    slow: bool,
}

impl CheapKe {
    const fn new(id: KeMethodId, initiator: usize, responder: usize) -> Self {
        Self { id, lengths: KeLengths { initiator, responder }, slow: false }
    }

    /// In the clothes of one that takes long: the engine asks for it.
    const fn slow(id: KeMethodId, initiator: usize, responder: usize) -> Self {
        Self { slow: true, ..Self::new(id, initiator, responder) }
    }
}

/// As X25519.
pub static CURVE_25519: CheapKe = CheapKe::new(KeMethodId::CURVE_25519, 32, 32);
/// As ECP-256.
pub static ECP_256: CheapKe = CheapKe::new(KeMethodId::ECP_256, 64, 64);
/// As ECP-384.
pub static ECP_384: CheapKe = CheapKe::new(KeMethodId::ECP_384, 96, 96);
/// As ECP-521.
pub static ECP_521: CheapKe = CheapKe::new(KeMethodId::ECP_521, 132, 132);
/// As MODP-2048, but slow.
pub static MODP_2048: CheapKe = CheapKe::slow(KeMethodId::MODP_2048, 256, 256);
/// As MODP-3072, and slow as well.
pub static MODP_3072: CheapKe = CheapKe::slow(KeMethodId::MODP_3072, 384, 384);
/// As ML-KEM-512.
pub static ML_KEM_512: CheapKe = CheapKe::new(KeMethodId::ML_KEM_512, 800, 768);
/// As ML-KEM-768.
pub static ML_KEM_768: CheapKe = CheapKe::new(KeMethodId::ML_KEM_768, 1184, 1088);
/// As ML-KEM-1024.
pub static ML_KEM_1024: CheapKe = CheapKe::new(KeMethodId::ML_KEM_1024, 1568, 1568);
/// As FrodoKEM-976 (salted) with AES.
pub static FRODOKEM_976: CheapKe = CheapKe::slow(KeMethodId::FRODOKEM_976_AES, 15_632, 15_792);
/// As BIKE-L3, which nothing here implements; the number is of the private range.
pub static BIKE_L3: CheapKe = CheapKe::new(KeMethodId(1901), 3083, 3115);
/// As HQC-192, likewise.
pub static HQC_192: CheapKe = CheapKe::new(KeMethodId(1902), 4522, 9026);

/// The real ciphers and PRFs with these key exchanges.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        ke: of(&[&CURVE_25519, &ECP_256, &MODP_2048, &MODP_3072]),
        ..pq_kem::provider()
    })
}

/// The same with ML-KEM-768.
pub fn hybrid() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        ke: of(&[&CURVE_25519, &ECP_256, &MODP_2048, &MODP_3072, &ML_KEM_768]),
        ..pq_kem::provider()
    })
}

/// The same with every key exchange of this module, and signatures by [`Signer`].
pub fn post_quantum() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        ke: of(&[
            &CURVE_25519,
            &ECP_256,
            &MODP_2048,
            &ML_KEM_512,
            &ML_KEM_768,
            &ML_KEM_1024,
            &FRODOKEM_976,
            &BIKE_L3,
            &HQC_192,
        ]),
        verifiers: vec![&CheapVerifier],
        ..pq_kem::provider()
    })
}

/// The same with curves enough for seven additional key exchanges.
pub fn chains() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        ke: of(&[
            &CURVE_25519,
            &ECP_256,
            &ECP_384,
            &ECP_521,
            &MODP_2048,
            &ML_KEM_512,
            &ML_KEM_768,
            &ML_KEM_1024,
            &FRODOKEM_976,
        ]),
        verifiers: vec![&CheapVerifier],
        ..pq_kem::provider()
    })
}

/// These methods of this module.
fn of(methods: &[&'static dyn KeMethod]) -> Vec<KeyExchange> {
    methods.iter().copied().map(KeyExchange::from).collect()
}

/// Every backend there is.
pub fn real() -> Arc<CryptoProvider> {
    Arc::new(pq_kem::provider())
}

impl fmt::Debug for CheapKe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheapKe({})", self.id)
    }
}

impl KeMethod for CheapKe {
    fn id(&self) -> KeMethodId {
        self.id
    }

    fn lengths(&self) -> KeLengths {
        self.lengths
    }

    fn is_slow(&self) -> bool {
        self.slow
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        let public = draw(rng, self.lengths.initiator);
        Ok(Arc::new(Half { public, peer: self.lengths.responder }))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let public = draw(rng, self.lengths.responder);
        let ours = Half { public, peer: self.lengths.initiator };
        let shared = ours.complete(peer)?;
        Ok((ours.public, shared))
    }
}

struct Half {
    public: Vec<u8>,
    /// Octets of the peer's value.
    peer: usize,
}

impl PendingKe for Half {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        if peer.len() != self.peer {
            return Err(CryptoError::InvalidPublic);
        }
        Ok(Secret::new(self.public.iter().zip(peer).map(|(a, b)| a ^ b).collect()))
    }
}

fn draw(rng: &mut dyn SecureRandom, octets: usize) -> Vec<u8> {
    let mut out = vec![0; octets];
    rng.fill(&mut out);
    out
}

/// Answers what the engine asks, with a certificate and signatures of given lengths. A signature is a
/// checksum: it depends on what is signed, and anybody can make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signer {
    /// Octets of the certificate.
    pub certificate: usize,
    /// Octets of a signature, 8 at least.
    pub signature: usize,
}

/// What [`Signer`] claims its signatures to be.
const SCHEME: SignatureScheme = SignatureScheme::MlDsa87;

impl Signer {
    /// The answer to `question`.
    pub fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::Sign(request) => {
                let sign = |octets: &SignedOctets| checksum(octets.as_bytes(), self.signature);
                let cert = OwnedCert {
                    encoding: CertEncoding::X509_SIGNATURE,
                    data: vec![0x30; self.certificate],
                };
                Answer::Signed(Signed {
                    certs: vec![cert],
                    scheme: SCHEME,
                    signatures: request.octets.iter().map(sign).collect(),
                })
            }
            Question::Exchange(exchange) => exchange.perform(&mut Seeded::new(1)),
            Question::Lease(_) => Answer::Failed("no addresses".to_owned()),
            Question::Ends { .. } => Answer::Failed("addresses are not known here".to_owned()),
            Question::Eap(_) => Answer::Failed("no EAP here".to_owned()),
            Question::Resume(_) => Answer::Resumable,
            Question::Judge(_) | Question::Revocation(_) => Answer::Key(PeerKey {
                spki: key(KeyType::Scheme(SCHEME), 1).public_key().to_vec(),
                revocation_pending: false,
                certificate: None,
                addresses: None,
            }),
        }
    }
}

/// Verifies what [`Signer`] signs.
#[derive(Debug)]
struct CheapVerifier;

impl SignatureVerifier for CheapVerifier {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SCHEME]
    }

    fn verify(
        &self,
        _: &SignatureScheme,
        _: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        let right = checksum(message, signature.len()) == signature;
        if right { Ok(()) } else { Err(CryptoError::Integrity) }
    }
}

/// FNV-1a of `message`, drawn out to `octets`.
fn checksum(message: &[u8], octets: usize) -> Vec<u8> {
    let fold = |sum: u64, octet: &u8| (sum ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
    let sum = message.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    draw(&mut Seeded::new(sum), octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_unlike_lengths_agree() {
        let mut rng = Seeded::new(1);
        let pending = FRODOKEM_976.initiate(&mut rng).unwrap();
        let (public, theirs) = FRODOKEM_976.respond(pending.public(), &mut rng).unwrap();
        assert_eq!((pending.public().len(), public.len()), (15_632, 15_792));
        let ours = pending.complete(&public).unwrap();
        assert_eq!(ours.expose(), theirs.expose());
        assert!(pending.complete(&public[1..]).is_err());
    }

    #[test]
    fn a_checksum_is_of_one_message() {
        let signature = checksum(b"message", 4627);
        assert!(CheapVerifier.verify(&SCHEME, &[], b"message", &signature).is_ok());
        assert!(CheapVerifier.verify(&SCHEME, &[], b"massage", &signature).is_err());
    }
}
