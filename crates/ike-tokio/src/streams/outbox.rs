//! Data that waits to be written to a TCP connection. Adding to it never waits for the peer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use esp::tcp::{PREFIX, push_esp, push_ike};
use tokio::sync::Notify;

/// Octets of IKE that may wait for a peer; one that leaves more unread is gone.
pub(super) const IKE: usize = 1 << 20;

/// The same for a stranger: more than any answer to one.
pub(super) const IKE_STRANGER: usize = 96 << 10;

/// Octets of ESP that may wait; more is lost. Little, for what waits here is late.
const ESP: usize = 128 << 10;

/// Octets of ESP written at a time, after which IKE has its turn.
const PIECE: usize = 8 << 10;

/// The queue of one connection. IKE goes before ESP, at the next frame.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    ike: Vec<u8>,
    esp: VecDeque<Vec<u8>>,
    esp_octets: usize,
    closing: bool,
}

/// Why something cannot be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Longer than a stream can carry.
    TooLong,
    /// There is no room.
    Full,
}

impl Outbox {
    /// Of a connection that this end opens: the prefix comes first.
    pub(super) fn with_prefix() -> Self {
        let queue = Queue { ike: PREFIX.to_vec(), ..Queue::default() };
        Self { queue: Mutex::new(queue), wake: Notify::new() }
    }

    /// Queues an IKE message, if no more than `limit` octets wait then.
    pub(super) fn ike(&self, message: &[u8], limit: usize) -> Result<(), Refused> {
        let mut queue = self.queue();
        if queue.ike.len() + message.len() > limit {
            return Err(Refused::Full);
        }
        if !push_ike(&mut queue.ike, message) {
            return Err(Refused::TooLong);
        }
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Queues ESP packets of `segment` octets, the last of what is left.
    pub(super) fn esp(&self, packets: &[u8], segment: usize) -> Result<(), Refused> {
        let mut queue = self.queue();
        for packet in packets.chunks(segment.max(1)) {
            let Queue { esp, esp_octets, .. } = &mut *queue;
            if *esp_octets + packet.len() > ESP {
                self.wake.notify_one();
                return Err(Refused::Full);
            }
            if esp.back().is_none_or(|piece| piece.len() + packet.len() > PIECE) {
                esp.push_back(Vec::new());
            }
            let Some(piece) = esp.back_mut() else { continue };
            let before = piece.len();
            if !push_esp(piece, packet) {
                return Err(Refused::TooLong);
            }
            *esp_octets += piece.len() - before;
        }
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Nothing more is to come: what is queued is the last.
    pub(super) fn close(&self) {
        self.queue().closing = true;
        self.wake.notify_one();
    }

    /// Waits for what is to be written next: whole frames. `None` when all is written after
    /// [`close`](Self::close).
    pub(super) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut queue = self.queue();
                if !queue.ike.is_empty() {
                    return Some(std::mem::take(&mut queue.ike));
                }
                if let Some(piece) = queue.esp.pop_front() {
                    queue.esp_octets -= piece.len();
                    return Some(piece);
                }
                if queue.closing {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_prefix_then_ike_then_esp_then_the_end() {
        let outbox = Outbox::with_prefix();
        outbox.esp(&[0xe5; 20], 10).unwrap();
        outbox.ike(&[0x5a; 3], IKE).unwrap();
        outbox.close();
        let first = outbox.next().await.unwrap();
        assert_eq!(first, [&b"IKETCP"[..], &[0, 9, 0, 0, 0, 0, 0x5a, 0x5a, 0x5a]].concat());
        let frame = [&[0, 12][..], &[0xe5; 10]].concat();
        assert_eq!(outbox.next().await.unwrap(), frame.repeat(2));
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn esp_is_dropped_when_it_piles_up_and_ike_still_goes_first() {
        let outbox = Outbox::default();
        let packet = [0xe5; 1400];
        let taken = (0..1000).take_while(|_| outbox.esp(&packet, 1400).is_ok()).count();
        assert!((80..100).contains(&taken), "{taken}");
        outbox.ike(&[0x5a; 100], IKE).unwrap();
        assert_eq!(outbox.next().await.unwrap()[..7], [0, 106, 0, 0, 0, 0, 0x5a]);
        let mut written = 0;
        outbox.close();
        while let Some(piece) = outbox.next().await {
            assert!(piece.len() <= PIECE + 1402, "IKE waits for little");
            written += piece.len();
        }
        assert_eq!(written, taken * 1402);
    }

    #[test]
    fn a_peer_that_reads_nothing_costs_so_much_and_no_more() {
        let message = [0; 60_000];
        for limit in [IKE, IKE_STRANGER] {
            let outbox = Outbox::default();
            let taken = (0..100).take_while(|_| outbox.ike(&message, limit) == Ok(())).count();
            assert_eq!(taken, limit / 60_006);
            assert_eq!(outbox.ike(&message, limit), Err(Refused::Full));
        }
        assert_eq!(Outbox::default().ike(&[0; 65_530], IKE), Err(Refused::TooLong));
    }

    #[tokio::test]
    async fn the_writer_wakes() {
        let outbox = std::sync::Arc::new(Outbox::default());
        let other = std::sync::Arc::clone(&outbox);
        let writer = tokio::spawn(async move { other.next().await });
        tokio::task::yield_now().await;
        outbox.ike(b"x", IKE).unwrap();
        assert_eq!(writer.await.unwrap(), Some(vec![0, 7, 0, 0, 0, 0, b'x']));
    }
}
