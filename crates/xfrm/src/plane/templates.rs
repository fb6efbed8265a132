//! One policy of the engine in the kernel: policies in each direction, with templates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipsec_types::dataplane::precedence::Order;
use ipsec_types::dataplane::{Mode, Outer, PolicyAction, PolicySpec, TrafficSelector};

use super::priority::{Level, priority};
use super::selectors::{Pair, Unfit, pairs};
use crate::policy::{Action, Policy, PolicyDirection, PolicyId, Template};
use crate::state::Offload;

/// Input for a policy besides its specification.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Means {
    /// Reqid of its SAs.
    pub(super) reqid: u32,
    /// Interface it holds on; 0 is any.
    pub(super) ifindex: u32,
    /// The device that has its inbound SAs, if it does all of ESP.
    pub(super) offload_in: Option<Offload>,
    /// The device that has its outbound SA, if it does all of ESP.
    pub(super) offload_out: Option<Offload>,
}

/// A kernel policy, and where it stands among those of its selectors.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) order: Order,
    pub(super) policy: Policy,
}

/// The kernel policies for `spec`. Inbound ones come first, so that the answers of a peer are accepted.
pub(super) fn wanted(spec: &PolicySpec, means: &Means) -> Result<Vec<Wanted>, Unfit> {
    let protects = matches!(spec.action, PolicyAction::Protect { .. } | PolicyAction::Trap);
    if protects && !spec.processing.policies {
        return Ok(Vec::new());
    }
    let all = pairs(&spec.local_ts, &spec.remote_ts)?;
    let (mut inward, mut outward) = (Vec::new(), Vec::new());
    for (pair, local, remote) in &all {
        let maker =
            Maker { spec, means, pair, order: Order::of(spec, local, remote), local, remote };
        maker.inward(&mut inward);
        maker.outward(&mut outward);
    }
    inward.extend(outward);
    Ok(inward)
}

/// Makes the policies for one pair.
struct Maker<'a> {
    spec: &'a PolicySpec,
    means: &'a Means,
    pair: &'a Pair,
    order: Order,
    local: &'a TrafficSelector,
    remote: &'a TrafficSelector,
}

