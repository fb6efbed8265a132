//! Events that the kernel reports.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ipsec_types::dataplane::{Mark, Mode};
use netlink_packet_xfrm::constants::{
    XFRMNLGRP_ACQUIRE, XFRMNLGRP_EXPIRE, XFRMNLGRP_MAPPING, XFRMNLGRP_POLICY, XFRMNLGRP_SA,
};
use netlink_packet_xfrm::{UserSaId, XfrmAttrs, XfrmMessage};
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket as Netlink, SocketAddr};
use rustix::net::sockopt;
use tracing::debug;

use crate::address;
use crate::netlink::{answer, gaps, wipe};
use crate::offload::LinkChange;
use crate::policy::{self, PolicyId};
use crate::selector::Selector;
use crate::state::{self, StateId};

/// The events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet met a policy without the state it needs.
    Acquire(Acquire),
    /// A limit of a state was reached.
    Expire {
        /// The state.
        id: StateId,
        /// Its reqid.
        reqid: u32,
        /// The kernel has deleted it; otherwise it goes on.
        hard: bool,
    },
    /// Authenticated packets of an inbound state came from another address or port than it says.
    Mapping {
        /// The state, without its mark, which the kernel does not say.
        id: StateId,
        /// Its reqid.
        reqid: u32,
        /// Address and port so far.
        old: (IpAddr, u16),
        /// Address and port of the packet.
        new: (IpAddr, u16),
    },
    /// A limit of a policy was reached.
    PolicyExpire {
        /// The policy.
        id: PolicyId,
        /// The kernel's number of it.
        index: u32,
        /// The kernel has deleted it.
        hard: bool,
    },
    /// A state was deleted, by whomever ([`Events::open_all`]).
    StateDeleted(StateId),
    /// All states were deleted, or those of one protocol ([`Events::open_all`]).
    StatesFlushed,
    /// A policy was deleted, by whomever ([`Events::open_all`]).
    PolicyDeleted(PolicyId),
    /// All policies were deleted ([`Events::open_all`]).
    PoliciesFlushed,
    /// A device went down, came up or is gone: not from [`Events`], but from a
    /// [`LinkWatch`](crate::offload::LinkWatch).
    Link(LinkChange),
    /// Events were lost because they came faster than they were read. States and policies must be read again.
    Lost,
}

/// A packet that waits for a state, or was dropped for the lack of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// The packet: addresses, protocol and ports.
    pub packet: Selector,
    /// Outer source of the template; unspecified if it has none.
    pub src: IpAddr,
    /// Outer destination of the template; unspecified if it has none.
    pub dst: IpAddr,
    /// Reqid of the template.
    pub reqid: u32,
    /// Mode of the template; `None` for one this crate does not know.
    pub mode: Option<Mode>,
    /// The policy.
    pub policy: PolicyId,
    /// The kernel's number of the policy.
    pub index: u32,
    /// The kernel's number of this acquire; a state added with it takes the place of the waiting one.
    pub sequence: u32,
    /// The CPU that met the packet, if the policy asks for states for each.
    pub cpu: Option<u32>,
}

/// A socket that hears of events. It does not block: wait for its descriptor to be readable, then call
/// [`Self::next`] until there is none.
#[derive(Debug)]
pub struct Events {
    netlink: Netlink,
    received: Vec<u8>,
    waiting: std::collections::VecDeque<Event>,
}

impl Events {
    /// Hears of packets without states, limits and mappings, in the network namespace of this thread.
    /// Needs CAP_NET_ADMIN.
    pub fn open() -> io::Result<Self> {
        Self::of_groups(&[XFRMNLGRP_ACQUIRE, XFRMNLGRP_EXPIRE, XFRMNLGRP_MAPPING])
    }

    /// Hears of states and policies that are deleted as well.
    pub fn open_all() -> io::Result<Self> {
        Self::of_groups(&[
            XFRMNLGRP_ACQUIRE,
            XFRMNLGRP_EXPIRE,
            XFRMNLGRP_MAPPING,
            XFRMNLGRP_SA,
            XFRMNLGRP_POLICY,
        ])
    }

    fn of_groups(groups: &[u32]) -> io::Result<Self> {
        let mut netlink = Netlink::new(NETLINK_XFRM)?;
        netlink.bind(&SocketAddr::new(0, 0))?;
        netlink.set_non_blocking(true)?;
        // Beyond net.core.rmem_max if we may: ten thousand states may expire at once.
        if sockopt::set_socket_recv_buffer_size_force(&netlink, BUFFER).is_err() {
            netlink.set_rx_buf_sz(i32::try_from(BUFFER).unwrap_or(i32::MAX))?;
        }
        for &group in groups {
            netlink.add_membership(group)?;
        }
        let (received, waiting) = (Vec::with_capacity(DATAGRAM), Default::default());
        Ok(Self { netlink, received, waiting })
    }

    /// Sets the octets of events that may wait, as near as the system allows. For tests of [`Event::Lost`], and
    /// for callers that expect more events than usual.
    pub fn set_buffer(&self, octets: usize) -> io::Result<()> {
        self.netlink.set_rx_buf_sz(i32::try_from(octets).unwrap_or(i32::MAX))
    }

