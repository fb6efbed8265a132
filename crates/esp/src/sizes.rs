//! The MTU of the path to each peer, for each pair of outer addresses.
//!
//! A path begins with the MTU of its link. Reports lower it. A lowered MTU ages: after ten minutes the path has the MTU of
//! its link again (RFC 4301 §8.2.2).
//!
//! Where probes are sent ([`Sizes::enable_probes`]), a path begins with 1,280 octets. Larger packets go without Don't Fragment until
//! a probe has shown what the path carries. An MTU grows only when a probe has shown more: a lowered one that has aged, and that
//! of a path whose link has grown.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use ipsec_types::dataplane::Probed;

use crate::search::{BASE, Search, Step};

/// The smallest MTU that IPv6 knows (RFC 8200 §5).
pub(crate) const LEAST_V6: u16 = 1280;
/// The smallest size that is told of IPv4: every host takes it (RFC 791 §3.1).
pub(crate) const LEAST_V4: u16 = 576;

/// Milliseconds until a lowered MTU has aged.
pub(crate) const AGES: u64 = 10 * 60 * 1000;
/// Milliseconds between two reports that are believed.
const BETWEEN: u64 = 1000;

/// Milliseconds for which packets may be fragmented on a path, because of a report that is not believed.
const DIVIDED: u64 = 60 * 1000;

/// Milliseconds between two confirmations of one path (CONFIRMATION_TIMER in RFC 8899 §5.1.1).
const DOUBTED: u64 = 60 * 1000;

/// MTUs of usual links, for routers that do not say theirs (RFC 1191 §7).
const PLATEAUS: [u16; 7] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006];

/// The peer and this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ends {
    /// With the UDP port, or 0 without UDP: peers behind a NAT share its address.
    pub(crate) peer: SocketAddr,
    pub(crate) local: IpAddr,
}

/// The paths of a plane.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    paths: BTreeMap<Ends, Size>,
    /// True if the engine sends probes.
    probes: bool,
}

#[derive(Debug)]
struct Size {
    /// The MTU of the link.
    link: u16,
    /// The MTU of the path.
    now: u16,
    /// When the MTU was lowered last; `None` if it is that of the link.
    since: Option<u64>,
    /// When the path began to be one that may fragment.
    divided: Option<u64>,
    /// The search for the MTU by probes.
    search: Option<Search>,
    /// Larger packets are sent without Don't Fragment, because it is not known whether the path carries them.
    untried: bool,
    /// When a probe last began or ended to show that the path carries the MTU.
    confirmed: Option<u64>,
    /// When the MTU was last to be confirmed because nothing came back.
    doubted: Option<u64>,
}

impl Sizes {
    /// The MTU of the path between `ends`; `None` if it is not known.
    pub(crate) fn outer(&self, ends: Ends) -> Option<u16> {
        self.paths.get(&ends).map(|size| size.now)
    }

    /// Turns on probes of paths that are added from now on.
    pub(crate) fn enable_probes(&mut self) {
        self.probes = true;
    }

    /// True if probes are sent.
    pub(crate) fn is_probing(&self) -> bool {
        self.probes
    }

    /// True if it is not known whether the path between `ends` carries more than [`Self::outer`] says.
    pub(crate) fn is_untried(&self, ends: Ends) -> bool {
        self.paths.get(&ends).is_some_and(|size| size.untried)
    }

    /// True if no probe is to be asked for between `ends` at `now` (ms): nothing is searched, or a result is to come.
    pub(crate) fn has_no_question(&self, now: u64, ends: Ends) -> bool {
        let search = self.paths.get(&ends).and_then(|size| size.search.as_ref());
        search.is_none_or(|search| search.is_asked(now))
    }

    /// The size that is to be probed between `ends` at `now` (ms); `None` if there is nothing to find out, or a result is to
    /// come.
    pub(crate) fn ask(&mut self, now: u64, ends: Ends) -> Option<u16> {
        self.paths.get_mut(&ends)?.search.as_mut()?.ask(now)
    }

