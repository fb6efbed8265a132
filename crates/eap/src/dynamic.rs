//! Dynamic authorization over RADIUS (RFC 5176): a server's requests about current sessions, and the answers.

use md5::{Digest, Md5};

use crate::radius::attribute::{ERROR_CAUSE, MESSAGE_AUTHENTICATOR, PROXY_STATE, STATE};
use crate::radius::{
    MAX_PACKET, Unfit, all, has_message_authenticator, hmac_md5, is_authentic, put, set_length,
};

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Disconnect-Request: sessions are to end.
    Disconnect,
    /// CoA-Request: their authorization is to change.
    Change,
}

/// Values of Error-Cause (RFC 5176 §3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCause {
    /// An attribute that is not understood, or cannot be done.
    UnsupportedAttribute = 401,
    /// Something that there must be is not there.
    MissingAttribute = 402,
    /// The request is for another gateway.
    NasIdentificationMismatch = 403,
    /// It contradicts itself.
    InvalidRequest = 404,
    /// Service-Type asks for what there is not.
    UnsupportedService = 405,
    /// A value of the wrong length, or out of its range.
    InvalidAttributeValue = 407,
    /// No session is meant by that.
    SessionContextNotFound = 503,
}

/// A request that was found genuine.
#[derive(Debug)]
pub struct DynamicRequest<'a> {
    /// What it wants.
    pub wish: Wish,
    /// Tells a request from others, and is the same when it is sent again.
    pub authenticator: [u8; 16],
    identifier: u8,
    attributes: &'a [u8],
}

