//! States.

use std::net::IpAddr;

use netlink_packet_xfrm::constants::{IPPROTO_ESP, XFRM_AE_RVAL};
use netlink_packet_xfrm::monitor::NewAsyncEventMessage;
use netlink_packet_xfrm::state::{
    AllocSpiMessage, DelGetMessage, FlushMessage, GetDumpMessage, ModifyMessage,
};
use netlink_packet_xfrm::{
    Address, AsyncEventId, UserSaId, UserSaInfo, UserSpiInfo, XfrmAttrs, XfrmMessage,
};

use super::Kernel;
use crate::address;
use crate::event::Acquire;
use crate::netlink::{Error, Kind, Transport, gaps};
use crate::state::{self, Mark, Mode, Replay, State, StateId, StateInfo};

impl<T: Transport> Kernel<T> {
    /// Reserves an SPI between `range.0` and `range.1` for an inbound state, in tunnel mode until
    /// [`Self::update_state`] says otherwise. ENOENT if none is free. The kernel drops it after `net.core.xfrm_acq_expires`
    /// seconds, 30 as a rule, if it is not turned into a state.
    pub fn allocate_spi(
        &mut self,
        src: IpAddr,
        dst: IpAddr,
        reqid: u32,
        mark: Mark,
        range: (u32, u32),
    ) -> Result<u32, Error> {
        let info = UserSaInfo {
            id: netlink_packet_xfrm::Id {
                daddr: Address::from_ip(&dst),
                spi: 0,
                proto: IPPROTO_ESP,
            },
            saddr: Address::from_ip(&src),
            reqid,
            family: address::family(&dst),
            mode: state::mode_number(Mode::Tunnel),
            ..UserSaInfo::default()
        };
        let mut spi_info = UserSpiInfo { info, ..UserSpiInfo::default() };
        spi_info.spi_range(range.0, range.1);
        let mut nlas: Vec<_> = state::mark_attribute(mark).into_iter().collect();
        // A state of one direction does not take the place of an SPI reserved without.
        if self.knows_directions()? {
            nlas.push(gaps::attribute(gaps::XFRMA_SA_DIR, &[gaps::XFRM_SA_DIR_IN]));
        }
        let message = XfrmMessage::AllocSpi(AllocSpiMessage { spi_info, nlas });
        self.read(message, reserved)
    }

    /// Has the kernel forget that it asked for a state: until it does, packets that need the state are
    /// dropped and raise no other acquire. There is no request for that; the state that stands for the
    /// acquire is given an SPI, by which it can be deleted.
    pub fn forget_acquire(&mut self, acquire: &Acquire) -> Result<(), Error> {
        let Acquire { src, dst, reqid, mode, sequence, cpu, ref policy, .. } = *acquire;
        let info = UserSaInfo {
            id: netlink_packet_xfrm::Id {
                daddr: Address::from_ip(&dst),
                spi: 0,
                proto: IPPROTO_ESP,
            },
            saddr: Address::from_ip(&src),
            reqid,
            seq: sequence,
            family: address::family(&dst),
            mode: state::mode_number(mode.unwrap_or_default()),
            ..UserSaInfo::default()
        };
        let mut spi_info = UserSpiInfo { info, ..UserSpiInfo::default() };
        spi_info.spi_range(FORGOTTEN.0, FORGOTTEN.1);
        let mut nlas: Vec<_> = state::mark_attribute(policy.mark).into_iter().collect();
        if policy.if_id != 0 {
            nlas.push(XfrmAttrs::IfId(policy.if_id));
        }
        if let Some(cpu) = cpu {
            nlas.push(gaps::attribute(gaps::XFRMA_SA_PCPU, &cpu.to_ne_bytes()));
        }
        let message = XfrmMessage::AllocSpi(AllocSpiMessage { spi_info, nlas });
        let spi = self.read(message, reserved)?;
        self.delete_state(&StateId { spi, dst, mark: policy.mark }).map(drop)
    }

    /// Adds a state (XFRM_MSG_NEWSA). One with this id must not exist.
    pub fn add_state(&mut self, state: &State) -> Result<(), Error> {
        let message = self.state_message("add state", state)?;
        self.tell(XfrmMessage::AddSa(message), Kind::Create)
    }

