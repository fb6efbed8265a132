//! Packets: requests, their responses, and events.

use crate::message::{Reader, Section, put_name};
use crate::{Error, LONGEST_SEGMENT};

/// A packet. Clients send [`Request`](Self::Request), [`Register`](Self::Register) and
/// [`Unregister`](Self::Unregister), one at a time; a server answers each, and sends events at any time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// A command, and what it is about.
    Request(String, Section),
    /// The answer to a command.
    Response(Section),
    /// There is no such command.
    UnknownCommand,
    /// The client wants events of this name.
    Register(String),
    /// It does not want them any more.
    Unregister(String),
    /// The events are sent, or not any more, as it was asked.
    Confirm,
    /// There are no such events.
    UnknownEvent,
    /// An event.
    Event(String, Section),
}

const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;
const UNKNOWN_COMMAND: u8 = 2;
const REGISTER: u8 = 3;
const UNREGISTER: u8 = 4;
const CONFIRM: u8 = 5;
const UNKNOWN_EVENT: u8 = 6;
const EVENT: u8 = 7;

impl Packet {
    /// The packet in a segment whose length was taken off.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(segment: &[u8]) -> Result<Self, Error> {
        if segment.len() > LONGEST_SEGMENT {
            return Err(Error::TooLong);
        }
        let mut reader = Reader::new(segment);
        let packet = match reader.octet()? {
            REQUEST => Self::Request(reader.name()?, reader.section()?),
            RESPONSE => Self::Response(reader.section()?),
            UNKNOWN_COMMAND => Self::UnknownCommand,
            REGISTER => Self::Register(reader.name()?),
            UNREGISTER => Self::Unregister(reader.name()?),
            CONFIRM => Self::Confirm,
            UNKNOWN_EVENT => Self::UnknownEvent,
            EVENT => Self::Event(reader.name()?, reader.section()?),
            other => return Err(Error::PacketType(other)),
        };
        if reader.is_empty() { Ok(packet) } else { Err(Error::Trailing) }
    }

    /// The whole segment, its length in front.
    ///
    /// # Errors
    /// A name, a value or the whole is too long.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; 4];
        let (kind, name, section) = match self {
            Self::Request(name, section) => (REQUEST, Some(name), Some(section)),
            Self::Response(section) => (RESPONSE, None, Some(section)),
            Self::UnknownCommand => (UNKNOWN_COMMAND, None, None),
            Self::Register(name) => (REGISTER, Some(name), None),
            Self::Unregister(name) => (UNREGISTER, Some(name), None),
            Self::Confirm => (CONFIRM, None, None),
            Self::UnknownEvent => (UNKNOWN_EVENT, None, None),
            Self::Event(name, section) => (EVENT, Some(name), Some(section)),
        };
        out.push(kind);
        if let Some(name) = name {
            put_name(&mut out, name)?;
        }
        if let Some(section) = section {
            section.encode(&mut out)?;
        }
        let len = out.len() - 4;
        if len > LONGEST_SEGMENT {
            return Err(Error::TooLong);
        }
        let len = u32::try_from(len).map_err(|_| Error::TooLong)?;
        out[..4].copy_from_slice(&len.to_be_bytes());
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `version`, as a client sends it.
    #[test]
    fn a_request_without_a_message_reads_as_written() {
        let segment = b"\0\0\0\x09\0\x07version";
        let packet = Packet::decode(&segment[4..]).unwrap();
        assert_eq!(packet, Packet::Request("version".to_owned(), Section::new()));
        assert_eq!(packet.encode().unwrap(), segment);
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for (segment, error) in [
            (&b""[..], Error::Truncated),
            (b"\x08", Error::PacketType(8)),
            (b"\0", Error::Truncated),
            (b"\0\x08version", Error::Truncated),
            (b"\x03\x00", Error::Name),
            (b"\x03\x01\x07", Error::Name),
            (b"\x03\x03abcd", Error::Trailing),
            (b"\x05\x00", Error::Trailing),
        ] {
            assert_eq!(Packet::decode(segment), Err(error), "{segment:?}");
        }
        assert_eq!(Packet::decode(&vec![5; LONGEST_SEGMENT + 1]), Err(Error::TooLong));
    }

    #[test]
    fn nothing_is_sent_that_is_too_long() {
        assert_eq!(Packet::Register("a".repeat(256)).encode(), Err(Error::Name));
        let section = Section::new().list("l", vec!["x".repeat(60_000); 9]);
        assert_eq!(Packet::Response(section).encode(), Err(Error::TooLong));
    }
}
