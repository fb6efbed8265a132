//! What a child carries, for comparisons with others.

use crate::child::ChildSa;
use crate::dataplane::{Mode, TrafficSelector};

/// What a child carries. Another child that carries the same can replace it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carries {
    name: String,
    mode: Mode,
    local_ts: Vec<TrafficSelector>,
    remote_ts: Vec<TrafficSelector>,
    /// It is one of several for the same traffic, and any number of them is enough (RFC 9611).
    per_cpu: bool,
}

impl Carries {
    pub(crate) fn of(child: &ChildSa) -> Self {
        Self {
            name: child.config.name.clone(),
            mode: child.mode,
            local_ts: child.local_ts.clone(),
            remote_ts: child.remote_ts.clone(),
            per_cpu: child.processing.per_cpu,
        }
    }

    /// True if it is one of several for the same traffic, and any number of them is enough (RFC 9611).
    pub(crate) fn is_per_cpu(&self) -> bool {
        self.per_cpu
    }

    /// The child's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
