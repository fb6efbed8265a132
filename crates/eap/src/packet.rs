//! The packet (RFC 3748 §4).
//!
//! ```text
//! Code (1) | Identifier (1) | Length (2) | [Type (1) | Type-Data]
//! ```

use std::fmt;

/// Octets a packet may have at most here. IKE carries more, but no method needs it.
pub const MAX_PACKET: usize = 16 * 1024;

/// What a packet is (RFC 3748 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// From the authenticator, with a type.
    Request,
    /// From the peer, with a type.
    Response,
    /// The authenticator is content.
    Success,
    /// The authenticator is not.
    Failure,
}

/// A method or one of the types that are none (RFC 3748 §5 and IANA's registry).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EapType(pub u8);

impl EapType {
    /// Identity.
    pub const IDENTITY: Self = Self(1);
    /// Notification.
    pub const NOTIFICATION: Self = Self(2);
    /// Nak, in responses alone.
    pub const NAK: Self = Self(3);
    /// MD5-Challenge.
    pub const MD5: Self = Self(4);
    /// Generic Token Card.
    pub const GTC: Self = Self(6);
    /// EAP-TLS (RFC 5216, RFC 9190).
    pub const TLS: Self = Self(13);
    /// EAP-TTLS (RFC 5281).
    pub const TTLS: Self = Self(21);
    /// EAP-MSCHAPv2.
    pub const MSCHAPV2: Self = Self(26);
    /// Expanded types (RFC 3748 §5.7): none of them is known here.
    pub const EXPANDED: Self = Self(254);

    /// The name that is used for it in configurations and logs.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::IDENTITY => "identity",
            Self::NOTIFICATION => "notification",
            Self::NAK => "nak",
            Self::MD5 => "md5",
            Self::GTC => "gtc",
            Self::TLS => "tls",
            Self::TTLS => "ttls",
            Self::MSCHAPV2 => "mschapv2",
            Self(25) => "peap",
            Self(18) => "sim",
            Self(23) => "aka",
            Self(52) => "pwd",
            _ => return None,
        })
    }

    /// True for the methods of which a server that is right always has a key to give (MSK).
    pub fn makes_key(self) -> bool {
        // In their order: TLS, SIM, TTLS, AKA, PEAP, MSCHAPv2, FAST, AKA', pwd, TEAP.
        matches!(self.0, 13 | 18 | 21 | 23 | 25 | 26 | 43 | 50 | 52 | 55)
    }

    /// True for the methods that authenticate both ends, make a key, and do not lend themselves to guessing
    /// passwords: those that may stand alone in IKEv2 (RFC 5998 §4). Of TTLS it is true because the
    /// server's certificate is always verified here.
    pub fn is_safe_alone(self) -> bool {
        matches!(self, Self::TLS | Self::TTLS)
    }
}

impl fmt::Debug for EapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

/// Not an EAP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed EAP packet")
    }
}

impl std::error::Error for Malformed {}

/// A packet taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Code.
    pub code: Code,
    /// Pairs a response with its request.
    pub identifier: u8,
    /// Type and Type-Data of requests and responses.
    pub body: Option<(EapType, &'a [u8])>,
}

impl<'a> Packet<'a> {
    /// Takes a packet apart. What follows its length is padding (RFC 3748 §4) and passed over.
    ///
    /// # Errors
    /// [`Malformed`]: the length lies, there is no type where there must be one, or it is too long.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Malformed> {
        let [code, identifier, high, low, ..] = *octets else { return Err(Malformed) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > MAX_PACKET {
            return Err(Malformed);
        }
        let body = octets.get(4..len).ok_or(Malformed)?;
        let code = match code {
            1 => Code::Request,
            2 => Code::Response,
            3 => Code::Success,
            4 => Code::Failure,
            _ => return Err(Malformed),
        };
        let body = match code {
            Code::Request | Code::Response => {
                let (&kind, data) = body.split_first().ok_or(Malformed)?;
                Some((EapType(kind), data))
            }
            Code::Success | Code::Failure => None,
        };
        Ok(Self { code, identifier, body })
    }

    /// The octets of the packet.
    ///
    /// # Panics
    /// Never: data longer than fits is cut, which no caller does.
    pub fn encode(&self) -> Vec<u8> {
        let code = match self.code {
            Code::Request => 1,
            Code::Response => 2,
            Code::Success => 3,
            Code::Failure => 4,
        };
        let mut octets = vec![code, self.identifier, 0, 0];
        if let Some((kind, data)) = self.body {
            octets.push(kind.0);
            octets.extend(data.get(..MAX_PACKET - 5).unwrap_or(data));
        }
        let len = u16::try_from(octets.len()).unwrap_or(u16::MAX);
        if let Some(place) = octets.get_mut(2..4) {
            place.copy_from_slice(&len.to_be_bytes());
        }
        octets
    }

    /// A request.
    pub fn request(identifier: u8, kind: EapType, data: &'a [u8]) -> Self {
        Self { code: Code::Request, identifier, body: Some((kind, data)) }
    }

    /// A response.
    pub fn response(identifier: u8, kind: EapType, data: &'a [u8]) -> Self {
        Self { code: Code::Response, identifier, body: Some((kind, data)) }
    }
}

impl fmt::Debug for Packet<'_> {
    // Types carry passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.code, self.identifier)?;
        match self.body {
            Some((kind, data)) => write!(f, " {kind}, {} octets", data.len()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_lie_are_refused_and_padding_is_passed_over() {
        let good = [1, 7, 0, 6, 1, b'x'];
        let packet = Packet::parse(&good).unwrap();
        assert_eq!(packet, Packet::request(7, EapType::IDENTITY, b"x"));
        assert_eq!(packet.encode(), good);
        assert_eq!(Packet::parse(&[1, 7, 0, 6, 1, b'x', 9, 9]), Ok(packet));
        assert_eq!(Packet::parse(&[3, 7, 0, 4]).unwrap().body, None);
        for bad in [
            &[][..],
            &[1, 7, 0],
            &[1, 7, 0, 4],
            &[1, 7, 0, 3, 1],
            &[1, 7, 0, 9, 1],
            &[0, 7, 0, 5, 1],
            &[5, 7, 0, 5, 1],
        ] {
            assert_eq!(Packet::parse(bad), Err(Malformed), "{bad:?}");
        }
        let mut long = vec![1, 7, 0xff, 0xff];
        long.resize(65535, 0);
        assert_eq!(Packet::parse(&long), Err(Malformed));
    }

    proptest::proptest! {
        #[test]
        fn what_is_made_is_read_again(id: u8, kind: u8, data in proptest::collection::vec(0..=255_u8, 0..200)) {
            for packet in [Packet::request(id, EapType(kind), &data), Packet::response(id, EapType(kind), &data)] {
                let octets = packet.encode();
                proptest::prop_assert_eq!(Packet::parse(&octets), Ok(packet));
            }
        }

        #[test]
        fn whatever_is_parsed_is_within_its_octets(octets in proptest::collection::vec(0..=255_u8, 0..64)) {
            if let Ok(packet) = Packet::parse(&octets) {
                let again = packet.encode();
                proptest::prop_assert_eq!(octets.get(..again.len()), Some(&again[..]));
            }
        }
    }
}
