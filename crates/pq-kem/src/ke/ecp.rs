//! ECP groups: NIST curves in IKEv2 (RFC 5903).

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};

/// ECP_256, transform ID 19: 64 octets each way, 32 octets of secret.
pub static ECP_256: Ecp =
    Ecp { id: KeMethodId::ECP_256, algorithm: &agreement::ECDH_P256, coordinate: 32 };

/// ECP_384, transform ID 20: 96 octets each way, 48 octets of secret.
pub static ECP_384: Ecp =
    Ecp { id: KeMethodId::ECP_384, algorithm: &agreement::ECDH_P384, coordinate: 48 };

/// ECP_521, transform ID 21: 132 octets each way, 66 octets of secret.
pub static ECP_521: Ecp =
    Ecp { id: KeMethodId::ECP_521, algorithm: &agreement::ECDH_P521, coordinate: 66 };

/// An ECP group. A public value is `x | y`, each coordinate padded to the field's length, without a
/// point-format octet, and the secret is the x coordinate (RFC 5903 §7).
/// A point that is not on the curve is refused.
///
/// Private keys come from AWS-LC's own random source: a key handed to it is checked, at the price of
/// one more multiplication.
pub struct Ecp {
    id: KeMethodId,
    algorithm: &'static agreement::Algorithm,
    coordinate: usize,
}

impl Ecp {
    fn generate(&self) -> Result<Pending, CryptoError> {
        let key = PrivateKey::generate(self.algorithm).map_err(|_| CryptoError::Backend)?;
        self.pending(key)
    }

    fn pending(&self, key: PrivateKey) -> Result<Pending, CryptoError> {
        let point = key.compute_public_key().map_err(|_| CryptoError::Backend)?;
        match point.as_ref().split_first() {
            Some((&UNCOMPRESSED, xy)) if xy.len() == 2 * self.coordinate => {
                Ok(Pending { key, algorithm: self.algorithm, public: xy.to_vec() })
            }
            _ => Err(CryptoError::Backend),
        }
    }
}

impl KeMethod for Ecp {
    fn id(&self) -> KeMethodId {
        self.id
    }

    fn lengths(&self) -> KeLengths {
        KeLengths { initiator: 2 * self.coordinate, responder: 2 * self.coordinate }
    }

    fn initiate(&self, _: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        Ok(Arc::new(self.generate()?))
    }

    fn respond(
        &self,
        peer: &[u8],
        _: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let ours = self.generate()?;
        let shared = ours.complete(peer)?;
        Ok((ours.public, shared))
    }
}

impl fmt::Debug for Ecp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

struct Pending {
    key: PrivateKey,
    algorithm: &'static agreement::Algorithm,
    public: Vec<u8>,
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        // Only the exact length: AWS-LC takes other encodings too (compressed points, DER), and none
        // of them is IKE's.
        if peer.len() != self.public.len() {
            return Err(CryptoError::InvalidPublic);
        }
        let mut point = Vec::with_capacity(1 + peer.len());
        point.push(UNCOMPRESSED);
        point.extend_from_slice(peer);
        agreement::agree(
            &self.key,
            UnparsedPublicKey::new(self.algorithm, point),
            CryptoError::InvalidPublic,
            |shared| Ok(Secret::copy_from(shared)),
        )
    }
}

/// SEC 1's mark of a point given by both coordinates.
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{self, Case};

    /// KE payloads with their headers as RFC 5903 §8 prints them.
    #[test]
    fn rfc5903() {
        let cases = data::sections(include_str!("../../tests/data/rfc/rfc5903.txt"));
        assert_eq!(cases.len(), 3);
        for (case, group) in cases.iter().zip([&ECP_256, &ECP_384, &ECP_521]) {
            let (i, r) = (pending(group, &case.octets("i")), pending(group, &case.octets("r")));
            assert_eq!(ke_payload(group, i.public()), case.octets("KEi"));
            assert_eq!(ke_payload(group, r.public()), case.octets("KEr"));
            assert_eq!(i.public(), [case.octets("gix"), case.octets("giy")].concat());
            check_agreement(&i, &r, &case.octets("girx"), &case.name);
        }
    }

    #[test]
    fn strongswan() {
        let mut checked = 0;
        for case in data::json(include_str!("../../tests/data/strongswan/ke.json")) {
            let group = match case.text("method") {
                "ECP_256_BIT" => &ECP_256,
                "ECP_384_BIT" => &ECP_384,
                "ECP_521_BIT" => &ECP_521,
                _ => continue,
            };
            let seed = case.octets("seed");
            let (i, r) = seed.split_at(seed.len() / 2);
            let (i, r) = (pending(group, i), pending(group, r));
            assert_eq!(i.public(), case.octets("pub_i"), "{}", case.name);
            assert_eq!(r.public(), case.octets("pub_r"), "{}", case.name);
            check_agreement(&i, &r, &case.octets("shared"), &case.name);
            checked += 1;
        }
        assert_eq!(checked, 3);
    }

    /// 355 cases: points beside the curve are refused, and so are encodings that are not IKE's, valid
    /// ones among them.
    #[test]
    fn wycheproof() {
        let (mut agreed, mut refused) = (0, 0);
        for case in data::json(include_str!("../../tests/data/wycheproof/ecdh_p256.json")) {
            let ours = pending(&ECP_256, &scalar(&case));
            let public = case.octets("public");
            let in_ike = match public.split_first() {
                Some((&UNCOMPRESSED, xy)) => xy,
                _ => &public,
            };
            let result = ours.complete(in_ike);
            if case.text("result") == "valid" {
                assert_eq!(result.unwrap().expose(), case.octets("shared"), "{}", case.name);
                agreed += 1;
            } else {
                assert_eq!(result.unwrap_err(), CryptoError::InvalidPublic, "{}", case.name);
                refused += 1;
            }
            // With the point-format octet a value is one too long.
            assert_eq!(ours.complete(&public).unwrap_err(), CryptoError::InvalidPublic);
        }
        assert_eq!((agreed, refused), (330, 25));
    }

    /// The private key of a case, which may have a sign octet in front or lack leading zeros.
    fn scalar(case: &Case) -> Vec<u8> {
        let octets = case.octets("private");
        let significant = octets.iter().position(|&o| o != 0).map_or(&[][..], |at| &octets[at..]);
        let mut scalar = vec![0; 32 - significant.len()];
        scalar.extend_from_slice(significant);
        scalar
    }

    fn pending(group: &Ecp, scalar: &[u8]) -> Pending {
        group.pending(PrivateKey::from_private_key(group.algorithm, scalar).unwrap()).unwrap()
    }

    /// Next Payload and flags 0, length, group, reserved (RFC 7296 §3.4).
    fn ke_payload(group: &Ecp, public: &[u8]) -> Vec<u8> {
        let len = (8 + public.len()) as u16;
        [&[0, 0][..], &len.to_be_bytes(), &group.id.0.to_be_bytes(), &[0, 0], public].concat()
    }

    #[track_caller]
    fn check_agreement(i: &Pending, r: &Pending, shared: &[u8], name: &str) {
        assert_eq!(i.complete(r.public()).unwrap().expose(), shared, "{name}");
        assert_eq!(r.complete(i.public()).unwrap().expose(), shared, "{name}");
    }
}
