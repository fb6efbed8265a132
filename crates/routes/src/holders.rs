//! The routes of all policies, and which policies have each. To learn this for one route takes no look at all policies:
//! with 10,000 of them, each change of one would.

use std::collections::{BTreeMap, BTreeSet};

use ipsec_types::dataplane::{PolicyId, TrafficSelector};

use super::picture::Place;
use super::prefix::Prefix;
use super::route::{Route, Via};

/// The routes of a policy, and its local selectors.
pub(super) type Held = (BTreeSet<Route>, Vec<TrafficSelector>);

/// The routes of all policies.
#[derive(Debug, Default)]
pub(super) struct Holders {
    policies: BTreeMap<PolicyId, Held>,
    /// The same routes by their place.
    places: BTreeMap<Place, Shared>,
    /// How many policies have each wall.
    walls: BTreeMap<Prefix, usize>,
}

/// The routes of all policies to one place.
#[derive(Debug, Default)]
struct Shared {
    /// In the order of their policies.
    routes: BTreeSet<(PolicyId, Route)>,
    /// How many of them are lasting blocks.
    lasting: usize,
    /// How many lead somewhere, and are of policies without a block there: of children that are up.
    up: usize,
}

impl Shared {
    /// A policy with the routes `all` has `route`, or has it no more.
    fn count(&mut self, all: &BTreeSet<Route>, route: Route, add: bool) {
        let change = |count: &mut usize| *count = if add { *count + 1 } else { *count - 1 };
        if route.via.is_lasting() {
            change(&mut self.lasting);
        }
        if route.via != Via::Elsewhere && !blocks(all, route.prefix) {
            change(&mut self.up);
        }
    }
}

/// True if a block of this prefix is among `routes`.
fn blocks(routes: &BTreeSet<Route>, prefix: Prefix) -> bool {
    let to = |via| Route { prefix, via };
    // The kinds of blocks follow one another.
    let mut to_nowhere = routes.range(to(Via::Unreachable)..=to(Via::BlackHole));
    to_nowhere.any(|route| route.via.is_block())
}

/// What becomes of a route that a policy no longer has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Another policy has it too.
    Stays,
    /// Another policy has this one at its place, with these local selectors.
    Heir(Route, Vec<TrafficSelector>),
    /// No policy has one at its place.
    Goes,
}

impl Holders {
    /// Gives a policy its routes, in the place of those that it had.
    pub(super) fn insert(&mut self, policy: PolicyId, held: Held) {
        self.remove(policy);
        for &route in &held.0 {
            let place = self.places.entry(route.place()).or_default();
            place.routes.insert((policy, route));
            place.count(&held.0, route, true);
            if route.via == Via::Wall {
                *self.walls.entry(route.prefix).or_default() += 1;
            }
        }
        self.policies.insert(policy, held);
    }

    /// Takes a policy's routes away, and returns them and its local selectors.
    pub(super) fn remove(&mut self, policy: PolicyId) -> Held {
        let held = self.policies.remove(&policy).unwrap_or_default();
        for &route in &held.0 {
            if let Some(place) = self.places.get_mut(&route.place()) {
                place.routes.remove(&(policy, route));
                place.count(&held.0, route, false);
                if place.routes.is_empty() {
                    self.places.remove(&route.place());
                }
            }
            if route.via == Via::Wall
                && let Some(count) = self.walls.get_mut(&route.prefix)
            {
                *count -= 1;
                if *count == 0 {
                    self.walls.remove(&route.prefix);
                }
            }
        }
        held
    }

    /// What becomes of `route`, which a policy had. `gone` are the local selectors of that policy, if it was removed.
    pub(super) fn fate(&self, route: Route, gone: Option<&[TrafficSelector]>) -> Fate {
        let Some(Shared { routes: holders, .. }) = self.places.get(&route.place()) else {
            return Fate::Goes;
        };
        let held = holders.iter().filter_map(|(policy, heir)| {
            self.policies.get(policy).map(|(routes, local)| (*heir, routes, local))
        });
        let mut heirs = held.filter(|(heir, routes, _)| !self.yields(routes, *heir));
        let Some((heir, _, local)) = heirs.next() else { return Fate::Goes };
        // The local selectors decide about the source address.
        let other_source = gone.is_some_and(|gone| gone != local) && !heir.via.is_block();
        if holders.iter().any(|(_, other)| *other == route) && !other_source {
            return Fate::Stays;
        }
        Fate::Heir(heir, local.clone())
    }

