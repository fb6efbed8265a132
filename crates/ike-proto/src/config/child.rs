//! One child of a connection: `connections.<conn>.children.<child>`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::connection::ConnectionConfig;
use super::numbers::{InterfaceId, UniqueNumbers};
use super::proposal::ProposalConfig;
use crate::dataplane::{Limits, Mode, Processing, TrafficSelector};

/// A configured traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TsSpec {
    /// A fixed range.
    Fixed(TrafficSelector),
    /// `dynamic`: the end's own outer address.
    Dynamic {
        /// IP protocol; 0 is any.
        protocol: u8,
        /// First port.
        start_port: u16,
        /// Last port.
        end_port: u16,
    },
}

impl TsSpec {
    /// `dynamic` for any protocol and port, the default of swanctl.conf(5).
    pub const DYNAMIC: Self = Self::Dynamic { protocol: 0, start_port: 0, end_port: 65535 };

    /// The selector, with `host` instead of `dynamic`.
    pub fn resolve(self, host: IpAddr) -> TrafficSelector {
        match self {
            Self::Fixed(ts) => ts,
            Self::Dynamic { protocol, start_port, end_port } => {
                TrafficSelector { protocol, start_port, end_port, start: host, end: host }
            }
        }
    }

    /// The selectors that it stands for, with each of `hosts` instead of `dynamic`.
    pub fn resolved(
        self,
        hosts: impl IntoIterator<Item = IpAddr>,
    ) -> impl Iterator<Item = TrafficSelector> {
        let fixed = match self {
            Self::Fixed(ts) => Some(ts),
            Self::Dynamic { .. } => None,
        };
        let hosts = hosts.into_iter().filter(move |_| fixed.is_none());
        fixed.into_iter().chain(hosts.map(move |host| self.resolve(host)))
    }
}

/// What to do at load (`start_action`), after a Delete by the peer (`close_action`) or after a dead peer
/// (`dpd_action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// Nothing; swanctl.conf(5) spells it `none`, or `clear` for `dpd_action`.
    #[default]
    None,
    /// Install a trap policy that brings the child up when traffic needs it.
    Trap,
    /// Bring the child up (again).
    Start,
}

/// What happens to the traffic of a child that is not up (`failureshunt`, a word of libreswan's).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureShunt {
    /// [`Self::Reject`] once the child has been up, if one of its actions is to bring it up again; otherwise
    /// [`Self::Passthrough`].
    #[default]
    Auto,
    /// The system routes it: in clear.
    Passthrough,
    /// It is dropped.
    Drop,
    /// It is dropped, and senders are notified.
    Reject,
}

/// From when on the traffic of a child that is not up is blocked ([`ChildConfig::blocks_from`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// The child was up.
    Up,
    /// The start, between its selectors, which depend on no address.
    Start,
    /// The start, whatever is known of its addresses by then (`hold`).
    Held,
}

/// A child with `mode = pass` or `drop`: a policy without an SA. The owner of the data plane installs it, not the
/// engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShuntConfig {
    /// The connection.
    pub connection: String,
    /// Name of the child.
    pub child: String,
    /// True if its traffic is dropped; otherwise it passes in clear.
    pub drop: bool,
    /// `local_ts`.
    pub local_ts: Vec<TrafficSelector>,
    /// `remote_ts`.
    pub remote_ts: Vec<TrafficSelector>,
    /// `priority`; 0 for automatic.
    pub priority: u32,
    /// How its packets are treated.
    pub processing: Arc<Processing>,
}

/// One child configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildConfig {
    /// Name.
    pub name: String,
    /// `esp_proposals`.
    pub esp_proposals: Vec<ProposalConfig>,
    /// `local_ts`.
    pub local_ts: Vec<TsSpec>,
    /// `remote_ts`.
    pub remote_ts: Vec<TsSpec>,
    /// `mode`.
    pub mode: Mode,
    /// `rekey_time`; zero turns rekeying off.
    pub rekey_time: Duration,
    /// `life_time`: hard limit; zero for none.
    pub life_time: Duration,
    /// `rand_time`: the most that is subtracted from `rekey_time` at random.
    pub rand_time: Duration,
    /// `rekey_bytes`, `life_bytes`, `rekey_packets`, `life_packets`.
    pub limits: Limits,
    /// `rand_bytes` and `rand_packets`: the most that is subtracted from the soft limits at random.
    pub rand_bytes: u64,
    /// See `rand_bytes`.
    pub rand_packets: u64,
    /// `start_action`.
    pub start_action: Action,
    /// `close_action`.
    pub close_action: Action,
    /// `dpd_action`.
    pub dpd_action: Action,
    /// `failureshunt`. The owner of the data plane carries it out, not the engine.
    pub failure_shunt: FailureShunt,
    /// `hold`: with a `start_action`, its traffic does not leave in clear from the start on, if [`Self::failure_shunt`] does
    /// not let it pass. The owner of the data plane carries it out, not the engine.
    pub hold: bool,
    /// `updown`. The embedder runs it, not the engine.
    pub updown: Option<String>,
    /// `hostaccess`, for `updown`.
    pub hostaccess: bool,
    /// `inactivity`: the child is deleted after this without traffic; zero for never.
    pub inactivity: Duration,
    /// `sha256_96`: HMAC-SHA-256 is cut to 96 bits, as some peers do. The peer is not told.
    pub sha256_96: bool,
    /// `priority` of the policies; 0 for automatic.
    pub priority: u32,
    /// `replay_window` in packets.
    pub replay_window: u32,
    /// Options that the engine passes to the data plane unchanged: `hw_offload`, `copy_dscp` and so on.
    pub processing: Arc<Processing>,
    /// The numbers of `processing` that are chosen when a child is made.
    pub unique: UniqueNumbers,
}

