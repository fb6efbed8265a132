//! Shunts without a runtime, for simulations of a host.

use std::fmt;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ike_proto::config::EndpointConfig;
use ike_proto::dataplane::{DataPlane, TrafficSelector};
use ike_proto::{ChildSaId, IkeStatus};

use super::Shunts;
use crate::plane::control::{Busy, Control};

/// What a driver does about the traffic of children that are not up: its blocks and holds, with a data plane that never
/// waits. The lives of `tests/lives` have it around their engines.
pub struct ShuntsAlone {
    shunts: Shunts,
    plane: Control,
}

impl ShuntsAlone {
    /// Those of `config`, none of them in force. An earlier run has left `blocked`.
    pub fn new(
        config: &EndpointConfig,
        blocked: Vec<(TrafficSelector, TrafficSelector)>,
        plane: Box<dyn DataPlane + Send>,
    ) -> Self {
        let plane = Control::start(plane, false, true, Arc::new(Busy::default()));
        Self { shunts: Shunts::new(config, Vec::new(), blocked), plane }
    }

    /// The process has started.
    pub fn arm_first(&mut self) {
        at_once(self.shunts.arm_first(&self.plane));
    }

    /// A child is up.
    pub fn child_up(&mut self, status: IkeStatus, child: ChildSaId) {
        at_once(self.shunts.child_up(status, child, &self.plane));
    }

    /// A child of a connection is about to get a trap between these ends.
    pub fn trap(&mut self, connection: &str, child: &str, ends: (IpAddr, IpAddr)) {
        let name = (connection.to_owned(), child.to_owned());
        at_once(self.shunts.trap(name, ends, &self.plane));
    }
}

impl fmt::Debug for ShuntsAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShuntsAlone")
    }
}

/// The data plane is called directly, so nothing is waited for.
fn at_once(future: impl Future<Output = ()>) {
    let ready = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(())), "a data plane that never waits");
}
