//! Whole messages: the header and the chain of payloads (RFC 7296 §3.1, §3.2).

use super::codec::{DecodeError, Reader, patch_length};
use super::header::{HEADER_LEN, Header};
use super::payload::Payload;
use super::registry::PayloadType;

/// Octets of the generic payload header.
pub const GENERIC_HEADER_LEN: usize = 4;
/// The most payloads in one chain. A longer one is [`DecodeError::TooMany`].
pub const MAX_PAYLOADS: usize = 256;

const CRITICAL: u8 = 0x80;

/// A message with its outer payloads decoded. The contents of SK or SKF are still sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// Header.
    pub header: Header,
    /// Payloads in order.
    pub payloads: Vec<Payload<'a>>,
}

impl<'a> Message<'a> {
    /// Decodes a datagram, without the non-ESP marker of port 4500.
    ///
    /// The header's length must be the datagram's, and the initiator's SPI not zero but in an INFORMATIONAL request
    /// outside of an IKE SA (RFC 7296 §1.5).
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DecodeError> {
        let header = Header::decode(datagram)?;
        if usize::try_from(header.length) != Ok(datagram.len()) {
            return Err(DecodeError::Invalid("message length"));
        }
        if header.spi_i == 0 && !header.is_outside() {
            return Err(DecodeError::Invalid("initiator's SPI"));
        }
        let chain = datagram.get(HEADER_LEN..).unwrap_or_default();
        let payloads = decode_payloads(header.next_payload, chain, HEADER_LEN)?;
        Ok(Self { header, payloads })
    }
}

/// Decodes a chain of payloads: all of a message after its header, or the plaintext of SK.
///
/// `first` is the type of the first payload, `base_offset` the offset of `octets` in the message
/// (it shows again in [`Sk::offset`](super::payload::Sk::offset)). All octets must be used up, and SK
/// and SKF must come last. The critical bit counts only for unknown types (RFC 7296 §3.2).
///
/// ```text
///                      1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | Next Payload  |C|  RESERVED   |         Payload Length        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
pub fn decode_payloads(
    first: PayloadType,
    octets: &[u8],
    base_offset: usize,
) -> Result<Vec<Payload<'_>>, DecodeError> {
    // As many as most messages have.
    let mut payloads = Vec::with_capacity(match first {
        PayloadType::NONE => 0,
        PayloadType::SK | PayloadType::SKF => 1,
        _ => 12,
    });
    let mut kind = first;
    let mut r = Reader::new(octets);
    while kind != PayloadType::NONE {
        if payloads.len() == MAX_PAYLOADS {
            return Err(DecodeError::TooMany("payloads"));
        }
        let next = PayloadType(r.u8("payload header")?);
        let critical = r.u8("payload header")? & CRITICAL != 0;
        let length = usize::from(r.u16("payload header")?);
        let length =
            length.checked_sub(GENERIC_HEADER_LEN).ok_or(DecodeError::Invalid("payload length"))?;
        let offset = base_offset + (octets.len() - r.rest().len());
        let body = r.take(length, "payload")?;
        let payload = Payload::decode(kind, next, body, offset)?;
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.2
        //# MUST be ignored by the recipient if the recipient understands the payload type code.
        if critical && matches!(payload, Payload::Unknown { .. }) {
            return Err(DecodeError::UnsupportedCritical(kind.0));
        }
        // The next-payload field of SK and SKF names the first payload inside.
        let last = matches!(payload, Payload::Sk(_) | Payload::Skf(_));
        payloads.push(payload);
        kind = if last { PayloadType::NONE } else { next };
    }
    r.all("the last payload")?;
    Ok(payloads)
}

/// Decodes the plaintext of SK, or of reassembled SKF payloads. Neither may be in it again.
pub fn decode_inner_payloads(
    first: PayloadType,
    octets: &[u8],
) -> Result<Vec<Payload<'_>>, DecodeError> {
    let payloads = decode_payloads(first, octets, 0)?;
    match payloads.last() {
        Some(Payload::Sk(_) | Payload::Skf(_)) => {
            Err(DecodeError::Invalid("SK payload in another"))
        }
        _ => Ok(payloads),
    }
}

