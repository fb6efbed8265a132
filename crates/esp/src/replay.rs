//! The anti-replay window (RFC 4303 §3.4.3, Appendix A2).
//!
//! A ring of bits indexed by the sequence number, as RFC 6479 has it: advancing clears whole words in
//! front, nothing is shifted. The ring holds at least one word more than the window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest window that [`ReplayWindow::new`] takes, in packets.
pub const MAX_WINDOW: u32 = 1 << 24;

/// Width in packets that resolves an extended sequence number where the replay check is off.
const ESN_WINDOW: u32 = 1 << 16;

/// Sequence number already seen, or left of the window, or impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed;

/// The sequence numbers of an SA that have been authenticated. One owner accepts numbers; others read through a
/// [`ReplayView`].
#[derive(Debug)]
pub struct ReplayWindow {
    view: ReplayView,
}

/// A look at a [`ReplayWindow`] from any thread, without a lock. It may be a moment behind, so that two
/// copies of a packet pass; of these [`ReplayWindow::accept`] lets one through.
#[derive(Debug, Clone)]
pub struct ReplayView {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Width in packets; 0 turns the check off.
    size: u32,
    esn: bool,
    /// T: the highest authenticated sequence number, all 64 bits.
    top: AtomicU64,
    ring: Box<[AtomicU64]>,
}

impl ReplayWindow {
    /// A window of `size` packets (0 turns the check off), at most [`MAX_WINDOW`].
    pub fn new(size: u32, esn: bool) -> Self {
        let size = size.min(MAX_WINDOW);
        let words = if size == 0 { 0 } else { size.div_ceil(64) + 1 };
        let words = if words == 0 { 0 } else { words.next_power_of_two() };
        let ring = (0..words).map(|_| AtomicU64::new(0)).collect();
        let shared = Shared { size, esn, top: AtomicU64::new(0), ring };
        Self { view: ReplayView { shared: Arc::new(shared) } }
    }

    /// The same window, read-only.
    pub fn view(&self) -> ReplayView {
        self.view.clone()
    }

    /// The highest authenticated sequence number.
    pub fn top(&self) -> u64 {
        self.view.shared.top.load(Ordering::Acquire)
    }

    /// As [`ReplayView::check`].
    pub fn check(&self, low: u32) -> Result<u64, Replayed> {
        self.view.check(low)
    }

    /// Marks an authenticated `seq` as seen. Fails if another thread was faster with a copy of it.
    /// True if it is the highest so far.
    #[inline]
    pub fn accept(&mut self, seq: u64) -> Result<bool, Replayed> {
        let shared = &*self.view.shared;
        // Only this owner writes, so the value loaded here is current.
        let top = shared.top.load(Ordering::Relaxed);
        shared.unseen(top, seq)?;
        let newest = seq > top;
        if newest {
            shared.advance(top, seq);
        }
        let (word, bit) = shared.position(seq);
        if let Some(word) = shared.ring.get(word) {
            word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
        Ok(newest)
    }
}

impl ReplayView {
    /// The full sequence number that `low` of a packet stands for (Appendix A2.2), if it may still be
    /// accepted. To be called before the integrity check, and `accept` after it.
    #[inline]
    pub fn check(&self, low: u32) -> Result<u64, Replayed> {
        let top = self.shared.top.load(Ordering::Acquire);
        let seq = self.shared.extend(top, low)?;
        self.shared.unseen(top, seq)?;
        Ok(seq)
    }
}

impl Shared {
    fn extend(&self, top: u64, low: u32) -> Result<u64, Replayed> {
        if !self.esn {
            return Ok(u64::from(low));
        }
        let width = if self.size == 0 { ESN_WINDOW } else { self.size };
        let (top_high, top_low) = ((top >> 32) as u32, top as u32);
        let bottom = top_low.wrapping_sub(width - 1);
        let high = match (top_low >= width - 1, low >= bottom) {
            (true, true) | (false, false) => Some(top_high),
            (true, false) => top_high.checked_add(1),
            (false, true) => top_high.checked_sub(1),
        };
        high.map(|high| u64::from(high) << 32 | u64::from(low)).ok_or(Replayed)
    }

    fn unseen(&self, top: u64, seq: u64) -> Result<(), Replayed> {
        if self.size == 0 {
            return Ok(());
        }
        // The first packet of an SA has sequence number 1 (RFC 4303 §2.2).
        if seq == 0 {
            return Err(Replayed);
        }
        if seq > top {
            return Ok(());
        }
        let (word, bit) = self.position(seq);
        let seen = self.ring.get(word).is_none_or(|word| word.load(Ordering::Relaxed) & bit != 0);
        if top - seq >= u64::from(self.size) || seen { Err(Replayed) } else { Ok(()) }
    }

    /// Words in front are cleared before the new top is stored, so a reader that sees the top sees them clear.
    fn advance(&self, top: u64, seq: u64) {
        let words = self.ring.len() as u64;
        let (from, to) = (top / 64 + 1, seq / 64);
        for step in 0..(to + 1).saturating_sub(from).min(words) {
            let index = ((from + step) & (words - 1)) as usize;
            if let Some(word) = self.ring.get(index) {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.top.store(seq, Ordering::Release);
    }

    /// Word and bit of `seq`; the ring's length is a power of two.
    fn position(&self, seq: u64) -> (usize, u64) {
        let mask = (self.ring.len() as u64).saturating_sub(1);
        (((seq / 64) & mask) as usize, 1 << (seq % 64))
    }
}
