//! The children for which an attempt is made.

use std::sync::Arc;

use super::Attempt;
use crate::dataplane::Flow;
use crate::exchange::sent::Retry;
use crate::ike_sa::state::Task;
use crate::wants::{Wanted, is_asked_for};

impl Attempt {
    /// Adds another child for the same SA. A command waits for a child that this end has begun by itself.
    pub(in crate::endpoint) fn add(&mut self, wanted: Wanted) {
        if self.is_joined_by(&wanted) {
            return;
        }
        for candidate in &mut self.candidates {
            let task = wanted.child.as_ref().map(|config| Task::CreateChild {
                config: Arc::clone(config),
                packet: wanted.packet,
                request: wanted.request,
                retry: Retry::default(),
                join: None,
            });
            let state = &mut candidate.state;
            let queued =
                task.and_then(|task| state.with_unproven(|waiting| waiting.queue.push_back(task)));
            if queued.is_none() {
                candidate.waiting.extend(wanted.request);
            }
        }
        self.wanted.push(wanted);
    }

    /// True if a child without a command is the `wanted` one. The command then waits for that child.
    fn is_joined_by(&mut self, wanted: &Wanted) -> bool {
        let Some(own) = self.wanted.iter_mut().find(|own| own.is_joined_by(wanted)) else {
            return false;
        };
        own.request = wanted.request;
        let (Some(request), Some(config)) = (wanted.request, &wanted.child) else { return true };
        for candidate in &mut self.candidates {
            let joined = candidate.state.with_unproven(|waiting| {
                let offer = waiting.child.as_deref_mut();
                offer.is_some_and(|offer| offer.is_joined_by(config, request))
                    || waiting.queue.iter_mut().any(|task| task.is_joined_by(config, request))
            });
            if joined != Some(true) {
                candidate.waiting.push(request);
            }
        }
        true
    }

    /// True if the attempt is to make a child of this name for `packet`.
    pub(in crate::endpoint) fn wants(&self, child: &str, packet: Flow) -> bool {
        let named = |wanted: &&Wanted| wanted.child.as_ref().is_some_and(|it| it.name == child);
        is_asked_for(packet, self.wanted.iter().filter(named).map(|wanted| wanted.packet))
    }
}
