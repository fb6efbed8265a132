//! A child that is wanted, and that somebody else brings up: the peer, or another shard.
//!
//! The shard that lost the child keeps its traffic in by a policy of its own. The shard that brings the child up knows
//! nothing of that policy, so it tells the shards that wait for the child.

use super::{Endpoint, Name, Removal};
use crate::event::{Event, IkeSaId, Notice, Now, Output};
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

    /// Tells the other shards that wait for `name` that it is up.
    pub(super) fn tell_waiting_shards(&mut self, name: &Name) {
        let shard = self.config.shard;
        if shard.count <= 1 {
            return;
        }
        let digest = self.registry.digest(name);
        let waiting = self.registry.take_waiting(digest);
        for index in waiting.into_iter().filter(|index| *index != shard.index) {
            // A number stands for its shard.
            let to = IkeSaId(index.into());
            self.out.push_back(Output::Event(Event::Notice(to, Notice::ChildUp(digest))));
        }
    }

    /// Another shard has the child with this digest up: what keeps its traffic in here is lifted.
    pub(in crate::endpoint) fn on_child_up_elsewhere(&mut self, digest: u64) {
        let registry = &self.registry;
        let waits = |name: &Name, elsewhere: bool| elsewhere && registry.digest(name) == digest;
        let mut wants = self.wants.all.iter_mut();
        let held = wants
            .find(|(name, want)| waits(name, want.elsewhere))
            .map(|(_, want)| std::mem::take(&mut want.held));
        self.remove_each(held.into_iter().flatten().map(Removal::Policy));
    }
}
