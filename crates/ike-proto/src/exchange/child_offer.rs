//! Requesting a Child SA: the initiator makes a [`ChildOffer`] and later calls `complete_child`, in IKE_AUTH and
//! CREATE_CHILD_SA alike (RFC 7296 §1.2, §1.3).

use std::net::IpAddr;
use std::sync::Arc;

use super::child_sa::{KeyMaterial, Parts, ReadyChild};
use super::config::resolve;
use super::key_exchange::Undone;
use super::mode::{self, Asked, Requirements};
use super::ppk;
use super::resource::{self, Join};
use super::{Payloads, Refusal, required, tfc};
use crate::child::ChildSa;
use crate::child::processing::Asker;
use crate::child::selectors::{is_whole, narrow};
use crate::config::proposal::{self, Selected};
use crate::config::{ChildConfig, ProposalConfig};
use crate::crypto::{PendingKe, Secret};
use crate::dataplane::{Flow, Mode, TrafficSelector};
use crate::event::{Event, Failure, Hint, IkeSaId, Path, RequestId};
use crate::ike_sa::Core;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ChildOffer, Established, Retry};
use crate::question::Exchange;
use crate::wire::payload::{Ke, Payload, Sa, Spi};
use crate::wire::registry::{KeMethodId, NotifyType};

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

