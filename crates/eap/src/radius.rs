//! RADIUS (RFC 2865) as a pass-through authenticator speaks it (RFC 3579): packets, and the keys in them
//! (RFC 2548). Requests and answers carry Message-Authenticator, and an answer without it is not believed:
//! the others' only protection is MD5 (CVE-2024-3596).

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::conversation::Msk;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Access-Request.
    Request,
    /// Access-Accept.
    Accept,
    /// Access-Reject.
    Reject,
    /// Access-Challenge.
    Challenge,
}

/// Numbers of attributes.
#[expect(missing_docs, reason = "the names are those of RFC 2865, 2868, 2869, 3162, 5176 and 6911")]
pub mod attribute {
    pub const USER_NAME: u8 = 1;
    pub const NAS_IP_ADDRESS: u8 = 4;
    pub const NAS_PORT: u8 = 5;
    pub const SERVICE_TYPE: u8 = 6;
    pub const FRAMED_IP_ADDRESS: u8 = 8;
    pub const FRAMED_IP_NETMASK: u8 = 9;
    pub const FILTER_ID: u8 = 11;
    pub const REPLY_MESSAGE: u8 = 18;
    pub const STATE: u8 = 24;
    pub const CLASS: u8 = 25;
    pub const VENDOR_SPECIFIC: u8 = 26;
    pub const SESSION_TIMEOUT: u8 = 27;
    pub const CALLED_STATION_ID: u8 = 30;
    pub const CALLING_STATION_ID: u8 = 31;
    pub const NAS_IDENTIFIER: u8 = 32;
    pub const PROXY_STATE: u8 = 33;
    pub const EVENT_TIMESTAMP: u8 = 55;
    pub const NAS_PORT_TYPE: u8 = 61;
    pub const TUNNEL_TYPE: u8 = 64;
    pub const EAP_MESSAGE: u8 = 79;
    pub const MESSAGE_AUTHENTICATOR: u8 = 80;
    pub const ACCT_INTERIM_INTERVAL: u8 = 85;
    pub const NAS_PORT_ID: u8 = 87;
    pub const NAS_IPV6_ADDRESS: u8 = 95;
    pub const ERROR_CAUSE: u8 = 101;
    pub const FRAMED_IPV6_ADDRESS: u8 = 168;
    pub const DNS_SERVER_IPV6_ADDRESS: u8 = 169;
}

use attribute::{EAP_MESSAGE, MESSAGE_AUTHENTICATOR, VENDOR_SPECIFIC};

/// Octets of a packet at most (RFC 2865 §3).
pub const MAX_PACKET: usize = 4096;

/// An Access-Request that is being put together.
#[derive(Debug)]
pub struct Request {
    octets: Vec<u8>,
}

impl Request {
    /// Without attributes yet; `authenticator` is random.
    pub fn new(identifier: u8, authenticator: [u8; 16]) -> Self {
        let mut octets = vec![1, identifier, 0, 0];
        octets.extend(authenticator);
        // In front, so that whoever looks at the beginning alone sees it.
        octets.extend([MESSAGE_AUTHENTICATOR, 18]);
        octets.extend([0; 16]);
        Self { octets }
    }

    /// Adds an attribute; of an EAP message, all the attributes it takes. Others are cut at 253 octets.
    pub fn add(&mut self, kind: u8, value: &[u8]) {
        for part in value.chunks(253).take(if kind == EAP_MESSAGE { usize::MAX } else { 1 }) {
            put(&mut self.octets, kind, part);
        }
    }

    /// The datagram and the Request Authenticator; `None` if it is too long.
    pub fn finish(mut self, secret: &[u8]) -> Option<(Vec<u8>, [u8; 16])> {
        set_length(&mut self.octets)?;
        let mac = hmac_md5(secret, &[&self.octets])?;
        self.octets[22..38].copy_from_slice(&mac);
        let authenticator = self.octets.get(4..20)?.try_into().ok()?;
        Some((self.octets, authenticator))
    }
}

/// Appends an attribute of at most 253 octets.
pub(crate) fn put(octets: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let value = value.get(..253).unwrap_or(value);
    if let Ok(len) = u8::try_from(value.len() + 2) {
        octets.extend([kind, len]);
        octets.extend(value);
    }
}