    /// The next event; `None` if there is none now. Messages of other kinds are skipped.
    #[expect(clippy::should_implement_trait, reason = "reading a socket fails")]
    pub fn next(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            wipe::octets(&mut self.received);
            match self.netlink.recv_from(&mut self.received, libc::MSG_TRUNC) {
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((length, _)) if length > self.received.len() => {
                    debug!(length, "an event was cut short");
                    self.waiting.push_back(Event::Lost);
                }
                Ok(_) => self.waiting.extend(parse(&self.received)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR) => {}
                    Some(libc::ENOBUFS) => return Ok(Some(Event::Lost)),
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

/// The events in `datagram`. One that cannot be read counts as lost.
pub(crate) fn parse(datagram: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    for frame in answer::frames(datagram) {
        let Ok(frame) = frame else {
            events.push(Event::Lost);
            break;
        };
        let Ok(answer::Answer::Message(kind, payload)) = answer::classify(&frame) else {
            continue;
        };
        match answer::parse(kind, payload) {
            Ok(mut message) => {
                events.extend(event(&message, kind, payload));
                wipe::message(&mut message);
            }
            Err(text) => {
                debug!(text, "an event cannot be read");
                events.push(Event::Lost);
            }
        }
    }
    events
}

fn event(message: &XfrmMessage, kind: u16, payload: &[u8]) -> Option<Event> {
    Some(match message {
        XfrmMessage::Acquire(message) => acquire(message)?,
        XfrmMessage::Expire(message) => {
            let sa = &message.expire.state;
            let attributes = gaps::trailing_attributes(kind, payload);
            Event::Expire {
                id: StateId {
                    spi: sa.id.spi,
                    dst: address::decode(&sa.id.daddr, sa.family)?,
                    mark: mark(&attributes),
                },
                reqid: sa.reqid,
                hard: message.expire.hard != 0,
            }
        }
        XfrmMessage::Mapping(message) => {
            let map = &message.map;
            let ip = |address| address::decode(address, map.id.family);
            Event::Mapping {
                id: state_id(&map.id, &[])?,
                reqid: map.reqid,
                old: (ip(&map.old_saddr)?, map.old_sport),
                new: (ip(&map.new_saddr)?, map.new_sport),
            }
        }
        XfrmMessage::PolicyExpire(message) => {
            let info = &message.expire.pol;
            Event::PolicyExpire {
                id: policy_id(&info.selector, info.direction, &message.nlas)?,
                index: info.index,
                hard: message.expire.hard != 0,
            }
        }
        XfrmMessage::DeleteSa(message) => {
            Event::StateDeleted(state_id(&message.user_sa_id, &message.nlas)?)
        }
        XfrmMessage::FlushSa(_) => Event::StatesFlushed,
        XfrmMessage::DeletePolicy(message) => {
            // The policy is behind its name, as an attribute.
            let info = message.nlas.iter().find_map(|attribute| match attribute {
                XfrmAttrs::PolicyInfo(info) => Some(info),
                _ => None,
            });
            let (selector, direction) = match info {
                Some(info) => (info.selector, info.direction),
                None => (message.user_policy_id.selector, message.user_policy_id.direction),
            };
            Event::PolicyDeleted(policy_id(&selector, direction, &message.nlas)?)
        }
        XfrmMessage::FlushPolicy(_) => Event::PoliciesFlushed,
        _ => return None,
    })
}

fn acquire(message: &netlink_packet_xfrm::monitor::AcquireMessage) -> Option<Event> {
    let netlink_packet_xfrm::monitor::AcquireMessage { acquire, nlas } = message;
    let packet = Selector::decode(&acquire.selector)?;
    let template = nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::Template(list) => list.first(),
        _ => None,
    });
    // The outer family is the template's, the packet's is the inner one.
    let family = template.map_or(acquire.selector.family, |template| template.family);
    Some(Event::Acquire(Acquire {
        packet,
        src: address::decode(&acquire.saddr, family)?,
        dst: address::decode(&acquire.id.daddr, family)?,
        reqid: template.map_or(0, |template| template.reqid),
        mode: template.and_then(|template| state::mode(template.mode)),
        policy: policy_id(&acquire.policy.selector, acquire.policy.direction, nlas)?,
        index: acquire.policy.index,
        sequence: acquire.seq,
        cpu: gaps::value_u32(nlas, gaps::XFRMA_SA_PCPU).filter(|&cpu| cpu != u32::MAX),
    }))
}

fn state_id(id: &UserSaId, attributes: &[XfrmAttrs]) -> Option<StateId> {
    let dst = address::decode(&id.daddr, id.family)?;
    Some(StateId { spi: id.spi, dst, mark: mark(attributes) })
}

fn policy_id(
    selector: &netlink_packet_xfrm::Selector,
    direction: u8,
    attributes: &[XfrmAttrs],
) -> Option<PolicyId> {
    let if_id = attributes.iter().find_map(|attribute| match attribute {
        XfrmAttrs::IfId(id) => Some(*id),
        _ => None,
    });
    Some(PolicyId {
        selector: Selector::decode(selector)?,
        direction: policy::direction(direction)?,
        mark: mark(attributes),
        if_id: if_id.unwrap_or(0),
    })
}

fn mark(attributes: &[XfrmAttrs]) -> Mark {
    attributes
        .iter()
        .find_map(|attribute| match attribute {
            XfrmAttrs::Mark(mark) => Some(Mark { value: mark.value, mask: mark.mask }),
            _ => None,
        })
        .unwrap_or_default()
}

/// Octets of events that may wait, by the kernel's generous accounting.
const BUFFER: usize = 8 * 1024 * 1024;

/// More than any event.
const DATAGRAM: usize = 16 * 1024;
