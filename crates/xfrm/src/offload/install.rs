//! Adds a state with the requested offload, or with the available one.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipsec_types::dataplane::HwOffload;

use super::explain;
use super::{Device, FindDevice, Offloader, rules};
use crate::kernel::Kernel;
use crate::netlink::{self, Transport};
use crate::offload::rules::Request;
use crate::policy::PolicyDirection;
use crate::state::{Direction, Offload, OffloadMode, State, StateId};

/// Why a state was not installed. Nothing of it is in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallError {
    /// It has nothing to do with offload.
    Kernel(netlink::Error),
    /// The offload requested by name is not available. The sentence names the SA, the device, the kernel's answer
    /// and the likely reason.
    Refused(String),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(error) => error.fmt(f),
            Self::Refused(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for InstallError {}

impl From<netlink::Error> for InstallError {
    fn from(error: netlink::Error) -> Self {
        Self::Kernel(error)
    }
}

/// The offload of a policy whose SAs were installed with `state`: in packet mode only, and only for inbound and
/// outbound policies, which the device sees.
pub fn policy_offload(state: Option<Offload>, direction: PolicyDirection) -> Option<Offload> {
    let seen = matches!(direction, PolicyDirection::In | PolicyDirection::Out);
    state.filter(|offload| offload.mode == OffloadMode::Packet && seen)
}

/// The result of one attempt.
enum Attempt {
    /// The kernel has it so.
    Done(Option<Offload>),
    /// The kernel does not have it, for this reason.
    Refused(String),
}

impl<D: FindDevice> Offloader<D> {
    /// Adds `state`, whose direction must be set and whose id must not exist, offloaded as `wanted` says to
    /// the device that owns its local address, and returns the offload the kernel has for it.
    ///
    /// With [`HwOffload::Auto`] it tries packet, crypto and no offload in this order. With an offload requested by
    /// name, it adds nothing if that offload is not available. `protocols` are those of the selectors of its
    /// policies. [`State::offload`] is set to the returned offload.
    pub fn install<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        state: &mut State,
        wanted: HwOffload,
        protocols: &BTreeSet<u8>,
    ) -> Result<Option<Offload>, InstallError> {
        let spi = state.id.spi;
        let modes: &[OffloadMode] = match wanted {
            HwOffload::No => &[],
            HwOffload::Crypto => &[OffloadMode::Crypto],
            HwOffload::Packet => &[OffloadMode::Packet],
            HwOffload::Auto => &[OffloadMode::Packet, OffloadMode::Crypto],
        };
        let auto = wanted == HwOffload::Auto;
        let protocols: Vec<u8> = protocols.iter().copied().collect();
        for &mode in modes {
            let refusal = match self.find(state, mode, auto) {
                Err(reason) => reason,
                Ok(device) => match self.attempt(kernel, state, mode, &device, &protocols, auto)? {
                    Attempt::Done(offload) => {
                        tracing::info!("SA {spi:08x}: {} on {device}", words(offload));
                        self.hold(state, offload);
                        return Ok(offload);
                    }
                    Attempt::Refused(reason) => reason,
                },
            };
            let sentence = format!("no {} offload of SA {spi:08x}: {refusal}", word(mode));
            if !auto {
                return Err(InstallError::Refused(sentence));
            }
            tracing::info!("{sentence}");
        }
        if auto {
            tracing::info!("SA {spi:08x}: in software");
        }
        state.offload = None;
        kernel.add_state(state)?;
        Ok(None)
    }

    /// Releases resources of a state that is gone from the kernel.
    pub fn removed<T: Transport>(&mut self, kernel: &mut Kernel<T>, id: &StateId) {
        if let Some(Offload { ifindex, mode: OffloadMode::Packet }) = self.offloaded.remove(id) {
            self.bypass.release(kernel, ifindex);
        }
    }

    fn find(&mut self, state: &State, mode: OffloadMode, auto: bool) -> Result<Device, String> {
        let local = local_address(state).ok_or("the SA has no direction")?;
        let found = self.devices.device_of(local);
        let device = found.map_err(|error| format!("the devices are not known: {error}"))?;
        let device = device.ok_or_else(|| format!("no interface has the local address {local}"))?;
        let none = explain::no_offload_at_all(&device);
        match none.filter(|_| auto || mode == OffloadMode::Crypto) {
            Some(reason) => Err(format!("{device}: {reason}")),
            None => Ok(device),
        }
    }

    fn attempt<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        state: &mut State,
        mode: OffloadMode,
        device: &Device,
        protocols: &[u8],
        auto: bool,
    ) -> Result<Attempt, InstallError> {
        let request = Request { state, mode, protocols };
        if let Some(reason) = rules::objection(device, &request) {
            return Ok(Attempt::Refused(format!("{device}: {reason}")));
        }
        let offload = Offload { ifindex: device.index, mode };
        // Before the state, for from then on the device may apply policies.
        if mode == OffloadMode::Packet
            && let Err(error) = self.bypass.hold(kernel, device.index)
        {
            let reason = refusal(device, &Request { state, mode, protocols }, &error);
            return Ok(Attempt::Refused(format!("{reason} (policies that let IKE pass)")));
        }
        state.offload = Some(offload);
        let done = add(kernel, state, device, protocols, offload, auto);
        let kept = matches!(done, Ok(Attempt::Done(Some(o))) if o.mode == OffloadMode::Packet);
        if mode == OffloadMode::Packet && !kept {
            self.bypass.release(kernel, device.index);
        }
        if let Ok(Attempt::Done(offload)) = done {
            state.offload = offload;
        }
        done
    }

    fn hold(&mut self, state: &State, offload: Option<Offload>) {
        if let Some(offload) = offload {
            self.offloaded.insert(state.id, offload);
        }
    }
}