    /// Turns a reserved SPI into a state, or changes the limits and encapsulation of one (XFRM_MSG_UPDSA).
    pub fn update_state(&mut self, state: &State) -> Result<(), Error> {
        let message = self.state_message("update state", state)?;
        self.tell(XfrmMessage::UpdateSa(message), Kind::Replace)
    }

    /// Deletes a state; false if there is none.
    pub fn delete_state(&mut self, id: &StateId) -> Result<bool, Error> {
        self.tell_if_there(XfrmMessage::DeleteSa(state_id(id)))
    }

    /// A state, if there is one.
    pub fn state(&mut self, id: &StateId) -> Result<Option<StateInfo>, Error> {
        self.read_if_there(XfrmMessage::GetSa(state_id(id)), |answer| match answer {
            XfrmMessage::AddSa(sa) => state::decode(sa),
            _ => None,
        })
    }

    /// All ESP states. A dump that the kernel says was interrupted is made again.
    pub fn states(&mut self) -> Result<Vec<StateInfo>, Error> {
        let message = GetDumpMessage { nlas: vec![XfrmAttrs::Proto(IPPROTO_ESP)] };
        self.list(&XfrmMessage::GetDumpSa(message), |answer| match answer {
            XfrmMessage::AddSa(sa) if sa.user_sa_info.id.proto == IPPROTO_ESP => state::decode(sa),
            _ => None,
        })
    }

    /// Deletes all ESP states, including those of other programs.
    pub fn flush_states(&mut self) -> Result<(), Error> {
        // An empty table is ESRCH.
        self.tell_if_there(XfrmMessage::FlushSa(FlushMessage { protocol: IPPROTO_ESP })).map(drop)
    }

    /// Sets the sequence numbers of a state (XFRM_MSG_NEWAE). The window stays as it is.
    pub fn set_replay(&mut self, id: &StateId, replay: &Replay) -> Result<(), Error> {
        const REQUEST: &str = "set sequence numbers";
        let found =
            self.read_if_there(XfrmMessage::GetSa(state_id(id)), |answer| match answer {
                XfrmMessage::AddSa(sa) => Some((state::decode(sa)?, Replay::form(&sa.nlas))),
                _ => None,
            })?;
        let Some((found, form)) = found else {
            return Err(Error {
                request: REQUEST,
                errno: libc::ESRCH,
                message: Some("no such state".into()),
            });
        };
        let replay =
            Replay { esn: found.replay.esn, window: found.replay.window, ..replay.clone() };
        let replay =
            replay.encode(found.direction, form).map_err(|text| Error::invalid(REQUEST, text))?;
        let mut nlas: Vec<_> = replay.attribute.into_iter().collect();
        nlas.extend(state::mark_attribute(id.mark));
        let id = AsyncEventId {
            sa_id: user_sa_id(id),
            saddr: Address::from_ip(&found.src),
            flags: XFRM_AE_RVAL,
            reqid: found.reqid,
        };
        let message = XfrmMessage::NewAsyncEvent(NewAsyncEventMessage { id, nlas });
        self.tell(message, Kind::Replace)
    }

    pub(super) fn state_message(
        &mut self,
        request: &'static str,
        state: &State,
    ) -> Result<ModifyMessage, Error> {
        let directions = state.direction.is_some() && self.knows_directions()?;
        state::encode(state, directions).map_err(|text| Error::invalid(request, text))
    }
}

/// SPIs for states that are deleted at once.
const FORGOTTEN: (u32, u32) = (0x100, 0xfff);

/// The SPI that the kernel reserved.
fn reserved(answer: &XfrmMessage) -> Option<u32> {
    match answer {
        XfrmMessage::AddSa(sa) | XfrmMessage::UpdateSa(sa) => Some(sa.user_sa_info.id.spi),
        XfrmMessage::AllocSpi(spi) => Some(spi.spi_info.info.id.spi),
        _ => None,
    }
}

fn user_sa_id(id: &StateId) -> UserSaId {
    UserSaId {
        daddr: Address::from_ip(&id.dst),
        spi: id.spi,
        family: address::family(&id.dst),
        proto: IPPROTO_ESP,
    }
}

pub(super) fn state_id(id: &StateId) -> DelGetMessage {
    DelGetMessage {
        user_sa_id: user_sa_id(id),
        nlas: state::mark_attribute(id.mark).into_iter().collect(),
    }
}
