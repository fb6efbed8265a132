//! What a child's configuration asks for while the child is not up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ike_proto::config::{
    Action, AddressSpec, ChildConfig, ConnectionConfig, FailureShunt, ShuntConfig, Since, TsSpec,
};
use ike_proto::dataplane::{Mode, Outer, PolicyAction, Processing, TrafficSelector};

/// The shunt that a child's configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shunt {
    pub(super) action: PolicyAction,
    pub(super) since: Since,
    pub(super) local: Vec<TsSpec>,
    pub(super) remote: Vec<TsSpec>,
    pub(super) priority: u32,
    pub(super) processing: Arc<Processing>,
    /// The child's `start_action` is a trap.
    pub(super) traps: bool,
    /// Of the child.
    mode: Mode,
}

/// What is known of the two ends of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// The addresses that `dynamic` stands for in `local_ts`; none if they are not known.
    own: Vec<IpAddr>,
    /// The peer's; none while its names have no address.
    pub(super) peers: Vec<AddressSpec>,
}

/// What a policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) action: PolicyAction,
    pub(super) local_ts: Vec<TrafficSelector>,
    pub(super) remote_ts: Vec<TrafficSelector>,
    pub(super) outer: Option<Outer>,
}

impl Ends {
    pub(super) fn of(connection: &ConnectionConfig) -> Self {
        // With virtual IPs `dynamic` stands for these, which the peer gives.
        let hosts = connection.local_addrs.iter().filter_map(|spec| spec.host());
        let own = hosts.filter(|_| connection.vips.is_empty()).collect();
        Self { own, peers: connection.remote_addrs.clone() }
    }

    fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        self.peers.iter().filter_map(|spec| spec.host())
    }

    /// Where SAs will be, as far as that is known.
    fn outer(&self, mode: Mode) -> Option<Outer> {
        let remote = self.hosts().next()?;
        let same = |own: &&IpAddr| own.is_ipv4() == remote.is_ipv4();
        let local = self.own.iter().find(same).copied().unwrap_or(unspecified(remote));
        Some(Outer { mode, local, remote })
    }
}

impl Shunt {
    pub(super) fn of(connection: &ConnectionConfig, child: &ChildConfig) -> Option<Self> {
        let since = child.blocks_from()?;
        let silent = child.failure_shunt == FailureShunt::Drop;
        let of_child = &child.processing;
        let if_ids = child.fixed_interfaces(connection);
        let Some((if_id_in, if_id_out)) = if_ids else {
            tracing::warn!(
                child = child.name,
                "failureshunt: a child with `%unique` numbers has no block, and its traffic may leave in clear while it is down: \
                 give it fixed numbers"
            );
            return None;
        };
        // It matches what the child's policies match, and no more: routes and packets of others go on.
        let processing = Processing {
            if_id_in,
            if_id_out,
            mark_in: of_child.mark_in,
            mark_out: of_child.mark_out,
            interface: of_child.interface.clone(),
            ..Processing::default()
        };
        let (local, remote) = (child.local_ts.clone(), child.remote_ts.clone());
        let action = PolicyAction::Shunt { silent };
        let (priority, processing) = (0, Arc::new(processing));
        let (traps, mode) = (child.start_action == Action::Trap, child.mode);
        Some(Self { action, since, local, remote, priority, processing, traps, mode })
    }

    /// `mode = pass` or `drop`.
    pub(super) fn configured(shunt: &ShuntConfig) -> Self {
        let fixed = |list: &[TrafficSelector]| list.iter().copied().map(TsSpec::Fixed).collect();
        Self {
            action: if shunt.drop { PolicyAction::Drop } else { PolicyAction::Pass },
            since: Since::Start,
            local: fixed(&shunt.local_ts),
            remote: fixed(&shunt.remote_ts),
            priority: shunt.priority,
            processing: Arc::clone(&shunt.processing),
            traps: false,
            mode: Mode::Tunnel,
        }
    }

