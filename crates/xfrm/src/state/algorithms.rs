//! From IKE's algorithms to the names of the kernel's crypto API.

use std::fmt;

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, Secret};

use super::{Algorithm, Protection};

/// Why a suite cannot be a state's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

impl Protection {
    /// The kernel's algorithms for `suite`. Keys are IKE's key material: the salt or nonce last (RFC 4106 §8.1,
    /// RFC 4309 §7.1, RFC 3686 §5.1, RFC 4543 §5.4, RFC 7634 §2).
    pub fn of_suite(
        suite: CipherSuite,
        encr_key: &Secret,
        integ_key: &Secret,
    ) -> Result<Self, Unsupported> {
        if let Some(aead) = aead(suite.encr)? {
            if suite.integ != IntegId::NONE {
                return Err(Unsupported(format!("{} with {}", suite.encr, suite.integ)));
            }
            check_key(suite, encr_key, aead.salt)?;
            return Ok(Self::Aead(Algorithm {
                name: aead.name.into(),
                key: encr_key.duplicate(),
                icv_bits: aead.icv_bits,
            }));
        }
        let (name, nonce) = cipher(suite.encr)?;
        check_key(suite, encr_key, nonce)?;
        let (integrity, icv_bits, length) = mac(suite.integ)?;
        if suite.encr == EncrId::NULL && suite.integ == IntegId::NONE {
            return Err(Unsupported("neither encryption nor integrity".into()));
        }
        if integ_key.len() != length {
            return Err(Unsupported(format!(
                "a key of {} octets for {}",
                integ_key.len(),
                suite.integ
            )));
        }
        Ok(Self::Separate {
            encryption: Algorithm { name: name.into(), key: encr_key.duplicate(), icv_bits: 0 },
            integrity: Algorithm { name: integrity.into(), key: integ_key.duplicate(), icv_bits },
        })
    }
}

struct Aead {
    name: &'static str,
    icv_bits: u32,
    /// Octets of salt behind the key.
    salt: usize,
}

/// The AEAD `encr`, `None` if it is none.
fn aead(encr: EncrId) -> Result<Option<Aead>, Unsupported> {
    let (name, icv_bits, salt) = match encr {
        EncrId::AES_GCM_8 => (GCM, 64, 4),
        EncrId::AES_GCM_12 => (GCM, 96, 4),
        EncrId::AES_GCM_16 => (GCM, 128, 4),
        EncrId::AES_CCM_8 => (CCM, 64, 3),
        EncrId::AES_CCM_12 => (CCM, 96, 3),
        EncrId::AES_CCM_16 => (CCM, 128, 3),
        EncrId::CAMELLIA_CCM_8 => (CAMELLIA_CCM, 64, 3),
        EncrId::CAMELLIA_CCM_12 => (CAMELLIA_CCM, 96, 3),
        EncrId::CAMELLIA_CCM_16 => (CAMELLIA_CCM, 128, 3),
        EncrId::NULL_AES_GMAC => ("rfc4543(gcm(aes))", 128, 4),
        EncrId::CHACHA20_POLY1305 => ("rfc7539esp(chacha20,poly1305)", 128, 4),
        // The kernel's ESP always sends the IV that its generator made (RFC 8750 has it left out).
        EncrId::AES_CCM_8_IIV | EncrId::AES_GCM_16_IIV | EncrId::CHACHA20_POLY1305_IIV => {
            return Err(Unsupported(format!("{encr}: Linux has no implicit IVs (RFC 8750)")));
        }
        _ => return Ok(None),
    };
    Ok(Some(Aead { name, icv_bits, salt }))
}

/// Name and octets of nonce behind the key.
fn cipher(encr: EncrId) -> Result<(&'static str, usize), Unsupported> {
    Ok(match encr {
        EncrId::AES_CBC => ("cbc(aes)", 0),
        EncrId::AES_CTR => ("rfc3686(ctr(aes))", 4),
        EncrId::CAMELLIA_CBC => ("cbc(camellia)", 0),
        EncrId::DES3 => ("cbc(des3_ede)", 0),
        EncrId::NULL => ("ecb(cipher_null)", 0),
        _ => return Err(Unsupported(format!("{encr}: not an algorithm of the kernel's ESP"))),
    })
}

