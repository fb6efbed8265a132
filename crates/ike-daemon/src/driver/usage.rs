//! The SAs as `list` shows them: the engine's view, with counters of the data plane.

use std::time::Instant;

use ike_proto::dataplane::{Command, DataPlane, Reply, SaId, Usage};
use ike_proto::{ChildState, ChildStatus, Endpoint, IkeStatus};

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

pub(super) fn views(endpoint: &Endpoint, plane: &mut dyn DataPlane, at: Instant) -> Vec<IkeView> {
    let mut views = Vec::new();
    for mut status in endpoint.ike_sas() {
        let children = std::mem::take(&mut status.children).into_iter().map(|status| {
            let there = status.state != ChildState::Installing;
            let mut usage = |id| if there { usage(plane, id) } else { Usage::default() };
            ChildView { inbound: usage(status.inbound), outbound: usage(status.outbound), status }
        });
        let children = children.collect();
        views.push(IkeView { status, children, at });
    }
    views
}

/// Zero for an SA that is just being made or removed.
fn usage(plane: &mut dyn DataPlane, id: SaId) -> Usage {
    match plane.apply(Command::QueryUsage(id)) {
        Ok(Reply::Usage(_, usage)) => usage,
        _ => Usage::default(),
    }
}
