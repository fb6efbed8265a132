//! Reqids, which tie the templates of policies to states.
//!
//! Children with the same selectors, marks and interfaces share one reqid, as in strongSwan. It then does not
//! matter which of them made the kernel's one policy: packets that arrive by the states of the others pass it too.
//! This happens while a child is made before another is broken, or if both ends made one at the same time. A trap
//! has the reqid of the child it brings up, so that the kernel forgets the acquire when the state is there.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use ipsec_types::dataplane::{Mark, PolicyId, Processing, TrafficSelector};

/// The reqids that this crate chooses. They tell its states from those of other programs, in `ip xfrm state` and
/// for adoption.
pub const REQIDS: RangeInclusive<u32> = 0x6900_0001..=0x69ff_ffff;

const MANY: usize = (*REQIDS.end() - *REQIDS.start()) as usize;

/// Reqids in use.
#[derive(Debug)]
pub(super) struct Reqids {
    bound: HashMap<PolicyId, Binding>,
    shared: HashMap<Key, Shared>,
    used: HashSet<u32>,
    last: u32,
}

/// The reqid of a policy and its SAs.
#[derive(Debug)]
struct Binding {
    reqid: u32,
    /// The policy and the SAs that use it.
    users: usize,
    /// `None` if the number was configured.
    key: Option<Key>,
}

#[derive(Debug)]
struct Shared {
    reqid: u32,
    /// Bindings to it.
    bindings: usize,
}

/// The properties that are equal in children that share a reqid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    marks: [Mark; 2],
    if_ids: [u32; 2],
    interface: Option<String>,
}

impl Default for Reqids {
    fn default() -> Self {
        let last = *REQIDS.end();
        Self { bound: HashMap::new(), shared: HashMap::new(), used: HashSet::new(), last }
    }
}

impl Reqids {
    /// Counts one more user of the reqid of `policy`. The first one decides which it is; the selectors of
    /// a policy may change with the addresses while its SAs remain. If a new number is needed, and that of what
    /// is `adopted` is not taken yet, it becomes that.
    pub(super) fn take(
        &mut self,
        policy: PolicyId,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        processing: &Processing,
        adopted: Option<u32>,
    ) -> u32 {
        if let Some(binding) = self.bound.get_mut(&policy) {
            binding.users += 1;
            return binding.reqid;
        }
        let (reqid, key) = match processing.reqid {
            0 => {
                let key = Key::new(local, remote, processing);
                (self.share(key.clone(), adopted), Some(key))
            }
            configured => (configured, None),
        };
        self.bound.insert(policy, Binding { reqid, users: 1, key });
        reqid
    }

    /// One user less. With the last the reqid may go to others.
    pub(super) fn release(&mut self, policy: PolicyId) {
        let Some(binding) = self.bound.get_mut(&policy) else { return };
        binding.users = binding.users.saturating_sub(1);
        if binding.users > 0 {
            return;
        }
        let Some(Binding { key: Some(key), .. }) = self.bound.remove(&policy) else { return };
        if let Some(shared) = self.shared.get_mut(&key) {
            shared.bindings = shared.bindings.saturating_sub(1);
            if shared.bindings == 0 {
                self.used.remove(&shared.reqid);
                self.shared.remove(&key);
            }
        }
    }

    fn share(&mut self, key: Key, adopted: Option<u32>) -> u32 {
        if let Some(shared) = self.shared.get_mut(&key) {
            shared.bindings += 1;
            return shared.reqid;
        }
        let adopted = adopted.filter(|reqid| REQIDS.contains(reqid) && !self.used.contains(reqid));
        let reqid = adopted.unwrap_or_else(|| self.unused());
        self.used.insert(reqid);
        self.shared.insert(key, Shared { reqid, bindings: 1 });
        reqid
    }

