//! Limits the connections of clients that have not yet shown that they are peers.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Strangers' connections at a time, at most. One more takes the place of the oldest, so that a peer who is
/// quick gets through a flood.
const ALL: usize = 1024;

/// The share of the files this process may open that is theirs: others are needed for peers, for the data
/// plane, and to look things up.
const SHARE: usize = 4;

/// Of one IPv4 address, or of one /64 of IPv6. One more is refused.
const OF_ONE: usize = 32;

/// Counts them.
#[derive(Debug, Clone)]
pub(super) struct Strangers(Arc<Mutex<Places>>);

#[derive(Debug)]
struct Places {
    most: usize,
    /// By age.
    all: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
    by_network: HashMap<IpAddr, usize>,
    next: u64,
}

/// A stranger's place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    strangers: Strangers,
    number: u64,
    lost: Arc<Notify>,
}

impl Strangers {
    /// Places in a process that may open `files` files.
    pub(super) fn new(files: usize) -> Self {
        let most = (files / SHARE).clamp(1, ALL);
        let (all, by_network) = (BTreeMap::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Places { most, all, by_network, next: 0 })))
    }

    /// A place for somebody at `address`, if there is one.
    pub(super) fn place(&self, address: IpAddr) -> Option<Place> {
        let network = network(address);
        let mut places = self.places();
        if places.by_network.get(&network).is_some_and(|here| *here >= OF_ONE) {
            return None;
        }
        if places.all.len() >= places.most
            && let Some(oldest) = places.all.keys().next().copied()
            && let Some(lost) = places.free(oldest)
        {
            lost.notify_one();
        }
        let (number, lost) = (places.next, Arc::new(Notify::new()));
        places.next += 1;
        *places.by_network.entry(network).or_default() += 1;
        places.all.insert(number, (network, Arc::clone(&lost)));
        Some(Place { strangers: self.clone(), number, lost })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn free(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (network, lost) = self.all.remove(&number)?;
        if let Some(here) = self.by_network.get_mut(&network) {
            *here -= 1;
            if *here == 0 {
                self.by_network.remove(&network);
            }
        }
        Some(lost)
    }
}

impl Place {
    /// Rung once if somebody else has got it.
    pub(super) fn lost(&self) -> Arc<Notify> {
        Arc::clone(&self.lost)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.places().free(self.number);
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &Place) -> bool {
        use std::pin::pin;
        use std::task::{Context, Waker};
        let lost = place.lost();
        pin!(lost.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn one_address_does_not_keep_others_out() {
        let strangers = Strangers::new(usize::MAX);
        let flood: Vec<_> =
            (0..10_000).filter_map(|_| strangers.place([192, 0, 2, 1].into())).collect();
        assert_eq!(flood.len(), OF_ONE);
        assert!(strangers.place([192, 0, 2, 2].into()).is_some());
        assert!(!flood.iter().any(is_lost));
        drop(flood);
        assert!(strangers.places().all.is_empty(), "nothing stays behind");
        assert!(strangers.places().by_network.is_empty());
        assert!(strangers.place([192, 0, 2, 1].into()).is_some());
    }

    #[test]
    fn many_addresses_take_so_many_places_and_the_newest_has_one() {
        let strangers = Strangers::new(usize::MAX);
        let address = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let flood: Vec<_> = (0..10_000).filter_map(|n| strangers.place(address(n))).collect();
        assert_eq!(flood.len(), 10_000);
        assert_eq!(strangers.places().all.len(), ALL);
        let lost: Vec<bool> = flood.iter().map(is_lost).collect();
        assert!(lost[..10_000 - ALL].iter().all(|lost| *lost), "the oldest make room");
        assert!(!lost[10_000 - ALL..].iter().any(|lost| *lost));
        drop(flood);
        assert!(strangers.places().all.is_empty());
    }

    #[test]
    fn some_files_are_left_to_others() {
        let strangers = Strangers::new(1024);
        let address = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let flood: Vec<_> = (0..1000).filter_map(|n| strangers.place(address(n))).collect();
        assert_eq!(strangers.places().all.len(), 256);
        assert!(is_lost(&flood[743]) && !is_lost(&flood[744]));
    }

    #[test]
    fn a_host_of_ipv6_has_many_addresses_and_counts_once() {
        let strangers = Strangers::new(usize::MAX);
        let address = |n: u128| Ipv6Addr::from_bits((0x2001_0db8 << 96) + n).into();
        let flood: Vec<_> = (0..1000).filter_map(|n| strangers.place(address(n))).collect();
        assert_eq!(flood.len(), OF_ONE);
        assert!(strangers.place(address(1 << 64)).is_some(), "the next network");
    }
}
