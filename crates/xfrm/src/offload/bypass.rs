//! Policies that let IKE pass where a device applies policies itself: in packet mode they come before the
//! bypass policies of sockets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipsec_types::dataplane::Mark;

use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{Action, Policy, PolicyDirection, PolicyId};
use crate::selector::{Port, Prefix, Selector};
use crate::state::{Offload, OffloadMode};

/// The policies of each device, with a count of their users.
#[derive(Debug)]
pub(super) struct Bypass {
    ports: Vec<u16>,
    holders: BTreeMap<u32, usize>,
    /// Policies that are to go and may still be there.
    remains: Vec<PolicyId>,
}

impl Bypass {
    /// For IKE on these local UDP ports.
    pub(super) fn new(mut ports: Vec<u16>) -> Self {
        ports.sort_unstable();
        ports.dedup();
        Self { ports, holders: BTreeMap::new(), remains: Vec::new() }
    }

    /// One more offloads to this device. The first installs the policies, or nothing if that fails.
    pub(super) fn hold<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        device: u32,
    ) -> Result<(), Error> {
        if !self.holders.contains_key(&device) {
            self.install(kernel, device)?;
        }
        *self.holders.entry(device).or_default() += 1;
        Ok(())
    }

    /// One less. The last removes the policies; those that stay are removed with the next device's.
    pub(super) fn release<T: Transport>(&mut self, kernel: &mut Kernel<T>, device: u32) {
        let Some(count) = self.holders.get_mut(&device) else { return };
        *count -= 1;
        if *count == 0 {
            self.holders.remove(&device);
            self.remains.extend(policies(&self.ports, device).into_iter().map(|policy| policy.id));
            if let Err(error) = self.clean(kernel) {
                tracing::warn!(%error, "policies that let IKE pass are still there");
            }
        }
    }

    /// True if an SA is offloaded to it.
    pub(super) fn holds(&self, device: u32) -> bool {
        self.holders.contains_key(&device)
    }

    /// Installs them again, if they have users: the kernel forgets them when the device goes down.
    pub(super) fn restore<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        device: u32,
    ) -> Result<(), Error> {
        if self.holds(device) { self.install(kernel, device) } else { Ok(()) }
    }

    /// Forgets a device that is gone, and the kernel's policies with it.
    pub(super) fn forget(&mut self, device: u32) {
        self.holders.remove(&device);
        self.remains.retain(|id| id.selector.ifindex != device);
    }

    /// Installs them again on every device where they have users.
    pub(super) fn restore_all<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
    ) -> Result<(), Error> {
        let devices: Vec<u32> = self.holders.keys().copied().collect();
        let mut result = Ok(());
        for device in devices {
            result = self.install(kernel, device).and(result);
        }
        result
    }

    /// Removes them from all devices.
    pub(super) fn flush<T: Transport>(&mut self, kernel: &mut Kernel<T>) -> Result<(), Error> {
        for device in std::mem::take(&mut self.holders).into_keys() {
            self.remains.extend(policies(&self.ports, device).into_iter().map(|policy| policy.id));
        }
        self.clean(kernel)
    }

    /// Removes policies that an earlier run left.
    pub(super) fn remove_leftovers<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
    ) -> Result<usize, Error> {
        let there = kernel.policies()?.into_iter().map(|info| info.policy);
        let ours = |policy: &Policy| {
            let device = policy.id.selector.ifindex;
            device != 0 && !self.holds(device) && policies(&self.ports, device).contains(policy)
        };
        let found: Vec<PolicyId> = there.filter(ours).map(|policy| policy.id).collect();
        let count = found.len();
        self.remains.extend(found);
        self.clean(kernel).map(|()| count)
    }

    fn install<T: Transport>(&mut self, kernel: &mut Kernel<T>, device: u32) -> Result<(), Error> {
        let policies = policies(&self.ports, device);
        let wanted: Vec<PolicyId> = policies.iter().map(|policy| policy.id).collect();
        self.remains.retain(|id| !wanted.contains(id));
        for (nth, policy) in policies.iter().enumerate() {
            if let Err(error) = kernel.set_policy(policy) {
                if !self.holds(device) {
                    // This one, too: the answer may have been lost.
                    self.remains.extend(&wanted[..=nth]);
                    // One error is enough; remaining policies are removed later.
                    _ = self.clean(kernel);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes policies without users. Policies that cannot be removed stay for the next call.
    fn clean<T: Transport>(&mut self, kernel: &mut Kernel<T>) -> Result<(), Error> {
        let mut result = Ok(());
        self.remains.retain(|id| match kernel.delete_policy(id) {
            Ok(_) => false,
            Err(error) => {
                result = Err(error);
                true
            }
        });
        result
    }
}

/// In and out, IPv4 and IPv6, one each for each port.
fn policies(ports: &[u16], device: u32) -> Vec<Policy> {
    let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let mut policies = Vec::new();
    for &port in ports {
        for family in families {
            for direction in [PolicyDirection::In, PolicyDirection::Out] {
                policies.push(policy(port, family, direction, device));
            }
        }
    }
    policies
}

fn policy(port: u16, any: IpAddr, direction: PolicyDirection, device: u32) -> Policy {
    let anywhere = Prefix { address: any, length: 0 };
    let (own, other) = (Port { value: port, mask: u16::MAX }, Port::default());
    let (src_port, dst_port) = match direction {
        PolicyDirection::Out => (own, other),
        _ => (other, own),
    };
    let selector = Selector {
        src: anywhere,
        dst: anywhere,
        protocol: UDP,
        src_port,
        dst_port,
        ifindex: device,
    };
    Policy {
        id: PolicyId { selector, direction, mark: Mark::default(), if_id: 0 },
        priority: PRIORITY,
        action: Action::Allow(Vec::new()),
        icmp: false,
        cpu_acquire: false,
        offload: Some(Offload { ifindex: device, mode: OffloadMode::Packet }),
    }
}

const UDP: u8 = 17;
/// Before every policy of a child; zero, which would be before this, mlx5 takes for no priority.
const PRIORITY: u32 = 1;
