//! The search for the size of a path by probes (RFC 8899 §5.3). Sizes are octets of an IP packet.
//!
//! ```text
//! untried ── the link's size is carried ───────────────────────────────────▶ found
//!    │                                                                         ▲
//!    └─ it is lost ──▶ narrow ── the link's size is carried after all ─────────┤
//!                       │ ▲ ╰─── nothing is between what is carried and lost ──┘
//!                       └─┘ a size that is lost three times is not carried: halving
//! ```

use ipsec_types::dataplane::Probed;

/// The size that is used until a probe has shown a larger one. Every path of IPv6 carries it (RFC 8200 §5), and nearly every
/// path of IPv4.
pub(crate) const BASE: u16 = 1280;

/// If this many probes of a size are lost, the path does not carry the size (MAX_PROBES in RFC 8899 §5.1.2).
const LOST: u8 = 3;

/// Milliseconds after which a probe without a result is asked for again.
const NO_ANSWER: u64 = 10 * 1000;

/// Milliseconds without a result of any probe, after which a path counts as one of [`BASE`] octets: the time of [`LOST`]
/// probes.
const UNANSWERED: u64 = LOST as u64 * NO_ANSWER;

/// Sizes that paths have: VXLAN, WireGuard, PPPoE and others.
const USUAL: [u16; 14] =
    [1300, 1320, 1340, 1360, 1380, 1400, 1420, 1440, 1450, 1460, 1472, 1480, 1492, 1500];

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    /// The largest size that the path is known to carry.
    carried: u16,
    /// The least size that it does not carry, as far as is known.
    beyond: u16,
    /// The size that is tried.
    size: u16,
    /// How often it was lost.
    lost: u8,
    /// True if the hint of a router was tried.
    hinted: bool,
    /// True if the size is in use, and it is not known whether the path still carries it.
    confirms: bool,
    /// When a probe was asked for last, and when first since the last result.
    asked: Option<u64>,
    first: Option<u64>,
}

/// The result of a search so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Open,
    /// The path carries this size, and perhaps more.
    AtLeast(u16),
    /// The path carries this size and no more.
    Found(u16),
}

impl Search {
    /// A search between `carried` and the size of the link, which is tried first.
    pub(crate) fn new(carried: u16, link: u16) -> Self {
        Self {
            carried,
            beyond: link.saturating_add(1),
            size: link,
            lost: 0,
            hinted: false,
            confirms: false,
            asked: None,
            first: None,
        }
    }

    /// Asks whether the path still carries `size`, which is in use. The search for a smaller one begins only when that is
    /// lost as often as a size may be.
    pub(crate) fn confirm(size: u16) -> Self {
        Self { confirms: true, ..Self::new(BASE, size) }
    }

    /// The size to be probed at `now` (ms); `None` while a result is to come.
    pub(crate) fn ask(&mut self, now: u64) -> Option<u16> {
        if self.is_asked(now) {
            return None;
        }
        self.asked = Some(now);
        self.first.get_or_insert(now);
        Some(self.size)
    }

    /// True if probes have had no result for [`UNANSWERED`].
    pub(crate) fn is_unanswered(&self, now: u64) -> bool {
        self.first.is_some_and(|first| now.saturating_sub(first) >= UNANSWERED)
    }

    /// True if the result of a probe is to come.
    pub(crate) fn is_asked(&self, now: u64) -> bool {
        self.asked.is_some_and(|asked| now.saturating_sub(asked) < NO_ANSWER)
    }

    /// Takes the result of a probe.
    pub(crate) fn take(&mut self, probed: Probed) -> Step {
        (self.asked, self.first) = (None, None);
        // A cipher with blocks makes a probe a few octets smaller than it was to be.
        let tried = self.size.saturating_sub(BLOCK)..=self.size;
        match probed {
            Probed::Carried(octets) if tried.contains(&octets) => {
                self.carried = self.carried.max(octets);
                self.next(self.size);
            }
            Probed::Lost { octets, hint } if tried.contains(&octets) => {
                self.lost += 1;
                // RFC 8899 §5.2 (SEARCH_COMPLETE): only MAX_PROBES lost probes in a row lead to the BASE state.
                if self.confirms && self.lost < LOST {
                    return Step::Open;
                }
                self.confirms = false;
                let hint = hint.filter(|hint| (self.carried + 1..octets).contains(hint));
                if let Some(hint) = hint.filter(|_| !std::mem::replace(&mut self.hinted, true)) {
                    (self.size, self.lost) = (hint, 0);
                    return Step::AtLeast(self.carried);
                }
                if self.lost < LOST {
                    // Small packets for a second do less harm than packets that are lost.
                    return Step::AtLeast(self.carried);
                }
                self.beyond = self.size;
                self.next(self.carried);
            }
            Probed::Carried(_) | Probed::Lost { .. } | Probed::Impossible => return Step::Open,
        }
        match self.size {
            0 => Step::Found(self.carried),
            _ => Step::AtLeast(self.carried),
        }
    }

