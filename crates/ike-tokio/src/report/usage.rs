//! The SAs as `list` shows them: the engine's view, with counters of the data plane.

use std::time::Instant;

use ike_proto::dataplane::{PolicySpec, Usage};
use ike_proto::{ChildState, ChildStatus, IkeStatus, TrapStatus};

use crate::plane::PlaneHandle;

/// An IKE SA.
#[derive(Debug, Clone)]
pub struct IkeView {
    /// What the engine knows.
    pub status: IkeStatus,
    /// Its children, in the order of `status.children`.
    pub children: Vec<ChildView>,
    /// When this was.
    pub at: Instant,
}

/// A Child SA.
#[derive(Debug, Clone)]
pub struct ChildView {
    /// What the engine knows.
    pub status: ChildStatus,
    /// Counters of the inbound SA.
    pub inbound: Usage,
    /// Counters of the outbound SA.
    pub outbound: Usage,
}

/// A policy that is not of a Child SA.
#[derive(Debug, Clone)]
pub enum PolicyView {
    /// Traffic that it meets brings up a child.
    Trap(TrapStatus),
    /// Of the daemon's own: `mode = pass` or `drop`, or `failureshunt`.
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
