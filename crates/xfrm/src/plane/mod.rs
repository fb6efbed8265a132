//! [`XfrmNetlink`]: the kernel as a [`DataPlane`] of an IKE engine.
//!
//! * SAs are states. An existing state is left as it is, because its sequence numbers must not start over.
//! * Policies become policies in each direction. Policies with the same selectors wait in the order of
//!   [`precedence`](ipsec_types::dataplane::precedence), and the first is in the kernel. Each change of the first is
//!   one request, so there is no moment without a policy.
//! * A failed call changes nothing. If it is unknown whether the kernel executed a request, this is remembered,
//!   and the next call of any kind corrects it.
//! * Events are the kernel's. Where the kernel has no event, they come from its counters.
//!
//! # Time
//!
//! A state has a time limit of its own ([`SaSpec::lifetime`]), in case no daemon is there to end it. Linux
//! compares it with the wall clock, but only when a timer expires, which settings of the clock do not move, and
//! once more when the state is changed. The remaining time is therefore computed again at each change. If the
//! clock is set back, this limit comes late. A hard limit, of time or volume, is an [`Event::HardExpire`].
//!
//! # Acquires
//!
//! A packet that meets a trap makes the kernel ask for an SA. The kernel remembers this request as an acquire.
//! While it does, it drops further packets and raises no events (`net.core.xfrm_acq_expires`, 30 seconds). That
//! would delay the next attempt after a failed one, and a child narrowed to one flow would keep other flows
//! waiting. So the plane removes the acquire after [`ACQUIRE_INTERVAL`]. The next packet raises another event,
//! which the engine ignores while it works on the child.
//!
//! An acquire for one CPU (RFC 9611) would drop that CPU's packets as long as the kernel remembers it, although
//! there is an SA for all CPUs. It is removed at once, and the policy asks for no other in the same interval.
//!
//! With `net.core.xfrm_larval_drop = 0` the kernel queues packets meanwhile, in the policy. A replaced policy
//! passes them to its successor.

mod adopt;
mod clock;
mod events;
mod install;
mod links;
mod mended;
mod others;
mod overlaps;
mod policies;
mod priority;
mod reqid;
mod sas;
mod selectors;
mod spec;
mod templates;
mod view;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use ipsec_types::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Event, HwOffload, PolicyAction,
    PolicyId, PolicySpec, Processing, Reply, SaId, SaSpec,
};

use crate::kernel::Kernel;
use crate::netlink::Transport;
use crate::policy::Policy;

pub use adopt::{LINGER, Orphan};
pub use clock::{Clock, SystemClock};
pub use events::{ACQUIRE_INTERVAL, Source};
pub use install::{Install, InstallError, Software};
pub use links::WithLinks;
pub use mended::put_back;
pub use priority::{is_hold, is_priority_of_hold};
pub use reqid::REQIDS;
pub use view::{POLICY_TAG, Remains};

use adopt::Adopted;
use events::Acquires;
use policies::Policies;
use reqid::Reqids;
use sas::{Sa, Sas, canonical};
use templates::Means;
use watch::Watch;

/// The kernel's IPsec as a data plane.
///
/// * Commands: [`DataPlane::apply`].
/// * Events: [`DataPlane::poll_event`], when the descriptor of its [`Source`] is readable or
///   [`deadline`](Self::deadline) has come.
/// * Remains of an earlier run: [`take_over`](Self::take_over) before the first command.
pub struct XfrmNetlink<T, S> {
    kernel: Kernel<T>,
    source: S,
    installer: Box<dyn Install<T> + Send>,
    clock: Box<dyn Clock + Send>,
    capabilities: Capabilities,
    reqids: Reqids,
    sas: Sas,
    policies: Policies,
    watch: Watch,
    acquires: Acquires,
    adopted: Adopted,
    events: VecDeque<Event>,
    /// When to repeat refused requests; at once if `None`.
    retry: Option<Instant>,
    /// Others have deleted policies.
    policies_gone: bool,
    /// The last look at the policies in the kernel.
    looked: Option<Instant>,
    /// The source may have more, and does not say so again.
    unread: bool,
}

