//! Strongly connected components: which modules reach each other.

use std::collections::{BTreeMap, BTreeSet};

/// A number for each node; two nodes have the same number if each reaches the other along `arrows`.
///
/// A crate has a few dozen modules, so each node is simply asked what it reaches.
pub(crate) fn components<'a>(
    arrows: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<&'a str, usize> {
    let mut next = BTreeMap::<_, BTreeSet<_>>::new();
    for (from, to) in arrows {
        next.entry(from).or_default().insert(to);
        next.entry(to).or_default();
    }
    let reached: BTreeMap<_, _> = next.keys().map(|node| (*node, reachable(node, &next))).collect();
    let mut numbers = BTreeMap::new();
    for (number, (node, reaches)) in reached.iter().enumerate() {
        let mutual = reaches.iter().filter(|other| reached[**other].contains(node));
        let first = mutual.filter_map(|other| numbers.get(other)).min().copied();
        numbers.insert(*node, first.unwrap_or(number));
    }
    numbers
}

fn reachable<'a>(start: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([start]);
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        open.extend(next[node].iter().copied().filter(|other| reached.insert(other)));
    }
    reached
}
