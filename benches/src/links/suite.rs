//! Suites: what is negotiated, and how large that makes the messages.

use ike_proto::crypto::SignatureScheme;
use pq_kem::sign::KeyType;

/// How both ends authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// By a pre-shared key.
    Psk,
    /// By signatures with one certificate each.
    Certificate {
        /// Octets of the initiator's certificate.
        initiator: usize,
        /// Octets of the responder's certificate.
        responder: usize,
        /// Octets of a signature.
        signature: usize,
        /// The real thing; `None` where there is no backend for it.
        real: Option<KeyType>,
    },
}

/// What is negotiated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    /// As on the command line.
    pub name: String,
    /// In words.
    pub about: String,
    /// The proposal for the IKE SA. BIKE and HQC are `kem1901` and `kem1902`.
    pub proposal: &'static str,
    /// Authentication.
    pub auth: Authentication,
    /// Octets of an IP packet that carries a fragment; 0 for the engine's default.
    pub fragment_size: u16,
    /// Whether IKE_AUTH brings up a CHILD_SA.
    pub child: bool,
    /// Whether there is a backend for everything in it.
    pub has_real_crypto: bool,
}

/// Octets of a certificate besides key and signature: names, validity, extensions.
const CERTIFICATE: usize = 330;

/// A certificate of a key and a signature of so many octets, and one such signature.
const fn certificate(key: usize, signature: usize, real: Option<KeyType>) -> Authentication {
    let octets = CERTIFICATE + key + signature;
    Authentication::Certificate { initiator: octets, responder: octets, signature, real }
}

/// ECDSA on P-256.
pub const ECDSA: Authentication =
    certificate(65, 72, Some(KeyType::Scheme(SignatureScheme::EcdsaP256Sha256)));
/// ML-DSA-87 (FIPS 204).
pub const ML_DSA_87: Authentication =
    certificate(2592, 4627, Some(KeyType::Scheme(SignatureScheme::MlDsa87)));
/// RSA with 2048 bits.
pub const RSA_2048: Authentication = certificate(270, 256, Some(KeyType::Rsa2048));

