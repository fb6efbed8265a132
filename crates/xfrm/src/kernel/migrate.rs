//! New outer addresses for installed states and policies.

use std::net::IpAddr;

use netlink_packet_xfrm::constants::IPPROTO_ESP;
use netlink_packet_xfrm::monitor::MigrateMessage;
use netlink_packet_xfrm::{Address, UserMigrate, XfrmMessage};

use super::Kernel;
use crate::address;
use crate::netlink::{Error, Kind, Transport, gaps};
use crate::policy::{self, PolicyId};
use crate::state::{self, Encapsulation, Mode};

/// A change of outer addresses of the states behind one policy (XFRM_MSG_MIGRATE).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The policy.
    pub policy: PolicyId,
    /// Reqid of the states.
    pub reqid: u32,
    /// Mode of the states.
    pub mode: Mode,
    /// Source and destination so far.
    pub from: (IpAddr, IpAddr),
    /// Source and destination from now on.
    pub to: (IpAddr, IpAddr),
    /// Encapsulation from now on.
    pub encapsulation: Option<Encapsulation>,
}

/// One pair of outer addresses, for [`Kernel::migrate_all`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Reqid of the states.
    pub reqid: u32,
    /// Mode of the states.
    pub mode: Mode,
    /// Source and destination so far.
    pub from: (IpAddr, IpAddr),
    /// Source and destination from now on.
    pub to: (IpAddr, IpAddr),
}

impl<T: Transport> Kernel<T> {
    /// Moves the states behind a policy, and its templates, to other outer addresses; sequence numbers
    /// and counters go on.
    pub fn migrate(&mut self, migration: &Migration) -> Result<(), Error> {
        let &Migration { policy, reqid, mode, from, to, encapsulation } = migration;
        self.migrate_all(&policy, &[Move { reqid, mode, from, to }], encapsulation.as_ref())
    }

    /// As [`Self::migrate`] for several pairs of addresses behind one policy, six at the most.
    pub fn migrate_all(
        &mut self,
        policy: &PolicyId,
        moves: &[Move],
        encapsulation: Option<&Encapsulation>,
    ) -> Result<(), Error> {
        let mut entries = Vec::with_capacity(moves.len());
        for &Move { reqid, mode, from, to } in moves {
            if from.0.is_ipv4() != from.1.is_ipv4() || to.0.is_ipv4() != to.1.is_ipv4() {
                let text = "source and destination are of two address families";
                return Err(Error::invalid("migrate", text));
            }
            entries.push(UserMigrate {
                old_daddr: Address::from_ip(&from.1),
                old_saddr: Address::from_ip(&from.0),
                new_daddr: Address::from_ip(&to.1),
                new_saddr: Address::from_ip(&to.0),
                proto: IPPROTO_ESP,
                mode: state::mode_number(mode),
                reserved: 0,
                reqid,
                old_family: address::family(&from.0),
                new_family: address::family(&to.0),
            });
        }
        let id = policy::encode_id(policy);
        let mut nlas = vec![gaps::migrations(&entries)];
        nlas.extend(id.nlas);
        nlas.extend(encapsulation.map(state::encapsulation));
        let message = MigrateMessage { user_policy_id: id.user_policy_id, nlas };
        self.tell(XfrmMessage::Migrate(message), Kind::Ack)
    }
}