/// Appends a chain of payloads and returns the type of the first, NONE if there is none.
///
/// SK and SKF, with a body sealed already, must be last.
pub fn encode_payloads(payloads: &[Payload<'_>], out: &mut Vec<u8>) -> PayloadType {
    for (i, payload) in payloads.iter().enumerate() {
        let next = match payload {
            Payload::Sk(sk) => sk.first,
            Payload::Skf(skf) => skf.first,
            _ => payloads.get(i + 1).map_or(PayloadType::NONE, Payload::kind),
        };
        let start = out.len();
        out.extend_from_slice(&[next.0, 0, 0, 0]);
        payload.encode(out);
        patch_length(out, start, start + 2);
    }
    payloads.first().map_or(PayloadType::NONE, Payload::kind)
}

/// Octets that are enough for most messages: what a buffer for one begins with.
pub const USUAL_LEN: usize = 512;

/// Encodes a message that is not protected, or one whose SK or SKF body is sealed already.
///
/// `next_payload` and `length` of `header` are filled in here.
pub fn encode_message(header: &Header, payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_LEN);
    let next_payload = payloads.first().map_or(PayloadType::NONE, Payload::kind);
    Header { next_payload, ..*header }.encode(&mut out);
    encode_payloads(payloads, &mut out);
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    // The last field of the header.
    if let Some(field) = out.get_mut(HEADER_LEN - 4..HEADER_LEN) {
        field.copy_from_slice(&length.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Flags;
    use crate::payload::{Notify, Sk};
    use crate::registry::{ExchangeType, NotifyType};

    const HEADER: Header = Header {
        spi_i: 1,
        spi_r: 0,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 0,
        length: 0,
    };

    fn decode_with_flags(kind: PayloadType, flags: u8) -> Result<usize, DecodeError> {
        let octets = [0, flags, 0, 8, 0, 0, 0x40, 0x04];
        decode_payloads(kind, &octets, 0).map(|payloads| payloads.len())
    }

    #[test]
    fn message_round_trip() {
        let notify = Payload::Notify(Notify::new(NotifyType::COOKIE, &[3; 8]));
        let unknown = Payload::Unknown { kind: PayloadType(200), body: &[1, 2] };
        let sent = [notify, unknown, Payload::Nonce(&[5; 16])];
        let datagram = encode_message(&HEADER, &sent);
        let message = Message::decode(&datagram).unwrap();
        assert_eq!(message.payloads, sent);
        let length = u32::try_from(datagram.len()).unwrap();
        assert_eq!(message.header, Header { next_payload: PayloadType::NOTIFY, length, ..HEADER });
    }

    #[test]
    fn empty_message() {
        let datagram = encode_message(&HEADER, &[]);
        assert_eq!(datagram.len(), HEADER_LEN);
        assert_eq!(Message::decode(&datagram).unwrap().payloads, []);
        assert_eq!(
            decode_payloads(PayloadType::NONE, &[0; 4], 0),
            Err(DecodeError::Trailing("the last payload"))
        );
    }

    #[test]
    fn initiators_spi_must_not_be_zero() {
        let datagram = encode_message(&Header { spi_i: 0, ..HEADER }, &[]);
        assert_eq!(Message::decode(&datagram), Err(DecodeError::Invalid("initiator's SPI")));
    }

    #[test]
    fn critical_bit_counts_for_unknown_types_only() {
        assert_eq!(decode_with_flags(PayloadType(200), 0x00), Ok(1));
        assert_eq!(decode_with_flags(PayloadType(200), 0x7f), Ok(1), "reserved bits");
        let critical = decode_with_flags(PayloadType(200), 0x80);
        assert_eq!(critical, Err(DecodeError::UnsupportedCritical(200)));
        assert_eq!(decode_with_flags(PayloadType::NOTIFY, 0xff), Ok(1));
    }

    #[test]
    fn sealed_payload_is_not_inside_another() {
        let nested = Err(DecodeError::Invalid("SK payload in another"));
        let octets = [0, 0, 0, 12, 0, 1, 0, 1, 9, 9, 9, 9];
        for kind in [PayloadType::SK, PayloadType::SKF] {
            assert_eq!(decode_inner_payloads(kind, &octets), nested);
        }
        assert_eq!(decode_inner_payloads(PayloadType::NONE, &[]), Ok(Vec::new()));
        assert_eq!(decode_inner_payloads(PayloadType::VENDOR, &octets).map(|p| p.len()), Ok(1));
    }

    #[test]
    fn sealed_payload_is_last_and_knows_where_it_is() {
        let body = [9; 20];
        let offset = HEADER_LEN + 20 + GENERIC_HEADER_LEN;
        let sk = Payload::Sk(Sk { first: PayloadType::ID_I, offset, body: &body });
        let sent = [Payload::Nonce(&[5; 16]), sk];
        let mut datagram = encode_message(&HEADER, &sent);
        assert_eq!(Message::decode(&datagram).unwrap().payloads, sent);
        assert_eq!(datagram.get(offset..), Some(&body[..]));

        datagram.extend_from_slice(&[0, 0, 0, 4]);
        let length = u32::try_from(datagram.len()).unwrap();
        datagram[24..28].copy_from_slice(&length.to_be_bytes());
        let trailing = Err(DecodeError::Trailing("the last payload"));
        assert_eq!(Message::decode(&datagram), trailing);
    }
}
