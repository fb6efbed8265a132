//! A command joins the child that this end is already making by itself, instead of making a second one.

use super::state::{Established, Task};
use crate::config::ChildConfig;
use crate::event::RequestId;
use crate::wants::Sought;

impl Task {
    /// True if the offer makes the child `wanted` that this end has begun by itself. `request` waits for it from now
    /// on.
    pub(crate) fn is_joined_by(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        let Self::CreateChild { config, packet: None, request: waits @ None, join: None, .. } =
            self
        else {
            return false;
        };
        let joined = Sought::Present(wanted).is(config);
        if joined {
            *waits = Some(request);
        }
        joined
    }
}

impl Established {
    /// True if this end makes the child `wanted` by itself. `request` waits for it from now on.
    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        self.sent.as_mut().is_some_and(|sent| sent.join(wanted, request))
            || self.queue.join(wanted, request)
            || self.children.join(wanted, request)
    }
}
