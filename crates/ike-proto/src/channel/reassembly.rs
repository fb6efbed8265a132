//! Reassembly of fragmented messages (RFC 7383 §2.6), in limited memory.
//!
//! Only the content of authenticated fragments comes here, one message at a time for each direction of an IKE SA.
//! Its octets count against a [`MemoryBudget`] that all SAs of an endpoint share. The owner calls
//! [`release`](Reassembly::release) before it drops a [`Reassembly`]. If another SA has got the octets, the set is
//! [released](Reassembly::give_way) at the end of the input.

use std::collections::BTreeMap;

use super::memory::{MemoryBudget, Payer, Pool};
use crate::keys::Opened;
use crate::wire::payload::MissingRange;
use crate::wire::registry::{ExchangeType, PayloadType};

/// One authenticated fragment.
#[derive(Debug, Clone)]
pub(crate) struct Fragment {
    /// Message ID.
    pub(crate) message_id: u32,
    /// Exchange type.
    pub(crate) exchange: ExchangeType,
    /// Fragment Number, from 1.
    pub(crate) number: u16,
    /// Total Fragments.
    pub(crate) total: u16,
    /// Next Payload of the fragment. Only that of fragment 1 has a meaning.
    pub(crate) first: PayloadType,
    /// Decrypted content.
    pub(crate) content: Vec<u8>,
    /// [`Opened::front`] of the message, from fragment 1.
    pub(crate) front: Vec<u8>,
}

/// The effect of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is kept. Other fragments are missing.
    Incomplete,
    /// It was there already, or belongs to a set that was replaced.
    Duplicate,
    /// The message is complete.
    Complete(Opened),
    /// It is not kept: it has impossible numbers, or there is no room. The message may still become complete if
    /// the peer sends the fragment again.
    Rejected,
}

/// The message in progress, if any.
#[derive(Debug)]
pub(crate) struct Reassembly {
    max_message: usize,
    set: Option<Box<Set>>,
}

#[derive(Debug)]
struct Set {
    /// The account to which the octets are charged.
    payer: Payer,
    message_id: u32,
    exchange: ExchangeType,
    total: u16,
    first: PayloadType,
    front: Vec<u8>,
    /// Contents by fragment number.
    contents: BTreeMap<u16, Vec<u8>>,
    /// Octets of content.
    octets: usize,
    /// Octets taken from the budget.
    charged: usize,
}

impl Reassembly {
    /// For messages whose inner payloads have up to `max_message` octets.
    pub(crate) fn new(max_message: usize) -> Self {
        Self { max_message, set: None }
    }

    /// Message ID of the message in progress.
    pub(crate) fn message_id(&self) -> Option<u32> {
        self.set.as_ref().map(|set| set.message_id)
    }

    /// True if such a fragment would be examined: a cheap test before decryption. The window has admitted the
    /// message ID, so a message other than the one in progress replaces it.
    pub(crate) fn wants(&self, message_id: u32, number: u16, total: u16) -> bool {
        let possible = number >= 1 && number <= total;
        possible
            && match &self.set {
                Some(set) if set.message_id == message_id => match total.cmp(&set.total) {
                    std::cmp::Ordering::Less => false,
                    std::cmp::Ordering::Equal => !set.contents.contains_key(&number),
                    std::cmp::Ordering::Greater => true,
                },
                _ => true,
            }
    }

    /// True if this fragment of the message in progress is there.
    pub(crate) fn has(&self, message_id: u32, (number, total): (u16, u16)) -> bool {
        self.set.as_ref().is_some_and(|set| {
            (set.message_id, set.total) == (message_id, total) && set.contents.contains_key(&number)
        })
    }

    /// The account of the message in progress, if that has this message ID.
    pub(crate) fn payer_of(&self, message_id: u32) -> Option<Payer> {
        self.set.as_ref().filter(|set| set.message_id == message_id).map(|set| set.payer)
    }

    /// Exchange type of the message in progress, if that has this message ID.
    pub(crate) fn exchange_of(&self, message_id: u32) -> Option<ExchangeType> {
        self.set.as_ref().filter(|set| set.message_id == message_id).map(|set| set.exchange)
    }

    /// Number of fragments above `number`.
    pub(crate) fn above(&self, number: u16) -> u16 {
        let Some(first) = number.checked_add(1) else { return 0 };
        let above = self.set.as_ref().map_or(0, |set| set.contents.range(first..).count());
        u16::try_from(above).unwrap_or(u16::MAX)
    }

