//! The last answers of IKE SAs that are gone. Their peers may have to ask for them again (RFC 7296 §2.1).
//!
//! No key is kept. A repeated request is bitwise identical. So it is recognized by its octets, and a fragmented
//! one by those of its first fragment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::channel::window::{Answered, Datagrams};
use crate::event::Path;
use crate::ike_sa::IkeSa;
use crate::table::OwnTable;
use crate::wire::Header;

/// How long an answer is kept: the time of the first few retransmissions of a usual schedule.
const KEPT: Duration = Duration::from_secs(30);
/// How often one answer is sent again. An attacker may replay an old request.
const TIMES: u8 = 16;
/// Octets counted for an answer besides its datagrams.
const OVERHEAD: usize = 256;
/// Octets of answers to authenticated peers at most, and to peers that were not authenticated. The latter must not
/// displace the former.
const KNOWN: usize = 4 << 20;
const STRANGERS: usize = 1 << 20;

/// The last answers of IKE SAs that are gone, by the SPI this end chose.
pub(super) struct Closed {
    answers: OwnTable<u64, Answer>,
    /// Those of unauthenticated peers, and those of the others.
    shelves: [Shelf; 2],
}

/// Answers in the order in which they were added.
struct Shelf {
    order: VecDeque<(Instant, u64)>,
    octets: usize,
    limit: usize,
}

struct Answer {
    peer_spi: u64,
    /// True if the peer sets the I flag.
    from_initiator: bool,
    to: Path,
    /// The peer may be at another address: it is behind a NAT, or opens TCP connections.
    roams: bool,
    last: Answered,
    until: Instant,
    known: bool,
    left: u8,
}

/// The kind of a request for an SPI that no IKE SA has.
pub(super) enum Late {
    /// No answer of such an SA is kept.
    Unknown,
    /// Its SA is gone, and the request needs no answer.
    Ignore,
    /// It is repeated, and this is the answer.
    Again(Path, Datagrams),
}

impl Default for Closed {
    fn default() -> Self {
        let shelf = |limit| Shelf { order: VecDeque::new(), octets: 0, limit };
        Self { answers: OwnTable::default(), shelves: [STRANGERS, KNOWN].map(shelf) }
    }
}

impl Closed {
    /// Keeps the last answer of `sa`, which is gone. `known` if its peer was authenticated. Returns when
    /// [`expire`](Self::expire) is due, if it was not due before.
    pub(super) fn keep(&mut self, now: Instant, sa: &mut IkeSa, known: bool) -> Option<Instant> {
        let last = sa.channel.take_answered()?;
        let none = self.answers.is_empty();
        let until = now + KEPT;
        let spi = sa.channel.link().local_spi();
        let answer = Answer {
            peer_spi: if sa.channel.link().is_initiator() {
                sa.channel.link().spis().r()
            } else {
                sa.channel.link().spis().i()
            },
            from_initiator: !sa.channel.link().is_initiator(),
            to: sa.channel.route().answer_to(),
            roams: sa.channel.route().peer_roams(),
            last,
            until,
            known,
            left: TIMES,
        };
        let shelf = &mut self.shelves[usize::from(known)];
        shelf.octets += answer.octets();
        shelf.order.push_back((until, spi));
        self.answers.insert(spi, answer);
        while self.shelves[usize::from(known)].is_full() && self.drop_oldest(known) {}
        none.then_some(until)
    }

    /// Judges a request with this header. `digest` is that of its datagram.
    pub(super) fn judge(
        &mut self,
        path: Path,
        header: &Header,
        digest: impl FnOnce() -> u64,
    ) -> Late {
        let (own, peers) = if header.flags.initiator {
            (header.spi_r, header.spi_i)
        } else {
            (header.spi_i, header.spi_r)
        };
        let Some(answer) = self.answers.get_mut(&own) else { return Late::Unknown };
        if answer.peer_spi != peers || answer.from_initiator != header.flags.initiator {
            return Late::Unknown;
        }
        let last = &answer.last;
        let same = (header.message_id, header.exchange) == (last.message_id, last.exchange)
            && digest() == last.request;
        if same && answer.left > 0 {
            answer.left -= 1;
            // An attacker could replay a captured request from any address.
            let alike = path.transport.is_reliable() == answer.to.transport.is_reliable();
            let to = if answer.roams && alike { path } else { answer.to };
            return Late::Again(to, last.response.clone());
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
        //# If the responder receives a retransmitted request for which it has
        //# already forgotten the response, it MUST ignore the request
        if header.message_id <= last.message_id { Late::Ignore } else { Late::Unknown }
    }

    /// Drops old answers. Returns when the next one becomes old.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        for known in [true, false] {
            while self.shelves[usize::from(known)]
                .order
                .front()
                .is_some_and(|(until, _)| *until <= now)
            {
                self.drop_oldest(known);
            }
        }
        let first = |shelf: &Shelf| shelf.order.front().map(|(until, _)| *until);
        self.shelves.iter().filter_map(first).min()
    }

    /// False if there is none.
    fn drop_oldest(&mut self, known: bool) -> bool {
        let shelf = &mut self.shelves[usize::from(known)];
        let Some((until, spi)) = shelf.order.pop_front() else { return false };
        let its = |answer: &mut Answer| answer.until == until && answer.known == known;
        if self.answers.get_mut(&spi).is_some_and(its)
            && let Some(answer) = self.answers.remove(&spi)
        {
            shelf.octets = shelf.octets.saturating_sub(answer.octets());
        }
        true
    }
}

impl Shelf {
    fn is_full(&self) -> bool {
        self.octets > self.limit
    }
}

impl Answer {
    fn octets(&self) -> usize {
        OVERHEAD + self.last.response.iter().map(|datagram| datagram.len()).sum::<usize>()
    }
}