impl<'a> DynamicRequest<'a> {
    /// Takes a datagram apart, and believes it only if its Request Authenticator is right, and so its
    /// Message-Authenticator, which there must be if it is `demanded`.
    ///
    /// # Errors
    /// [`Unfit`] says what is wrong; the datagram is to be dropped.
    pub fn parse(datagram: &'a [u8], secret: &[u8], demanded: bool) -> Result<Self, Unfit> {
        let &[code, identifier, high, low, ..] = datagram else { return Err(Unfit::Other) };
        let wish = match code {
            40 => Wish::Disconnect,
            43 => Wish::Change,
            _ => return Err(Unfit::Other),
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let packet = datagram.get(..len).filter(|packet| packet.len() <= MAX_PACKET);
        let packet = packet.ok_or(Unfit::Other)?;
        let (head, attributes) = packet.split_at_checked(20).ok_or(Unfit::Other)?;
        // RFC 5176 §2.3: as that of an Accounting-Request.
        if !is_authentic(packet, &[0; 16], secret) {
            return Err(Unfit::Authenticator);
        }
        let signed = has_message_authenticator(head, &[0; 16], attributes, secret)?;
        if demanded && !signed {
            return Err(Unfit::MessageAuthenticator);
        }
        let authenticator = head[4..].try_into().map_err(|_| Unfit::Other)?;
        Ok(Self { wish, authenticator, identifier, attributes })
    }

    /// Its attributes, in their order.
    pub fn all(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        all(self.attributes)
    }

    /// The answer: it is done, or not for this cause.
    pub fn answer(&self, outcome: Result<(), ErrorCause>, secret: &[u8]) -> Option<Vec<u8>> {
        let ack = match self.wish {
            Wish::Disconnect => 41,
            Wish::Change => 44,
        };
        let mut octets = vec![if outcome.is_ok() { ack } else { ack + 1 }, self.identifier, 0, 0];
        octets.extend(self.authenticator);
        put(&mut octets, MESSAGE_AUTHENTICATOR, &[0; 16]);
        if let Err(cause) = outcome {
            put(&mut octets, ERROR_CAUSE, &(cause as u32).to_be_bytes());
        }
        // RFC 5176 §3.1: all of them, in their order, as they are; §3.3: State of a CoA-Request, too.
        let state = |kind| kind == STATE && self.wish == Wish::Change;
        for (kind, value) in self.all().filter(|(kind, _)| *kind == PROXY_STATE || state(*kind)) {
            put(&mut octets, kind, value);
        }
        set_length(&mut octets)?;
        let mac = hmac_md5(secret, &[&octets])?;
        octets.get_mut(22..38)?.copy_from_slice(&mac);
        let mut md5 = Md5::new();
        md5.update(&octets);
        md5.update(secret);
        let authenticator: [u8; 16] = md5.finalize().into();
        octets.get_mut(4..20)?.copy_from_slice(&authenticator);
        Some(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"shared";

    /// A request as a server makes it.
    fn request(code: u8, attributes: &[(u8, &[u8])], mac: bool) -> Vec<u8> {
        let mut octets = vec![code, 7, 0, 0];
        octets.extend([0; 16]);
        if mac {
            put(&mut octets, MESSAGE_AUTHENTICATOR, &[0; 16]);
        }
        attributes.iter().for_each(|(kind, value)| put(&mut octets, *kind, value));
        set_length(&mut octets).unwrap();
        if mac {
            let mac = hmac_md5(SECRET, &[&octets]).unwrap();
            octets[22..38].copy_from_slice(&mac);
        }
        let digest = Md5::digest([&octets, SECRET].concat());
        octets[4..20].copy_from_slice(&digest);
        octets
    }

    #[test]
    fn only_requests_with_both_authenticators_are_believed() {
        let good = request(40, &[(1, b"carol")], true);
        let parse = |octets: &[u8], secret: &[u8], demanded| {
            DynamicRequest::parse(octets, secret, demanded).map(|found| found.wish)
        };
        assert_eq!(parse(&good, SECRET, true), Ok(Wish::Disconnect));
        assert_eq!(parse(&request(43, &[], true), SECRET, true), Ok(Wish::Change));
        assert_eq!(parse(&good, b"other", true), Err(Unfit::Authenticator));
        let without = request(40, &[(1, b"carol")], false);
        assert_eq!(parse(&without, SECRET, true), Err(Unfit::MessageAuthenticator));
        assert_eq!(parse(&without, SECRET, false), Ok(Wish::Disconnect));
        // A wrong one is worse than none.
        let wrong = request(40, &[(MESSAGE_AUTHENTICATOR, &[1; 16])], false);
        assert_eq!(parse(&wrong, SECRET, false), Err(Unfit::MessageAuthenticator));
        for code in [1, 2, 4, 41, 42, 44, 45] {
            assert_eq!(parse(&request(code, &[], true), SECRET, true), Err(Unfit::Other));
        }
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert!(parse(&bad, SECRET, false).is_err(), "octet {place}");
            assert!(parse(&good[..place], SECRET, false).is_err(), "{place} octets");
        }
    }

    #[test]
    fn answers_are_signed_and_have_the_cause_and_what_proxies_said() {
        let octets = request(40, &[(PROXY_STATE, b"one"), (1, b"carol"), (PROXY_STATE, b"")], true);
        let request = DynamicRequest::parse(&octets, SECRET, true).unwrap();
        let answer = request.answer(Err(ErrorCause::SessionContextNotFound), SECRET).unwrap();
        assert_eq!(answer[..2], [42, 7]);
        assert!(is_authentic(&answer, &request.authenticator, SECRET));
        let (head, attributes) = answer.split_at(20);
        let signed = has_message_authenticator(head, &request.authenticator, attributes, SECRET);
        assert_eq!(signed, Ok(true));
        let rest: Vec<_> = all(attributes).skip(1).collect();
        let wanted: [(u8, &[u8]); 3] =
            [(ERROR_CAUSE, &[0, 0, 1, 247]), (PROXY_STATE, b"one"), (PROXY_STATE, b"")];
        assert_eq!(rest, wanted);
        assert_eq!(request.answer(Ok(()), SECRET).unwrap()[..2], [41, 7]);
        let octets = self::request(43, &[], true);
        let request = DynamicRequest::parse(&octets, SECRET, true).unwrap();
        assert_eq!(request.answer(Ok(()), SECRET).unwrap()[0], 44);
        assert_eq!(request.answer(Err(ErrorCause::InvalidRequest), SECRET).unwrap()[0], 45);
    }

    #[test]
    fn state_goes_back_to_who_wants_a_change() {
        for (code, back) in [(43, &b"s"[..]), (40, b"")] {
            let octets = request(code, &[(STATE, b"s"), (27, &[0, 0, 0, 9])], true);
            let request = DynamicRequest::parse(&octets, SECRET, true).unwrap();
            for outcome in [Ok(()), Err(ErrorCause::SessionContextNotFound)] {
                let answer = request.answer(outcome, SECRET).unwrap();
                let found = all(&answer[20..]).filter(|(kind, _)| *kind == STATE);
                let found: Vec<_> = found.flat_map(|(_, value)| value).copied().collect();
                assert_eq!(found, back, "{code} {outcome:?}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(octets in proptest::collection::vec(0..=255_u8, 0..80)) {
            let _ = DynamicRequest::parse(&octets, SECRET, false);
            let mut signed = vec![40, 1, 0, 0];
            signed.extend([0; 16]);
            signed.extend(&octets);
            set_length(&mut signed).unwrap();
            let digest = Md5::digest([&signed, SECRET].concat());
            signed[4..20].copy_from_slice(&digest);
            if let Ok(request) = DynamicRequest::parse(&signed, SECRET, false) {
                let _ = request.all().count();
                let _ = request.answer(Ok(()), SECRET);
            }
        }
    }
}