impl<T: Transport, S: Source> XfrmNetlink<T, S> {
    /// A plane over `kernel`, with events from `source`. `capabilities` are the features found in the kernel.
    pub fn new(mut kernel: Kernel<T>, source: S, capabilities: Capabilities) -> Self {
        kernel.tag_policies(POLICY_TAG, 0);
        Self {
            kernel,
            source,
            installer: Box::new(Software),
            clock: Box::new(SystemClock),
            capabilities,
            reqids: Reqids::default(),
            sas: Sas::default(),
            policies: Policies::default(),
            watch: Watch::default(),
            acquires: Acquires::default(),
            adopted: Adopted::default(),
            events: VecDeque::new(),
            retry: None,
            policies_gone: false,
            looked: None,
            unread: false,
        }
    }

    /// Installs states by `installer`, which knows about hardware offload.
    #[must_use]
    pub fn with_installer(self, installer: impl Install<T> + Send + 'static) -> Self {
        Self { installer: Box::new(installer), ..self }
    }

    /// Goes by another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock + Send + 'static) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Whether a policy that protects is refused if another owner's protects some of the same traffic; see
    /// [`overlaps`](ipsec_types::dataplane::overlaps).
    pub fn refuse_overlaps(&mut self, refuse: bool) {
        self.policies.refuse_overlaps(refuse);
    }

    /// Notes from now on what changes for packets that leave.
    pub fn follow_leaving(&mut self) {
        self.policies.follow_leaving();
    }

    /// The policies for packets that leave that may have changed since the last call, with those that are there since
    /// [`follow_leaving`](Self::follow_leaving): each as it is wanted now, `None` if it is gone. What other programs change is
    /// no change.
    pub fn leaving_changes(&mut self) -> Vec<(crate::policy::PolicyId, Option<&Policy>)> {
        self.policies.leaving_changes()
    }

    /// The kernel.
    pub fn kernel_mut(&mut self) -> &mut Kernel<T> {
        &mut self.kernel
    }

    /// Where events come from.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Where events come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// When [`DataPlane::poll_event`] is to be called although the source has nothing.
    pub fn deadline(&self) -> Option<Instant> {
        let retry =
            self.policies.in_doubt().then(|| self.retry.unwrap_or_else(|| self.clock.now()));
        let unread = self.unread.then(|| self.clock.now());
        let regular =
            self.looked.filter(|_| !self.policies.is_empty()).map(|at| at + events::REGULAR);
        let due = [self.policies.due(), regular].into_iter().flatten().min();
        let all =
            [self.watch.next(), self.acquires.next(), self.adopted.next(), retry, unread, due];
        all.into_iter().flatten().min()
    }

    /// True if nothing of this plane is in the kernel.
    pub fn is_empty(&self) -> bool {
        self.sas.is_empty() && self.policies.is_empty() && self.adopted.is_empty()
    }

    fn install_sa(&mut self, spec: &SaSpec) -> Result<(), DataPlaneError> {
        let SaSpec { policy, ref local_ts, ref remote_ts, ref processing, .. } = *spec;
        let ifindex = interface(processing)?;
        let adopted = self.adopted.reqid_for(local_ts, remote_ts, processing, ifindex);
        let reqid = self.reqids.take(policy, local_ts, remote_ts, processing, adopted);
        let result = {
            let (kernel, clock) = (&mut self.kernel, self.clock.as_ref());
            self.sas.install(kernel, self.installer.as_mut(), spec, reqid, clock)
        };
        if result != Ok(true) {
            self.reqids.release(policy);
        }
        if result? {
            match spec.direction {
                Direction::In => self.watch.begin(canonical(spec.id), policy, self.clock.now()),
                Direction::Out => self.watch.end_policy(policy),
            }
        }
        Ok(())
    }

    fn remove_sa(&mut self, id: SaId) -> Result<(), DataPlaneError> {
        let policy = self.sas.remove(&mut self.kernel, self.installer.as_mut(), id)?;
        self.watch.end(canonical(id));
        if let Some(policy) = policy {
            self.reqids.release(policy);
        }
        Ok(())
    }

