//! The SAs as `list` shows them: the engine's view, with counters of the data plane.

use std::time::Instant;

use ike_proto::dataplane::{PolicySpec, Usage};
use ike_proto::{ChildState, ChildStatus, IkeStatus, TrapStatus};

use crate::plane::PlaneHandle;

/// An IKE SA.
#[derive(Debug, Clone)]
pub struct IkeView {
    /// The state in the engine. `status.children` is empty: the children are in `children`.
    pub status: IkeStatus,
    /// The children.
    pub children: Vec<ChildView>,
    /// The time of this view, by the clock of [`now`](crate::now()).
    pub at: Instant,
}

/// A Child SA.
#[derive(Debug, Clone)]
pub struct ChildView {
    /// The state in the engine.
    pub status: ChildStatus,
    /// Counters of the inbound SA.
    pub inbound: Usage,
    /// Counters of the outbound SA.
    pub outbound: Usage,
}

/// A policy that belongs to no Child SA.
#[derive(Debug, Clone)]
pub enum PolicyView {
    /// A trap: traffic that matches it brings up a child.
    Trap(TrapStatus),
    /// A shunt: `mode = pass` or `drop`, or `failureshunt`.
    Shunt(PolicySpec),
}

/// `sas`, which were so `at` that time, with the counters as they are by now.
pub(crate) async fn views(
    mut sas: Vec<IkeStatus>,
    plane: PlaneHandle,
    at: Instant,
) -> Vec<IkeView> {
    let there = |child: &&ChildStatus| child.state != ChildState::Installing;
    let children = sas.iter().flat_map(|sa| &sa.children);
    let ids = children.filter(there).flat_map(|child| [child.inbound, child.outbound]);
    let ids: Vec<_> = ids.collect();
    let mut counted = plane.usage(&ids).await.into_iter();
    let mut views = Vec::new();
    for mut status in sas.drain(..) {
        let children = std::mem::take(&mut status.children).into_iter().map(|status| {
            let there = there(&&status);
            let mut usage = || there.then(|| counted.next()).flatten().unwrap_or_default();
            ChildView { inbound: usage(), outbound: usage(), status }
        });
        let children = children.collect();
        views.push(IkeView { status, children, at });
    }
    views
}