/// Adds the state and reads it back, for the kernel may have left the offload out in silence.
fn add<T: Transport>(
    kernel: &mut Kernel<T>,
    state: &State,
    device: &Device,
    protocols: &[u8],
    offload: Offload,
    auto: bool,
) -> Result<Attempt, InstallError> {
    let mode = offload.mode;
    if let Err(error) = kernel.add_state(state) {
        if error.is_present() {
            return Err(error.into());
        }
        if !is_refusal(&error) {
            // The kernel may have it all the same.
            _ = kernel.delete_state(&state.id);
            return Err(error.into());
        }
        return Ok(Attempt::Refused(refusal(device, &Request { state, mode, protocols }, &error)));
    }
    let has = match kernel.state(&state.id) {
        Ok(Some(info)) => info.offload.map(|offload| offload.mode),
        Ok(None) => {
            let gone = "the kernel does not have the SA it just took";
            return Err(InstallError::Refused(format!("SA {:08x}: {gone}", state.id.spi)));
        }
        Err(error) => {
            _ = kernel.delete_state(&state.id);
            return Err(error.into());
        }
    };
    if has == Some(mode) {
        return Ok(Attempt::Done(Some(offload)));
    }
    let reason = explain::no_offload_at_all(device);
    let reason = reason.unwrap_or_else(|| "the driver does not do it, and says no more".into());
    let silent = format!("{device}: the kernel took the SA without it; likely reason: {reason}");
    if auto && has.is_none() {
        tracing::info!("no {} offload of SA {:08x}: {silent}", word(mode), state.id.spi);
        return Ok(Attempt::Done(None));
    }
    kernel.delete_state(&state.id)?;
    Ok(Attempt::Refused(silent))
}

/// True if the kernel said no; false if it may have said yes and the answer was lost.
fn is_refusal(error: &netlink::Error) -> bool {
    let lost = [0, libc::EAGAIN, libc::ETIMEDOUT, libc::ENOBUFS, libc::EINTR, libc::EIO];
    !lost.contains(&error.errno)
}

/// Device, the kernel's words, the likely reasons.
fn refusal(device: &Device, request: &Request<'_>, error: &netlink::Error) -> String {
    let said = std::io::Error::from_raw_os_error(error.errno);
    let said =
        error.message.as_ref().map_or_else(|| said.to_string(), |text| format!("{text} ({said})"));
    let reasons = explain::reasons(device, request, error);
    match reasons.as_slice() {
        [] => format!("{device}: the kernel says: {said}"),
        [reason] => format!("{device}: the kernel says: {said}; likely reason: {reason}"),
        several => {
            format!("{device}: the kernel says: {said}; it may be: {}", several.join("; or "))
        }
    }
}

fn local_address(state: &State) -> Option<IpAddr> {
    state.direction.map(|direction| match direction {
        Direction::In => state.id.dst,
        Direction::Out => state.src,
    })
}

fn word(mode: OffloadMode) -> &'static str {
    match mode {
        OffloadMode::Crypto => "crypto",
        OffloadMode::Packet => "packet",
    }
}

fn words(offload: Option<Offload>) -> &'static str {
    match offload.map(|offload| offload.mode) {
        Some(OffloadMode::Crypto) => "crypto offload",
        Some(OffloadMode::Packet) => "packet offload",
        None => "no offload",
    }
}
