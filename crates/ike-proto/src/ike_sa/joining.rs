//! A command joins the child that this end is already making by itself, instead of making a second one.

use super::state::{Established, Task};
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
    pub(crate) fn join(&mut self, name: &str, request: RequestId) -> bool {
        self.sent.as_mut().is_some_and(|sent| sent.join(name, request))
            || self.queue.join(name, request)
            || self.children.join(name, request)
    }
}
