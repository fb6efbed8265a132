//! A child that is wanted, and that somebody else brings up: the peer, or another shard.
//!
//! The shard that lost the child keeps its traffic in by a policy of its own. The shard that brings the child up, traps
//! it or gives it up knows nothing of that policy, so it tells the shards that wait for the child.

use super::{Endpoint, Name, Removal};
use crate::dataplane::PolicyId;
use crate::event::{ChildElsewhere, Event, IkeSaId, Notice, Now, Output};
use crate::exchange::followup::PEER_GOES_ON;

impl Endpoint {
    /// The peer is making a child that is wanted: this end makes it if the child is not up by then.
    pub(in crate::endpoint) fn look_again(&mut self, now: Now, connection: &str, child: &str) {
        let name = (connection.to_owned(), Some(child.to_owned()));
        if let Some(want) = self.wants.all.get_mut(&name) {
            want.at = Some(now.mono + PEER_GOES_ON);
        }
    }

    /// Another shard was told to start `name`: this one hears of it when the child is up.
    pub(super) fn wait_for_other_shard(&mut self, name: &Name) {
        if let Some(want) = self.wants.all.get_mut(name) {
            want.elsewhere = true;
        }
        let digest = self.registry.digest(name);
        self.registry.await_child(digest, self.config.shard.index);
    }

    /// Keeps the policies in `held` until another shard, or this one, has installed the trap of `name`.
    pub(super) fn hold_until_trapped_elsewhere(&mut self, name: &Name, held: Vec<PolicyId>) {
        if held.is_empty() {
            return;
        }
        let digest = self.registry.digest(name);
        self.wants.until_trapped.push((digest, held));
        self.registry.await_child(digest, self.config.shard.index);
    }

    /// Tells the shards that wait for `name` that this shard has brought it up.
    pub(super) fn tell_child_up(&mut self, name: &Name) {
        self.tell_waiting_shards(name, ChildElsewhere::Up);
    }

    /// Tells the shards that wait for `child` that its trap is installed.
    pub(in crate::endpoint) fn tell_trapped(&mut self, name: &Name) {
        self.tell_waiting_shards(name, ChildElsewhere::Trapped);
    }

    /// Tells the shards that wait for `name` that this shard neither brings it up nor traps it.
    pub(in crate::endpoint) fn tell_given_up(&mut self, name: &Name) {
        if self.wants.all.contains_key(name) && !self.is_up(name) {
            // Only its trap is gone. This shard is bringing it up, and will say what becomes of that.
            return;
        }
        self.tell_waiting_shards(name, ChildElsewhere::GivenUp);
    }

    fn tell_waiting_shards(&mut self, name: &Name, what: ChildElsewhere) {
        let shard = self.config.shard;
        if shard.count <= 1 {
            return;
        }
        let digest = self.registry.digest(name);
        for index in self.registry.take_waiting(digest) {
            if index == shard.index {
                self.lift_until_trapped(digest);
            } else {
                // A number stands for its shard.
                let to = IkeSaId(index.into());
                let notice = Notice::Child(digest, what);
                self.out.push_back(Output::Event(Event::Notice(to, notice)));
            }
        }
    }

    /// Handles what another shard does with the child of this digest.
    pub(in crate::endpoint) fn on_child_elsewhere(&mut self, digest: u64, what: ChildElsewhere) {
        self.lift_until_trapped(digest);
        let Some(name) = self.waiting_for(digest) else {
            return tracing::debug!(
                ?what,
                "child of another shard: this shard does not wait for it"
            );
        };
        match what {
            // What keeps its traffic in here is lifted.
            ChildElsewhere::Up => {
                if let Some(want) = self.wants.all.get_mut(&name) {
                    let held = std::mem::take(&mut want.held);
                    self.remove_each(held.into_iter().map(Removal::Policy));
                }
            }
            // If it was given up, the other shard has said so to the operator. This shard wants it no more either.
            ChildElsewhere::Trapped | ChildElsewhere::GivenUp => self.unwant_name(&name),
        }
    }

    /// The child with this digest that another shard was told to start.
    fn waiting_for(&self, digest: u64) -> Option<Name> {
        let mut all = self.wants.all.iter();
        let found = all.find(|(name, want)| want.elsewhere && self.registry.digest(name) == digest);
        found.map(|(name, _)| Name::clone(name))
    }

    fn lift_until_trapped(&mut self, digest: u64) {
        let lifted = self.wants.until_trapped.extract_if(.., |(other, _)| *other == digest);
        let lifted: Vec<_> = lifted.flat_map(|(_, held)| held).collect();
        self.remove_each(lifted.into_iter().map(Removal::Policy));
    }
}
