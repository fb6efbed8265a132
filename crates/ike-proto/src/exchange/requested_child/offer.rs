//! What a request for a child offers.

use std::net::IpAddr;
use std::sync::Arc;

use super::RequestedChild;
use crate::child::ChildSa;
use crate::child::Join;
use crate::child::selectors::narrow;
use crate::config::{ChildConfig, ProposalConfig};
use crate::dataplane::{Flow, Mode, TrafficSelector};
use crate::event::{Failure, IkeSaId, Path, RequestId};
use crate::exchange::config::resolve;
use crate::exchange::key_exchange::Undone;
use crate::exchange::resource;
use crate::exchange::sent::Retry;
use crate::ike_sa::context::Context;
use crate::question::Exchange;
use crate::wire::payload::Spi;
use crate::wire::registry::KeMethodId;

/// What distinguishes one offer from another.
pub(crate) struct OfferSpec<'a> {
    pub(crate) config: &'a Arc<ChildConfig>,
    /// The child to rekey.
    pub(crate) rekeys: Option<&'a ChildSa>,
    /// The child beside which it is a further one, and its CPU (RFC 9611).
    pub(crate) joins: Option<(&'a ChildSa, Join)>,
    /// The virtual IPs of this end and of the peer, for `dynamic`.
    pub(crate) dynamic: [Vec<IpAddr>; 2],
    /// The packet for which it is requested.
    pub(crate) packet: Option<Flow>,
    /// The key exchange method with which the IKE SA began; `None` in IKE_AUTH, where the child has no key
    /// exchange (RFC 7296 §1.2).
    pub(crate) ike_method: Option<KeMethodId>,
    /// Its identifier among others, for the peer.
    pub(crate) ordinal: u32,
    pub(crate) request: Option<RequestId>,
    pub(crate) retry: Retry,
}

/// Why there is no offer.
pub(crate) enum NoOffer {
    Failed(Failure),
    /// This key exchange has to be done first.
    Ask(Exchange),
}

impl NoOffer {
    /// The failure of an offer that cannot ask a question.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Ask(_) => Failure::Crypto,
        }
    }
}