impl ChildConfig {
    /// How many pairs its selectors make.
    pub(crate) fn pairs(&self) -> usize {
        self.local_ts.len() * self.remote_ts.len()
    }

    /// A child with the defaults of swanctl.conf(5).
    pub fn new(name: impl Into<String>) -> Self {
        let hour = Duration::from_secs(3600);
        Self {
            name: name.into(),
            esp_proposals: ProposalConfig::default_esp(),
            local_ts: vec![TsSpec::DYNAMIC],
            remote_ts: vec![TsSpec::DYNAMIC],
            mode: Mode::Tunnel,
            rekey_time: hour,
            life_time: hour + hour / 10,
            rand_time: hour / 10,
            limits: Limits::default(),
            rand_bytes: 0,
            rand_packets: 0,
            start_action: Action::None,
            close_action: Action::None,
            dpd_action: Action::None,
            failure_shunt: FailureShunt::default(),
            hold: false,
            updown: None,
            hostaccess: false,
            inactivity: Duration::ZERO,
            sha256_96: false,
            priority: 0,
            replay_window: 32,
            processing: Arc::default(),
            unique: UniqueNumbers::default(),
        }
    }

    /// True if `other`, of the same name, protects the same traffic in the same way: a Child SA of the one serves the
    /// other. Algorithms and lifetimes do not count.
    pub fn asks_same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || self.local_ts == other.local_ts
                && self.remote_ts == other.remote_ts
                && self.mode == other.mode
                && self.priority == other.priority
                && self.unique == other.unique
                && self.processing == other.processing
    }

    /// From when on its traffic is blocked while it is not up; `None` if it never is. Whether that is possible is another
    /// question: its policies need numbers that are known ([`Self::fixed_interfaces`]).
    pub fn blocks_from(&self) -> Option<Since> {
        // Without policies of the child's own, others say what is protected.
        if !self.processing.policies {
            return None;
        }
        let actions = [self.start_action, self.close_action, self.dpd_action];
        let held = self.hold && self.start_action != Action::None;
        let mut specs = self.local_ts.iter().chain(&self.remote_ts);
        match self.failure_shunt {
            FailureShunt::Passthrough => None,
            // Senders are to be told, or not to be told.
            FailureShunt::Reject | FailureShunt::Drop
                if specs.all(|spec| matches!(spec, TsSpec::Fixed(_))) =>
            {
                Some(Since::Start)
            }
            _ if held => Some(Since::Held),
            FailureShunt::Auto if actions == [Action::None; 3] => None,
            FailureShunt::Auto | FailureShunt::Reject | FailureShunt::Drop => Some(Since::Up),
        }
    }

    /// `if_id_in` and `if_id_out` of its policies, with those of its connection; none if one of its numbers is chosen
    /// when it comes up.
    pub fn fixed_interfaces(&self, connection: &ConnectionConfig) -> Option<(u32, u32)> {
        let interface = |own, of_connection| match (own, of_connection) {
            (0, InterfaceId::Fixed(id)) => Some(id),
            (0, InterfaceId::Unique(_)) => None,
            (own, _) => Some(own),
        };
        interface(self.processing.if_id_in, connection.if_id_in)
            .zip(interface(self.processing.if_id_out, connection.if_id_out))
            .filter(|_| self.unique == UniqueNumbers::default())
    }

    /// True if one of its actions is a trap.
    pub fn wants_trap(&self) -> bool {
        [self.start_action, self.close_action, self.dpd_action].contains(&Action::Trap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults: in `blocks_from`, leave out the policies, the selectors, `held`, or the actions.
    #[test]
    fn traffic_is_blocked_from_when_on() {
        let net = TsSpec::Fixed(TrafficSelector::any_v4());
        let fixed = |child: &mut ChildConfig| {
            (child.local_ts, child.remote_ts) = (vec![net], vec![net]);
        };
        let since = |shunt, start, hold, change: &dyn Fn(&mut ChildConfig)| {
            let mut child = ChildConfig::new("net");
            (child.failure_shunt, child.start_action, child.hold) = (shunt, start, hold);
            change(&mut child);
            child.blocks_from()
        };
        let (none, trap, nothing) = (Action::None, Action::Trap, &|_: &mut ChildConfig| {});
        assert_eq!(since(FailureShunt::Auto, none, true, nothing), None);
        assert_eq!(since(FailureShunt::Auto, trap, true, nothing), Some(Since::Held));
        assert_eq!(since(FailureShunt::Auto, trap, false, nothing), Some(Since::Up));
        let closes = |child: &mut ChildConfig| child.close_action = Action::Start;
        assert_eq!(since(FailureShunt::Auto, none, true, &closes), Some(Since::Up));
        assert_eq!(since(FailureShunt::Passthrough, trap, true, &fixed), None);
        for shunt in [FailureShunt::Drop, FailureShunt::Reject] {
            assert_eq!(since(shunt, none, false, &fixed), Some(Since::Start));
            assert_eq!(since(shunt, trap, true, &fixed), Some(Since::Start));
            assert_eq!(since(shunt, trap, true, nothing), Some(Since::Held));
            assert_eq!(since(shunt, none, true, nothing), Some(Since::Up));
        }
        let foreign = |child: &mut ChildConfig| {
            child.processing = Arc::new(Processing { policies: false, ..Processing::default() });
        };
        assert_eq!(since(FailureShunt::Auto, trap, true, &foreign), None);
    }
}
