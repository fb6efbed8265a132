//! ESP packets that arrive before their SA.
//!
//! A responder may send under a new SA as soon as it has sent its response (RFC 7296 §2.8). This end installs the SA
//! once it has read and checked that response, so the first packets can come earlier. They wait here. Otherwise they
//! would be lost: at each rekey with a peer that does not wait, and after a first handshake with slow signatures.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::inbound::Outer;
use crate::plane::Plane;

/// How long a packet waits for its SA.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Packets that wait.
const MAX_PACKETS: usize = 128;

/// Packets that wait from one address: a peer whose SAs are gone must not take all places.
const MAX_PACKETS_OF_ONE: usize = 32;

/// Octets of all packets that wait.
const MAX_OCTETS: usize = 256 * 1024;

/// The packets that wait, shared by the tasks of a plane. Nobody knows yet who sent them. So their number and size are
/// bounded, and they do not give way to new ones: a flood costs no copies.
#[derive(Debug, Clone)]
pub(super) struct Early {
    plane: Plane,
    /// The task that opens packets without a socket of its own.
    fed: mpsc::Sender<(Outer, Vec<u8>)>,
    waiting: Arc<Mutex<Vec<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    spi: u32,
    since: Instant,
    outer: Outer,
    esp: Vec<u8>,
}

impl Early {
    pub(super) fn new(plane: Plane, fed: mpsc::Sender<(Outer, Vec<u8>)>) -> Self {
        Self { plane, fed, waiting: Arc::default() }
    }

    /// Keeps a packet with `spi` that fits no SA, if there is room.
    #[cold]
    pub(super) fn keep(&self, now: Instant, outer: &Outer, spi: u32, esp: &[u8]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked up again under the lock: if the SA has come meanwhile, `release` may have come as well.
        if self.plane.receives(spi, outer.dst) {
            self.feed(*outer, esp.to_vec());
            return;
        }
        waiting.retain(|packet| packet.is_fresh(now));
        if has_room(&waiting, outer.src.ip(), esp.len()) {
            waiting.push(Waiting { spi, since: now, outer: *outer, esp: esp.to_vec() });
        }
    }

    /// Hands over the packets that have waited for the SA of `spi`, which is installed now.
    pub(super) fn release(&self, now: Instant, spi: u32) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in waiting.extract_if(.., |packet| packet.spi == spi) {
            if packet.is_fresh(now) {
                self.feed(packet.outer, packet.esp);
            }
        }
    }

    /// A full queue loses the packet, as the network may.
    fn feed(&self, outer: Outer, esp: Vec<u8>) {
        _ = self.fed.try_send((outer, esp));
    }
}

impl Waiting {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < MAX_AGE
    }
}

fn has_room(waiting: &[Waiting], from: IpAddr, octets: usize) -> bool {
    let of_one = waiting.iter().filter(|packet| packet.outer.src.ip() == from).count();
    let sum: usize = waiting.iter().map(|packet| packet.esp.len()).sum();
    waiting.len() < MAX_PACKETS && of_one < MAX_PACKETS_OF_ONE && sum + octets <= MAX_OCTETS
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::fields::Fields;
    use crate::inbound::Carrier;

    fn waiting(from: IpAddr, octets: usize) -> Waiting {
        let outer = outer(from);
        Waiting { spi: 256, since: super::super::now(), outer, esp: vec![0; octets] }
    }

    fn outer(from: IpAddr) -> Outer {
        let dst = IpAddr::from([192, 0, 2, 1]);
        Outer {
            src: SocketAddr::new(from, 4500),
            dst,
            fields: Fields::default(),
            carrier: Carrier::Udp,
        }
    }

    #[test]
    fn one_address_does_not_take_all_places_and_large_packets_do_not_take_all_octets() {
        let (one, other) = (IpAddr::from([192, 0, 2, 2]), IpAddr::from([192, 0, 2, 3]));
        let mut all: Vec<_> = (0..MAX_PACKETS_OF_ONE).map(|_| waiting(one, 100)).collect();
        assert!(!has_room(&all, one, 100));
        assert!(has_room(&all, other, 100));
        assert!(!has_room(&all, other, MAX_OCTETS));
        all.extend(
            (2..).map(|n| waiting([198, 51, 100, n].into(), 100)).take(MAX_PACKETS - all.len()),
        );
        assert!(!has_room(&all, other, 100));
    }
}
