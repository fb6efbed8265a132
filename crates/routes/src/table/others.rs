//! What an earlier run has left that had other options, as runs of earlier versions had.

use std::collections::BTreeSet;

use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::{RuleAttribute, RuleFlags};
use tracing::warn;

use super::Table;
use crate::kernel::Kernel;
use crate::message::{OURS, in_table, is_gone, is_off, place_of, same, table_of};
use crate::picture::Rule;

impl<K: Kernel> Table<K> {
    /// Removes the rules and routes of an earlier run that had other options. If `takes` is set, this table has its routes
    /// first: what they block stays blocked. A route that it cannot have stays where it is, and so does the rule that
    /// leads there, until [`Self::forget_others`]. All of them stay while they
    /// cannot be read. Those of a family stay while this run has no rule for the family. A block stays while this run cannot
    /// set its own.
    pub(super) async fn replace_others(&mut self, takes: bool) {
        let own = self.options.table;
        match self.in_other_tables().await {
            Err(error) => {
                warn!(%error, "routes of an earlier run in other tables cannot be read: they stay for now, with their rules");
                self.others = true;
                self.remove_other_rules(|table| table != own).await;
            }
            Ok(others) => {
                let (gone, kept): (Vec<_>, Vec<_>) = match takes {
                    true => self.take_over(others).await,
                    false => others.into_iter().partition(|route| !self.waits(route)),
                };
                self.others = !(kept.is_empty() && self.leads(true) && self.leads(false));
                let tables: BTreeSet<u32> = kept.iter().map(table_of).collect();
                self.remove_other_rules(|table| tables.contains(&table)).await;
                self.forget(gone).await;
            }
        }
    }

    /// Removes what [`Self::replace_others`] has left, once nothing of an earlier run is to stay.
    pub(crate) async fn forget_others(&mut self) {
        if self.others && !self.keeps {
            self.replace_others(false).await;
        }
    }

    /// The routes of an earlier run in other tables.
    async fn in_other_tables(&self) -> Result<Vec<RouteMessage>, rtnetlink::Error> {
        let mut found = self.kernel.routes(0, OURS).await?;
        found
            .retain(|route| route.header.protocol == OURS && table_of(route) != self.options.table);
        Ok(found)
    }

    /// True if `other` blocks and a policy has a block in its place, which is not set yet or to which no rule leads.
    fn waits(&self, other: &RouteMessage) -> bool {
        place_of(other).is_some_and(|place @ (prefix, is_block)| {
            let is_set = self.set.contains_key(&place) && self.leads(prefix.address.is_ipv4());
            is_block && self.installed.has(&place) && !is_set
        })
    }

    /// Has routes of another table in this one. Returns those that this table has now, and those that it cannot have.
    async fn take_over(&self, others: Vec<RouteMessage>) -> (Vec<RouteMessage>, Vec<RouteMessage>) {
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for other in others {
            match self.kernel.set_route(in_table(&other, self.options.table)).await {
                Ok(()) if self.leads(other.header.address_family == AddressFamily::Inet) => {
                    taken.push(other);
                }
                Ok(()) => kept.push(other),
                // Also where IPv6 is off: it may be on again before this run has a route of its own.
                Err(error) => {
                    let table = table_of(&other);
                    warn!(%error, table, "route of an earlier run in another table not taken over: it stays there for now");
                    kept.push(other);
                }
            }
        }
        (taken, kept)
    }

    /// Removes rules of an earlier run that had other options, but those that lead to a table that `keeps` names, and
    /// those of a family that has no rule of this run yet.
    pub(super) async fn remove_other_rules(&self, keeps: impl Fn(u32) -> bool) {
        for ipv4 in [true, false].into_iter().filter(|ipv4| self.leads(*ipv4)) {
            let wanted = self.rule(ipv4);
            let found = self.kernel.rules(ipv4).await.inspect_err(|error| {
                if !is_off(error) {
                    warn!(%error, "routing rules of an earlier run cannot be read: they stay");
                }
            });
            let stale = found.unwrap_or_default().into_iter().filter(|rule| {
                // Rules of walls are not inverted, and lead to no table of ours.
                let leads = rule.header.flags.contains(RuleFlags::Invert);
                rule.attributes.contains(&RuleAttribute::Protocol(OURS))
                    && !same(rule, &wanted)
                    && !(leads && keeps(Rule::of(rule).table))
            });
            for rule in stale {
                if let Err(error) = self.kernel.remove_rule(rule).await {
                    warn!(%error, "routing rule of an earlier run not removed");
                }
            }
        }
    }

    /// Removes these routes.
    async fn forget(&self, others: Vec<RouteMessage>) {
        for route in others {
            if let Err(error) = self.kernel.remove_route(route).await
                && !is_gone(&error)
            {
                warn!(%error, "route of an earlier run in another table not removed");
            }
        }
    }
}