    /// How wide the selector is by which an earlier run may have blocked traffic from `from` to `to`, in addresses less
    /// one.
    ///
    /// None for all addresses while the peer has no address: its name would be looked up through the block.
    pub(super) fn width(
        &self,
        from: &TrafficSelector,
        to: &TrafficSelector,
        peers: &[AddressSpec],
    ) -> Option<u128> {
        let waits = matches!(self.action, PolicyAction::Shunt { .. });
        let local =
            self.local.iter().any(|spec| spec.resolve(from.start).intersect(from).is_some());
        let has_peer = |address| peers.iter().any(|spec| spec.contains(address));
        let remote = self.remote.iter().filter_map(|spec| match spec {
            TsSpec::Fixed(ts) if peers.is_empty() && is_all(ts) => None,
            TsSpec::Fixed(ts) => ts.contains(to).then_some((ts.start, ts.end)),
            TsSpec::Dynamic { .. } => {
                let is_host = to.start == to.end;
                (is_host && (peers.is_empty() || has_peer(to.start))).then_some((to.start, to.end))
            }
        });
        let remote = remote.filter(|_| waits && local);
        remote.map(|(start, end)| number(end) - number(start)).min()
    }

    /// What it says between these ends.
    fn between(&self, here: IpAddr, there: IpAddr) -> Says {
        Says {
            action: self.action.clone(),
            local_ts: self.local.iter().map(|ts| ts.resolve(here)).collect(),
            remote_ts: self.remote.iter().map(|ts| ts.resolve(there)).collect(),
            outer: None,
        }
    }

    /// What it says after the child was up between these ends. This host may have moved meanwhile.
    pub(super) fn was_up(&self, here: IpAddr, there: IpAddr) -> Says {
        let (mode, local) = (self.mode, unspecified(there));
        Says { outer: Some(Outer { mode, local, remote: there }), ..self.between(here, there) }
    }

    /// What it says where an earlier run has blocked traffic from `from` to `to`.
    pub(super) fn left(&self, from: IpAddr, to: IpAddr, ends: &Ends) -> Says {
        Says { outer: ends.outer(self.mode), ..self.between(from, to) }
    }

    /// What it says between these ends while there is a trap, and the child was not up.
    pub(super) fn trapped(&self, here: IpAddr, there: IpAddr) -> Says {
        Says {
            action: PolicyAction::Hold { anywhere: false },
            outer: Some(Outer { mode: self.mode, local: here, remote: there }),
            ..self.between(here, there)
        }
    }

    /// What it says from the start on, as far as `ends` are known. None if it says nothing yet.
    pub(super) fn at_once(&self, ends: &Ends) -> Option<Says> {
        let held = self.since == Since::Held;
        let peers = || ends.hosts().filter(move |_| held);
        let remote_ts: Vec<_> =
            self.remote.iter().flat_map(|spec| spec.resolved(peers())).collect();
        let own = || ends.own.iter().copied().filter(move |_| held);
        let mut local_ts: Vec<_> =
            self.local.iter().flat_map(|spec| spec.resolved(own())).collect();
        let is_fixed = self.local.iter().all(|spec| matches!(spec, TsSpec::Fixed(_)));
        let anywhere = held && !is_fixed && ends.own.is_empty();
        if anywhere {
            // Any address may become this host's.
            local_ts.extend(self.local.iter().flat_map(all));
        }
        let says = match self.since {
            Since::Up => false,
            Since::Start => true,
            Since::Held => !local_ts.is_empty() && !remote_ts.is_empty(),
        };
        let action = if held { PolicyAction::Hold { anywhere } } else { self.action.clone() };
        let outer = ends.outer(self.mode);
        says.then_some(Says { action, local_ts, remote_ts, outer })
    }
}

/// All addresses of both families instead of `dynamic`.
fn all(spec: &TsSpec) -> Vec<TrafficSelector> {
    let families = [TrafficSelector::any_v4(), TrafficSelector::any_v6()];
    let wide = |TrafficSelector { start, end, .. }| TrafficSelector { end, ..spec.resolve(start) };
    match spec {
        TsSpec::Fixed(_) => Vec::new(),
        TsSpec::Dynamic { .. } => families.map(wide).to_vec(),
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// True for all addresses of a family.
fn is_all(ts: &TrafficSelector) -> bool {
    ts.start.is_unspecified()
        && match ts.end {
            IpAddr::V4(end) => end.is_broadcast(),
            IpAddr::V6(end) => u128::from(end) == u128::MAX,
        }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}
