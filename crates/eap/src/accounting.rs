//! RADIUS accounting (RFC 2866): a gateway's reports about a session, and their acknowledgement.

use md5::{Digest, Md5};

use crate::radius::{MAX_PACKET, is_authentic, put, set_length};

/// Numbers of attributes.
#[expect(missing_docs, reason = "the names are those of RFC 2866 and 2869")]
pub mod attribute {
    pub const STATUS_TYPE: u8 = 40;
    pub const INPUT_OCTETS: u8 = 42;
    pub const OUTPUT_OCTETS: u8 = 43;
    pub const SESSION_ID: u8 = 44;
    pub const SESSION_TIME: u8 = 46;
    pub const INPUT_PACKETS: u8 = 47;
    pub const OUTPUT_PACKETS: u8 = 48;
    pub const TERMINATE_CAUSE: u8 = 49;
    pub const INPUT_GIGAWORDS: u8 = 52;
    pub const OUTPUT_GIGAWORDS: u8 = 53;
}

/// Values of Acct-Status-Type (RFC 2866 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The session begins.
    Start = 1,
    /// It is over.
    Stop = 2,
    /// It goes on (RFC 2869 §2.1).
    Interim = 3,
}

/// An Accounting-Request that is being put together.
#[derive(Debug)]
pub struct AccountingRequest {
    octets: Vec<u8>,
}

impl AccountingRequest {
    /// Without attributes yet.
    pub fn new(identifier: u8) -> Self {
        let mut octets = vec![4, identifier, 0, 0];
        octets.extend([0; 16]);
        Self { octets }
    }

    /// Adds an attribute, of which at most 253 octets.
    pub fn add(&mut self, kind: u8, value: &[u8]) {
        put(&mut self.octets, kind, value);
    }

    /// The datagram and its Request Authenticator (RFC 2866 §3); `None` if it is too long.
    pub fn finish(mut self, secret: &[u8]) -> Option<(Vec<u8>, [u8; 16])> {
        set_length(&mut self.octets)?;
        let mut md5 = Md5::new();
        md5.update(&self.octets);
        md5.update(secret);
        let authenticator: [u8; 16] = md5.finalize().into();
        self.octets[4..20].copy_from_slice(&authenticator);
        Some((self.octets, authenticator))
    }
}

/// True if `datagram` is the genuine Accounting-Response to the request of `identifier` and `authenticator`.
pub fn is_answer(datagram: &[u8], identifier: u8, authenticator: &[u8; 16], secret: &[u8]) -> bool {
    let &[5, id, high, low, ..] = datagram else { return false };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let packet = datagram.get(..len).filter(|packet| packet.len() <= MAX_PACKET);
    id == identifier && packet.is_some_and(|packet| is_authentic(packet, authenticator, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u8, id: u8, request: &[u8; 16], secret: &[u8]) -> Vec<u8> {
        let mut octets = vec![code, id, 0, 23];
        octets.extend(request);
        octets.extend([18, 3, b'x']);
        let digest = Md5::digest([&octets, secret].concat());
        octets[4..20].copy_from_slice(&digest);
        octets
    }

    #[test]
    fn a_request_is_signed_and_only_its_answer_is_believed() {
        let mut request = AccountingRequest::new(9);
        request.add(attribute::SESSION_ID, b"1-2");
        request.add(1, &[b'a'; 300]);
        let (octets, authenticator) = request.finish(b"secret").unwrap();
        assert_eq!(octets.len(), 20 + 5 + 255);
        assert_eq!((octets[0], octets[1], octets[3]), (4, 9, 24));
        let mut blank = octets.clone();
        blank[4..20].fill(0);
        assert_eq!(octets[4..20], *Md5::digest([&blank[..], b"secret"].concat()));
        assert_eq!(octets[4..20], authenticator);

        let good = answer(5, 9, &authenticator, b"secret");
        let is = |octets: &[u8]| is_answer(octets, 9, &authenticator, b"secret");
        assert!(is(&good));
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert!(!is(&bad), "octet {place}");
            assert!(!is(&good[..place]), "{place} octets");
        }
        assert!(!is(&answer(5, 8, &authenticator, b"secret")));
        assert!(!is(&answer(2, 9, &authenticator, b"secret")));
        assert!(!is(&answer(5, 9, &authenticator, b"other")));
        assert!(!is(&answer(5, 9, &[0; 16], b"secret")));
        let mut long = AccountingRequest::new(0);
        (0..20).for_each(|_| long.add(1, &[0; 253]));
        assert!(long.finish(b"x").is_none());
    }
}