    /// Tries the middle of the usual sizes above `known`; 0 if there is none.
    fn next(&mut self, known: u16) {
        let between: Vec<_> =
            USUAL.into_iter().filter(|size| known < *size && *size < self.beyond).collect();
        self.size = between.get(between.len() / 2).copied().unwrap_or_default();
        self.lost = 0;
    }
}

/// Octets by which a cipher with blocks makes a probe smaller, at the most.
const BLOCK: u16 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that carries `path` octets. `hint` is the size in ICMP. Returns the size found and the number of
    /// probes.
    fn search(carried: u16, link: u16, path: u16, hint: Option<u16>) -> (u16, usize) {
        let mut search = Search::new(carried, link);
        for probes in 1..100 {
            let octets = search.ask(probes).expect("a size");
            assert_eq!(search.ask(probes + NO_ANSWER - 1), None, "one at a time");
            let probed = match octets <= path {
                true => Probed::Carried(octets),
                false => Probed::Lost { octets, hint: hint.filter(|hint| *hint < octets) },
            };
            if let Step::Found(size) = search.take(probed) {
                return (size, usize::try_from(probes).unwrap());
            }
        }
        panic!("no end of {path}")
    }

    /// Fault: in `take`, let `next` begin with the link; or in `next`, take the first of them and not the middle.
    #[test]
    fn every_usual_size_is_found() {
        assert_eq!(search(BASE, 1500, 1500, None), (1500, 1), "the link first");
        for path in USUAL.into_iter().chain([BASE]) {
            let (found, probes) = search(BASE, 1500, path, None);
            assert_eq!(found, path);
            assert!(probes <= 3 * 5, "{probes} for {path}");
        }
        assert_eq!(search(BASE, 1500, 1469, None).0, 1460);
        assert_eq!(search(BASE, 1450, 1500, None), (1450, 1), "not more than the link");
        assert_eq!(search(1400, 1500, 1500, None), (1500, 1), "a path that grows again");
    }

    /// Fault: in `take`, leave `hinted` out: forged ICMP with another size each time keeps the search from its end.
    #[test]
    fn a_hint_is_tried_once_and_decides_nothing() {
        let mut search_hint = Search::new(BASE, 1500);
        let lost = |octets, hint| Probed::Lost { octets, hint: Some(hint) };
        assert_eq!(search_hint.take(lost(1500, 1333)), Step::AtLeast(BASE));
        assert_eq!(search_hint.ask(0), Some(1333));
        assert_eq!(search_hint.take(Probed::Carried(1333)), Step::AtLeast(1333));
        let mut long = Search::new(BASE, 1500);
        let ended = (0..20).any(|_| {
            let octets = long.ask(0).unwrap();
            long.take(lost(octets, octets - 1)) == Step::Found(BASE)
        });
        assert!(ended, "{long:?}");
        for path in [1320, 1460] {
            for lie in [0, 576, 1281, 1333, 1499] {
                assert_eq!(search(BASE, 1500, path, Some(lie)).0, path, "{lie}");
            }
        }
    }

    /// Until a probe has shown that the size is carried after all, the largest size that is known to be carried is used.
    ///
    /// Fault: let `LOST` be 1; or in `take`, return `Open` while `lost` is less.
    #[test]
    fn two_lost_probes_do_not_rule_a_size_out() {
        let mut search = Search::new(BASE, 1500);
        for _ in 0..2 {
            let octets = search.ask(0).unwrap();
            assert_eq!(search.take(Probed::Lost { octets, hint: None }), Step::AtLeast(BASE));
        }
        assert_eq!(search.ask(0), Some(1500));
        assert_eq!(search.take(Probed::Carried(1500)), Step::Found(1500));
    }
}
