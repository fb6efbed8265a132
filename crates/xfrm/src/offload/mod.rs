//! Hardware offload of ESP: which device, whether it will take an SA, and what came of asking.
//!
//! A device with *crypto* offload encrypts and decrypts, and the kernel does the rest of ESP. One with
//! *packet* offload does all of it, policies included. The kernel tells the first by the feature
//! `esp-hw-offload` and the second only when asked.
//!
//! [`Offloader::install`] is what a data plane calls in place of
//! [`Kernel::add_state`](crate::kernel::Kernel::add_state).

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

/// Installs offloaded states and what they need besides: in packet mode, policies on the device that let IKE
/// pass.
#[derive(Debug)]
pub struct Offloader<D> {
    devices: D,
    bypass: Bypass,
    offloaded: HashMap<StateId, Offload>,
}

impl<D: FindDevice> Offloader<D> {
    /// Offloads to what `devices` finds; IKE is spoken on these local UDP ports.
    pub fn new(devices: D, ike_ports: Vec<u16>) -> Self {
        Self { devices, bypass: Bypass::new(ike_ports), offloaded: HashMap::new() }
    }

    /// Acts on a change of a device. True if the kernel has dropped SAs that were offloaded to it, and
    /// policies with them, without an event: the caller compares what it installed with what there is.
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

    /// Removes what was installed besides the states, which are the caller's.
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
