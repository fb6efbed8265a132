//! How states get into the kernel: with hardware offload, or without.

use std::collections::BTreeSet;

use ipsec_types::dataplane::HwOffload;

use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::offload::{FindDevice, LinkChange, Offloader};
use crate::state::{Offload, State, StateId};

pub use crate::offload::InstallError;

/// Adds states, with the requested offload or with the available one.
pub trait Install<T: Transport> {
    /// Adds `state`, whose id must not exist, and returns its offload. After a failure it does not exist, unless
    /// the failure is [unanswered](Error::is_unanswered).
    fn install(
        &mut self,
        kernel: &mut Kernel<T>,
        state: &mut State,
        wanted: HwOffload,
        protocols: &BTreeSet<u8>,
    ) -> Result<Option<Offload>, InstallError>;

    /// A state is gone from the kernel.
    fn removed(&mut self, kernel: &mut Kernel<T>, id: &StateId);

    /// All states are gone.
    fn flush(&mut self, kernel: &mut Kernel<T>) -> Result<(), Error>;

    /// A device went down, came up or is gone. True if the kernel has dropped states with it, without an event.
    fn link_changed(&mut self, _: &mut Kernel<T>, _: LinkChange) -> bool {
        false
    }

    /// Events were lost: installs again everything that is needed besides the states.
    fn restore(&mut self, _: &mut Kernel<T>) {}
}

/// Adds states in software. Offload asked for by name is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Software;

impl<T: Transport> Install<T> for Software {
    fn install(
        &mut self,
        kernel: &mut Kernel<T>,
        state: &mut State,
        wanted: HwOffload,
        _: &BTreeSet<u8>,
    ) -> Result<Option<Offload>, InstallError> {
        match wanted {
            HwOffload::No | HwOffload::Auto => {
                state.offload = None;
                kernel.add_state(state)?;
                Ok(None)
            }
            HwOffload::Crypto | HwOffload::Packet => {
                let text = "hardware offload is asked for, and this data plane has none";
                Err(InstallError::Refused(text.into()))
            }
        }
    }

    fn removed(&mut self, _: &mut Kernel<T>, _: &StateId) {}

    fn flush(&mut self, _: &mut Kernel<T>) -> Result<(), Error> {
        Ok(())
    }
}

impl<T: Transport, D: FindDevice> Install<T> for Offloader<D> {
    fn install(
        &mut self,
        kernel: &mut Kernel<T>,
        state: &mut State,
        wanted: HwOffload,
        protocols: &BTreeSet<u8>,
    ) -> Result<Option<Offload>, InstallError> {
        Self::install(self, kernel, state, wanted, protocols)
    }

    fn removed(&mut self, kernel: &mut Kernel<T>, id: &StateId) {
        Self::removed(self, kernel, id);
    }

    fn flush(&mut self, kernel: &mut Kernel<T>) -> Result<(), Error> {
        Self::flush(self, kernel)
    }

    fn link_changed(&mut self, kernel: &mut Kernel<T>, change: LinkChange) -> bool {
        Self::link_changed(self, kernel, change)
    }

    fn restore(&mut self, kernel: &mut Kernel<T>) {
        Self::restore(self, kernel);
    }
}