/// Writes the length of the packet into its header; `None` if it is too long.
pub(crate) fn set_length(octets: &mut [u8]) -> Option<()> {
    let len = u16::try_from(octets.len()).ok().filter(|len| usize::from(*len) <= MAX_PACKET)?;
    octets.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
    Some(())
}

/// True if the Response Authenticator of `packet` is right (RFC 2865 §3, RFC 2866 §3).
pub(crate) fn is_authentic(packet: &[u8], request: &[u8; 16], secret: &[u8]) -> bool {
    let Some((head, attributes)) = packet.split_at_checked(20) else { return false };
    let mut md5 = Md5::new();
    md5.update(&head[..4]);
    md5.update(request);
    md5.update(attributes);
    md5.update(secret);
    md5.finalize().as_slice().ct_eq(&head[4..]).into()
}

/// The types and values of `attributes`, as they stand one after the other in a packet.
pub fn all(attributes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = attributes;
    std::iter::from_fn(move || {
        let [kind, len, ..] = *rest else { return None };
        let (attribute, after) = rest.split_at_checked(usize::from(len))?;
        rest = after;
        Some((kind, attribute.get(2..)?))
    })
}

/// The vendor, the types and the values in the value of a Vendor-Specific attribute (RFC 2865 §5.26).
pub fn of_vendor(value: &[u8]) -> impl Iterator<Item = (u32, u8, &[u8])> {
    let (vendor, rest) = value.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    all(rest).map(|(kind, value)| (u32::from_be_bytes(*vendor), kind, value))
}

/// True if there is a Message-Authenticator, and it is right; all attributes must be whole. `authenticator` is what
/// stands in the header for it.
pub(crate) fn has_message_authenticator(
    head: &[u8],
    authenticator: &[u8; 16],
    attributes: &[u8],
    secret: &[u8],
) -> Result<bool, Unfit> {
    // The place of the value.
    let mut place = None;
    let mut at = 0;
    while at < attributes.len() {
        let (kind, len) = match attributes[at..] {
            [kind, len, ..] if len >= 2 => (kind, usize::from(len)),
            _ => return Err(Unfit::Other),
        };
        if at + len > attributes.len() {
            return Err(Unfit::Other);
        }
        if kind == MESSAGE_AUTHENTICATOR {
            if place.is_some() || len != 18 {
                return Err(Unfit::MessageAuthenticator);
            }
            place = Some(at + 2);
        }
        at += len;
    }
    let Some(place) = place else { return Ok(false) };
    let (before, rest) = attributes.split_at(place);
    let (given, after) = rest.split_at(16);
    let parts = [&head[..4], authenticator, before, &[0; 16], after];
    let mac = hmac_md5(secret, &parts).ok_or(Unfit::MessageAuthenticator)?;
    match bool::from(mac.ct_eq(given)) {
        true => Ok(true),
        false => Err(Unfit::MessageAuthenticator),
    }
}

/// A server's answer that was found genuine.
#[derive(Debug)]
pub struct Response<'a> {
    /// What it says.
    pub code: Code,
    attributes: &'a [u8],
}

/// Why a packet is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Not a packet, or the answer to another request.
    Other,
    /// A wrong Response Authenticator: the secrets differ, or it is forged.
    Authenticator,
    /// No Message-Authenticator, or a wrong one.
    MessageAuthenticator,
}

impl<'a> Response<'a> {
    /// Takes an answer to the request of `identifier` and `authenticator` apart, and believes it only if both
    /// its authenticators are right.
    ///
    /// # Errors
    /// [`Unfit`] says what is wrong; the datagram is to be dropped, and the answer waited for.
    pub fn parse(
        datagram: &'a [u8],
        identifier: u8,
        authenticator: &[u8; 16],
        secret: &[u8],
    ) -> Result<Self, Unfit> {
        let [code, id, high, low, ..] = *datagram else { return Err(Unfit::Other) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let code = match code {
            2 => Code::Accept,
            3 => Code::Reject,
            11 => Code::Challenge,
            _ => return Err(Unfit::Other),
        };
        if id != identifier || !(20..=MAX_PACKET).contains(&len) {
            return Err(Unfit::Other);
        }
        let packet = datagram.get(..len).ok_or(Unfit::Other)?;
        let (head, attributes) = packet.split_at_checked(20).ok_or(Unfit::Other)?;
        if !is_authentic(packet, authenticator, secret) {
            return Err(Unfit::Authenticator);
        }
        if !has_message_authenticator(head, authenticator, attributes, secret)? {
            return Err(Unfit::MessageAuthenticator);
        }
        Ok(Self { code, attributes })
    }

    /// All attributes, in their order.
    pub fn all(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        all(self.attributes)
    }

    /// The values of the attributes of `kind`.
    pub fn values(&self, kind: u8) -> impl Iterator<Item = &'a [u8]> {
        self.all().filter(move |(this, _)| *this == kind).map(|(_, value)| value)
    }

