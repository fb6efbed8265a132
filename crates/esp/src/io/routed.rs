//! The routes of policies: into the device, and of exemptions past it.

use ipsec_types::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};
use routes::{Leftovers, Routes, Via};

use super::exemptions::{Exemption, Exemptions};

/// The routes of policies, and the index of the device they lead to.
#[derive(Debug)]
pub struct Routed {
    routes: Routes,
    device: u32,
    exemptions: Exemptions,
}

impl Routed {
    /// Those of no policy yet.
    pub fn new(routes: Routes, device: u32) -> Self {
        Self { routes, device, exemptions: Exemptions::default() }
    }

    /// The destinations that an earlier run blocked, and that are blocked still.
    pub fn blocked(&self) -> &[TrafficSelector] {
        self.routes.blocked()
    }

    /// Routes the packets of `policy` to the device, in packets of `mtu` octets if that is less than the device's own, and
    /// exempt packets as without the device.
    ///
    /// # Errors
    /// The kernel refuses a route.
    pub fn set(&mut self, policy: &PolicySpec, mtu: Option<u16>) -> Result<(), DataPlaneError> {
        let changed = self.exemptions.add(policy);
        let (id, local, remote) = (policy.id, &policy.local_ts, &policy.remote_ts);
        let device = self.device_with(mtu);
        match policy.action {
            PolicyAction::Protect { .. } | PolicyAction::Trap | PolicyAction::Drop => {
                self.routes.install(id, local, remote, device)?;
            }
            // With a route that leads nowhere alone, rp_filter would drop what arrives from these addresses.
            PolicyAction::Hold { .. } => {
                self.routes.hold(id, local, remote, [device, Via::Prohibited])?;
            }
            PolicyAction::Shunt { silent } => {
                let fallback = if silent { Via::BlackHole } else { Via::Unreachable };
                self.routes.hold(id, local, remote, [device, fallback])?;
            }
            PolicyAction::Pass => {}
        }
        self.exempt(changed)
    }

    /// Gives the routes of a policy of an SA another MTU.
    pub(super) fn resize(
        &self,
        policy: &PolicySpec,
        mtu: Option<u16>,
    ) -> Result<(), DataPlaneError> {
        let (local, remote) = (&policy.local_ts, &policy.remote_ts);
        self.routes.install(policy.id, local, remote, self.device_with(mtu))
    }

    /// Takes the routes of a policy away.
    ///
    /// # Errors
    /// The thread of the routes has ended.
    pub fn remove(&mut self, id: PolicyId) -> Result<(), DataPlaneError> {
        let changed = self.exemptions.remove(id);
        self.routes.remove(id)?;
        self.exempt(changed)
    }

    /// Takes all routes away, also those that would stay at the end.
    ///
    /// # Errors
    /// The thread of the routes has ended.
    pub fn flush(&mut self) -> Result<(), DataPlaneError> {
        self.exemptions = Exemptions::default();
        self.routes.flush()?;
        self.routes.at_the_end(Leftovers::Remove)
    }

    /// Blocks what leads into the device.
    ///
    /// # Errors
    /// The thread of the routes has ended.
    pub fn block(&self) -> Result<(), DataPlaneError> {
        self.routes.block()
    }

    /// Gives exemptions their routes or takes them away.
    fn exempt(&self, changed: Vec<Exemption>) -> Result<(), DataPlaneError> {
        changed.into_iter().try_for_each(|Exemption { id, local, remote, routed }| match routed {
            true => self.routes.install(id, &local, &remote, Via::Elsewhere),
            false => self.routes.remove(id),
        })
    }

    /// The route into the device, for packets of `mtu` octets if that is less than the device's own.
    fn device_with(&self, mtu: Option<u16>) -> Via {
        let device = self.device;
        mtu.map_or(Via::Device(device), |mtu| Via::Narrow { device, mtu })
    }
}