/// Name, ICV in bits, and octets of key.
fn mac(integ: IntegId) -> Result<(&'static str, u32, usize), Unsupported> {
    Ok(match integ {
        IntegId::HMAC_MD5_96 => ("hmac(md5)", 96, 16),
        IntegId::HMAC_SHA1_96 => ("hmac(sha1)", 96, 20),
        IntegId::HMAC_SHA2_256_96 => ("hmac(sha256)", 96, 32),
        IntegId::HMAC_SHA2_256_128 => ("hmac(sha256)", 128, 32),
        IntegId::HMAC_SHA2_384_192 => ("hmac(sha384)", 192, 48),
        IntegId::HMAC_SHA2_512_256 => ("hmac(sha512)", 256, 64),
        IntegId::AES_XCBC_96 => ("xcbc(aes)", 96, 16),
        IntegId::AES_CMAC_96 => ("cmac(aes)", 96, 16),
        _ => return Err(Unsupported(format!("{integ}: not an algorithm of the kernel's ESP"))),
    })
}

/// The kernel takes a wrong length of some algorithms for another key size.
fn check_key(suite: CipherSuite, key: &Secret, salt: usize) -> Result<(), Unsupported> {
    let bits = match (suite.encr, suite.key_bits) {
        (EncrId::CHACHA20_POLY1305, 0) => 256,
        (EncrId::DES3, 0) => 192,
        (_, bits) => usize::from(bits),
    };
    if bits % 8 != 0 || bits / 8 + salt != key.len() {
        return Err(Unsupported(format!(
            "a key of {} octets for {} with {bits} bits",
            key.len(),
            suite.encr
        )));
    }
    Ok(())
}

const GCM: &str = "rfc4106(gcm(aes))";
const CCM: &str = "rfc4309(ccm(aes))";
const CAMELLIA_CCM: &str = "rfc4309(ccm(camellia))";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(encr: EncrId, key_bits: u16, octets: usize, integ: IntegId, mac: usize) -> String {
        let suite = CipherSuite { encr, key_bits, integ };
        let keys = (Secret::new(vec![1; octets]), Secret::new(vec![2; mac]));
        match Protection::of_suite(suite, &keys.0, &keys.1) {
            Ok(Protection::Aead(a)) => format!("{} {}", a.name, a.icv_bits),
            Ok(Protection::Separate { encryption, integrity }) => {
                format!("{} {} {}", encryption.name, integrity.name, integrity.icv_bits)
            }
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn names_are_the_kernels() {
        let none = IntegId::NONE;
        let sha256 = IntegId::HMAC_SHA2_256_128;
        for (got, wanted) in [
            (of(EncrId::AES_GCM_16, 256, 36, none, 0), "rfc4106(gcm(aes)) 128"),
            (of(EncrId::AES_GCM_8, 128, 20, none, 0), "rfc4106(gcm(aes)) 64"),
            (of(EncrId::AES_CCM_12, 192, 27, none, 0), "rfc4309(ccm(aes)) 96"),
            (of(EncrId::NULL_AES_GMAC, 128, 20, none, 0), "rfc4543(gcm(aes)) 128"),
            (of(EncrId::CHACHA20_POLY1305, 0, 36, none, 0), "rfc7539esp(chacha20,poly1305) 128"),
            (of(EncrId::AES_CBC, 128, 16, sha256, 32), "cbc(aes) hmac(sha256) 128"),
            (
                of(EncrId::AES_CBC, 128, 16, IntegId::HMAC_SHA2_256_96, 32),
                "cbc(aes) hmac(sha256) 96",
            ),
            (of(EncrId::AES_CTR, 256, 36, sha256, 32), "rfc3686(ctr(aes)) hmac(sha256) 128"),
            (of(EncrId::DES3, 0, 24, IntegId::AES_XCBC_96, 16), "cbc(des3_ede) xcbc(aes) 96"),
            (
                of(EncrId::NULL, 0, 0, IntegId::HMAC_SHA2_512_256, 64),
                "ecb(cipher_null) hmac(sha512) 256",
            ),
        ] {
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn wrong_keys_and_unknown_algorithms_are_refused() {
        let none = IntegId::NONE;
        for got in [
            of(EncrId::AES_GCM_16, 256, 32, none, 0),
            of(EncrId::AES_GCM_16, 0, 36, none, 0),
            of(EncrId::AES_GCM_16, 128, 20, IntegId::HMAC_SHA1_96, 20),
            of(EncrId::AES_CBC, 128, 16, none, 0),
            of(EncrId::AES_CBC, 128, 16, IntegId::HMAC_SHA1_96, 16),
            of(EncrId::NULL, 0, 0, none, 0),
            of(EncrId::BLOWFISH, 128, 16, IntegId::HMAC_SHA1_96, 20),
            of(EncrId::AES_GCM_16_IIV, 128, 20, none, 0),
        ] {
            assert!(got.starts_with("error: "), "{got}");
        }
        assert!(of(EncrId::AES_GCM_16_IIV, 128, 20, none, 0).contains("RFC 8750"));
    }
}