    /// Missing fragments from number `first` to number `last`, in ascending order.
    pub(crate) fn missing(&self, first: u16, last: u16) -> impl Iterator<Item = MissingRange> {
        let last = self.set.as_ref().map_or(0, |set| set.total.min(last));
        let first = first.max(1);
        let there = self.set.iter().flat_map(move |set| set.contents.range(first..));
        let there = there.take_while(move |(number, _)| **number <= last);
        // One past the end closes the last gap. A wider type, because 65535 may be the last fragment.
        let ends = there.map(|(number, _)| u32::from(*number)).chain([u32::from(last) + 1]);
        let mut before = u32::from(first) - 1;
        ends.filter_map(move |end| {
            let (first, last) = (u16::try_from(before + 1), u16::try_from(end.checked_sub(1)?));
            before = end;
            let (first, last) = (first.ok()?, last.ok()?);
            (first <= last).then_some(MissingRange { first, last })
        })
    }

    /// Adds an authenticated fragment. Its octets are charged to `payer` in `budget`. A complete message is
    /// returned once, and its memory is released then.
    pub(crate) fn insert(
        &mut self,
        fragment: Fragment,
        payer: Payer,
        budget: &mut MemoryBudget,
    ) -> Progress {
        let Fragment { message_id, exchange, number, total, first, content, front } = fragment;
        //= https://www.rfc-editor.org/rfc/rfc7383#section-2.6
        //# check that the value in the Fragment Number field is less than
        //# or equal to the value in the Total Fragments field
        if number == 0 || number > total || (content.is_empty() && number > 1) {
            return Progress::Rejected;
        }
        if !self.wants(message_id, number, total) {
            return Progress::Duplicate;
        }
        let same_set = |set: &Set| set.message_id == message_id && set.total == total;
        if !self.set.as_deref().is_some_and(same_set) {
            //= https://www.rfc-editor.org/rfc/rfc7383#section-2.6
            //# the receiver MUST discard all received fragments and start the
            //# reassembly process over with just the received IKE Fragment message.
            self.release(budget);
        }
        let set = self
            .set
            .get_or_insert_with(|| Box::new(Set::new(payer, (message_id, exchange, total))));
        // The part before the Encrypted Fragment payload may be as long as a datagram.
        let charge = content.len() + front.len() + FRAGMENT_OVERHEAD;
        // Twice the message leaves room for the overhead of all but extremely small fragments.
        let fits = content.len() <= self.max_message.saturating_sub(set.octets)
            && charge <= self.max_message.saturating_mul(2).saturating_sub(set.charged)
            && charge <= budget.share(set.payer.pool).saturating_sub(set.charged);
        if set.exchange != exchange || !fits || !budget.take(set.payer, charge) {
            return self.reject(budget);
        }
        set.charged += charge;
        set.octets += content.len();
        if number == 1 {
            set.first = first;
            set.front = front;
        }
        set.contents.insert(number, content);
        if set.contents.len() < usize::from(total) {
            return Progress::Incomplete;
        }
        let whole = set.assemble();
        self.release(budget);
        Progress::Complete(whole)
    }

    /// Drops the message in progress and gives its memory back.
    pub(crate) fn release(&mut self, budget: &mut MemoryBudget) {
        if let Some(set) = self.set.take() {
            budget.give_back(set.payer.pool, set.payer.ike, set.charged);
        }
    }

    /// Drops the message in progress if its octets were of `pool`: another SA has them.
    pub(crate) fn give_way(&mut self, pool: Pool, budget: &mut MemoryBudget) {
        if self.set.as_ref().is_some_and(|set| set.payer.pool == pool) {
            self.release(budget);
        }
    }

    /// Drops an empty set, so that a refused fragment leaves no trace.
    fn reject(&mut self, budget: &mut MemoryBudget) -> Progress {
        if self.set.as_ref().is_some_and(|set| set.contents.is_empty()) {
            self.release(budget);
        }
        Progress::Rejected
    }
}

impl Set {
    fn new(payer: Payer, (message_id, exchange, total): (u32, ExchangeType, u16)) -> Self {
        Self {
            payer,
            message_id,
            exchange,
            total,
            first: PayloadType::NONE,
            front: Vec::new(),
            contents: BTreeMap::new(),
            octets: 0,
            charged: 0,
        }
    }

    fn assemble(&mut self) -> Opened {
        let mut octets = Vec::with_capacity(self.octets);
        for content in std::mem::take(&mut self.contents).into_values() {
            octets.extend_from_slice(&content);
        }
        Opened { first: self.first, octets, front: std::mem::take(&mut self.front) }
    }
}

/// Charged for every fragment besides its content, for the map entry and the allocation.
const FRAGMENT_OVERHEAD: usize = 64;

#[cfg(test)]
mod tests;