    /// The EAP packet, put together of its attributes.
    pub fn eap(&self) -> Option<Vec<u8>> {
        let octets: Vec<u8> = self.values(EAP_MESSAGE).flatten().copied().collect();
        (!octets.is_empty()).then_some(octets)
    }

    /// The MSK in MS-MPPE-Recv-Key and MS-MPPE-Send-Key (RFC 2548 §2.4), if there are both.
    pub fn msk(&self, authenticator: &[u8; 16], secret: &[u8]) -> Option<Msk> {
        let key = |wanted: u8| {
            self.values(VENDOR_SPECIFIC).find_map(|value| {
                let (vendor, mut rest) = value.split_first_chunk::<4>()?;
                while let [kind, len, ..] = *rest
                    && u32::from_be_bytes(*vendor) == MICROSOFT
                {
                    let (attribute, after) = rest.split_at_checked(usize::from(len))?;
                    if kind == wanted {
                        return decrypt(attribute.get(2..)?, authenticator, secret);
                    }
                    rest = if len == 0 { &[] } else { after };
                }
                None
            })
        };
        let (receive, send) = (key(MS_MPPE_RECV_KEY)?, key(MS_MPPE_SEND_KEY)?);
        Some(Msk::new([receive.as_slice(), &send].concat()))
    }
}

const MICROSOFT: u32 = 311;
const MS_MPPE_SEND_KEY: u8 = 16;
const MS_MPPE_RECV_KEY: u8 = 17;

/// Salt and String of RFC 2548 §2.4.2; the key in it.
fn decrypt(value: &[u8], authenticator: &[u8; 16], secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (salt, cipher) = value.split_at_checked(2)?;
    let (blocks, []) = cipher.as_chunks::<16>() else { return None };
    let mut plain = Zeroizing::new(Vec::with_capacity(cipher.len()));
    let mut before = [authenticator.as_slice(), salt].concat();
    for block in blocks {
        let mut md5 = Md5::new();
        md5.update(secret);
        md5.update(&before);
        let pad = Zeroizing::new(<[u8; 16]>::from(md5.finalize()));
        plain.extend(block.iter().zip(pad.iter()).map(|(a, b)| a ^ b));
        before = block.to_vec();
    }
    let (&len, key) = plain.split_first()?;
    Some(Zeroizing::new(key.get(..usize::from(len))?.to_vec()))
}

