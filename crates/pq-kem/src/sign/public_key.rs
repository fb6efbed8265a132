//! What every verifier demands of a public key before a library sees it.

use ike_wire::der::{self, Der};
use ipsec_types::crypto::CryptoError;
use ipsec_types::crypto::sign::{SignatureScheme, SubjectPublicKeyInfo};

/// The key inside `spki`, if it is one for `scheme`: an `RSAPublicKey` (RFC 8017 §A.1.1), an
/// uncompressed point (RFC 5480 §2.2), or the octets of the key itself.
pub(super) fn key_for<'a>(
    scheme: &SignatureScheme,
    spki: &'a [u8],
) -> Result<&'a [u8], CryptoError> {
    checked(scheme, spki).ok_or(CryptoError::InvalidPublic)
}

fn checked<'a>(scheme: &SignatureScheme, spki: &'a [u8]) -> Option<&'a [u8]> {
    if !SignatureScheme::of_built_in_key(spki).contains(scheme) {
        return None;
    }
    let key = SubjectPublicKeyInfo::parse(spki)?.key;
    let fits = match key_len(scheme)? {
        KeyLen::Rsa => is_acceptable_rsa(key),
        KeyLen::Point(len) => key.len() == len && key.first() == Some(&UNCOMPRESSED),
        KeyLen::Octets(len) => key.len() == len,
    };
    fits.then_some(key)
}

/// How a public key of a scheme is judged.
enum KeyLen {
    Rsa,
    /// Octets of an uncompressed point.
    Point(usize),
    /// Octets of the key.
    Octets(usize),
}

fn key_len(scheme: &SignatureScheme) -> Option<KeyLen> {
    use SignatureScheme::*;
    Some(match scheme {
        RsaPkcs1Sha1 | RsaPkcs1Sha256 | RsaPkcs1Sha384 | RsaPkcs1Sha512 | RsaPssSha256
        | RsaPssSha384 | RsaPssSha512 => KeyLen::Rsa,
        EcdsaP256Sha256 => KeyLen::Point(65),
        EcdsaP384Sha384 => KeyLen::Point(97),
        EcdsaP521Sha512 => KeyLen::Point(133),
        Ed25519 => KeyLen::Octets(32),
        MlDsa44 => KeyLen::Octets(1312),
        MlDsa65 => KeyLen::Octets(1952),
        MlDsa87 => KeyLen::Octets(2592),
        SlhDsaSha2_128s | SlhDsaSha2_128f | SlhDsaShake128s | SlhDsaShake128f => KeyLen::Octets(32),
        SlhDsaSha2_192s | SlhDsaSha2_192f | SlhDsaShake192s | SlhDsaShake192f => KeyLen::Octets(48),
        SlhDsaSha2_256s | SlhDsaSha2_256f | SlhDsaShake256s | SlhDsaShake256f => KeyLen::Octets(64),
        Falcon512 => KeyLen::Octets(897),
        // It verifies by itself.
        Outside(_) => return None,
    })
}

/// True for an `RSAPublicKey` of a size and an exponent that are accepted; see [`super`].
pub(super) fn is_acceptable_rsa(key: &[u8]) -> bool {
    rsa_numbers(key).is_some_and(|(modulus, exponent)| {
        let odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
        let bits =
            modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
        // Without leading zeros, so that the length orders first.
        let large = exponent.len() > 3 || exponent >= [0x01, 0x00, 0x01].as_slice();
        RSA_BITS.contains(&bits)
            && odd(modulus)
            && odd(exponent)
            && (3..=4).contains(&exponent.len())
            && large
    })
}

/// Modulus and public exponent, without leading zeros.
fn rsa_numbers(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut outer = Der::new(key);
    let mut inner = outer.nested(der::SEQUENCE)?;
    outer.end()?;
    let numbers = (inner.unsigned()?, inner.unsigned()?);
    inner.end().map(|()| numbers)
}

/// Bits of an RSA modulus.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The first octet of an uncompressed point (SEC 1 §2.3.3).
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
        let (mut numbers, mut key) = (Vec::new(), Vec::new());
        der::push_unsigned(&mut numbers, modulus);
        der::push_unsigned(&mut numbers, exponent);
        der::push(&mut key, der::SEQUENCE, &[&numbers]);
        key
    }

    #[test]
    fn rsa_sizes_and_exponents() {
        let f4 = [1, 0, 1];
        for (bits, good) in
            [(1024, false), (2047, false), (2048, true), (8192, true), (8193, false)]
        {
            let mut modulus = vec![0xff_u8; usize::div_ceil(bits, 8)];
            modulus[0] >>= modulus.len() * 8 - bits;
            assert_eq!(is_acceptable_rsa(&rsa(&modulus, &f4)), good, "{bits} bits");
        }
        let modulus = [0xff; 256];
        for (exponent, good) in [
            (&[][..], false),
            (&[1], false),
            (&[3], false),
            (&[0xff, 0xff], false),
            (&[1, 0, 0], false),
            (&[1, 0, 1], true),
            (&[1, 0, 2], false),
            (&[0xff, 0xff, 0xff], true),
            (&[0xff; 4], true),
            (&[1, 0, 0, 0, 1], false),
            (&[0xff; 256], false),
        ] {
            assert_eq!(is_acceptable_rsa(&rsa(&modulus, exponent)), good, "{exponent:02x?}");
        }
        let mut even = modulus;
        even[255] = 0xfe;
        assert!(!is_acceptable_rsa(&rsa(&even, &f4)), "even modulus");
        let good = rsa(&modulus, &f4);
        assert!(!is_acceptable_rsa(&[&good[..], &[0]].concat()), "something behind it");
        assert!(!is_acceptable_rsa(&good[..good.len() - 1]), "cut short");
    }
}