/// Makes an offer. Fails if the configuration leaves nothing to offer.
pub(crate) fn offer(
    ctx: &mut Context<'_>,
    ike: IkeSaId,
    path: Path,
    spec: &OfferSpec<'_>,
) -> Result<Box<ChildOffer>, NoOffer> {
    let id = ctx.ids.child();
    let (local_ts, remote_ts, mode) = match (spec.rekeys, spec.joins) {
        // RFC 7296 §2.9.2: the new SA must fit the present traffic as well.
        (Some(old), _) => (old.local_ts.clone(), old.remote_ts.clone(), old.mode),
        //= https://www.rfc-editor.org/rfc/rfc9611#section-4
        //# the Traffic Selector (TSi) entry
        //# containing the information of the trigger packet should be included
        //# in the TS set similarly to regular Child SAs
        (None, Some((other, _))) => {
            let (mut local_ts, mut remote_ts) = (other.local_ts.clone(), other.remote_ts.clone());
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
                    remote_ts = narrow(&remote_ts, &[TrafficSelector::host(packet.remote.start)]);
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
    let spi_in = ctx.ids.esp_spi(ctx.rng, (ike, id));
    let proposals: Vec<_> = (1..)
        .zip(offered(spec, method))
        .map(|(number, proposal)| proposal.to_wire(number, Spi::Esp(spi_in)))
        .collect();
    Ok(Box::new(ChildOffer {
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
        started: ctx.now.mono,
        request: spec.request,
        retry: spec.retry,
    }))
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

impl ChildOffer {
    /// The notifies before SA: the mode, and whether further children for the same traffic are possible.
    pub(crate) fn notifies(&self) -> impl Iterator<Item = Payload<'_>> {
        let resource = self.resource().map(resource::payload);
        let mode = mode::payload(self.mode, &self.config.processing);
        mode.into_iter().chain(tfc::payload(self.mode)).chain(resource)
    }

    /// The payloads of the offer, in the order of RFC 7296 §1.3.1: SA, \[Ni, \[KEi\]\], TSi, TSr, after the
    /// notifies.
    pub(crate) fn payloads(&self, with_nonce: bool) -> Vec<Payload<'_>> {
        let mut payloads = Vec::with_capacity(8);
        payloads.extend(self.notifies());
        payloads.push(Payload::Sa(Sa { proposals: self.proposals.clone() }));
        if with_nonce {
            payloads.push(Payload::Nonce(&self.nonce));
            if let Some((method, ke)) = &self.ke {
                payloads.push(Payload::Ke(Ke { method: *method, data: ke.public() }));
            }
        }
        payloads.push(Payload::TsI(self.local_ts.clone()));
        payloads.push(Payload::TsR(self.remote_ts.clone()));
        payloads.extend(ppk::offer_payloads(&self.ppks));
        payloads
    }
}

impl Established {
    /// Initiator: turns the response to `offer` into a Child SA. `material` has the secrets of the exchanges after the
    /// first one.
    pub(crate) fn complete_child(
        &self,
        core: &Core,
        ctx: &mut Context<'_>,
        offer: &ChildOffer,
        payloads: &Payloads<'_, '_>,
        material: KeyMaterial<'_>,
    ) -> Result<ReadyChild, Refusal> {
        let sa = required(payloads.sa()?)?;
        let selected = proposal::accept(&offer.proposals, sa)
            .map_err(|_| Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN))?;
        let Spi::Esp(spi_out) = selected.spi else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        if !selected.spi.is_usable() {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        let mut local_ts = required(payloads.ts_i()?)?.clone();
        let mut remote_ts = required(payloads.ts_r()?)?.clone();
        let (mode, dont_fragment) = granted(offer.mode, Asked::read(payloads))?;
        if mode == Mode::Transport {
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.23.1
            //# Do address substitution before using those Traffic Selectors
            //# for anything other than storing original content of them.
            (local_ts, remote_ts) = core.as_seen_here(&local_ts, &remote_ts);
        }
        // RFC 7296 §2.9: the responder may narrow and must not widen. If it does widen, this end uses the
        // selectors that it has requested, because its policy lets nothing else through.
        if !within(&local_ts, &offer.local_ts) || !within(&remote_ts, &offer.remote_ts) {
            let own = (narrow(&offer.local_ts, &local_ts), narrow(&offer.remote_ts, &remote_ts));
            if own.0.is_empty() || own.1.is_empty() {
                return Err(NotifyType::TS_UNACCEPTABLE.into());
            }
            let answered = (std::mem::take(&mut local_ts), std::mem::take(&mut remote_ts));
            let child = offer.config.name.clone();
            (local_ts, remote_ts) = own.clone();
            let hint = Hint::SelectorsTooWide { ike: core.id, child, answered, used: own };
            ctx.event(Event::Hint(Box::new(hint)));
        }
        // The offer in IKE_AUTH was made before the peer's certificate was known.
        remote_ts = self.identity.narrow_to_certified(remote_ts);
        if remote_ts.is_empty() {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        // RFC 7296 §2.9.2: a rekey makes no child for less. What it left out would leave without protection.
        if offer.rekeys.is_some()
            && !is_whole((&local_ts, &remote_ts), (&offer.local_ts, &offer.remote_ts))
        {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        if offer.heritage.is_none() {
            local_ts = self.narrow_to_own(core, &offer.config, mode, local_ts);
            if local_ts.is_empty() {
                return Err(NotifyType::TS_UNACCEPTABLE.into());
            }
        }
        if let Some(other) = self.members(offer)? {
            // For a rekeyed child nothing is said (RFC 9611 §3).
            let said = offer.rekeys.is_some() || resource::is_asked(payloads);
            if !(said && resource::is_alike(other, &selected, mode, &local_ts, &remote_ts)) {
                return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
            }
            (local_ts, remote_ts) = (other.local_ts.clone(), other.remote_ts.clone());
        }
        let per_cpu = offer.per_cpu && resource::is_asked(payloads);
        // Both ends may have requested the first child at once. Then there are two, which share one policy.
        let other = match per_cpu && offer.heritage.is_none() {
            true => self.children.same_traffic(&offer.config, &local_ts, &remote_ts),
            false => None,
        };
        let beside = other.map(|other| (other.policy, other.heritage_beside(None, 0)));
        let (policy, heritage) = match beside {
            Some((policy, heritage)) => (policy, Some(heritage)),
            None => (offer.policy, offer.heritage.clone()),
        };
        let shared = core.complete_ke(ctx, offer.ke.as_ref(), &selected, payloads)?;
        let parts = Parts {
            id: offer.id,
            policy,
            spi_in: offer.spi_in,
            spi_out,
            mode,
            local_ts,
            remote_ts,
            replaces: offer.rekeys,
            per_cpu,
            heritage,
            dont_fragment,
            takes_tfc: tfc::is_taken(payloads),
            asker: core.asker(offer.packet),
            started: offer.started,
        };
        let child = self.unkeyed(core, ctx, &offer.config, selected, parts)?;
        let shared: Vec<_> = shared.iter().chain(material.shared.iter().copied()).collect();
        self.keyed(core, ctx, child, KeyMaterial { shared: &shared, ..material })
    }

    /// The child beside which `offer` is a further one, or which it replaces. Fails if there is none any more.
    fn members(&self, offer: &ChildOffer) -> Result<Option<&ChildSa>, Refusal> {
        let Some(join) = offer.join else {
            let rekeyed = |child: &&ChildSa| Some(child.id) == offer.rekeys;
            let old = self.children.iter().find(rekeyed);
            return Ok(old.filter(|old| old.processing.per_cpu));
        };
        let other = self.children.sharing(join.policy).next();
        other.map(Some).ok_or_else(|| NotifyType::NO_ADDITIONAL_SAS.into())
    }
}

impl Core {
    /// The role for choosing numbers: this end, or this end for `packet`.
    pub(crate) fn asker(&self, packet: Option<Flow>) -> Asker {
        if self.renews || packet.is_some() { Asker::Trap } else { Asker::Us }
    }

    fn complete_ke(
        &self,
        ctx: &Context<'_>,
        ours: Option<&(KeMethodId, Arc<dyn PendingKe>)>,
        selected: &Selected,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<Secret>, Refusal> {
        let ke = payloads.ke()?;
        match (ours, selected.ke) {
            (_, KeMethodId::NONE) if ke.is_none() => Ok(None),
            (Some((method, half)), chosen) if *method == chosen => {
                let ke = required(ke)?;
                if ke.method != chosen {
                    return Err(NotifyType::INVALID_SYNTAX.into());
                }
                let shared = ctx.complete(chosen, half, ke.data);
                shared.map(Some).map_err(|_| NotifyType::INVALID_SYNTAX.into())
            }
            _ => Err(NotifyType::INVALID_SYNTAX.into()),
        }
    }
}

/// The mode that a peer has granted after a request for `wanted`, and whether the peer refuses split inner
/// packets.
fn granted(wanted: Mode, answer: Asked) -> Result<(Mode, bool), Refusal> {
    match (answer, wanted) {
        // Without a notify the mode is tunnel mode.
        (Asked::Tunnel, _) => Ok((Mode::Tunnel, false)),
        (Asked::Transport, Mode::Transport) => Ok((Mode::Transport, false)),
        (Asked::Aggfrag(Requirements::Met { dont_fragment }), Mode::Iptfs) => {
            Ok((Mode::Iptfs, dont_fragment))
        }
        // The peer uses AGGFRAG payloads now, in a way that this end does not support. The SA has to end.
        (Asked::Aggfrag(Requirements::Beyond), Mode::Iptfs) => {
            Err(NotifyType::NO_PROPOSAL_CHOSEN.into())
        }
        _ => Err(NotifyType::INVALID_SYNTAX.into()),
    }
}

/// True if every selector of `inner` lies within one of `outer`.
pub(super) fn within(inner: &[TrafficSelector], outer: &[TrafficSelector]) -> bool {
    !inner.is_empty() && inner.iter().all(|ts| outer.iter().any(|wide| wide.contains(ts)))
}