    fn install_policy(&mut self, spec: PolicySpec) -> Result<(), DataPlaneError> {
        let PolicySpec { id, ref local_ts, ref remote_ts, ref processing, .. } = spec;
        let ifindex = interface(processing)?;
        let new = self.policies.spec(id).is_none();
        let adopted = self.adopted.reqid_for(local_ts, remote_ts, processing, ifindex);
        let reqid = self.reqids.take(id, local_ts, remote_ts, processing, adopted);
        let protects = matches!(spec.action, PolicyAction::Protect { .. });
        let may_offload = matches!(processing.hw_offload, HwOffload::Packet | HwOffload::Auto);
        let outbound = match spec.action {
            PolicyAction::Protect { outbound, .. } => outbound,
            _ => None,
        };
        let offload = |outbound| {
            if may_offload { self.sas.packet_offload(id, outbound) } else { None }
        };
        let means = Means {
            reqid,
            ifindex,
            offload_in: offload(None),
            offload_out: outbound.and_then(|id| offload(Some(id))),
        };
        let result = self.policies.install(&mut self.kernel, spec, &means);
        if !new || result.is_err() {
            // It was counted before, or it is not there.
            self.reqids.release(id);
        }
        if protects && result.is_ok() {
            self.replaced(id);
        }
        result
    }

    fn remove_policy(&mut self, id: PolicyId) -> Result<(), DataPlaneError> {
        let known = self.policies.spec(id).is_some();
        let result = self.policies.remove(&mut self.kernel, id);
        if known {
            self.reqids.release(id);
        }
        result
    }

    /// Without states the policies drop what they protect.
    fn remove_sas(&mut self) -> Result<(), DataPlaneError> {
        let gone = self.sas.clear(&mut self.kernel, self.installer.as_mut())?;
        gone.into_iter().for_each(|policy| self.reqids.release(policy));
        self.watch.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DataPlaneError> {
        self.adopted.clear(&mut self.kernel, &mut self.policies, self.clock.now());
        let policies = self.policies.clear(&mut self.kernel);
        let sas = self.sas.clear(&mut self.kernel, self.installer.as_mut());
        let rest = self.installer.flush(&mut self.kernel).map_err(fail);
        self.watch.clear();
        self.acquires.clear(&mut self.kernel);
        self.events.clear();
        policies.and(sas).and(rest)?;
        self.reqids.clear();
        Ok(())
    }
}

impl<T: Transport, S: Source> DataPlane for XfrmNetlink<T, S> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        match command {
            Command::InstallSa(spec) => self.install_sa(&spec)?,
            Command::RemoveSa(id) => self.remove_sa(id)?,
            Command::InstallPolicy(spec) => self.install_policy(*spec)?,
            Command::RemovePolicy(id) => self.remove_policy(id)?,
            Command::UpdateSa { id, src, dst, encap } => {
                let installer = self.installer.as_mut();
                let (kernel, clock) = (&mut self.kernel, self.clock.as_ref());
                let new = self.sas.update(kernel, installer, id, (src, dst), encap, clock)?;
                self.watch.rename(canonical(id), new);
                if self.sas.get(new).is_some_and(Sa::is_exhausted) {
                    self.on_expire(new, true);
                }
            }
            Command::QueryUsage(id) => {
                let usage = self.sas.usage(&mut self.kernel, id, self.clock.as_ref())?;
                return Ok(Reply::Usage(id, usage));
            }
            // The kernel finds sizes out by itself.
            Command::PathProbed(..) => {}
            Command::Flush => self.flush()?,
            Command::RemoveSas => self.remove_sas()?,
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        // One look at the kernel for all that it brings, or a flood would never end.
        if self.events.is_empty() {
            self.collect();
        }
        self.events.pop_front()
    }
}

impl<T, S: std::os::fd::AsFd> std::os::fd::AsFd for XfrmNetlink<T, S> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl<T, S> fmt::Debug for XfrmNetlink<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XfrmNetlink")
            .field("sas", &self.sas.iter().count())
            .field("policies", &self.policies.specs().count())
            .finish_non_exhaustive()
    }
}

/// The index of the interface that policies hold on, in this thread's network namespace; 0 for any.
fn interface(processing: &Processing) -> Result<u32, DataPlaneError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let Some(name) = &processing.interface else { return Ok(0) };
    let flags = SocketFlags::CLOEXEC;
    let index = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .and_then(|socket| netdevice::name_to_index(socket, name));
    index.map_err(|error| fail(format!("interface {name:?}: {error}")))
}

fn fail(error: impl fmt::Display) -> DataPlaneError {
    DataPlaneError(error.to_string())
}
