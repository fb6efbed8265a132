//! AUTH payloads that are signatures: by method 14 (RFC 7427, 8420 and
//! draft-ietf-ipsecme-ikev2-pqc-auth), and by the older methods 1 and 9 to 11 (RFC 7296 §3.8,
//! RFC 4754).

use super::announce::Announcements;
use crate::config::{EndpointConfig, SchemeConstraints};
use crate::crypto::sign::OutsideScheme;
use crate::crypto::{CryptoProvider, SchemeRegister, SignatureScheme};
use crate::event::{AlgorithmOid, Disbelief};
use crate::keys::signed_octets::{AuthFailure, PeerAuthenticated, SignedOctets, verify_signature};
use crate::question::AcceptedScheme;
use crate::wire::registry::AuthMethod;

/// Schemes by preference. RSA with PSS comes before RSA without (RFC 8247 §3.2).
const PREFERENCE: &[SignatureScheme] = &{
    use SignatureScheme::*;
    [
        MlDsa87,
        MlDsa65,
        MlDsa44,
        Ed25519,
        EcdsaP521Sha512,
        EcdsaP384Sha384,
        EcdsaP256Sha256,
        RsaPssSha256,
        RsaPssSha384,
        RsaPssSha512,
        RsaPkcs1Sha256,
        RsaPkcs1Sha384,
        RsaPkcs1Sha512,
        SlhDsaSha2_256f,
        SlhDsaSha2_256s,
        SlhDsaShake256f,
        SlhDsaShake256s,
        SlhDsaSha2_192f,
        SlhDsaSha2_192s,
        SlhDsaShake192f,
        SlhDsaShake192s,
        SlhDsaSha2_128f,
        SlhDsaSha2_128s,
        SlhDsaShake128f,
        SlhDsaShake128s,
        Falcon512,
        RsaPkcs1Sha1,
    ]
};

/// True for the methods that are signatures.
pub(crate) fn is_signature(method: AuthMethod) -> bool {
    method == AuthMethod::DIGITAL_SIGNATURE
        || !SignatureScheme::of_legacy_auth_method(method).is_empty()
}

/// The schemes with which this end may sign: both the peer and `local` accept them; and true if the peer has announced
/// them.
pub(super) fn accepted(
    known: &SchemeRegister,
    peer: &Announcements,
    local: &SchemeConstraints,
) -> (Vec<AcceptedScheme>, bool) {
    let possible = |scheme: &&SignatureScheme| {
        local.allows(scheme)
            && match &peer.hashes {
                //= https://www.rfc-editor.org/rfc/rfc7427#section-4
                //# When
                //# calculating the digital signature, a peer MUST pick one algorithm
                //# sent by the other peer.
                Some(hashes) => {
                    hashes.contains(&scheme.hash()) && **scheme != SignatureScheme::RsaPkcs1Sha1
                }
                None => scheme.legacy_auth_method().is_some(),
            }
    };
    // Most programs bring none, and it is a step of each handshake.
    let possible: Vec<_> = match known.outside().next() {
        None => PREFERENCE.iter().filter(possible).collect(),
        Some(_) => known.with_brought(PREFERENCE).filter(possible).collect(),
    };
    let mut named: Vec<AcceptedScheme> = Vec::new();
    for announced in &peer.methods {
        let schemes = possible.iter().filter(|scheme| match &announced.scheme {
            // An announcement names no curve.
            Some(wanted) => wanted.has_identifier_of(scheme),
            None => peer.hashes.is_none() && scheme.legacy_auth_method() == Some(announced.method),
        });
        for scheme in schemes {
            let authority = peer.authority(announced.cert_link);
            match named.iter_mut().find(|known| known.scheme == **scheme) {
                // Of several announcements the one for any CA wins.
                Some(known) => match authority {
                    Some(authority) if !known.authorities.is_empty() => {
                        known.authorities.push(authority);
                    }
                    _ => known.authorities.clear(),
                },
                None => {
                    let authorities = authority.into_iter().collect();
                    named.push(AcceptedScheme { scheme: (*scheme).clone(), authorities });
                }
            }
        }
    }
    let announced = !named.is_empty();
    if !announced {
        // The peer announces none, or none that is known here. It may still accept one.
        let any = |scheme: &SignatureScheme| AcceptedScheme {
            scheme: scheme.clone(),
            authorities: Vec::new(),
        };
        named = possible.into_iter().map(any).collect();
    }
    (named, announced)
}

