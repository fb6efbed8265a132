//! What servers of tests say.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};

/// An answer with both authenticators to the request of this identifier and authenticator.
pub(crate) fn answer(
    code: u8,
    (identifier, request): (u8, &[u8; 16]),
    attributes: &[(u8, &[u8])],
    secret: &[u8],
) -> Vec<u8> {
    let mut octets = vec![code, identifier, 0, 0];
    octets.extend(request);
    octets.extend([80, 18]);
    octets.extend([0; 16]);
    for (kind, value) in attributes {
        octets.extend([*kind, value.len() as u8 + 2]);
        octets.extend(*value);
    }
    sign(&mut octets, secret);
    octets
}

/// Sets length, Message-Authenticator, which comes first, and authenticator, in whose place is what counts for it.
pub(crate) fn sign(octets: &mut [u8], secret: &[u8]) {
    let len = octets.len() as u16;
    octets[2..4].copy_from_slice(&len.to_be_bytes());
    if octets.get(20) == Some(&80) {
        let mut mac = Hmac::<Md5>::new_from_slice(secret).expect("a key");
        mac.update(octets);
        octets[22..38].copy_from_slice(&mac.finalize().into_bytes());
    }
    let digest = Md5::digest([octets, secret].concat());
    octets[4..20].copy_from_slice(&digest);
}