    /// The number after the last one given out: it is long before one comes again.
    fn unused(&mut self) -> u32 {
        loop {
            self.last = if self.last >= *REQIDS.end() { *REQIDS.start() } else { self.last + 1 };
            let reqid = self.last;
            // There are far more than a kernel has states.
            if self.used.len() >= MANY || !self.used.contains(&reqid) {
                return reqid;
            }
        }
    }

    /// Gives out numbers after `reqid` next: adopted states use those up to it.
    pub(super) fn start_after(&mut self, reqid: u32) {
        if REQIDS.contains(&reqid) {
            self.last = reqid;
        }
    }

    /// The reqid of `policy`, if it has one.
    pub(super) fn of(&self, policy: PolicyId) -> Option<u32> {
        self.bound.get(&policy).map(|binding| binding.reqid)
    }

    /// Nothing uses any.
    pub(super) fn clear(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }
}

impl Key {
    fn new(local: &[TrafficSelector], remote: &[TrafficSelector], processing: &Processing) -> Self {
        let sorted = |list: &[TrafficSelector]| {
            let mut list = list.to_vec();
            list.sort_by_key(|ts| (ts.start, ts.end, ts.protocol, ts.start_port, ts.end_port));
            list.dedup();
            list
        };
        let Processing { mark_in, mark_out, if_id_in, if_id_out, ref interface, .. } = *processing;
        Self {
            local: sorted(local),
            remote: sorted(remote),
            marks: [mark_in, mark_out],
            if_ids: [if_id_in, if_id_out],
            interface: interface.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(reqids: &mut Reqids, policy: u64, local: &[&str], processing: &Processing) -> u32 {
        let local: Vec<_> = local.iter().map(|text| text.parse().unwrap()).collect();
        let remote = ["10.2.0.0/16".parse().unwrap()];
        reqids.take(PolicyId(policy), &local, &remote, processing, None)
    }

    #[test]
    fn the_same_selectors_share_one() {
        let (mut reqids, plain) = (Reqids::default(), Processing::default());
        let first = take(&mut reqids, 1, &["10.1.0.0/16", "10.3.0.0/16"], &plain);
        assert!(REQIDS.contains(&first));
        assert_eq!(take(&mut reqids, 2, &["10.3.0.0/16", "10.1.0.0/16"], &plain), first);
        assert_ne!(take(&mut reqids, 3, &["10.1.0.0/16"], &plain), first);
        let marked = Processing { mark_out: Mark { value: 1, mask: 1 }, ..Processing::default() };
        assert_ne!(take(&mut reqids, 4, &["10.1.0.0/16", "10.3.0.0/16"], &marked), first);
        let given = Processing { reqid: 7, ..Processing::default() };
        assert_eq!(take(&mut reqids, 5, &["10.1.0.0/16"], &given), 7);
    }

    #[test]
    fn one_policy_keeps_its_own_until_nobody_uses_it() {
        let (mut reqids, plain) = (Reqids::default(), Processing::default());
        let first = take(&mut reqids, 1, &["10.1.0.0/16"], &plain);
        assert_eq!(take(&mut reqids, 1, &["10.9.0.0/16"], &plain), first, "other selectors");
        reqids.release(PolicyId(1));
        assert_eq!(take(&mut reqids, 1, &["10.9.0.0/16"], &plain), first);
        reqids.release(PolicyId(1));
        reqids.release(PolicyId(1));
        assert_ne!(take(&mut reqids, 1, &["10.9.0.0/16"], &plain), first, "not so soon again");
        reqids.release(PolicyId(77));
    }

    #[test]
    fn numbers_start_over_and_leave_out_those_in_use() {
        let (mut reqids, plain) = (Reqids::default(), Processing::default());
        let first = take(&mut reqids, 1, &["10.1.0.0/16"], &plain);
        reqids.last = *REQIDS.end();
        assert_eq!(take(&mut reqids, 2, &["10.4.0.0/16"], &plain), first + 1);
    }
}
