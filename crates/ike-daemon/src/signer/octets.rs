//! What kind of message a key is asked to sign.
//!
//! The process that the network reaches chooses every octet of such a message. A signature over a certificate, or in the
//! TLS of another service, would be of use to an attacker who has taken that process over.

use ike_proto::wire::payload::Payload;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::wire::{HEADER_LEN, Message};

/// Eight zero octets before both messages (draft-ietf-ipsecme-ikev2-downgrade-prevention §6).
const ZERO_PREFIX: [u8; 8] = [0; 8];

/// Octets after the messages: a nonce of 16 to 256, the output of a PRF of 16 to 64, and with IKE_INTERMEDIATE two more of
/// these and a Message ID of 4 (RFC 7296 §2.15, RFC 9242 §3.3.2).
const AFTER: std::ops::RangeInclusive<usize> = 32..=256 + 3 * 64 + 4;

/// The tags of DER's SEQUENCE and SET.
const SEQUENCE_OR_SET: [u8; 2] = [0x30, 0x31];

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What an AUTH payload covers.
    Auth,
    /// One whole DER value: a certificate, a CRL, an OCSP response, attributes of CMS.
    Der,
    /// Something else: a transcript of TLS, if all is well.
    Other,
}

impl Kind {
    /// The kind of `octets`.
    ///
    /// What begins as a DER value or as a transcript of TLS is no AUTH, because an attacker may have put messages of IKE
    /// into it. The octets of a handshake look so by chance less than once in 2^26, and it is then begun anew.
    pub(super) fn of(octets: &[u8]) -> Self {
        if is_one_der_value(octets) {
            return Self::Der;
        }
        match is_auth(octets) && !begins_tls(octets) {
            true => Self::Auth,
            false => Self::Other,
        }
    }
}

/// True for the beginning of what a client of TLS or DTLS 1.2 signs: its ClientHello, which an attacker may choose, and then
/// what the server says. TLS 1.3 signs nothing that begins so (RFC 8446 §4.4.3), and a server of TLS 1.2 signs the client's
/// random number first.
fn begins_tls(octets: &[u8]) -> bool {
    let is_server_hello = |at: usize| octets.get(at) == Some(&2);
    let of = |lengths: [u8; 3]| lengths.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet));
    // Any version counts: a server answers a later version with its own (RFC 5246 §7.4.1.2, App. E.1).
    match *octets {
        // DTLS: the length, any number, and one fragment with all (RFC 6347 §4.2.2).
        [1, a @ 0..=2, b, c, _, _, 0, 0, 0, d, e, f, ..] if [a, b, c] == [d, e, f] => true,
        // The length, at most 0x20147.
        [1, a @ 0..=2, b, c, ..] => is_server_hello(4 + of([a, b, c])),
        // As of SSL 2.0: the version, and the lengths of ciphers, of the session ID and of the challenge. Servers are more
        // lenient about the last two than RFC 5246 App. E.2.
        [1, 3..=u8::MAX, _, a, b, 0, c @ 0..=32, d, e, ..] => {
            is_server_hello(9 + of([0, a, b]) + usize::from(c) + of([0, d, e]))
        }
        _ => false,
    }
}

/// True for InitiatorSignedOctets and ResponderSignedOctets (RFC 7296 §2.15).
fn is_auth(octets: &[u8]) -> bool {
    let rest = match octets.strip_prefix(&ZERO_PREFIX) {
        Some(both) => after_ike_sa_init(both).and_then(after_ike_sa_init),
        None => after_ike_sa_init(octets),
    };
    rest.is_some_and(|rest| AFTER.contains(&rest.len()))
}