impl From<Failure> for NoOffer {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl RequestedChild {
    /// Makes an offer. Fails if the configuration leaves nothing to offer.
    pub(crate) fn offer(
        ctx: &mut Context<'_>,
        ike: IkeSaId,
        path: Path,
        spec: &OfferSpec<'_>,
    ) -> Result<Box<Self>, NoOffer> {
        let id = ctx.ids.child();
        let (local_ts, remote_ts, mode) = match (spec.rekeys, spec.joins) {
            // RFC 7296 §2.9.2: the new SA must fit the present traffic as well.
            (Some(old), _) => (old.local_ts.clone(), old.remote_ts.clone(), old.mode),
            //= https://www.rfc-editor.org/rfc/rfc9611#section-4
            //# the Traffic Selector (TSi) entry
            //# containing the information of the trigger packet should be included
            //# in the TS set similarly to regular Child SAs
            (None, Some((other, _))) => {
                let (mut local_ts, mut remote_ts) =
                    (other.local_ts.clone(), other.remote_ts.clone());
                if let Some(packet) = spec.packet {
                    put_first(packet, &mut local_ts, &mut remote_ts);
                }
                (local_ts, remote_ts, other.mode)
            }
            (None, None) => {
                let [local, remote] = &spec.dynamic;
                let mut local_ts = resolve(spec.config, path, true, local);
                let mut remote_ts = resolve(spec.config, path, false, remote);
                if let Some(packet) = spec.packet {
                    if spec.retry.single_pair {
                        local_ts = narrow(&local_ts, &[TrafficSelector::host(packet.local.start)]);
                        remote_ts =
                            narrow(&remote_ts, &[TrafficSelector::host(packet.remote.start)]);
                    }
                    put_first(packet, &mut local_ts, &mut remote_ts);
                }
                (local_ts, remote_ts, spec.config.mode)
            }
        };
        check_mode(ctx, &spec.config.name, mode)?;
        let method = first_method(ctx, spec).filter(|&method| method != KeMethodId::NONE);
        let ke = match method {
            None => None,
            Some(method) => match ctx.initiate(method) {
                Ok(ke) => Some((method, ke)),
                Err(Undone::Ask(exchange)) => return Err(NoOffer::Ask(exchange)),
                Err(Undone::Failed(_)) => return Err(Failure::Crypto.into()),
            },
        };
        let spi_in = ctx.ids.esp_spi(ctx.io.rng, (ike, id));
        let proposals: Vec<_> = (1..)
            .zip(offered(spec, method))
            .map(|(number, proposal)| proposal.to_wire(number, Spi::Esp(spi_in)))
            .collect();
        Ok(Box::new(Self {
            id,
            config: Arc::clone(spec.config),
            packet: spec.packet,
            spi_in,
            policy: spec
                .rekeys
                .or(spec.joins.map(|(other, _)| other))
                .map_or_else(|| ctx.ids.policy(), |old| old.policy),
            per_cpu: spec.rekeys.is_none() && resource::wanted(spec.config, &ctx.plane),
            join: spec.joins.map(|(_, join)| join),
            identifier: spec.ordinal.to_be_bytes(),
            heritage: match (spec.rekeys, spec.joins) {
                (Some(old), _) => Some(old.heritage()),
                (None, Some((other, join))) => Some(other.heritage_beside(join.cpu, spec.ordinal)),
                (None, None) => None,
            },
            proposals,
            local_ts,
            remote_ts,
            mode,
            nonce: ctx.nonce().into(),
            ke,
            ppks: Vec::new(),
            rekeys: spec.rekeys.map(|old| old.id),
            crossed: None,
            deleted: Vec::new(),
            started: ctx.io.now.mono,
            request: spec.request,
            retry: spec.retry,
        }))
    }
}

/// The method whose public value goes with the request: the one that the peer is known to accept, if it is
/// configured for the child too. `None` in IKE_AUTH, and if the backends have no configured method.
fn first_method(ctx: &Context<'_>, spec: &OfferSpec<'_>) -> Option<KeMethodId> {
    let ike_method = spec.ike_method?;
    let methods = usable_methods(ctx, &spec.config.esp_proposals);
    let first = methods.first().copied();
    if spec.retry.method.is_some() || first == Some(KeMethodId::NONE) {
        // NONE comes first: the configuration prefers children without a key exchange of their own.
        return spec.retry.method.or(first);
    }
    //= https://www.rfc-editor.org/rfc/rfc7296#section-1.3
    //# The Diffie-Hellman group of the KEi MUST be an element of the group
    //# the initiator expects the responder to accept (additional
    //# Diffie-Hellman groups can be proposed).
    let before = spec.rekeys.or(spec.joins.map(|(other, _)| other));
    let known = before.map(|child| child.selected.ke).into_iter().chain([ike_method]);
    let usable = |method: &KeMethodId| *method != KeMethodId::NONE && methods.contains(method);
    known.into_iter().find(usable).or(first)
}

/// The proposals, `method` first. IKE_AUTH leaves key exchanges out, and merges proposals that then do not differ.
fn offered(spec: &OfferSpec<'_>, method: Option<KeMethodId>) -> Vec<ProposalConfig> {
    let configured = &spec.config.esp_proposals;
    let mut offered = Vec::with_capacity(configured.len());
    for proposal in configured {
        let proposal = match (spec.ike_method, method) {
            (None, _) => proposal.without_ke(),
            (Some(_), Some(method)) => proposal.led_by(method),
            (Some(_), None) => proposal.clone(),
        };
        if !offered.contains(&proposal) {
            offered.push(proposal);
        }
    }
    offered
}

/// Fails for a mode that this end cannot use. A rekeyed child may keep its mode.
fn check_mode(ctx: &Context<'_>, name: &str, mode: Mode) -> Result<(), Failure> {
    let why = match mode {
        Mode::Iptfs if !ctx.plane.iptfs => "the data plane has no IP-TFS",
        Mode::Beet => "no notify is registered to ask a peer for BEET mode",
        _ => return Ok(()),
    };
    Err(Failure::Config(format!("child {name:?}: {why}")))
}

/// Offers the packet before the policy that it met.
fn put_first(packet: Flow, local: &mut Vec<TrafficSelector>, remote: &mut Vec<TrafficSelector>) {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
    //# if the
    //# initiator has requested the SA due to a data packet, the
    //# initiator SHOULD include as the first Traffic Selector in each of TSi
    //# and TSr a very specific Traffic Selector including the addresses in
    //# the packet triggering the request.
    let covers = |list: &[TrafficSelector], ts| list.iter().any(|wide| wide.contains(ts));
    // The policy may have changed since then.
    if covers(local, &packet.local) && covers(remote, &packet.remote) {
        for (list, ts) in [(local, packet.local), (remote, packet.remote)] {
            if list.first() != Some(&ts) {
                list.insert(0, ts);
            }
        }
    }
}

/// Key exchange methods of `proposals` that the backends have, in order of preference.
pub(crate) fn usable_methods(ctx: &Context<'_>, proposals: &[ProposalConfig]) -> Vec<KeMethodId> {
    let mut methods = Vec::new();
    for proposal in proposals {
        let mut any = false;
        for method in proposal.ke_methods() {
            any = true;
            if ctx.crypto.ke(method).is_some() && !methods.contains(&method) {
                methods.push(method);
            }
        }
        if !any && !methods.contains(&KeMethodId::NONE) {
            methods.push(KeMethodId::NONE);
        }
    }
    methods
}
