//! Which children an IKE SA carries, by their names and configurations.

use super::super::collision::IkeActivity;
use super::super::state::{Established, IkePhase};
use crate::child::{ChildSa, Phase};
use crate::config::{ChildConfig, TsSpec};
use crate::dataplane::{Flow, Processing};
use crate::exchange::config::Assigned;
use crate::wants::Sought;

impl Established {
    /// True if the IKE SA is not about to end.
    fn goes_on(&self) -> bool {
        match self.phase {
            IkePhase::Alive => {
                !matches!(self.work().ike_activity(self.phase), IkeActivity::Closing)
            }
            IkePhase::Crossed(_) => true,
            IkePhase::Replaced(_) | IkePhase::Closing => false,
        }
    }

    /// Such children that are not about to end. Children of single CPUs (RFC 9611) come and go beside the one for all,
    /// and do not count.
    fn all_of<'a>(&'a self, sought: Sought<'a>) -> impl Iterator<Item = &'a ChildSa> {
        self.children.iter().filter(move |child| {
            sought.is(&child.config)
                && child.cpu.is_none()
                && self.work().reason_to_delete(child.id).is_none()
        })
    }

    /// True if there is a child of `config`, and it is not one of many for single pairs of addresses: that does not take
    /// the place of a child for all.
    pub(super) fn has_whole(&self, config: &ChildConfig) -> bool {
        let single = |specs: &[TsSpec]| {
            specs.iter().all(|spec| match spec {
                TsSpec::Fixed(ts) => ts.start == ts.end,
                TsSpec::Dynamic { .. } => true,
            })
        };
        let pair = single(&config.local_ts) && single(&config.remote_ts);
        self.all_of(Sought::Present(config)).any(|child| {
            matches!(child.phase, Phase::Installing | Phase::Installed)
                && (pair || !child.is_single_pair())
        })
    }

    /// True if there is a child of this name that takes `packet`, which met a trap, or that shows that none can beside the
    /// virtual IPs `assigned`. `trap` says how the trap treats packets, if it belongs to this shard.
    pub(super) fn has_one_for(
        &self,
        assigned: &Assigned,
        name: &str,
        packet: Flow,
        trap: Option<&Processing>,
    ) -> bool {
        let virtual_ips = assigned.dynamic();
        self.all_of(Sought::Named(name)).any(|child| {
            matches!(child.phase, Phase::Installing | Phase::Installed)
                && (child.takes(packet) || child.leaves_out(packet, &virtual_ips))
                && trap.is_none_or(|trap| child.is_marked_like(trap))
        })
    }
}

impl Established {
    /// True if the IKE SA has or makes what is sought, and is not about to end.
    pub(crate) fn carries(&self, sought: Sought<'_>) -> bool {
        let up = |child: &ChildSa| matches!(child.phase, Phase::Installing | Phase::Installed);
        let there = || {
            matches!(sought, Sought::Sa)
                || self.all_of(sought).any(up)
                || self.work().requested(false).any(|config| sought.is(config))
        };
        self.goes_on() && there()
    }

    /// True if the IKE SA has in use what is sought, and is not about to end.
    pub(crate) fn has_up(&self, sought: Sought<'_>) -> bool {
        let up = |child: &ChildSa| child.phase == Phase::Installed;
        self.goes_on() && (matches!(sought, Sought::Sa) || self.all_of(sought).any(up))
    }

    /// How many children of this name are in use, and not about to end.
    pub(crate) fn count_up(&self, name: &str) -> usize {
        let up = |child: &&ChildSa| child.phase == Phase::Installed;
        self.all_of(Sought::Named(name)).filter(up).count()
    }

    /// Names of the children that the IKE SA has or makes, each once.
    pub(crate) fn names_of_children(&self) -> Vec<String> {
        let there = self.children.iter().filter(|child| child.phase != Phase::Rekeyed);
        let all = there.map(|child| &*child.config).chain(self.work().requested(true));
        let mut names: Vec<_> = all.map(|config| config.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}
