//! Message IDs and IVs, as seen on the wire (RFC 7296 §2.1–2.3, §2.14).
//!
//! For every IKE SA and direction: one message per message ID, requests numbered without gaps, no
//! response to a request that was never made, no second request before the first is answered, and no
//! IV used for two datagrams. Fragment acknowledgements share the message ID of what they are about, and
//! are told by what their sender says they are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ike_proto::TransmitKind;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::wire::{Message, Payload};

use crate::network::Packet;

/// An IKE SA and the end that sends: true for the original initiator.
type Sender = (u64, u64, bool);
/// A message ID, whether it is a response, fragment number and total.
type Slot = (u32, bool, u16, u16);

/// Watches everything that hosts send.
#[derive(Debug, Default)]
pub struct Audit {
    /// What was wrong, in words.
    pub complaints: Vec<String>,
    /// Watches nothing: for runs whose figures are wanted and nothing else.
    pub off: bool,
    /// Counts IVs as used once only: off where a suite draws them at random.
    pub random_ivs: bool,
    slots: HashMap<(Sender, Slot), Arc<[u8]>>,
    probes: HashSet<Arc<[u8]>>,
    ivs: HashMap<(Sender, Vec<u8>), Arc<[u8]>>,
    /// Exchange of each request sent.
    requests: HashMap<(Sender, u32), ExchangeType>,
    /// The newest request of each sender.
    newest: HashMap<Sender, u32>,
    /// The newest response each sender of requests was given.
    answered: HashMap<Sender, u32>,
}

impl Audit {
    /// Records a probe of the path, whether the host can send it or not. Retransmissions of the request without padding
    /// repeat it.
    pub(crate) fn on_probe(&mut self, octets: &Arc<[u8]>) {
        self.probes.insert(Arc::clone(octets));
    }

    pub(crate) fn on_sent(&mut self, packet: &Packet) {
        let Ok(message) = Message::decode(&packet.octets) else {
            return self.complain(packet, "sent a message that cannot be decoded");
        };
        let header = &message.header;
        if header.exchange == ExchangeType::IKE_SA_INIT || header.spi_r == 0 {
            return;
        }
        let sender = (header.spi_i, header.spi_r, header.flags.initiator);
        let peer = (header.spi_i, header.spi_r, !header.flags.initiator);
        let (number, total, body) = match message.payloads.last() {
            Some(Payload::Sk(sk)) => (1, 1, sk.body),
            Some(Payload::Skf(skf)) => (skf.number, skf.total, skf.body),
            // An unprotected answer to an SPI of no SA.
            _ => return,
        };
        let id = header.message_id;
        let acks = packet.kind == TransmitKind::FragmentAck;
        let slot = (id, header.flags.response, number, total);
        // A probe of the path that is lost is sent again without its padding.
        if !acks && !self.probes.contains(&packet.octets) && self.differs(sender, slot, packet) {
            self.complain(packet, "two messages under one message ID");
        }
        let iv = body.get(..8).unwrap_or(body).to_vec();
        let octets = Arc::clone(&packet.octets);
        let before = self.ivs.entry((sender, iv)).or_insert(octets);
        if *before != packet.octets && !self.random_ivs {
            self.complain(packet, "an IV used twice");
        }
        if acks {
            // Of a request the peer made, or of its response to one of this end.
            let either = [(peer, id), (sender, id)];
            let its = |of| self.requests.get(&of) == Some(&header.exchange);
            if !header.flags.response || !either.into_iter().any(its) {
                self.complain(packet, "acknowledgement of nothing");
            }
        } else if header.flags.response {
            match self.requests.get(&(peer, id)) {
                Some(exchange) if *exchange == header.exchange => {}
                Some(_) => self.complain(packet, "response of another exchange"),
                None => self.complain(packet, "response to a request never made"),
            }
        } else {
            self.on_request(packet, sender, id, header.exchange);
        }
    }

    fn differs(&mut self, sender: Sender, slot: Slot, packet: &Packet) -> bool {
        let octets = Arc::clone(&packet.octets);
        *self.slots.entry((sender, slot)).or_insert(octets) != packet.octets
    }

    fn on_request(&mut self, packet: &Packet, sender: Sender, id: u32, exchange: ExchangeType) {
        let before = *self.requests.entry((sender, id)).or_insert(exchange);
        if before != exchange {
            self.complain(packet, "request of another exchange under one message ID");
        }
        match self.newest.insert(sender, id) {
            Some(newest) if id < newest => {
                self.complain(packet, "an old request sent again");
            }
            Some(newest) if id > newest => {
                if id != newest + 1 {
                    self.complain(packet, "a message ID left out");
                }
                if self.answered.get(&sender).is_none_or(|answered| *answered < newest) {
                    self.complain(packet, "a request before the last was answered");
                }
            }
            Some(_) => {}
            // IKE_SA_INIT took 0 of the original initiator's numbers, but not of a rekeyed SA's.
            None if id > 1 => self.complain(packet, "a first request with a high message ID"),
            None => {}
        }
    }

    pub(crate) fn on_delivered(&mut self, packet: &Packet) {
        let Some(header) = packet.header() else { return };
        if header.flags.response && packet.kind != TransmitKind::FragmentAck {
            let requester = (header.spi_i, header.spi_r, !header.flags.initiator);
            let newest = self.answered.entry(requester).or_insert(header.message_id);
            *newest = (*newest).max(header.message_id);
        }
    }

    fn complain(&mut self, packet: &Packet, what: &str) {
        self.complaints.push(format!("{what}: {}", packet.describe()));
    }
}