    /// True if a policy with `routes` leaves the place of `route`, which is one of them, to another policy. The hold of a
    /// child that was never up gives way to a lasting block, so that the next run sees the block. A policy with a block,
    /// whose child is down, gives way to the policy of a child that is up: the route decides about the source address, and
    /// with another one the packets would not match the child that is up.
    pub(super) fn yields(&self, routes: &BTreeSet<Route>, route: Route) -> bool {
        let Some(others) = self.places.get(&route.place()) else { return false };
        match route.via {
            Via::Prohibited => others.lasting != 0,
            Via::Device(_) | Via::Narrow { .. } | Via::Peer { .. } => {
                others.up != 0 && blocks(routes, route.prefix)
            }
            _ => false,
        }
    }

    /// The prefixes with a route into a device and without a block as a fallback, of whichever child.
    pub(super) fn unblocked(&self) -> BTreeSet<Prefix> {
        let led = self.policies.values().flat_map(|(routes, _)| {
            let is_led = |route: &&Route| matches!(route.via, Via::Device(_) | Via::Narrow { .. });
            let own = |prefix| blocks(routes, prefix);
            let led = routes.iter().filter(is_led).map(|route| route.prefix);
            led.filter(move |prefix| !own(*prefix))
        });
        led.filter(|prefix| !self.to(*prefix).any(|route| route.via.is_lasting())).collect()
    }

    /// The walls that policies have.
    pub(super) fn walls(&self) -> &BTreeMap<Prefix, usize> {
        &self.walls
    }