pub(crate) fn hmac_md5(secret: &[u8], parts: &[&[u8]]) -> Option<[u8; 16]> {
    let mut mac = Hmac::<Md5>::new_from_slice(secret).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"shared";

    /// An answer as a server makes it.
    fn answer(
        code: u8,
        id: u8,
        request: &[u8; 16],
        attributes: &[(u8, &[u8])],
        mac: bool,
    ) -> Vec<u8> {
        let mut octets = vec![code, id, 0, 0];
        octets.extend(request);
        let place = octets.len() + 2;
        if mac {
            octets.extend([MESSAGE_AUTHENTICATOR, 18]);
            octets.extend([0; 16]);
        }
        for (kind, value) in attributes {
            octets.extend([*kind, value.len() as u8 + 2]);
            octets.extend(*value);
        }
        let len = octets.len() as u16;
        octets[2..4].copy_from_slice(&len.to_be_bytes());
        if mac {
            let digest = hmac_md5(SECRET, &[&octets]).unwrap();
            octets[place..place + 16].copy_from_slice(&digest);
        }
        let digest = Md5::digest([&octets, SECRET].concat());
        octets[4..20].copy_from_slice(&digest);
        octets
    }

    #[test]
    fn only_answers_with_both_authenticators_are_believed() {
        let request = [7; 16];
        let good = answer(11, 3, &request, &[(EAP_MESSAGE, b"abc"), (EAP_MESSAGE, b"def")], true);
        let parse = |octets: &[u8], id, secret: &[u8]| {
            Response::parse(octets, id, &request, secret).map(|found| (found.code, found.eap()))
        };
        assert_eq!(parse(&good, 3, SECRET), Ok((Code::Challenge, Some(b"abcdef".to_vec()))));
        assert_eq!(parse(&good, 4, SECRET), Err(Unfit::Other));
        assert_eq!(parse(&good, 3, b"other"), Err(Unfit::Authenticator));
        let without = answer(2, 3, &request, &[(EAP_MESSAGE, b"abc")], false);
        assert_eq!(parse(&without, 3, SECRET), Err(Unfit::MessageAuthenticator));
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert!(parse(&bad, 3, SECRET).is_err(), "octet {place}");
        }
        assert!((0..good.len()).all(|len| parse(&good[..len], 3, SECRET).is_err()));
        let lies = answer(2, 3, &request, &[], true);
        let short = [&lies[..], &[1, 0]].concat();
        assert!(parse(&short, 3, SECRET).is_ok(), "what follows the length is padding");
    }

    #[test]
    fn a_request_has_a_message_authenticator_over_all_of_it() {
        let mut request = Request::new(9, [5; 16]);
        request.add(attribute::USER_NAME, b"carol");
        request.add(EAP_MESSAGE, &[1; 300]);
        let (octets, authenticator) = request.finish(SECRET).unwrap();
        assert_eq!(authenticator, [5; 16]);
        assert_eq!(usize::from(octets[2]) << 8 | usize::from(octets[3]), octets.len());
        let mut blank = octets.clone();
        blank[22..38].fill(0);
        assert_eq!(octets[22..38], hmac_md5(SECRET, &[&blank]).unwrap());
        assert_eq!(octets.len(), 20 + 18 + 7 + 255 + 49);
        let mut long = Request::new(9, [5; 16]);
        long.add(EAP_MESSAGE, &[1; 5000]);
        assert!(long.finish(SECRET).is_none());
    }

    #[test]
    fn keys_are_decrypted() {
        let (request, salt) = ([7; 16], [0x80, 1]);
        let key: Vec<u8> = (1..=32).collect();
        let encrypt = |kind: u8| {
            let mut plain = vec![32];
            plain.extend(&key);
            plain.resize(48, 0);
            let mut before = [&request[..], &salt].concat();
            let mut value = vec![0, 0, 1, 55, kind, 52];
            value.extend(salt);
            for block in plain.chunks(16) {
                let pad = Md5::digest([SECRET, &before].concat());
                before = block.iter().zip(pad.iter()).map(|(a, b)| a ^ b).collect();
                value.extend(&before);
            }
            value
        };
        let (send, receive) = (encrypt(MS_MPPE_SEND_KEY), encrypt(MS_MPPE_RECV_KEY));
        let both = [(VENDOR_SPECIFIC, &send[..]), (VENDOR_SPECIFIC, &receive)];
        let octets = answer(2, 3, &request, &both, true);
        let response = Response::parse(&octets, 3, &request, SECRET).unwrap();
        assert_eq!(response.msk(&request, SECRET).unwrap().expose(), [&key[..], &key].concat());
        let one = answer(2, 3, &request, &both[..1], true);
        assert!(
            Response::parse(&one, 3, &request, SECRET).unwrap().msk(&request, SECRET).is_none()
        );
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(octets in proptest::collection::vec(0..=255_u8, 0..80)) {
            let _ = Response::parse(&octets, 0, &[0; 16], b"x");
            let octets = answer(2, 3, &[0; 16], &[(VENDOR_SPECIFIC, &octets)], true);
            let response = Response::parse(&octets, 3, &[0; 16], SECRET);
            let _ = response.unwrap().msk(&[0; 16], SECRET);
        }
    }
}
