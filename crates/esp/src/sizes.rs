//! The MTU of the path to each peer, for each pair of outer addresses.
//!
//! A path begins with the MTU of its link. Reports lower it. A lowered MTU ages: after ten minutes the path has the MTU of
//! its link again (RFC 4301 §8.2.2).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// The smallest MTU that IPv6 knows (RFC 8200 §5).
pub(crate) const LEAST_V6: u16 = 1280;
/// The smallest size that is told of IPv4: every host takes it (RFC 791 §3.1).
pub(crate) const LEAST_V4: u16 = 576;

/// Milliseconds until a lowered MTU has aged.
pub(crate) const AGES: u64 = 10 * 60 * 1000;
/// Milliseconds between two reports that are believed.
const BETWEEN: u64 = 1000;

/// This end and the peer.
pub(crate) type Ends = (IpAddr, IpAddr);

/// The paths of a plane.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    paths: HashMap<Ends, Size>,
}

#[derive(Debug)]
struct Size {
    /// The MTU of the link.
    link: u16,
    /// The present MTU of the path.
    now: u16,
    /// When the MTU was lowered last; `None` if it is that of the link.
    since: Option<u64>,
}

impl Sizes {
    /// The MTU of the path between `ends`; `None` if it is not known.
    pub(crate) fn outer(&self, ends: Ends) -> Option<u16> {
        self.paths.get(&ends).map(|size| size.now)
    }

    /// Sets the MTU of the link between `ends`. True if that changes the MTU of the path.
    pub(crate) fn link(&mut self, ends: Ends, octets: u16) -> bool {
        let octets = octets.max(least(ends));
        let size = self.paths.entry(ends).or_insert(Size { link: octets, now: 0, since: None });
        size.link = octets;
        let now = match size.since {
            Some(_) => size.now.min(octets),
            None => octets,
        };
        std::mem::replace(&mut size.now, now) != now
    }

    /// Lowers the MTU of the path between `ends` to `octets`, at `now` (ms). True if that changes it.
    pub(crate) fn lower(&mut self, now: u64, ends: Ends, octets: u16) -> bool {
        let octets = octets.max(least(ends));
        let Some(size) = self.paths.get_mut(&ends) else { return false };
        let recent = size.since.is_some_and(|since| now.saturating_sub(since) < BETWEEN);
        if octets >= size.now || recent {
            return false;
        }
        (size.now, size.since) = (octets, Some(now));
        true
    }

    /// All paths.
    pub(crate) fn ends(&self) -> impl ExactSizeIterator<Item = Ends> {
        self.paths.keys().copied()
    }

    /// True if some lowered MTU has aged.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.paths.values().any(|size| size.aged(now))
    }

    /// Gives paths whose lowered MTU has aged the MTU of their links again, and returns these paths.
    pub(crate) fn try_larger(&mut self, now: u64) -> Vec<Ends> {
        let due = self.paths.iter_mut().filter(|(_, size)| size.aged(now));
        due.map(|(ends, size)| {
            (size.now, size.since) = (size.link, None);
            *ends
        })
        .collect()
    }

    /// Forgets the paths that are not in `used`.
    pub(crate) fn keep(&mut self, used: &HashSet<Ends>) {
        self.paths.retain(|ends, _| used.contains(ends));
    }
}

impl Size {
    fn aged(&self, now: u64) -> bool {
        self.since.is_some_and(|since| now.saturating_sub(since) >= AGES)
    }
}

fn least((_, peer): Ends) -> u16 {
    if peer.is_ipv4() { LEAST_V4 } else { LEAST_V6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(v6: bool) -> Ends {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
        let [own, peer] = ends.map(|end| end.parse().unwrap());
        (own, peer)
    }

    /// Fault: in `lower`, leave `recent` out, or `max(least(ends))`.
    #[test]
    fn a_size_falls_once_a_second_and_not_below_the_least() {
        for (v6, least) in [(false, 576), (true, 1280)] {
            let (mut sizes, ends) = (Sizes::default(), ends(v6));
            assert!(!sizes.lower(0, ends, 1300), "no such path");
            assert!(sizes.link(ends, 1500));
            assert!(sizes.lower(0, ends, 1400));
            assert!(!sizes.lower(999, ends, 1300));
            assert_eq!(sizes.outer(ends), Some(1400));
            assert!(sizes.lower(1000, ends, 68));
            assert_eq!(sizes.outer(ends), Some(least));
            assert!(!sizes.lower(9000, ends, 1450), "it does not grow by that");
        }
    }

    /// Fault: in `try_larger`, take `AGES` twice.
    #[test]
    fn a_size_is_tried_larger_after_ten_minutes() {
        let (mut sizes, ends) = (Sizes::default(), ends(false));
        sizes.link(ends, 1500);
        sizes.lower(5, ends, 1300);
        assert_eq!(sizes.try_larger(AGES + 4), []);
        assert_eq!(sizes.try_larger(AGES + 5), [ends]);
        assert_eq!(sizes.outer(ends), Some(1500));
        assert_eq!(sizes.try_larger(2 * AGES + 9), []);
        assert!(!sizes.link(ends, 1500));
        assert!(sizes.link(ends, 1450), "a link of its own");
    }
}
