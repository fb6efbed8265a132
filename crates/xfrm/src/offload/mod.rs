//! Hardware offload of ESP: the device, its support for an SA, and the result of the request.
//!
//! A device with *crypto* offload encrypts and decrypts, and the kernel does the rest of ESP. A device with
//! *packet* offload does all of ESP, policies included. The kernel reports crypto offload by the feature
//! `esp-hw-offload`. It reports packet offload only by its answer to a request.
//!
//! A data plane calls [`Offloader::install`] in place of [`Kernel::add_state`](crate::kernel::Kernel::add_state).

use std::collections::HashMap;

use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::state::{Offload, StateId};

use bypass::Bypass;

mod bypass;
mod device;
mod ethtool;
mod explain;
mod install;
mod query;
mod rules;
mod watch;

pub use device::{Device, Devices, FindDevice};
pub use ethtool::{EspFeatures, Feature};
pub use install::{InstallError, policy_offload};
pub use watch::{Link, LinkChange, LinkWatch};

/// Installs offloaded states. In packet mode it also installs policies on the device that let IKE pass.
#[derive(Debug)]
pub struct Offloader<D> {
    devices: D,
    bypass: Bypass,
    offloaded: HashMap<StateId, Offload>,
}

impl<D: FindDevice> Offloader<D> {
    /// Offloads to the devices that `devices` finds. IKE uses the local UDP ports `ike_ports`.
    pub fn new(devices: D, ike_ports: Vec<u16>) -> Self {
        Self { devices, bypass: Bypass::new(ike_ports), offloaded: HashMap::new() }
    }

    /// Acts on a change of a device. True if the kernel has dropped SAs that were offloaded to it, and policies
    /// with them, without an event. The caller must then compare its SAs and policies with those in the kernel.
    pub fn link_changed<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        change: LinkChange,
    ) -> bool {
        let concerned = self.offloaded.values().any(|offload| offload.ifindex == change.index);
        match change.now {
            Link::Up => complain(self.bypass.restore(kernel, change.index)),
            Link::Down => {}
            Link::Gone => {
                self.bypass.forget(change.index);
                self.offloaded.retain(|_, offload| offload.ifindex != change.index);
            }
        }
        concerned && change.now != Link::Up
    }

    /// Installs the policies that let IKE pass once more wherever they are needed: after changes of devices
    /// were lost.
    pub fn restore<T: Transport>(&mut self, kernel: &mut Kernel<T>) {
        complain(self.bypass.restore_all(kernel));
    }

    /// Removes everything that was installed besides the states. The states belong to the caller.
    pub fn flush<T: Transport>(&mut self, kernel: &mut Kernel<T>) -> Result<(), Error> {
        self.offloaded.clear();
        self.bypass.flush(kernel)
    }

    /// Removes the policies that let IKE pass which an earlier run on the same ports left, on devices that
    /// are not in use yet; the number of them.
    pub fn remove_leftovers<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
    ) -> Result<usize, Error> {
        self.bypass.remove_leftovers(kernel)
    }
}

fn complain(result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::warn!(%error, "policies that let IKE pass are not on the device");
    }
}