impl Maker<'_> {
    fn inward(&self, list: &mut Vec<Wanted>) {
        // The local selectors of such a hold are wider than the child's will be, so what arrives may pass.
        if self.spec.action == (PolicyAction::Hold { anywhere: true }) {
            return;
        }
        let (action, mode) = match self.ends() {
            Some(outer) => (
                Action::Allow(vec![self.template(outer, outer.remote, outer.local, 0)]),
                outer.mode,
            ),
            None if self.spec.action == PolicyAction::Pass => {
                let mode = self.spec.outer.map_or(Mode::Tunnel, |outer| outer.mode);
                (Action::Allow(Vec::new()), mode)
            }
            None => (Action::Block, Mode::Tunnel),
        };
        let id = self.id(PolicyDirection::In);
        let offload = self.means.offload_in.filter(|_| self.ends().is_some());
        list.push(Wanted {
            policy: Policy { offload, ..self.policy(id, action.clone(), Level::Main) },
            order: self.order,
        });
        // Nothing is passed on in transport mode.
        if mode != Mode::Transport {
            let id = self.id(PolicyDirection::Forward);
            list.push(Wanted { policy: self.policy(id, action, Level::Main), order: self.order });
        }
    }

    fn outward(&self, list: &mut Vec<Wanted>) {
        let per_cpu = self.spec.processing.per_cpu;
        let (action, mode) = match (&self.spec.action, self.ends()) {
            (PolicyAction::Protect { outbound: None, .. }, Some(outer)) => {
                (Action::Block, outer.mode)
            }
            (action, Some(outer)) => {
                // Of SAs for each CPU the kernel chooses one.
                let spi = match action {
                    PolicyAction::Protect { outbound: Some(id), .. } if !per_cpu => id.spi,
                    _ => 0,
                };
                let template = self.template(outer, outer.local, outer.remote, spi);
                (Action::Allow(vec![template]), outer.mode)
            }
            (PolicyAction::Pass, None) => (Action::Allow(Vec::new()), Mode::Tunnel),
            _ => (Action::Block, Mode::Tunnel),
        };
        let protects = matches!(self.spec.action, PolicyAction::Protect { .. });
        // Forwarded packets in clear towards the peer meet forward policies too. Without one they pass, unless
        // they are in the selectors of another's.
        let forwards = match self.spec.action {
            PolicyAction::Pass => self.spec.outer.is_none_or(|outer| outer.mode != Mode::Transport),
            PolicyAction::Protect { .. } | PolicyAction::Trap => {
                self.spec.processing.policies_fwd_out && mode != Mode::Transport
            }
            _ => false,
        };
        if forwards {
            let id =
                PolicyId { direction: PolicyDirection::Forward, ..self.id(PolicyDirection::Out) };
            let policy = self.policy(id, Action::Allow(Vec::new()), Level::Beneath);
            // Inbound packets in these selectors are checked first.
            let order = Order { class: u8::MAX, ..self.order };
            list.push(Wanted { policy, order });
        }
        let id = self.id(PolicyDirection::Out);
        let offload = self.means.offload_out.filter(|_| protects && action != Action::Block);
        let policy = Policy {
            cpu_acquire: per_cpu && protects && action != Action::Block,
            offload,
            ..self.policy(id, action, Level::Main)
        };
        list.push(Wanted { policy, order: self.order });
    }

    /// Between which ends SAs are or will be, if there are or will be any.
    fn ends(&self) -> Option<Outer> {
        match self.spec.action {
            PolicyAction::Protect { mode, local, remote, .. } => {
                let (local, remote) = (local.to_canonical(), remote.to_canonical());
                Some(Outer { mode, local, remote })
            }
            PolicyAction::Trap => Some(self.waits_between()),
            PolicyAction::Pass
            | PolicyAction::Drop
            | PolicyAction::Shunt { .. }
            | PolicyAction::Hold { .. } => None,
        }
    }

    fn waits_between(&self) -> Outer {
        let any = Outer {
            mode: Mode::Tunnel,
            local: unspecified(self.pair.local.address),
            remote: unspecified(self.pair.local.address),
        };
        let Outer { mode, local, remote } = self.spec.outer.unwrap_or(any);
        let (mut local, remote) = (local.to_canonical(), remote.to_canonical());
        // The kernel asks for a route to a source it is not told, and gives up if there is none.
        if remote.is_unspecified()
            && (local.is_unspecified() || local.is_ipv4() != remote.is_ipv4())
        {
            local = match remote {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
        }
        Outer { mode, local, remote }
    }

    fn template(&self, outer: Outer, src: IpAddr, dst: IpAddr, spi: u32) -> Template {
        let mode = outer.mode;
        let any = unspecified(self.pair.local.address);
        // In transport mode the ends are those of the packet.
        let (src, dst) = if mode == Mode::Transport { (any, any) } else { (src, dst) };
        Template { src, dst, spi, reqid: self.means.reqid, mode, optional: false }
    }

    fn id(&self, direction: PolicyDirection) -> PolicyId {
        let processing = &self.spec.processing;
        let ifindex = self.means.ifindex;
        match direction {
            PolicyDirection::Out => PolicyId {
                selector: self.pair.outward(ifindex),
                direction,
                mark: processing.mark_out,
                if_id: processing.if_id_out,
            },
            PolicyDirection::In | PolicyDirection::Forward => PolicyId {
                selector: self.pair.inward(ifindex),
                direction,
                mark: processing.mark_in,
                if_id: processing.if_id_in,
            },
        }
    }

    fn policy(&self, id: PolicyId, action: Action, level: Level) -> Policy {
        let Self { spec, means, local, remote, .. } = *self;
        Policy {
            id,
            priority: priority(spec, local, remote, means.ifindex, level),
            action,
            icmp: spec.processing.icmp,
            cpu_acquire: false,
            offload: None,
        }
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
