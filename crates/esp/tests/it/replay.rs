//! The anti-replay window against a model that remembers everything (RFC 4303 §3.4.3, Appendix A2).

use std::collections::HashSet;

use esp::replay::ReplayWindow;
use proptest::prelude::*;

/// RFC 4303 Appendix A2.3 word by word, with a set in the place of the bit string.
struct Model {
    size: u32,
    esn: bool,
    top: u64,
    seen: HashSet<u64>,
}

impl Model {
    fn new(size: u32, esn: bool) -> Self {
        Self { size, esn, top: 0, seen: HashSet::new() }
    }

    /// The sequence number that `low` stands for, if the packet may pass.
    fn check(&self, low: u32) -> Option<u64> {
        let seq = if self.esn { self.extend(low)? } else { u64::from(low) };
        let fresh = seq > self.top || self.top - seq < u64::from(self.size);
        (seq != 0 && fresh && !self.seen.contains(&seq)).then_some(seq)
    }

    fn extend(&self, low: u32) -> Option<u64> {
        let (th, tl, w) = ((self.top >> 32) as u32, self.top as u32, self.size);
        let high = if tl >= w - 1 {
            if low >= tl - (w - 1) { th } else { th.checked_add(1)? }
        } else if low >= tl.wrapping_sub(w - 1) {
            th.checked_sub(1)?
        } else {
            th
        };
        Some(u64::from(high) << 32 | u64::from(low))
    }

    fn accept(&mut self, seq: u64) {
        self.top = self.top.max(seq);
        self.seen.insert(seq);
    }
}

/// A step from the top of the window: mostly near its edges.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => -300i64..300,
        2 => -5_000i64..5_000,
        1 => prop::num::i32::ANY.prop_map(i64::from),
    ]
}

proptest! {
    #[test]
    fn agrees_with_the_model(
        size in prop_oneof![1u32..70, Just(64), Just(128), 1u32..3000],
        esn: bool,
        // Below 2^31, or the first packet would be taken for one before the beginning.
        first in prop_oneof![1u32..2000, 0x7fff_f000u32..0x7fff_ffff],
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let (mut window, mut model) = (ReplayWindow::new(size, esn), Model::new(size, esn));
        let mut low = first;
        for step in steps {
            let expected = model.check(low);
            let got = window.check(low).ok();
            prop_assert_eq!(got, expected, "low {} top {}", low, model.top);
            if let Some(seq) = got {
                model.accept(seq);
                prop_assert!(window.accept(seq).is_ok());
                prop_assert!(window.accept(seq).is_err(), "accepted twice");
            }
            prop_assert_eq!(window.top(), model.top);
            low = (window.top() as u32).wrapping_add(step as u32);
        }
    }
}

#[test]
fn each_number_passes_once_in_any_order() {
    for size in [1, 31, 32, 33, 63, 64, 65, 128, 1000] {
        let mut window = ReplayWindow::new(size, false);
        window.accept(u64::from(size)).unwrap();
        for low in (1..size).rev() {
            let seq = window.check(low).unwrap();
            assert_eq!(window.accept(seq), Ok(false));
            assert!(window.check(low).is_err());
        }
        assert!(window.check(0).is_err(), "the first packet is number 1");
        assert_eq!(window.accept(u64::from(size) + 1), Ok(true));
        assert!(window.check(1).is_err(), "left of the window");
    }
}

#[test]
fn a_window_of_none_checks_nothing() {
    let mut window = ReplayWindow::new(0, false);
    for _ in 0..3 {
        let seq = window.check(7).unwrap();
        assert!(window.accept(seq).is_ok());
    }
}

/// The high half is found even where the check is off.
#[test]
fn extended_numbers_without_a_check() {
    let mut window = ReplayWindow::new(0, true);
    for seq in [1, 0x7fff_ffff, 0xffff_fff0, 0x1_0000_0005, 0xffff_fff8, 0x1_0000_0006] {
        assert_eq!(window.check(seq as u32), Ok(seq));
        window.accept(seq).unwrap();
    }
}

/// RFC 4303 §3.3.3: a 32-bit number does not come round.
#[test]
fn the_end_of_32_bits() {
    let mut window = ReplayWindow::new(64, false);
    let last = u64::from(u32::MAX);
    assert_eq!(window.check(u32::MAX), Ok(last));
    window.accept(last).unwrap();
    for low in [0, 1, 5, u32::MAX] {
        assert!(window.check(low).is_err());
    }
}

#[test]
fn across_the_subspace_boundary() {
    let mut window = ReplayWindow::new(64, true);
    let boundary = 1u64 << 32;
    for seq in [1 << 31, boundary - 10, boundary + 3, boundary - 1, boundary, boundary + 60] {
        assert_eq!(window.check(seq as u32), Ok(seq), "{seq:#x}");
        window.accept(seq).unwrap();
        assert!(window.check(seq as u32).is_err());
    }
}