/// Method and Authentication Data of `signature` for a peer with the announcements `peer`; `None` if the signature
/// is malformed.
pub(super) fn encode(
    peer: &Announcements,
    scheme: &SignatureScheme,
    signature: &[u8],
) -> Option<(AuthMethod, Vec<u8>)> {
    if peer.hashes.is_none() {
        return Some((scheme.legacy_auth_method()?, scheme.signature_to_legacy(signature)?));
    }
    let identifier = scheme.algorithm_identifier();
    let len = u8::try_from(identifier.len()).ok()?;
    let data = [&[len], identifier, signature].concat();
    Some((AuthMethod::DIGITAL_SIGNATURE, data))
}

/// Verifies the peer's Authentication Data with the key in `spki`, by a scheme that `asked` allows and that fits
/// the key. The returned scheme is that of the key: ECDSA may come with another hash.
pub(super) fn verify(
    (config, crypto): (&EndpointConfig, &CryptoProvider),
    asked: &SchemeConstraints,
    spki: &[u8],
    octets: &SignedOctets,
    (method, data): (AuthMethod, &[u8]),
) -> Result<(PeerAuthenticated, SignatureScheme), AuthFailure> {
    if !asked.allows_key(spki) {
        return Err(AuthFailure);
    }
    let good = |scheme: &SignatureScheme| asked.allows(scheme) && scheme.verifies_with(spki);
    if method == AuthMethod::DIGITAL_SIGNATURE {
        let (scheme, signature) = decode(&crypto.schemes, spki, data).ok_or(AuthFailure)?;
        //= https://www.rfc-editor.org/rfc/rfc7427#section-6
        //# This new digital signature method does not tie the Elliptic Curve to
        //# a specific hash function, which was done in the old IKEv2 ECDSA
        //# methods.
        let of_key = SignatureScheme::of_built_in_key(spki).iter();
        let mut curve = of_key.filter(|own| own.is_ecdsa() && scheme.is_ecdsa());
        let own = curve.next().unwrap_or(&scheme);
        if !config.signature_authentication || !good(own) || !asked.allows_hash_of(&scheme) {
            return Err(AuthFailure);
        }
        let evidence = verify_signature(crypto, &scheme, spki, octets, signature)?;
        return Ok((evidence, own.clone()));
    }
    // Method 1 does not name its hash.
    SignatureScheme::of_legacy_auth_method(method)
        .iter()
        .filter(|scheme| good(scheme))
        .find_map(|scheme| {
            let signature = scheme.signature_from_legacy(data)?;
            let evidence = verify_signature(crypto, scheme, spki, octets, &signature).ok()?;
            Some((evidence, scheme.clone()))
        })
        .ok_or(AuthFailure)
}

/// Parses the Authentication Data of method 14 (RFC 7427 §3), by the key in `spki`.
fn decode<'a>(
    known: &SchemeRegister,
    spki: &[u8],
    data: &'a [u8],
) -> Option<(SignatureScheme, &'a [u8])> {
    let (&len, rest) = data.split_first()?;
    let (identifier, signature) = rest.split_at_checked(usize::from(len))?;
    Some((known.of_signature(identifier, spki)?, signature))
}

/// Why a signature in this AUTH payload was not believed, where `asked` is wanted. `of_key` is the scheme of the peer's key,
/// if the program has brought it: AUTH does not say on which curve it is by ECDSA.
pub(super) fn disbelief(
    crypto: &CryptoProvider,
    asked: Option<&SchemeConstraints>,
    of_key: Option<OutsideScheme>,
    (method, data): (AuthMethod, &[u8]),
) -> Disbelief {
    if method != AuthMethod::DIGITAL_SIGNATURE {
        return Disbelief::WrongSignature(None);
    }
    let identifier = data.split_first().and_then(|(&len, rest)| rest.get(..usize::from(len)));
    let Some(identifier) = identifier else { return Disbelief::MalformedAuth };
    let of_key = of_key.filter(|own| own.algorithm_identifier() == identifier);
    let named = match of_key {
        Some(own) => Some(SignatureScheme::Outside(own)),
        None => crypto.schemes.from_algorithm_identifier(identifier),
    };
    let Some(scheme) = named else {
        return Disbelief::UnknownScheme(AlgorithmOid::of(identifier));
    };
    // ECDSA may come with another hash than the one that the key's curve has.
    let allows = |asked: &SchemeConstraints| {
        asked.allows(&scheme) || scheme.is_ecdsa() && asked.allows_hash_of(&scheme)
    };
    if asked.is_some_and(|asked| !allows(asked)) {
        return Disbelief::SchemeNotAllowed(scheme);
    }
    Disbelief::WrongSignature(Some(scheme))
}

