//! What is to be on the host and what is there, in one form, and the steps from the one to the other.
//!
//! | to be there | there | step |
//! |---|---|---|
//! | the rules of a family, in their order | the same, in the same order | none |
//! | | others, or another order | all are added, and then all that were there are removed |
//! | a route | the same one | none |
//! | | none, or another one of ours at its place | it is set |
//! | no route | one of ours | it is removed, once leftovers of an earlier run are no longer kept |
//!
//! Nothing without the marks of this program is in the second picture, so no step removes anything of others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::prefix::Prefix;

/// What the kernel tells routes of one table apart by, as far as ours differ: the prefix, and whether the metric is that
/// of shunts.
pub(super) type Place = (Prefix, bool);

/// A rule, as far as ours differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) ipv4: bool,
    /// `FR_ACT_*`.
    pub(super) action: u8,
    pub(super) table: u32,
    pub(super) priority: u32,
    pub(super) inverted: bool,
    pub(super) to: Option<Prefix>,
    pub(super) mark: u32,
    pub(super) mask: u32,
    pub(super) suppressed: u32,
}

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// `RTN_*`.
    pub(super) kind: u8,
    pub(super) device: Option<u32>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) source: Option<IpAddr>,
    pub(super) mtu: Option<u32>,
}

/// The rules and routes of this program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Picture {
    rules: Vec<Rule>,
    routes: BTreeMap<Place, Way>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Adds a rule behind those of the same priority, even if there is one like it.
    AddRule(Rule),
    /// Removes the first rule that is like this one.
    RemoveRule(Rule),
    SetRoute(Place, Way),
    RemoveRoute(Place),
}

impl Picture {
    /// Adds a rule behind those of before.
    pub(super) fn rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Adds a route, in the place of one that is there.
    pub(super) fn route(&mut self, place: Place, way: Way) {
        self.routes.insert(place, way);
    }

    /// The steps from `present` to this picture. `all` is false while routes that are not in this picture are to stay.
    pub(super) fn steps(&self, present: &Self, all: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for ipv4 in [true, false] {
            let of = |picture: &Self| -> Vec<Rule> {
                picture.rules.iter().filter(|rule| rule.ipv4 == ipv4).copied().collect()
            };
            let (wanted, there) = (of(self), of(present));
            if wanted != there {
                // In this order, so that there is no moment without them.
                steps.extend(wanted.into_iter().map(Step::AddRule));
                steps.extend(there.into_iter().map(Step::RemoveRule));
            }
        }
        let lacking =
            self.routes.iter().filter(|(place, way)| present.routes.get(place) != Some(way));
        steps.extend(lacking.map(|(&place, &way)| Step::SetRoute(place, way)));
        let stray = present.routes.keys().filter(|place| all && !self.routes.contains_key(place));
        steps.extend(stray.map(|&place| Step::RemoveRoute(place)));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, len) = text.split_once('/').unwrap();
        Prefix { address: address.parse().unwrap(), len: len.parse().unwrap() }
    }

    fn rule(ipv4: bool, to: Option<&str>) -> Rule {
        let to = to.map(prefix);
        Rule {
            ipv4,
            action: 1,
            table: 220,
            priority: 220,
            inverted: to.is_none(),
            to,
            mark: 220,
            mask: !0,
            suppressed: !0,
        }
    }

    fn way(device: u32) -> Way {
        Way { kind: 1, device: Some(device), gateway: None, source: None, mtu: None }
    }

    fn picture(rules: &[Rule], routes: &[(&str, u32)]) -> Picture {
        let mut picture = Picture::default();
        rules.iter().for_each(|&rule| picture.rule(rule));
        routes.iter().for_each(|&(to, device)| picture.route((prefix(to), false), way(device)));
        picture
    }

    /// Each row: what is there instead of the two rules and two routes that are to be there, and the steps.
    ///
    /// Fault: in `Picture::steps`, compare the rules as sets, or take the routes of `present` for those of `self`.
    #[test]
    fn the_steps_lead_from_what_is_there_to_what_is_to_be_there() {
        use Step::{AddRule, RemoveRoute, RemoveRule, SetRoute};
        let (main, wall, six) =
            (rule(true, None), rule(true, Some("10.1.0.0/16")), rule(false, None));
        let to = |text: &str| (prefix(text), false);
        let wanted = picture(&[main, wall, six], &[("10.2.0.0/16", 7), ("10.3.0.0/16", 7)]);
        let routes = [("10.2.0.0/16", 7), ("10.3.0.0/16", 7)];
        let rules = [main, wall, six];
        let rows: [(&str, Picture, Vec<Step>); 8] = [
            ("all", picture(&rules, &routes), vec![]),
            // Were the rule behind the wall, packets to networks within the wall would miss their routes.
            (
                "no main rule",
                picture(&[wall, six], &routes),
                vec![AddRule(main), AddRule(wall), RemoveRule(wall)],
            ),
            ("no rule for IPv6", picture(&[main, wall], &routes), vec![AddRule(six)]),
            (
                "another order",
                picture(&[wall, main, six], &routes),
                vec![AddRule(main), AddRule(wall), RemoveRule(wall), RemoveRule(main)],
            ),
            (
                "a rule twice",
                picture(&[main, wall, wall, six], &routes),
                vec![
                    AddRule(main),
                    AddRule(wall),
                    RemoveRule(main),
                    RemoveRule(wall),
                    RemoveRule(wall),
                ],
            ),
            (
                "no routes",
                picture(&rules, &[]),
                vec![SetRoute(to("10.2.0.0/16"), way(7)), SetRoute(to("10.3.0.0/16"), way(7))],
            ),
            (
                "a route elsewhere",
                picture(&rules, &[("10.2.0.0/16", 7), ("10.3.0.0/16", 2)]),
                vec![SetRoute(to("10.3.0.0/16"), way(7))],
            ),
            (
                "a route too many",
                picture(&rules, &[routes[0], routes[1], ("10.4.0.0/16", 7)]),
                vec![RemoveRoute(to("10.4.0.0/16"))],
            ),
        ];
        for (name, present, steps) in rows {
            assert_eq!(wanted.steps(&present, true), steps, "{name}");
        }
        let more = picture(&rules, &[routes[0], routes[1], ("10.4.0.0/16", 7)]);
        assert_eq!(wanted.steps(&more, false), [], "leftovers that are kept");
    }
}
