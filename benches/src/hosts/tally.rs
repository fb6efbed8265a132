//! What was sent for one IKE SA until it was established.

use std::collections::{BTreeMap, VecDeque};

use ike_proto::wire::registry::ExchangeType;
use ike_tokio::{Direction, Message};

/// Datagrams of IKE, and their octets without UDP and IP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams.
    pub datagrams: u64,
    /// Octets of IKE in them.
    pub octets: u64,
    /// How many of these datagrams had been sent before.
    pub again: u64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.octets += other.octets;
        self.again += other.again;
    }
}

/// One IKE SA: what this end sent, by Message ID.
#[derive(Debug, Default)]
struct Line {
    sent: BTreeMap<u32, Sent>,
    /// The last Message ID of the handshake: what comes after it deletes the SA again.
    last: u32,
}

/// IKE SAs by the initiator's SPI; the oldest are forgotten.
#[derive(Debug, Default)]
pub struct Tally {
    lines: BTreeMap<u64, Line>,
    order: VecDeque<u64>,
}

/// IKE SAs that are remembered.
const KEPT: usize = 10_000;

impl Tally {
    /// Notes a message. What others sent counts there.
    pub fn note(&mut self, message: &Message) {
        let new = !self.lines.contains_key(&message.spi_i);
        // Nobody is to fill the memory: an SA begins with IKE_SA_INIT.
        if new && message.exchange != ExchangeType::IKE_SA_INIT {
            return;
        }
        if new {
            self.order.push_back(message.spi_i);
            if self.order.len() > KEPT {
                self.order.pop_front().map(|oldest| self.lines.remove(&oldest));
            }
        }
        let line = self.lines.entry(message.spi_i).or_default();
        if message.exchange != ExchangeType::INFORMATIONAL {
            line.last = line.last.max(message.message_id);
        }
        if message.direction == Direction::Out {
            *line.sent.entry(message.message_id).or_default() +=
                Sent { datagrams: 1, octets: message.size as u64, again: u64::from(message.again) };
        }
    }

    /// What this end sent in the handshake of `spi`.
    pub fn of(&self, spi: u64) -> Sent {
        let mut sum = Sent::default();
        if let Some(line) = self.lines.get(&spi) {
            line.sent.range(..=line.last).for_each(|(_, sent)| sum += *sent);
        }
        sum
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The IKE SAs there are.
    pub fn spis(&self) -> Vec<u64> {
        self.order.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ike_proto::{Path, Transport};

    use super::*;

    fn message(exchange: ExchangeType, message_id: u32, direction: Direction) -> Message {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 4500));
        Message {
            at: Instant::now(),
            direction,
            path: Path { local: any, remote: any, transport: Transport::UdpEncap },
            exchange,
            response: false,
            message_id,
            spi_i: 7,
            fragment: None,
            size: 100,
            again: message_id == 1,
        }
    }

    #[test]
    fn the_delete_is_no_part_of_the_handshake() {
        let mut tally = Tally::default();
        tally.note(&message(ExchangeType::INFORMATIONAL, 0, Direction::Out));
        assert!(tally.spis().is_empty());
        tally.note(&message(ExchangeType::IKE_SA_INIT, 0, Direction::Out));
        tally.note(&message(ExchangeType::IKE_SA_INIT, 0, Direction::In));
        tally.note(&message(ExchangeType::IKE_AUTH, 1, Direction::Out));
        // An acknowledgement in the middle counts, the delete does not.
        tally.note(&message(ExchangeType::INFORMATIONAL, 1, Direction::Out));
        tally.note(&message(ExchangeType::INFORMATIONAL, 2, Direction::Out));
        assert_eq!(tally.of(7), Sent { datagrams: 3, octets: 300, again: 2 });
        assert_eq!(tally.of(8), Sent::default());
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut tally = Tally::default();
        for spi_i in 0..=KEPT as u64 {
            let first = message(ExchangeType::IKE_SA_INIT, 0, Direction::Out);
            tally.note(&Message { spi_i, ..first });
        }
        assert_eq!(tally.spis().len(), KEPT);
        assert_eq!(tally.of(0), Sent::default());
        assert_eq!(tally.of(KEPT as u64).datagrams, 1);
    }
}