#[cfg(test)]
mod tests {
    use super::super::announce::AuthMethodAnnouncement;
    use super::*;
    use crate::config::CertRequest;
    use crate::wire::registry::{CertEncoding, HashId};

    fn schemes(peer: &Announcements, local: &SchemeConstraints) -> Vec<SignatureScheme> {
        let (accepted, _) = accepted(&SchemeRegister::built_in(), peer, local);
        accepted.into_iter().map(|accepted| accepted.scheme).collect()
    }

    #[test]
    fn every_scheme_has_a_place() {
        assert_eq!(PREFERENCE.len(), SignatureScheme::BUILT_IN.len());
        assert!(SignatureScheme::BUILT_IN.iter().all(|scheme| PREFERENCE.contains(scheme)));
    }

    #[test]
    fn only_hashes_that_the_peer_announced() {
        let peer = Announcements {
            hashes: Some(vec![HashId::SHA2_384, HashId::SHA1]),
            ..Announcements::default()
        };
        use SignatureScheme::*;
        let any = SchemeConstraints::default();
        assert_eq!(schemes(&peer, &any), [EcdsaP384Sha384, RsaPssSha384, RsaPkcs1Sha384]);
        let sha1 = SchemeConstraints { schemes: vec![RsaPkcs1Sha1], rsa_bits: 0 };
        assert_eq!(schemes(&peer, &sha1), []);
        let nothing = Announcements { hashes: Some(Vec::new()), ..Announcements::default() };
        assert_eq!(schemes(&nothing, &any), []);
    }

    #[test]
    fn without_an_announcement_the_old_methods_and_sha1_only_if_asked_for() {
        use SignatureScheme::*;
        let peer = Announcements::default();
        let old = schemes(&peer, &SchemeConstraints::default());
        assert!(old.contains(&EcdsaP521Sha512) && old.contains(&RsaPkcs1Sha512));
        let never = [Ed25519, MlDsa65, RsaPssSha256, RsaPkcs1Sha1];
        assert!(never.iter().all(|scheme| !old.contains(scheme)));
        let sha1 = SchemeConstraints { schemes: vec![RsaPkcs1Sha1], rsa_bits: 0 };
        assert_eq!(schemes(&peer, &sha1), [RsaPkcs1Sha1]);
    }

    #[test]
    fn announced_methods_come_in_the_peer_s_order_with_their_authorities() {
        use SignatureScheme::*;
        let announce = |scheme, cert_link| AuthMethodAnnouncement {
            method: AuthMethod::DIGITAL_SIGNATURE,
            cert_link,
            scheme: Some(scheme),
        };
        let request = CertRequest {
            encoding: CertEncoding::X509_SIGNATURE,
            authorities: [[1; 20], [2; 20]].concat(),
        };
        let mut peer = Announcements {
            hashes: Some(vec![HashId::IDENTITY, HashId::SHA2_256]),
            methods: vec![announce(RsaPssSha256, 2), announce(MlDsa44, 0), announce(Falcon512, 0)],
            requests: vec![request],
            ..Announcements::default()
        };
        let any = SchemeConstraints::default();
        let (found, announced) = accepted(&SchemeRegister::built_in(), &peer, &any);
        assert!(announced);
        let expected = [
            AcceptedScheme { scheme: RsaPssSha256, authorities: vec![[2; 20]] },
            AcceptedScheme { scheme: MlDsa44, authorities: Vec::new() },
        ];
        assert_eq!(found, expected);
        // A list of nothing usable is as none.
        peer.methods = vec![announce(EcdsaP384Sha384, 0)];
        assert!(schemes(&peer, &any).contains(&Ed25519));
    }
}