    /// Takes the result of a probe between `ends`, at `now` (ms). Where no probe can be sent, the path has the MTU of its
    /// link, or `unproven` if that is less. True if that changes the MTU of the path, or what is done about larger packets.
    pub(crate) fn take(&mut self, now: u64, ends: Ends, probed: Probed, unproven: u16) -> bool {
        let Some(size) = self.paths.get_mut(&ends) else { return false };
        let Some(search) = &mut size.search else { return false };
        let before = (size.now, size.untried);
        let step = match probed {
            Probed::Impossible => Step::Found(size.link.min(unproven)),
            probed => search.take(probed),
        };
        match step {
            Step::Open => return false,
            Step::AtLeast(octets) => size.now = octets.min(size.link),
            Step::Found(octets) => {
                let octets = octets.min(size.link);
                size.now = octets;
                (size.search, size.confirmed) = (None, Some(now));
                size.since = (octets < size.link).then(|| size.since.unwrap_or(now));
            }
        }
        size.untried = false;
        before != (size.now, size.untried)
    }

    /// The paths that are searched, where no result is to come at `now` (ms). On untried paths a probe waits for a packet that
    /// needs it.
    pub(crate) fn unasked(&self, now: u64) -> impl Iterator<Item = Ends> {
        let unasked = move |size: &Size| {
            !size.untried && size.search.as_ref().is_some_and(|search| !search.is_asked(now))
        };
        self.paths.iter().filter(move |(_, size)| unasked(size)).map(|(ends, _)| *ends)
    }

    /// Takes the path between `ends` for one of [`BASE`] octets (BASE_PLPMTU in RFC 8899 §5.1.2) if its probes have had no
    /// result for long, at `now` (ms): IKE may be unable to send them. A later result still counts. True if that changes what
    /// is done about larger packets.
    pub(crate) fn give_up(&mut self, now: u64, ends: Ends) -> bool {
        let unanswered = |size: &Size| {
            size.untried && size.search.as_ref().is_some_and(|search| search.is_unanswered(now))
        };
        let size = self.paths.get_mut(&ends).filter(|size| unanswered(size));
        size.map(|size| size.untried = false).is_some()
    }

    /// The paths whose MTU may be confirmed at `now` (ms): nothing is searched on them, and the last confirmation was long ago.
    /// True: only if nothing comes back, because a probe has shown the MTU lately.
    pub(crate) fn unconfirmed(&self, now: u64) -> impl Iterator<Item = (Ends, bool)> {
        let lately = move |at: Option<u64>| at.is_some_and(|at| now.saturating_sub(at) < DOUBTED);
        let all = self
            .paths
            .iter()
            .filter(|(_, size)| self.probes && size.search.is_none() && size.now > BASE);
        let due = move |size: &Size| !lately(size.confirmed) || !lately(size.doubted);
        let due = all.filter(move |(_, size)| due(size));
        due.map(move |(ends, size)| (*ends, lately(size.confirmed)))
    }

    /// Has the MTU of the path between `ends` confirmed, from `now` (ms) on: the path may carry less than it did. `silent`: packets
    /// leave and nothing comes back. The MTU stays until the confirmation fails ([`Search::confirm`]).
    pub(crate) fn doubt(&mut self, now: u64, ends: Ends, silent: bool) {
        if let Some(size) = self.paths.get_mut(&ends) {
            size.confirmed = Some(now);
            size.doubted = if silent { Some(now) } else { size.doubted };
            size.search = Some(Search::confirm(size.now));
        }
    }

    /// True if the path between `ends` may fragment packets (Don't Fragment is not set).
    pub(crate) fn is_divided(&self, ends: Ends) -> bool {
        self.paths.get(&ends).is_some_and(|size| size.divided.is_some())
    }

    /// Sets the MTU of the link between `ends`. True if that changes the MTU of the path.
    pub(crate) fn link(&mut self, ends: Ends, octets: u16) -> bool {
        let octets = octets.max(least(ends));
        let untried = self.probes && octets > BASE;
        let new = || Size {
            link: octets,
            now: 0,
            since: None,
            divided: None,
            search: untried.then(|| Search::new(BASE, octets)),
            untried,
            confirmed: None,
            doubted: None,
        };
        let size = self.paths.entry(ends).or_insert_with(new);
        if size.untried && size.link != octets {
            size.search = untried.then(|| Search::new(BASE, octets));
            size.untried = untried;
        }
        size.link = octets;
        let now = match (size.since, &size.search) {
            (None, Some(_)) if size.untried => BASE,
            (Some(_), _) | (None, Some(_)) => size.now.min(octets),
            // RFC 8899 §5.2 (SEARCHING): only a probe shows that the path carries more.
            (None, None) if untried && (1..octets).contains(&size.now) => {
                size.search = Some(Search::new(size.now, octets));
                size.now
            }
            (None, None) => octets,
        };
        std::mem::replace(&mut size.now, now) != now
    }

