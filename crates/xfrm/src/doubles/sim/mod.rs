//! A simulated kernel.
//!
//! [`SimKernel`] answers NETLINK_XFRM requests as Linux does, as far as states and policies are concerned: which
//! of them a packet meets, when the kernel asks for a state, when a state expires. It encrypts nothing. A test can
//! check the effect of a sequence of requests at any point, with any request failing.

mod packets;
mod policies;
mod states;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netlink_packet_xfrm::XfrmMessage;

use crate::event::Event;
use crate::netlink::{Error, Kind, Transport, request_name};
use crate::plane::Source;
use crate::policy::{PolicyId, PolicyInfo};
use crate::state::StateInfo;

pub use packets::{Packet, Verdict, judge};

/// A simulated kernel. A clone is another handle to the same one: a data plane has one as its
/// [`Transport`], one as its [`Source`], and the test one to look at.
#[derive(Clone, Default)]
pub struct SimKernel {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    states: Vec<states::SimState>,
    policies: Vec<policies::SimPolicy>,
    events: VecDeque<Event>,
    /// Numbers of acquires and policies.
    count: u32,
    /// Seconds since 1970.
    wall: u64,
    /// Seconds since the start, whatever the wall clock says.
    boot: u64,
}

impl SimKernel {
    /// A kernel without states and policies.
    pub fn new() -> Self {
        Self::default()
    }

    /// All states, with those of acquires.
    pub fn states(&self) -> Vec<StateInfo> {
        self.lock().states.iter().map(states::SimState::info).collect()
    }

    /// The state `id`, whatever its mark.
    pub fn state(&self, spi: u32) -> Option<StateInfo> {
        self.states().into_iter().find(|state| state.id.spi == spi)
    }

    /// All policies.
    pub fn policies(&self) -> Vec<PolicyInfo> {
        self.lock().policies.iter().map(|policy| policy.info.clone()).collect()
    }

    /// True if there are neither states nor policies; states of acquires do not count.
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.policies.is_empty() && inner.states.iter().all(states::SimState::is_acquire)
    }

    /// Deletes a state behind everybody's back.
    pub fn lose_state(&self, spi: u32) {
        self.lock().states.retain(|state| state.id().spi != spi);
    }

    /// Deletes a policy behind everybody's back.
    pub fn lose_policy(&self, id: &PolicyId) {
        self.lock().policies.retain(|policy| policy.info.policy.id != *id);
    }

    /// Drops the events that wait and says that some were lost.
    pub fn lose_events(&self) {
        let mut inner = self.lock();
        inner.events.clear();
        inner.events.push_back(Event::Lost);
    }

    /// Raises an event.
    pub fn raise(&self, event: Event) {
        self.lock().events.push_back(event);
    }

    /// Lets time pass: states expire.
    pub fn pass(&self, seconds: u64) {
        let mut inner = self.lock();
        (0..seconds).for_each(|_| inner.second());
    }

    /// Sets the wall clock, in seconds since 1970. No time passes by that.
    pub fn set_wall(&self, seconds: u64) {
        self.lock().wall = seconds;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("SimKernel")
            .field("states", &inner.states.len())
            .field("policies", &inner.policies.len())
            .finish_non_exhaustive()
    }
}

impl Transport for SimKernel {
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error> {
        let name = request_name(&message);
        self.lock().answer(message, kind).map_err(|errno| Error {
            request: name,
            errno,
            message: None,
        })
    }
}

impl Source for SimKernel {
    fn next(&mut self) -> io::Result<Option<Event>> {
        Ok(self.lock().events.pop_front())
    }
}

impl Inner {
    fn answer(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, i32> {
        match message {
            XfrmMessage::AddSa(sa) => self.add_state(sa).map(|()| Vec::new()),
            XfrmMessage::UpdateSa(sa) => self.update_state(sa).map(|()| Vec::new()),
            XfrmMessage::DeleteSa(id) => self.delete_state(&id).map(|()| Vec::new()),
            XfrmMessage::GetSa(id) => self.get_state(&id).map(|answer| vec![answer]),
            XfrmMessage::GetDumpSa(_) => {
                Ok(self.states.iter().map(|state| state.answer()).collect())
            }
            XfrmMessage::AllocSpi(request) => self.allocate(&request).map(|answer| vec![answer]),
            XfrmMessage::AddPolicy(policy) => self.set_policy(&policy, true).map(|()| Vec::new()),
            XfrmMessage::UpdatePolicy(policy) => {
                self.set_policy(&policy, false).map(|()| Vec::new())
            }
            XfrmMessage::DeletePolicy(id) => self.delete_policy(&id).map(|()| Vec::new()),
            XfrmMessage::GetPolicy(_) if kind == Kind::Dump => {
                Ok(self.policies.iter().map(|policy| policy.answer()).collect())
            }
            XfrmMessage::GetPolicy(id) => self.get_policy(&id).map(|answer| vec![answer]),
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    fn number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }
}