impl Suite {
    fn new(name: &str, about: &str, proposal: &'static str, auth: Authentication) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            proposal,
            auth,
            fragment_size: 0,
            child: true,
            has_real_crypto: true,
        }
    }

    /// Every suite that can be chosen.
    pub fn all() -> Vec<Self> {
        vec![
            Self::classical(),
            Self::mlkem768(),
            Self::mlkem1024(),
            Self::x25519(),
            Self::x25519_mlkem768(),
            Self::frodokem(),
            Self::psk(),
            Self::rsa(),
        ]
    }

    /// measuredSwan's Table 1: AES-256-CBC, SHA-256, MODP-2048; certificates are ECDSA's.
    pub fn classical() -> Self {
        let about = "MODP-2048, ECDSA P-256 certificates (measuredSwan's Table 1)";
        Self::new("classical", about, "aes256-sha256-modp2048", ECDSA)
    }

    /// measuredSwan's other half: ML-KEM-768 besides MODP-2048, ML-DSA-87.
    pub fn mlkem768() -> Self {
        let about = "MODP-2048 + ML-KEM-768, ML-DSA-87 certificates (measuredSwan's Table 1)";
        Self::new("mlkem768-mldsa87", about, "aes256-sha256-modp2048-ke1_mlkem768", ML_DSA_87)
    }

    /// X25519 and ML-KEM-1024, ML-DSA-87.
    pub fn mlkem1024() -> Self {
        let about = "X25519 + ML-KEM-1024, ML-DSA-87 certificates";
        Self::new("mlkem1024-mldsa87", about, "aes256-sha256-x25519-ke1_mlkem1024", ML_DSA_87)
    }

    /// The control group of the FrodoKEM slides.
    pub fn x25519() -> Self {
        let about = "X25519, ML-DSA-87 certificates";
        Self::new("x25519-mldsa87", about, "aes256-sha256-x25519", ML_DSA_87)
    }

    /// The second group of the FrodoKEM slides.
    pub fn x25519_mlkem768() -> Self {
        let about = "X25519 + ML-KEM-768, ML-DSA-87 certificates";
        Self::new("x25519-mlkem768-mldsa87", about, "aes256-sha256-x25519-ke1_mlkem768", ML_DSA_87)
    }

    /// The third group of the FrodoKEM slides.
    pub fn frodokem() -> Self {
        let about = "X25519 + FrodoKEM-976 with AES, ML-DSA-87 certificates";
        Self::new("frodokem976-mldsa87", about, "aes256-sha256-x25519-ke1_frodoa3", ML_DSA_87)
    }

    /// The PSK half of the PSK/RSA paper.
    pub fn psk() -> Self {
        let about = "MODP-2048, pre-shared key";
        Self::new("psk", about, "aes256-sha256-modp2048", Authentication::Psk)
    }

    /// The RSA half of the PSK/RSA paper.
    pub fn rsa() -> Self {
        let about = "MODP-2048, RSA-2048 certificates";
        Self::new("rsa2048", about, "aes256-sha256-modp2048", RSA_2048)
    }

    /// A row of the study of 137,490 handshakes, by its names of certificate and key exchanges: sizes
    /// alone, since Falcon-1024, Kyber of round 3, BIKE and HQC are nothing we have. `None` if a name
    /// is not known.
    pub fn published(cert: &str, ke: &str) -> Option<Self> {
        let auth = match cert {
            "ecdsa" => certificate(65, 72, None),
            "ed25519" => certificate(32, 64, None),
            // A request that just needs a second fragment beside a response that does not is what the
            // published share of retransmissions fits: five datagrams, neither four nor six.
            "rsa" => Authentication::Certificate {
                initiator: 1060,
                responder: 950,
                signature: 256,
                real: None,
            },
            "falcon512" => certificate(897, 655, None),
            "falcon1024" => certificate(1793, 1270, None),
            "dilithium2" => certificate(1312, 2420, None),
            "dilithium3" => certificate(1952, 3293, None),
            "dilithium5" => certificate(2592, 4595, None),
            // pq-strongswan's own certificates, which the FrodoKEM slides measured.
            "dilithium5-falcon1024" => Authentication::Certificate {
                initiator: CERTIFICATE + 2592 + 1270,
                responder: CERTIFICATE + 2592 + 1270,
                signature: 4595,
                real: None,
            },
            _ => return None,
        };
        let proposal = match ke {
            "x25519" => "aes256-sha256-x25519",
            "ke1_kyber1-x25519" => "aes256-sha256-x25519-ke1_mlkem512",
            "ke1_kyber3-x25519" => "aes256-sha256-x25519-ke1_mlkem768",
            "ke1_kyber5-x25519" => "aes256-sha256-x25519-ke1_mlkem1024",
            "ke1_frodoa3-x25519" => "aes256-sha256-x25519-ke1_frodoa3",
            "ke1_kyber3-ke2_bike3-ke3_hqc3-x25519" => {
                "aes256-sha256-x25519-ke1_mlkem768-ke2_kem1901-ke3_kem1902"
            }
            _ => return None,
        };
        Some(Self {
            name: format!("{cert}/{ke}"),
            about: "by message size".to_owned(),
            proposal,
            auth,
            fragment_size: 1480,
            child: false,
            has_real_crypto: false,
        })
    }

    /// The suite with this name.
    pub fn named(name: &str) -> Option<Self> {
        let known = Self::all().into_iter().find(|suite| suite.name == name);
        known.or_else(|| name.split_once('/').and_then(|(cert, ke)| Self::published(cert, ke)))
    }

    /// Exchanges until it is established: IKE_SA_INIT, one IKE_INTERMEDIATE for each additional key
    /// exchange, IKE_AUTH.
    pub fn exchanges(&self) -> u32 {
        let additional = self.proposal.split('-').filter(|word| word.starts_with("ke"));
        2 + additional.filter(|word| word.contains('_')).count() as u32
    }
}