/// What follows the message of IKE_SA_INIT at the beginning of `octets`. `None` if there is none with the payloads of an IKE
/// SA.
fn after_ike_sa_init(octets: &[u8]) -> Option<&[u8]> {
    let length = octets.get(HEADER_LEN - 4..HEADER_LEN)?.try_into().ok()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    let (message, rest) = octets.split_at_checked(length)?;
    let message = Message::decode(message).ok()?;
    let has = |is: fn(&Payload<'_>) -> bool| message.payloads.iter().any(is);
    let agrees = has(|one| matches!(one, Payload::Sa(_)))
        && has(|one| matches!(one, Payload::Ke(_)))
        && has(|one| matches!(one, Payload::Nonce(_)));
    let header = &message.header;
    let first = header.exchange == ExchangeType::IKE_SA_INIT && header.message_id == 0;
    (first && agrees).then_some(rest)
}

/// True if `octets` are a SEQUENCE or a SET with exactly its own length.
fn is_one_der_value(octets: &[u8]) -> bool {
    let Some((tag, rest)) = octets.split_first() else { return false };
    let Some((first, rest)) = rest.split_first() else { return false };
    let content = match usize::from(first & 0x7f) {
        short if first & 0x80 == 0 => Some((short, rest)),
        octets_of_length => rest.split_at_checked(octets_of_length).map(|(length, rest)| {
            let sum = |sum: usize, octet: &u8| {
                sum.saturating_mul(256).saturating_add(usize::from(*octet))
            };
            (length.iter().fold(0, sum), rest)
        }),
    };
    SEQUENCE_OR_SET.contains(tag) && content.is_some_and(|(length, rest)| rest.len() == length)
}

#[cfg(test)]
pub(super) mod tests {
    use ike_proto::wire::payload::{Ke, Proposal, Sa, Spi};
    use ike_proto::wire::registry::{KeMethodId, PayloadType, ProtocolId};
    use ike_proto::wire::{Flags, Header, message::encode_message};

    use super::*;

    /// A message of IKE_SA_INIT with `payloads`.
    fn message(spi_i: u64, message_id: u32, payloads: &[Payload<'_>]) -> Vec<u8> {
        let header = Header {
            spi_i,
            spi_r: 0,
            next_payload: PayloadType(0),
            minor_version: 0,
            exchange: ExchangeType::IKE_SA_INIT,
            flags: Flags { initiator: true, version: false, response: false },
            message_id,
            length: 0,
        };
        encode_message(&header, payloads)
    }

    fn payloads() -> [Payload<'static>; 3] {
        let ke = Ke { method: KeMethodId(31), data: &[1; 32] };
        let proposal = Proposal {
            number: 1,
            protocol: ProtocolId::IKE,
            spi: Spi::None,
            transforms: Vec::new(),
        };
        let sa = Sa { proposals: vec![proposal] };
        [Payload::Sa(sa), Payload::Ke(ke), Payload::Nonce(&[2; 32])]
    }

    /// What a key of IKE may sign.
    pub(in super::super) fn signed_octets() -> Vec<u8> {
        [message(7, 0, &payloads()), vec![3; 32 + 32]].concat()
    }

    /// Faults, each by itself: in `is_auth`, allow any rest; leave out the zero prefix; in `after_ike_sa_init`, do not look
    /// for the payloads; ignore the Message ID.
    #[test]
    fn an_auth_is_known_by_its_messages_and_by_what_follows() {
        let init = message(7, 0, &payloads());
        let full = [&ZERO_PREFIX[..], &init, &init, &[3; 32 + 64 + 132]].concat();
        for octets in [signed_octets(), full, [&init[..], &[3; 32]].concat()] {
            assert_eq!(Kind::of(&octets), Kind::Auth);
        }
        let long = [&init[..], &[3; 453]].concat();
        let short = [&init[..], &[3; 31]].concat();
        let bare = [message(7, 0, &payloads()[..2]), vec![3; 64]].concat();
        let later = [message(7, 1, &payloads()), vec![3; 64]].concat();
        let one_of_two = [&ZERO_PREFIX[..], &init, &[3; 64]].concat();
        let tls = [&[0x20; 64][..], b"TLS 1.3, server CertificateVerify\0", &[4; 32]].concat();
        for octets in [long, short, bare, later, one_of_two, tls, init, Vec::new(), vec![0; 8]] {
            assert_eq!(Kind::of(&octets), Kind::Other, "{octets:?}");
        }
    }

    /// Faults, each by itself: in `begins_tls`, leave one of the three out; take a length of two octets; know only the
    /// versions of TLS 1.2 and below; do not look for the ServerHello; in `is_one_der_value`, look at the tag alone, or know
    /// no long lengths.
    #[test]
    fn messages_of_ike_inside_a_certificate_or_a_client_hello_are_no_auth() {
        let init = message(7, 0, &payloads());
        let begun = |spis: [u8; 16], length: usize| {
            let mut octets = [&init[..], &vec![3; length - init.len()]].concat();
            octets[..16].copy_from_slice(&spis);
            octets
        };
        let length = init.len() + 32;
        let short = u8::try_from(length).unwrap();
        for (spis, kind) in [
            ([1, 0, 0, short - 4, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], Kind::Other),
            ([1, 0, 0, short - 4, 3, 5, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], Kind::Other),
            ([1, 0, 0, short - 5, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], Kind::Auth),
            ([1, 0, 9, short - 4, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], Kind::Auth),
            ([1, 0, 0, short - 4, 4, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], Kind::Other),
            ([1, 3, 3, 0, short - 41, 0, 0, 0, 32, 9, 9, 9, 9, 9, 9, 9], Kind::Other),
            ([1, 4, 0, 0, short - 41, 0, 16, 0, 16, 9, 9, 9, 9, 9, 9, 9], Kind::Other),
            ([1, 3, 3, 0, short - 42, 0, 0, 0, 32, 9, 9, 9, 9, 9, 9, 9], Kind::Auth),
            ([1, 3, 3, 0, short - 41, 1, 0, 0, 32, 9, 9, 9, 9, 9, 9, 9], Kind::Auth),
            ([1, 0, 0x40, 0, 0, 1, 0, 0, 0, 0, 0x40, 0, 0xfe, 0xfd, 9, 9], Kind::Other),
            ([1, 2, 0, 5, 0, 3, 0, 0, 0, 2, 0, 5, 0xfe, 0xff, 9, 9], Kind::Other),
            ([1, 2, 0, 5, 0, 3, 0, 0, 0, 2, 0, 5, 0xfd, 0xff, 9, 9], Kind::Other),
            ([1, 2, 0, 5, 0, 3, 0, 0, 0, 0, 0, 5, 0xfe, 0xff, 9, 9], Kind::Auth),
        ] {
            let octets = [&begun(spis, length)[..], &[2; 8]].concat();
            assert_eq!(Kind::of(&octets), kind, "{spis:x?}");
        }
        // A ClientHello with an AUTH in it as long as any, and what the server says up to the end of that.
        let after = begun([1, 0, 1, 0, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], 0x104);
        assert_eq!(Kind::of(&[&after[..], &[2, 0, 0, 0x46, 3, 3]].concat()), Kind::Other);
        // The length of all, as that of a SEQUENCE.
        let length = u16::try_from(signed_octets().len() - 4).unwrap().to_be_bytes();
        let spi =
            |length: [u8; 2]| u64::from_be_bytes([0x30, 0x82, length[0], length[1], 0xa0, 3, 2, 1]);
        let certificate = [message(spi(length), 0, &payloads()), vec![3; 64]].concat();
        assert_eq!(Kind::of(&certificate), Kind::Der);
        let other = [message(spi([0x40, 0]), 0, &payloads()), vec![3; 64]].concat();
        assert_eq!(Kind::of(&other), Kind::Auth, "an SPI by chance");
        assert_eq!(Kind::of(&[0x31, 2, 5, 0]), Kind::Der);
        for octets in [&[0x30][..], &[0x30, 0x82, 1], &[0x30, 1], &[4, 1, 1], &[0x30, 0x80, 1]] {
            assert_eq!(Kind::of(octets), Kind::Other);
        }
    }
}
