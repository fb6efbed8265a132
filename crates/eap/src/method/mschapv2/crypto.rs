//! The functions of RFC 2759 §8 and RFC 3079 §3, under the names in these RFCs.

use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use md4::{Digest, Md4};
use sha1::Sha1;
use zeroize::Zeroizing;

/// A hash of a password, or of that: as good as the password.
pub type Hash = Zeroizing<[u8; 16]>;

/// The octets of NtPasswordHash: a password, UTF-8 text, as UTF-16 in little endian.
fn unicode(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let text = Zeroizing::new(String::from_utf8_lossy(password).into_owned());
    // At most two octets for each of UTF-8, so that nothing is left behind by growing.
    let mut octets = Zeroizing::new(Vec::with_capacity(2 * text.len()));
    octets.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    octets
}

/// NtPasswordHash(), of UTF-8 text (RFC 2759 §8.3).
pub fn nt_password_hash(password: &[u8]) -> Hash {
    Zeroizing::new(Md4::digest(unicode(password).as_slice()).into())
}

/// HashNtPasswordHash() (RFC 2759 §8.4).
pub fn hash_nt_password_hash(hash: &Hash) -> Hash {
    Zeroizing::new(Md4::digest(hash.as_slice()).into())
}

/// ChallengeHash() (RFC 2759 §8.2); `user` is without its domain.
pub fn challenge_hash(peer: &[u8; 16], authenticator: &[u8; 16], user: &[u8]) -> [u8; 8] {
    let mut sha1 = Sha1::new();
    sha1.update(peer);
    sha1.update(authenticator);
    sha1.update(user);
    let digest: [u8; 20] = sha1.finalize().into();
    let mut challenge = [0; 8];
    challenge.copy_from_slice(&digest[..8]);
    challenge
}

/// ChallengeResponse() (RFC 2759 §8.5).
pub fn challenge_response(challenge: &[u8; 8], hash: &Hash) -> [u8; 24] {
    let mut keys = Zeroizing::new([0; 21]);
    keys[..16].copy_from_slice(hash.as_slice());
    let mut response = [0; 24];
    for (key, out) in keys.as_chunks::<7>().0.iter().zip(response.as_chunks_mut::<8>().0) {
        let key = Zeroizing::new(with_parity(key));
        let mut block = (*challenge).into();
        Des::new(&(*key).into()).encrypt_block(&mut block);
        *out = block.into();
    }
    response
}

/// 56 bits with room for parity, which DES passes over.
fn with_parity(key: &[u8; 7]) -> [u8; 8] {
    let mut bits = [0; 8];
    bits[1..].copy_from_slice(key);
    let bits = u64::from_be_bytes(bits);
    let mut spread = [0; 8];
    for (index, octet) in spread.iter_mut().enumerate() {
        *octet = ((bits >> (49 - 7 * index)) as u8) << 1;
    }
    spread
}

/// GenerateNTResponse() (RFC 2759 §8.1).
pub fn nt_response(
    authenticator: &[u8; 16],
    peer: &[u8; 16],
    user: &[u8],
    hash: &Hash,
) -> [u8; 24] {
    challenge_response(&challenge_hash(peer, authenticator, user), hash)
}

/// GenerateAuthenticatorResponse() (RFC 2759 §8.7), the 20 octets without their "S=".
pub fn authenticator_response(
    hash: &Hash,
    response: &[u8; 24],
    peer: &[u8; 16],
    authenticator: &[u8; 16],
    user: &[u8],
) -> [u8; 20] {
    let mut sha1 = Sha1::new();
    sha1.update(hash_nt_password_hash(hash).as_slice());
    sha1.update(response);
    sha1.update(b"Magic server to client signing constant");
    let digest = sha1.finalize();
    let mut sha1 = Sha1::new();
    sha1.update(digest);
    sha1.update(challenge_hash(peer, authenticator, user));
    sha1.update(b"Pad to make it do more than one iteration");
    sha1.finalize().into()
}

/// GetMasterKey() (RFC 3079 §3.4).
pub fn master_key(hash: &Hash, response: &[u8; 24]) -> Hash {
    let mut sha1 = Sha1::new();
    sha1.update(hash_nt_password_hash(hash).as_slice());
    sha1.update(response);
    sha1.update(b"This is the MPPE Master Key");
    first16(&sha1.finalize().into())
}

/// GetAsymmetricStartKey() with 128 bits (RFC 3079 §3.4): what the peer sends by, or receives by.
pub fn start_key(master: &Hash, peer_sends: bool) -> Hash {
    let magic: &[u8] = match peer_sends {
        true => {
            b"On the client side, this is the send key; on the server side, it is the receive key."
        }
        false => {
            b"On the client side, this is the receive key; on the server side, it is the send key."
        }
    };
    let mut sha1 = Sha1::new();
    sha1.update(master.as_slice());
    sha1.update([0; 40]);
    sha1.update(magic);
    sha1.update([0xf2; 40]);
    first16(&sha1.finalize().into())
}

/// The MSK as everybody has it: both start keys, and zeros up to 64 octets.
pub fn msk(hash: &Hash, response: &[u8; 24]) -> Zeroizing<Vec<u8>> {
    let master = master_key(hash, response);
    let mut msk = Zeroizing::new(vec![0; 64]);
    msk[..16].copy_from_slice(start_key(&master, true).as_slice());
    msk[16..32].copy_from_slice(start_key(&master, false).as_slice());
    msk
}

fn first16(digest: &[u8; 20]) -> Hash {
    let mut first = Zeroizing::new([0; 16]);
    first.copy_from_slice(&digest[..16]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let digits: Vec<u8> =
            text.bytes().map(|c| char::from(c).to_digit(16).unwrap() as u8).collect();
        let octets: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        octets.try_into().unwrap()
    }

    // RFC 2759 §9.2, RFC 3079 §3.5.3.
    #[test]
    fn the_values_of_the_rfcs() {
        let authenticator = hex("5B5D7C7D7B3F2F3E3C2C602132262628");
        let peer = hex("21402324255E262A28295F2B3A337C7E");
        let hash = nt_password_hash(b"clientPass");
        assert_eq!(*hash, hex("44EBBA8D5312B8D611474411F56989AE"));
        assert_eq!(*hash_nt_password_hash(&hash), hex("41C00C584BD2D91C4017A2A12FA59F3F"));
        assert_eq!(challenge_hash(&peer, &authenticator, b"User"), hex("D02E4386BCE91226"));
        let response = nt_response(&authenticator, &peer, b"User", &hash);
        assert_eq!(response, hex("82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF"));
        assert_eq!(
            authenticator_response(&hash, &response, &peer, &authenticator, b"User"),
            hex("407A5589115FD0D6209F510FE9C04566932CDA56")
        );
        let master = master_key(&hash, &response);
        assert_eq!(*master, hex("FDECE3717A8C838CB388E527AE3CDD31"));
        assert_eq!(*start_key(&master, false), hex("8B7CDC149B993A1BA118CB153F56DCCB"));
        let key = msk(&hash, &response);
        assert_eq!((key.len(), &key[16..32]), (64, start_key(&master, false).as_slice()));
        assert!(key[32..].iter().all(|octet| *octet == 0));
    }

    #[test]
    fn passwords_are_utf_16() {
        assert_eq!(*unicode("a€😀".as_bytes()), [0x61, 0, 0xac, 0x20, 0x3d, 0xd8, 0, 0xde]);
    }
}
