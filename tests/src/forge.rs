//! Messages of somebody who sees the wire but has no keys.

use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_proto::wire::{Flags, Header, encode_message};

use crate::network::Packet;

/// An unprotected IKE_SA_INIT response to `request`, with these payloads.
///
/// # Panics
///
/// If `request` is not an IKE message.
pub fn init_response(request: &Packet, spi_r: u64, payloads: &[Payload<'_>]) -> Packet {
    let asked = request.header().expect("an IKE message");
    let header = Header {
        spi_r,
        next_payload: PayloadType::NONE,
        flags: Flags { initiator: false, version: false, response: true },
        length: 0,
        ..asked
    };
    Packet::forged(request.dst, request.src, encode_message(&header, payloads))
}

/// An unprotected answer to `request` that carries one notify.
///
/// # Panics
///
/// If `request` is not an IKE message.
pub fn notify_response(request: &Packet, kind: NotifyType, data: &[u8]) -> Packet {
    init_response(request, 0, &[Payload::Notify(Notify::new(kind, data))])
}

/// `packet` with one bit of its octets turned over, `bit` counted from the first octet's highest.
pub fn flip(packet: &Packet, bit: usize) -> Packet {
    let mut octets = packet.octets.to_vec();
    octets[bit / 8] ^= 0x80 >> (bit % 8);
    Packet { octets: octets.into(), from: None, ..packet.clone() }
}

/// An unprotected message in the place of a protected one: the header of `like`, these payloads.
///
/// # Panics
///
/// If `like` is not an IKE message.
pub fn unprotected(
    like: &Packet,
    exchange: ExchangeType,
    response: bool,
    message_id: u32,
    payloads: &[Payload<'_>],
) -> Packet {
    let header = like.header().expect("an IKE message");
    let flags = Flags { response, ..header.flags };
    let header = Header { exchange, flags, message_id, length: 0, ..header };
    Packet { octets: encode_message(&header, payloads).into(), from: None, ..like.clone() }
}
