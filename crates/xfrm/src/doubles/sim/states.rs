//! States of the simulated kernel.

use netlink_packet_xfrm::state::{AllocSpiMessage, DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{XfrmAttrs, XfrmMessage};

use super::{Inner, SimKernel};
use crate::event::{Acquire, Event};
use crate::netlink::gaps;
use crate::state::{self, Lifetime, StateId, StateInfo};

/// A state, as it was asked for.
pub(super) struct SimState {
    message: ModifyMessage,
    /// The kernel made it for an acquire.
    acquire: bool,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    soft: bool,
    added: u64,
    used: u64,
    /// When its timer is due, in seconds since the start.
    timer: Option<u64>,
}

impl SimState {
    fn new(message: ModifyMessage, added: u64) -> Self {
        let (acquire, soft) = (false, false);
        Self { message, acquire, bytes: 0, packets: 0, soft, added, used: 0, timer: None }
    }

    /// The state that the kernel makes when it asks for one.
    pub(super) fn waiting(acquire: &Acquire) -> Self {
        let Acquire { packet, src, dst, reqid, mode, ref policy, sequence, .. } = *acquire;
        let mut message = ModifyMessage::default();
        let sa = &mut message.user_sa_info;
        sa.selector = packet.encode();
        sa.id.daddr = netlink_packet_xfrm::Address::from_ip(&dst);
        sa.id.proto = netlink_packet_xfrm::constants::IPPROTO_ESP;
        sa.saddr = netlink_packet_xfrm::Address::from_ip(&src);
        sa.family = crate::address::family(&dst);
        sa.mode = state::mode_number(mode.unwrap_or_default());
        (sa.reqid, sa.seq) = (reqid, sequence);
        message.nlas.extend(state::mark_attribute(policy.mark));
        if policy.if_id != 0 {
            message.nlas.push(XfrmAttrs::IfId(policy.if_id));
        }
        Self { acquire: true, ..Self::new(message, 0) }
    }

    pub(super) fn is_acquire(&self) -> bool {
        self.acquire
    }

    pub(super) fn id(&self) -> StateId {
        self.info().id
    }

    pub(super) fn info(&self) -> StateInfo {
        let mut message = self.message.clone();
        let current = &mut message.user_sa_info.lifetime_cur;
        (current.bytes, current.packets, current.add_time) = (self.bytes, self.packets, self.added);
        if self.used != 0 {
            message.nlas.push(XfrmAttrs::LastUsed(self.used));
        }
        state::decode(&message).expect("IP addresses, for it was asked for by this crate")
    }

    pub(super) fn answer(&self) -> XfrmMessage {
        let mut message = self.message.clone();
        let current = &mut message.user_sa_info.lifetime_cur;
        (current.bytes, current.packets, current.add_time) = (self.bytes, self.packets, self.added);
        if self.used != 0 {
            message.nlas.push(XfrmAttrs::LastUsed(self.used));
        }
        XfrmMessage::AddSa(message)
    }
}

impl Inner {
    pub(super) fn add_state(&mut self, message: ModifyMessage) -> Result<(), i32> {
        let mut state = SimState::new(message, self.wall);
        state.timer = Some(self.boot + 1);
        let info = state.info();
        if self.states.iter().any(|other| other.id() == info.id) {
            return Err(libc::EEXIST);
        }
        self.states.retain(|other| !other.acquire || !answers(&info, &other.info()));
        self.states.push(state);
        Ok(())
    }

    pub(super) fn update_state(&mut self, message: ModifyMessage) -> Result<(), i32> {
        let state = SimState::new(message, self.wall);
        let info = state.info();
        let found = self.states.iter_mut().find(|other| other.id() == info.id);
        let Some(other) = found else { return Err(libc::ESRCH) };
        if other.acquire {
            *other = state;
            return Ok(());
        }
        if other.info().encapsulation.is_some() != info.encapsulation.is_some() {
            return Err(libc::EINVAL);
        }
        let is_encap = |nla: &XfrmAttrs| matches!(nla, XfrmAttrs::EncapsulationTemplate(_));
        let encap = state.message.nlas.iter().find(|nla| is_encap(nla)).cloned();
        other.message.nlas.retain(|nla| !is_encap(nla));
        other.message.nlas.extend(encap);
        other.message.user_sa_info.lifetime_cfg = state.message.user_sa_info.lifetime_cfg;
        other.timer = Some(self.boot + 1);
        Ok(())
    }

    pub(super) fn delete_state(&mut self, id: &DelGetMessage) -> Result<(), i32> {
        let at = self.find(id).ok_or(libc::ESRCH)?;
        self.states.remove(at);
        Ok(())
    }

    pub(super) fn get_state(&self, id: &DelGetMessage) -> Result<XfrmMessage, i32> {
        // The request tests whether the kernel knows the attributes.
        if gaps::value(&id.nlas, gaps::XFRMA_SA_DIR).is_some() {
            return Err(libc::EINVAL);
        }
        self.find(id).and_then(|at| self.states.get(at)).map(SimState::answer).ok_or(libc::ESRCH)
    }

    pub(super) fn allocate(&mut self, request: &AllocSpiMessage) -> Result<XfrmMessage, i32> {
        let wanted = &request.spi_info.info;
        let spi = self.number() + 0x100;
        let fits = |state: &&mut SimState| {
            let sa = &state.message.user_sa_info;
            state.acquire
                && sa.id.spi == 0
                && (sa.reqid, sa.mode) == (wanted.reqid, wanted.mode)
                && (sa.id.daddr, sa.saddr) == (wanted.id.daddr, wanted.saddr)
        };
        if let Some(state) = self.states.iter_mut().find(fits) {
            state.message.user_sa_info.id.spi = spi;
            return Ok(state.answer());
        }
        let mut state = SimState::new(ModifyMessage::default(), 0);
        state.acquire = true;
        state.message.user_sa_info = *wanted;
        state.message.user_sa_info.id.spi = spi;
        state.message.nlas.clone_from(&request.nlas);
        let answer = state.answer();
        self.states.push(state);
        Ok(answer)
    }

    fn find(&self, id: &DelGetMessage) -> Option<usize> {
        let mut probe = ModifyMessage::default();
        probe.user_sa_info.id.daddr = id.user_sa_id.daddr;
        probe.user_sa_info.id.spi = id.user_sa_id.spi;
        probe.user_sa_info.saddr = id.user_sa_id.daddr;
        probe.user_sa_info.family = id.user_sa_id.family;
        probe.nlas.clone_from(&id.nlas);
        let wanted = state::decode(&probe)?.id;
        self.states.iter().position(|state| state.id() == wanted && wanted.spi != 0)
    }

    /// Lets a second pass. A state's timer runs whatever the wall clock says, and looks at that when it is due.
    pub(super) fn second(&mut self) {
        self.boot += 1;
        self.wall = self.wall.saturating_add(1);
        let mut expired = Vec::new();
        for state in self.states.iter_mut().filter(|state| !state.acquire) {
            if state.timer.take_if(|at| *at <= self.boot).is_none() {
                continue;
            }
            let info = state.info();
            let limit = info.lifetime.hard_seconds;
            let end = state.added.saturating_add(limit);
            match end.saturating_sub(self.wall) {
                _ if limit == 0 => {}
                0 => expired.push((info.id, info.reqid)),
                left => state.timer = Some(self.boot + left),
            }
        }
        for (id, reqid) in expired {
            self.states.retain(|state| state.id() != id);
            self.events.push_back(Event::Expire { id, reqid, hard: true });
        }
    }

    /// Counts packets of a state; limits are as the kernel has them.
    pub(super) fn charge(&mut self, id: StateId, bytes: u64, packets: u64) {
        let wall = self.wall;
        let Some(state) = self.states.iter_mut().find(|state| state.id() == id) else { return };
        state.bytes += bytes;
        state.packets += packets;
        state.used = wall;
        let info = state.info();
        let Lifetime { soft_bytes, hard_bytes, soft_packets, hard_packets, .. } = info.lifetime;
        let past = |limit: u64, used: u64| limit != 0 && used >= limit;
        let hard = past(hard_bytes, info.bytes) || past(hard_packets, info.packets);
        let soft = past(soft_bytes, info.bytes) || past(soft_packets, info.packets);
        if hard {
            self.states.retain(|state| state.id() != id);
        } else if soft && !state.soft {
            state.soft = true;
        } else {
            return;
        }
        self.events.push_back(Event::Expire { id, reqid: info.reqid, hard });
    }
}

impl SimKernel {
    /// Counts packets of a state, as if they had passed through it.
    pub fn charge(&self, spi: u32, bytes: u64, packets: u64) {
        let id = self.state(spi).map(|state| state.id);
        if let Some(id) = id {
            self.lock().charge(id, bytes, packets);
        }
    }

    /// Sets the number of the last packet a state sent.
    pub fn set_sent(&self, spi: u32, sent: u32) {
        let mut inner = self.lock();
        let mut states = inner.states.iter_mut();
        let Some(state) = states.find(|state| state.id().spi == spi) else { return };
        for nla in &mut state.message.nlas {
            match nla {
                XfrmAttrs::ReplayStateEsn(esn) => return esn.oseq = sent,
                XfrmAttrs::ReplayState(short) => return short.oseq = sent,
                _ => {}
            }
        }
        let value = netlink_packet_xfrm::Replay { oseq: sent, ..Default::default() };
        state.message.nlas.push(XfrmAttrs::ReplayState(value));
    }
}

/// True if the new state answers the acquire that made `waiting`.
fn answers(new: &StateInfo, waiting: &StateInfo) -> bool {
    (new.reqid, new.mode, new.src, new.id.dst, new.id.mark)
        == (waiting.reqid, waiting.mode, waiting.src, waiting.id.dst, waiting.id.mark)
}
