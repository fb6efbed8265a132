//! Messages of the peer that an IKE SA keeps: which pool pays for them.

use super::Channel;
use super::io::Io;
use super::memory::{Kept, Pool};
use crate::keys::epoch::Opened;

impl Channel {
    /// Makes room for a message that has to wait. False if there is none.
    pub(crate) fn hold(&mut self, io: &mut Io<'_>, message: &Opened) -> bool {
        let octets = message.kept_octets();
        self.kept.take(io.budget, self.link.payer(self.route.path).of_message(octets), octets)
    }

    /// The same for other octets that are kept of an unauthenticated peer.
    pub(crate) fn hold_octets(&mut self, io: &mut Io<'_>, octets: usize) -> bool {
        self.kept.take(io.budget, self.link.payer(self.route.path), octets)
    }

    /// Gives up the incomplete messages in `pool`. True if it has whole ones in it, which are the SA's.
    pub(crate) fn give_way(&mut self, io: &mut Io<'_>, pool: Pool) -> bool {
        for set in [&mut self.requests, &mut self.responses] {
            set.give_way(pool, io.budget);
        }
        self.kept.of(pool) > 0
    }

    /// The octets that are kept.
    pub(crate) fn kept(&self) -> Kept {
        self.kept
    }

    /// Gives back `part` of them.
    pub(crate) fn let_go(&mut self, io: &mut Io<'_>, part: Kept) {
        self.kept.give_back(part, self.link.id(), io.budget);
    }
}