    /// Lowers the MTU of the path between `ends` to `octets`, at `now` (ms). True if that changes it.
    ///
    /// An MTU that IPv6 does not know is a mistake or a lie (RFC 8201 §4). 0 is of routers older than RFC 1191.
    pub(crate) fn lower(&mut self, now: u64, ends: Ends, octets: u16) -> bool {
        let Some(size) = self.paths.get_mut(&ends) else { return false };
        let octets = match (ends.peer.is_ipv4(), octets) {
            (true, 0) => size.below().max(LEAST_V4),
            (true, octets) => octets.max(LEAST_V4),
            (false, octets) => octets,
        };
        let recent = size.since.is_some_and(|since| now.saturating_sub(since) < BETWEEN);
        let present = if size.untried { size.link } else { size.now };
        if octets < least(ends) || octets >= present || recent {
            return false;
        }
        (size.now, size.since) = (octets, Some(now));
        (size.search, size.untried) = (None, false);
        true
    }

    /// Paths to `peer` that are not divided now.
    pub(crate) fn undivided(&self, peer: SocketAddr) -> Vec<Ends> {
        let to = self.paths.range(all_to(peer, peer));
        to.filter(|(_, size)| size.divided.is_none()).map(|(ends, _)| *ends).collect()
    }

    /// Has the path between `ends` fragment packets for a while, from `now` (ms) on.
    pub(crate) fn divide(&mut self, now: u64, ends: Ends) {
        if let Some(size) = self.paths.get_mut(&ends) {
            size.divided = Some(now);
        }
    }

    /// The number of paths.
    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    /// The paths to `peer`, whatever its port.
    #[cfg(any(feature = "tun", test))]
    pub(crate) fn to(&self, peer: IpAddr) -> Vec<Ends> {
        let [first, last] = [0, u16::MAX].map(|port| SocketAddr::new(peer, port));
        self.paths.range(all_to(first, last)).map(|(ends, _)| *ends).collect()
    }

    /// True if some path is due for [`Self::try_larger`].
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.paths.values().any(|size| size.aged(now) || size.is_whole_again(now))
    }

    /// Handles paths whose lowered MTU has aged: they get the MTU of their links again, or a new search begins. Sets Don't
    /// Fragment again on paths that may have fragmented for long enough. Returns all of these paths.
    pub(crate) fn try_larger(&mut self, now: u64) -> Vec<Ends> {
        let mut due = Vec::new();
        for (ends, size) in &mut self.paths {
            let (aged, whole) = (size.aged(now), size.is_whole_again(now));
            if aged && self.probes {
                (size.search, size.since) = (Some(Search::new(size.now, size.link)), Some(now));
            } else if aged {
                (size.now, size.since) = (size.link, None);
            }
            if whole {
                size.divided = None;
            }
            if aged || whole {
                due.push(*ends);
            }
        }
        due
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

    fn is_whole_again(&self, now: u64) -> bool {
        self.divided.is_some_and(|since| now.saturating_sub(since) >= DIVIDED)
    }

    /// The MTU of the widest usual link that is narrower.
    fn below(&self) -> u16 {
        PLATEAUS.into_iter().find(|octets| *octets < self.now).unwrap_or(0)
    }
}

fn least(ends: Ends) -> u16 {
    if ends.peer.is_ipv4() { LEAST_V4 } else { LEAST_V6 }
}

