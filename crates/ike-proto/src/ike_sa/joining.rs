//! A command joins the child that this end is already making by itself, instead of making a second one.

use super::state::{Established, Initiated, Task};
use crate::event::RequestId;

impl Task {
    /// True if the offer makes a child `name` that this end has begun by itself. `request` waits for it from now
    /// on.
    pub(crate) fn is_joined_by(&mut self, name: &str, request: RequestId) -> bool {
        let Self::CreateChild { config, packet: None, request: waits @ None, join: None, .. } =
            self
        else {
            return false;
        };
        let joined = config.name == name;
        if joined {
            *waits = Some(request);
        }
        joined
    }
}

impl Established {
    /// True if this end makes a child `name` by itself. `request` waits for it from now on.
    pub(crate) fn is_joined_by(&mut self, name: &str, request: RequestId) -> bool {
        let sent = self.ours.as_mut().and_then(Initiated::child_mut);
        if sent.is_some_and(|offer| offer.is_joined_by(name, request)) {
            return true;
        }
        let delayed = self.delayed.iter_mut().map(|(_, task)| task);
        if self.queue.iter_mut().chain(delayed).any(|task| task.is_joined_by(name, request)) {
            return true;
        }
        let children = &self.children;
        let named = |id| {
            children.iter().any(|child| {
                child.id == id
                    && child.config.name == name
                    && child.cpu.is_none()
                    && child.replaces.is_none()
            })
        };
        let mut installing = self.installing.iter_mut();
        let own = installing.find(|(_, child, waits)| waits.is_none() && named(*child));
        own.is_some_and(|(_, _, waits)| {
            *waits = Some(request);
            true
        })
    }
}
