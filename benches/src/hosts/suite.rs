//! What is measured: sets of algorithms that both ends know by name.

use ike_proto::crypto::SignatureScheme;
use pq_kem::sign::KeyType;

/// How both ends authenticate.
#[derive(Debug, Clone)]
pub enum Auth {
    /// By a pre-shared key.
    Psk,
    /// By certificates.
    Certificates {
        /// Keys of the ends and of their CAs.
        key: KeyType,
        /// CAs between the root and the ends; they travel in IKE_AUTH.
        intermediates: usize,
    },
}

/// A set of algorithms.
#[derive(Debug, Clone)]
pub struct Suite {
    /// Name, of its connection too.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// `proposals`.
    pub ike: &'static str,
    /// `esp_proposals`.
    pub esp: &'static str,
    /// Authentication.
    pub auth: Auth,
    /// True if strongSwan 6.1 has all of it.
    pub strongswan: bool,
}

const ECDSA: KeyType = KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);
const ML_DSA_87: KeyType = KeyType::Scheme(SignatureScheme::MlDsa87);

const fn by(key: KeyType, intermediates: usize) -> Auth {
    Auth::Certificates { key, intermediates }
}

/// All of them; the last five are what `load` measures.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "classical",
        about: "MODP-2048, ECDSA P-256: measuredSwan's Table 1",
        ike: "aes256-sha256-modp2048",
        esp: "aes256-sha256",
        auth: by(ECDSA, 0),
        strongswan: true,
    },
    Suite {
        name: "mlkem768-mldsa87",
        about: "MODP-2048, ML-KEM-768, ML-DSA-87: measuredSwan's Table 1",
        ike: "aes256-sha256-modp2048-ke1_mlkem768",
        esp: "aes256-sha256",
        auth: by(ML_DSA_87, 0),
        strongswan: false,
    },
    Suite {
        name: "x25519-mldsa87",
        about: "X25519, ML-DSA-87",
        ike: "aes256-sha256-x25519",
        esp: "aes256-sha256",
        auth: by(ML_DSA_87, 0),
        strongswan: false,
    },
    Suite {
        name: "mlkem1024-mldsa87",
        about: "ML-KEM-1024, ML-DSA-87",
        ike: "aes256-sha256-x25519-ke1_mlkem1024",
        esp: "aes256-sha256",
        auth: by(ML_DSA_87, 0),
        strongswan: false,
    },
    Suite {
        name: "frodokem976-mldsa87",
        about: "X25519, FrodoKEM-976, ML-DSA-87",
        ike: "aes256-sha256-x25519-ke1_frodoa3",
        esp: "aes256-sha256",
        auth: by(ML_DSA_87, 0),
        strongswan: false,
    },
    Suite {
        name: "psk",
        about: "MODP-2048, pre-shared key: the PSK/RSA paper",
        ike: "aes256-sha256-modp2048",
        esp: "aes256-sha256-modp2048",
        auth: Auth::Psk,
        strongswan: true,
    },
    Suite {
        name: "rsa2048",
        about: "MODP-2048, RSA-2048: the PSK/RSA paper",
        ike: "aes256-sha256-modp2048",
        esp: "aes256-sha256-modp2048",
        auth: by(KeyType::Rsa2048, 0),
        strongswan: true,
    },
    Suite {
        name: "mlkem768-psk",
        about: "X25519, ML-KEM-768, pre-shared key",
        ike: "aes256-sha256-x25519-ke1_mlkem768",
        esp: "aes256-sha256",
        auth: Auth::Psk,
        strongswan: true,
    },
    Suite {
        name: "mlkem768-ecdsa",
        about: "X25519, ML-KEM-768, ECDSA P-256",
        ike: "aes256-sha256-x25519-ke1_mlkem768",
        esp: "aes256-sha256",
        auth: by(ECDSA, 0),
        strongswan: true,
    },
    Suite {
        name: "mlkem1024-rsa4096",
        about: "X25519, ML-KEM-1024, RSA-4096 below three CAs: as many fragments as ML-DSA-87",
        ike: "aes256-sha256-x25519-ke1_mlkem1024",
        esp: "aes256-sha256",
        auth: by(KeyType::Rsa4096, 3),
        strongswan: true,
    },
    Suite {
        name: "psk-x25519",
        about: "X25519, pre-shared key",
        ike: "aes256gcm16-prfsha256-x25519",
        esp: "aes256gcm16",
        auth: Auth::Psk,
        strongswan: true,
    },
    Suite {
        name: "psk-mlkem768",
        about: "X25519, ML-KEM-768, pre-shared key",
        ike: "aes256gcm16-prfsha256-x25519-ke1_mlkem768",
        esp: "aes256gcm16",
        auth: Auth::Psk,
        strongswan: true,
    },
    Suite {
        name: "ecdsa-x25519",
        about: "X25519, ECDSA P-256",
        ike: "aes256gcm16-prfsha256-x25519",
        esp: "aes256gcm16",
        auth: by(ECDSA, 0),
        strongswan: true,
    },
    Suite {
        name: "ecdsa-mlkem768",
        about: "X25519, ML-KEM-768, ECDSA P-256",
        ike: "aes256gcm16-prfsha256-x25519-ke1_mlkem768",
        esp: "aes256gcm16",
        auth: by(ECDSA, 0),
        strongswan: true,
    },
    Suite {
        name: "rsa-x25519",
        about: "X25519, RSA-2048",
        ike: "aes256gcm16-prfsha256-x25519",
        esp: "aes256gcm16",
        auth: by(KeyType::Rsa2048, 0),
        strongswan: true,
    },
];

/// The suite called `name`, or an error that lists them.
pub fn find(name: &str) -> Result<&'static Suite, String> {
    SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| {
        let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
        format!("no suite {name:?}; there are {}", names.join(", "))
    })
}