/// The paths to peers from `first` to `last`.
fn all_to(first: SocketAddr, last: SocketAddr) -> RangeInclusive<Ends> {
    let [low, high] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into()];
    Ends { peer: first, local: low }..=Ends { peer: last, local: high }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(v6: bool) -> Ends {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
        let [local, peer] = ends.map(|end| end.parse().unwrap());
        Ends { local, peer: SocketAddr::new(peer, 4500) }
    }

    /// Fault: in `lower`, leave `recent` out, or either look at the least.
    #[test]
    fn a_size_falls_once_a_second_and_not_below_the_least() {
        for (v6, least) in [(false, 576), (true, 1280)] {
            let (mut sizes, ends) = (Sizes::default(), ends(v6));
            assert!(!sizes.lower(0, ends, 1300), "no such path");
            assert!(sizes.link(ends, 1500));
            assert!(sizes.lower(0, ends, 1400));
            assert!(!sizes.lower(999, ends, 1300));
            assert_eq!(sizes.outer(ends), Some(1400));
            assert_eq!(sizes.lower(1000, ends, 68), !v6, "IPv6 has no such MTU");
            assert_eq!(sizes.lower(2000, ends, 1280), v6);
            assert_eq!(sizes.outer(ends), Some(least));
            assert!(!sizes.lower(9000, ends, 1450), "it does not grow by that");
        }
    }

    /// Fault: in `lower`, take 0 for a size.
    #[test]
    fn a_router_that_tells_no_size_is_taken_to_have_the_next_usual_one() {
        let (mut sizes, ends) = (Sizes::default(), ends(false));
        sizes.link(ends, 9000);
        let mut now = 0;
        let seen = [0; 7].map(|size| {
            now += BETWEEN;
            sizes.lower(now, ends, size);
            sizes.outer(ends).unwrap()
        });
        assert_eq!(seen, [8166, 4352, 2002, 1492, 1006, 576, 576]);
    }

    /// Fault: in `undivided`, do not ask for the port, or leave the filter out.
    #[test]
    fn a_path_is_divided_for_a_minute() {
        let (mut sizes, mine) = (Sizes::default(), ends(false));
        let neighbour = Ends { peer: SocketAddr::new(mine.peer.ip(), 4501), ..mine };
        let (plain, other) = (ends(true), "[2001:db8::2]:9".parse().unwrap());
        for ends in [mine, neighbour, plain] {
            sizes.link(ends, 1500);
        }
        assert_eq!(sizes.to(mine.peer.ip()), [mine, neighbour]);
        assert_eq!(sizes.undivided(other), []);
        assert_eq!(sizes.undivided(mine.peer), [mine]);
        sizes.divide(7, mine);
        assert_eq!(sizes.undivided(mine.peer), []);
        assert_eq!([mine, neighbour].map(|ends| sizes.is_divided(ends)), [true, false]);
        assert_eq!(sizes.outer(mine), Some(1500));
        assert!(!sizes.is_due(DIVIDED + 6) && sizes.is_due(DIVIDED + 7));
        assert_eq!(sizes.try_larger(DIVIDED + 7), [mine]);
        assert!(!sizes.is_divided(mine));
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

    /// Probing sizes, with one path of a link of `octets`.
    fn probing(octets: u16) -> (Sizes, Ends) {
        let (mut sizes, ends) = (Sizes::default(), ends(false));
        sizes.enable_probes();
        sizes.link(ends, octets);
        (sizes, ends)
    }

    /// RFC 8899 §5.2: a larger size is used once a probe has shown it.
    ///
    /// Fault: in `link`, leave out the arm that begins a search: the size of the link is taken.
    #[test]
    fn a_link_that_grows_is_searched_before_the_path_grows() {
        let (mut sizes, ends) = probing(1400);
        assert_eq!(sizes.ask(0, ends), Some(1400));
        assert!(sizes.take(0, ends, Probed::Carried(1400), 1500));
        assert!(!sizes.link(ends, 1500), "the path is as it was");
        assert_eq!(sizes.outer(ends), Some(1400));
        assert!(!sizes.is_untried(ends), "no packet over 1,400 goes meanwhile");
        assert_eq!(sizes.unasked(0).collect::<Vec<_>>(), [ends]);
        assert_eq!(sizes.ask(0, ends), Some(1500));
        assert!(sizes.take(0, ends, Probed::Carried(1500), 1500));
        assert_eq!(sizes.outer(ends), Some(1500));
        // What is not larger than the base needs no probe, and a smaller link needs none.
        let (mut small, of_small) = probing(1000);
        assert!(small.link(of_small, 1200) && small.outer(of_small) == Some(1200));
        assert!(sizes.link(ends, 1300) && sizes.outer(ends) == Some(1300));
    }

    /// Fault: in `link`, leave the search of an untried path as it is: packets of 1,280 octets leave on a link of 1,200, or
    /// 1,500 octets are probed on one of 1,400.
    #[test]
    fn a_link_that_changes_before_the_first_probe_begins_the_search_anew() {
        let (mut sizes, ends) = probing(1500);
        assert!(!sizes.link(ends, 1400));
        assert_eq!((sizes.outer(ends), sizes.ask(0, ends)), (Some(BASE), Some(1400)));
        assert!(sizes.is_untried(ends));
        assert!(sizes.link(ends, 1200));
        assert_eq!((sizes.outer(ends), sizes.is_untried(ends)), (Some(1200), false));
    }

    /// Where IKE cannot send the probes, the path has the base size after half a minute. A result that comes later counts.
    ///
    /// Fault: in `Search::is_unanswered`, return false: larger packets go without Don't Fragment for good.
    #[test]
    fn a_path_whose_probes_have_no_result_has_the_base_size_after_half_a_minute() {
        let (mut sizes, ends) = probing(1500);
        for now in [0, 10_000, 20_000] {
            assert_eq!((sizes.give_up(now, ends), sizes.ask(now, ends)), (false, Some(1500)));
        }
        assert!(!sizes.give_up(29_999, ends) && sizes.is_untried(ends));
        assert!(sizes.give_up(30_000, ends) && !sizes.give_up(30_000, ends));
        assert_eq!((sizes.outer(ends), sizes.is_untried(ends)), (Some(BASE), false));
        assert_eq!(sizes.unasked(30_000).collect::<Vec<_>>(), [ends], "it is asked again");
        assert_eq!(sizes.ask(30_000, ends), Some(1500));
        assert!(sizes.take(30_500, ends, Probed::Carried(1500), 1500));
        assert_eq!(sizes.outer(ends), Some(1500));
        // A result of any kind shows that probes are sent.
        let (mut slow, of_slow) = probing(1500);
        slow.ask(0, of_slow);
        slow.take(25_000, of_slow, Probed::Lost { octets: 1500, hint: None }, 1500);
        assert!(!slow.give_up(40_000, of_slow));
    }

    /// RFC 8899 §5.2: the size of a path falls when as many probes in a row are lost as a size may lose, and not with the
    /// first one. Traffic in one direction alone has the size confirmed each minute.
    ///
    /// Faults: in `doubt`, begin `Search::new(BASE, size.now)`: one lost probe has senders told of 1,280 octets. In
    /// `unconfirmed`, leave `due` out.
    #[test]
    fn one_way_traffic_keeps_its_size_until_three_probes_are_lost() {
        let (mut sizes, ends) = probing(1500);
        sizes.ask(0, ends);
        sizes.take(0, ends, Probed::Carried(1500), 1500);
        let lost = |hint| Probed::Lost { octets: 1500, hint };
        let unconfirmed = |sizes: &Sizes, now| sizes.unconfirmed(now).count();
        for minute in [0, DOUBTED] {
            assert_eq!(unconfirmed(&sizes, minute), 1);
            sizes.doubt(minute, ends, true);
            assert_eq!(unconfirmed(&sizes, minute), 0, "a result is to come");
            for hint in [None, Some(1400)] {
                assert_eq!(sizes.ask(minute, ends), Some(1500));
                assert!(!sizes.take(minute, ends, lost(hint), 1500));
                assert_eq!((sizes.outer(ends), sizes.is_untried(ends)), (Some(1500), false));
            }
            assert_eq!(sizes.ask(minute, ends), Some(1500));
            assert!(!sizes.take(minute, ends, Probed::Carried(1500), 1500));
            assert_eq!(unconfirmed(&sizes, minute + DOUBTED - 1), 0, "within the minute");
        }
        sizes.doubt(3 * DOUBTED, ends, true);
        for _ in 0..3 {
            assert_eq!((sizes.outer(ends), sizes.ask(0, ends)), (Some(1500), Some(1500)));
            sizes.take(0, ends, lost(None), 1500);
        }
        assert_eq!(sizes.outer(ends), Some(BASE), "now it is searched");
        assert!((BASE + 1..1500).contains(&sizes.ask(0, ends).unwrap()));
    }
}