    /// True if a policy has a route at `place`.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.places.contains_key(place)
    }

    /// The routes of policies to exactly this prefix.
    pub(super) fn to(&self, prefix: Prefix) -> impl Iterator<Item = Route> {
        let places = [(prefix, false), (prefix, true)];
        let holders = places.into_iter().filter_map(|place| self.places.get(&place));
        holders.flat_map(|place| &place.routes).map(|(_, route)| *route)
    }

    /// The routes of each policy, and its local selectors.
    pub(super) fn all(&self) -> impl Iterator<Item = &Held> {
        self.policies.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::LOOKS;

    fn prefix(address: &str, len: u8) -> Prefix {
        Prefix { address: address.parse().unwrap(), len }
    }

    fn held(via: Via, selector: &str) -> Held {
        let route = Route { prefix: prefix("10.2.0.0", 16), via };
        (BTreeSet::from([route]), vec![selector.parse().unwrap()])
    }

    /// Fault: in `Holders::fate`, take the last holder of the place, or in `Holders::remove` leave the place as it is.
    #[test]
    fn a_route_goes_with_its_last_policy_and_the_first_other_one_inherits_its_place() {
        let mut holders = Holders::default();
        let [one, two, three] = [1, 2, 3].map(Via::Device);
        let gone = |via| Route { prefix: prefix("10.2.0.0", 16), via };
        holders.insert(PolicyId(1), held(one, "10.1.0.0/16"));
        holders.insert(PolicyId(2), held(two, "10.3.0.0/16"));
        holders.insert(PolicyId(3), held(three, "10.4.0.0/16"));
        holders.insert(PolicyId(4), held(one, "10.5.0.0/16"));
        assert_eq!(holders.remove(PolicyId(1)).0, BTreeSet::from([gone(one)]));
        assert_eq!(holders.fate(gone(one), None), Fate::Stays);
        holders.remove(PolicyId(4));
        let heir = Fate::Heir(gone(two), vec!["10.3.0.0/16".parse().unwrap()]);
        assert_eq!(holders.fate(gone(one), None), heir);
        holders.remove(PolicyId(2));
        holders.remove(PolicyId(3));
        assert_eq!(holders.fate(gone(three), None), Fate::Goes);
        assert!(!holders.has(&gone(one).place()));
    }

    /// The block of a child that was up outlasts a restart. The hold of a child that was never up does not.
    ///
    /// Faults: in `yields`, return false; in `fate`, take the first holder; in `unblocked`, leave `own` out, or count any
    /// block of another policy.
    #[test]
    fn a_child_that_was_up_has_its_block_beside_one_that_was_not() {
        let mut holders = Holders::default();
        let at = |via| Route { prefix: prefix("10.2.0.0", 16), via };
        let both = |via| (BTreeSet::from([at(Via::Device(1)), at(via)]), Vec::new());
        let none = BTreeSet::new();
        holders.insert(PolicyId(1), both(Via::Prohibited));
        assert!(!holders.yields(&none, at(Via::Prohibited)) && holders.unblocked().is_empty());
        holders.insert(PolicyId(2), held(Via::Device(1), "10.1.0.0/16"));
        assert_eq!(holders.unblocked(), BTreeSet::from([prefix("10.2.0.0", 16)]));
        holders.insert(PolicyId(3), both(Via::BlackHole));
        holders.insert(PolicyId(4), both(Via::Unreachable));
        assert!(
            holders.yields(&none, at(Via::Prohibited))
                && !holders.yields(&none, at(Via::BlackHole))
        );
        assert!(holders.unblocked().is_empty());
        holders.remove(PolicyId(4));
        assert_eq!(
            holders.fate(at(Via::Unreachable), None),
            Fate::Heir(at(Via::BlackHole), Vec::new())
        );
        holders.remove(PolicyId(3));
        assert_eq!(
            holders.fate(at(Via::BlackHole), None),
            Fate::Heir(at(Via::Prohibited), Vec::new())
        );
    }

    /// Fault: in `Holders::insert`, do not take away the routes that the policy had.
    #[test]
    fn a_wall_stands_as_long_as_a_policy_has_it() {
        let mut holders = Holders::default();
        holders.insert(PolicyId(1), held(Via::Wall, "10.1.0.0/16"));
        holders.insert(PolicyId(1), held(Via::Wall, "10.1.0.0/16"));
        holders.insert(PolicyId(2), held(Via::Wall, "10.1.0.0/16"));
        holders.remove(PolicyId(1));
        assert_eq!(holders.walls().keys().collect::<Vec<_>>(), [&prefix("10.2.0.0", 16)]);
        holders.remove(PolicyId(2));
        assert!(holders.walls().is_empty());
    }

    /// A look at all routes asks of each whether it yields. Many children that are down may have the same prefix.
    ///
    /// Faults: in `yields`, look at the routes of the others; in `count`, take nothing from `up`.
    #[test]
    fn the_looks_at_many_policies_with_one_prefix_grow_with_their_number() {
        const MANY: u64 = 1000;
        let mut holders = Holders::default();
        let at = |via| Route { prefix: prefix("10.2.0.0", 16), via };
        let down = || BTreeSet::from([at(Via::Device(1)), at(Via::Unreachable)]);
        for policy in 0..MANY {
            holders.insert(PolicyId(policy), (down(), Vec::new()));
        }
        let all = |holders: &Holders| {
            let before = LOOKS.get();
            let yields = holders.all().filter(|(all, _)| holders.yields(all, at(Via::Device(1))));
            (yields.count() as u64, LOOKS.get() - before)
        };
        let (yields, looks) = all(&holders);
        assert_eq!(yields, 0, "nobody is up");
        assert!(looks <= 4 * MANY, "{looks} looks");
        holders.insert(PolicyId(MANY), held(Via::Device(1), "10.1.0.0/16"));
        assert_eq!(all(&holders).0, MANY, "all but the one that is up");
        holders.insert(PolicyId(MANY), (down(), Vec::new()));
        assert_eq!(all(&holders).0, 0);
        assert!(holders.yields(&BTreeSet::new(), at(Via::Prohibited)));
        for policy in 0..=MANY {
            holders.remove(PolicyId(policy));
        }
        holders.insert(PolicyId(0), (BTreeSet::from([at(Via::Prohibited)]), Vec::new()));
        assert!(!holders.yields(&BTreeSet::new(), at(Via::Prohibited)), "no lasting block is left");
    }
}
