//! Negotiating one Child SA, for IKE_AUTH and CREATE_CHILD_SA alike (RFC 7296 §1.2, §1.3).
//!
//! The initiator makes a [`ChildOffer`] and later `complete_child`s it; the responder does it all in
//! `answer_child`.

use std::sync::Arc;
use std::time::Instant;

use super::mode::{self, Asked, Requirements};
use super::ppk::{self, MixedPpk};
use super::resource::{self, Join};
use super::sa_init::invalid_ke;
use super::{Payloads, Refusal, detail, required};
use crate::child::selectors::narrow;
use crate::child::{ChildSa, Heritage, Phase};
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::config::{ChildConfig, ProposalConfig};
use crate::crypto::{PendingKe, Secret};
use crate::dataplane::{Command, Direction, Flow, Mode, PolicyId, TrafficSelector};
use crate::event::{ChildSaId, Event, Failure, IkeSaId, Path, RequestId};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ChildOffer, Retry, State};
use crate::keys::schedule::ChildKeys;
use crate::wire::payload::{Ke, Payload, Sa, Spi};
use crate::wire::registry::{KeMethodId, NotifyType};

/// Selectors of one end that a peer may ask for beyond the number configured.
const MAX_PIECES: usize = 32;

/// What distinguishes one offer from another.
pub(crate) struct OfferSpec<'a> {
    pub(crate) config: &'a Arc<ChildConfig>,
    /// The child to rekey.
    pub(crate) rekeys: Option<&'a ChildSa>,
    /// The child that it is to be one more of, and for which CPU (RFC 9611).
    pub(crate) joins: Option<(&'a ChildSa, Join)>,
    /// The packet that asks for it.
    pub(crate) packet: Option<Flow>,
    /// False in IKE_AUTH, which has no key exchange for the child (RFC 7296 §1.2).
    pub(crate) with_ke: bool,
    /// What names it to the peer beside others.
    pub(crate) ordinal: u32,
    pub(crate) request: Option<RequestId>,
    pub(crate) retry: Retry,
}

/// Makes an offer; fails if the configuration leaves nothing to offer.
pub(crate) fn offer(
    ctx: &mut Context<'_>,
    ike: IkeSaId,
    path: Path,
    spec: &OfferSpec<'_>,
) -> Result<Box<ChildOffer>, Failure> {
    check_mode(ctx, spec.config)?;
    let id = ctx.ids.child();
    let (local_ts, remote_ts, mode) = match (spec.rekeys, spec.joins) {
        // RFC 7296 §2.9.2: the traffic that flows now must fit the new SA as well.
        (Some(old), _) => (old.local_ts.clone(), old.remote_ts.clone(), old.mode),
        //= RFC 9611 §4
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
            let mut local_ts = resolve(spec.config, path, true);
            let mut remote_ts = resolve(spec.config, path, false);
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
    let methods = usable_methods(ctx, &spec.config.esp_proposals);
    let method = spec.retry.method.or(methods.first().copied()).filter(|_| spec.with_ke);
    let ke = match method.filter(|&method| method != KeMethodId::NONE) {
        None => None,
        Some(method) => {
            let backend = ctx.crypto.ke(method).ok_or(Failure::Crypto)?;
            Some((method, backend.initiate(ctx.rng).map_err(|_| Failure::Crypto)?))
        }
    };
    let spi_in = ctx.ids.esp_spi(ctx.rng, (ike, id));
    let proposals: Vec<_> = (1..)
        .zip(&spec.config.esp_proposals)
        .map(|(number, proposal)| {
            let proposal = if spec.with_ke { proposal.clone() } else { proposal.without_ke() };
            proposal.to_wire(number, Spi::Esp(spi_in))
        })
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

/// Fails for a mode that this end could not use.
fn check_mode(ctx: &Context<'_>, config: &ChildConfig) -> Result<(), Failure> {
    let why = match config.mode {
        Mode::Iptfs if !ctx.plane.iptfs => "the data plane has no IP-TFS",
        Mode::Beet => "no notify is registered to ask a peer for BEET mode",
        _ => return Ok(()),
    };
    Err(Failure::Config(format!("child {:?}: {why}", config.name)))
}

/// Offers the packet before the policy it met.
fn put_first(packet: Flow, local: &mut Vec<TrafficSelector>, remote: &mut Vec<TrafficSelector>) {
    //= RFC 7296 §2.9
    //# if the
    //# initiator has requested the SA due to a data packet, the
    //# initiator SHOULD include as the first Traffic Selector in each of TSi
    //# and TSr a very specific Traffic Selector including the addresses in
    //# the packet triggering the request.
    let covers = |list: &[TrafficSelector], ts| list.iter().any(|wide| wide.contains(ts));
    // The policy may have changed since the packet met it.
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
            let usable = method == KeMethodId::NONE || ctx.crypto.ke(method).is_some();
            if usable && !methods.contains(&method) {
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
    /// What goes in front of SA: the mode, and whether there may be more for the same traffic.
    pub(crate) fn notifies(&self) -> impl Iterator<Item = Payload<'_>> {
        let resource = self.resource().map(resource::payload);
        mode::payload(self.mode, &self.config.processing).into_iter().chain(resource)
    }

    /// The payloads of the offer, in the order of RFC 7296 §1.3.1: SA, \[Ni, \[KEi\]\], TSi, TSr,
    /// after the notifies that go in front.
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

/// A Child SA ready to install.
pub(crate) struct ReadyChild {
    pub(crate) child: ChildSa,
    pub(crate) keys: ChildKeys,
}

/// The responder's result: the child, and what its keys are made of as far as it is known.
pub(crate) struct AnsweredChild {
    pub(crate) child: ChildSa,
    pub(crate) shared: Option<Secret>,
    pub(crate) ke: Option<(KeMethodId, Vec<u8>)>,
}

/// What the responder needs to know of a request for a child.
pub(crate) struct ChildRequest {
    pub(crate) rekeys: Option<ChildSaId>,
    /// False in IKE_AUTH.
    pub(crate) with_ke: bool,
}

impl IkeSa {
    /// Initiator: turns the response to `offer` into a Child SA.
    pub(crate) fn complete_child(
        &self,
        ctx: &mut Context<'_>,
        offer: &ChildOffer,
        payloads: &Payloads<'_, '_>,
        nonces: (&[u8], &[u8]),
        additional: &[Secret],
        ppk: Option<MixedPpk>,
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
            //= RFC 7296 §2.23.1
            //# Do address substitution before using those Traffic Selectors
            //# for anything other than storing original content of them.
            (local_ts, remote_ts) = self.as_seen_here(&local_ts, &remote_ts);
        }
        // RFC 7296 §2.9: the responder may narrow, never widen.
        if !within(&local_ts, &offer.local_ts) || !within(&remote_ts, &offer.remote_ts) {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        let others = self.members(offer)?;
        if let Some(other) = others
            && !(resource::is_asked(payloads)
                && resource::is_alike(other, &selected, mode, &local_ts, &remote_ts))
        {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        let shared = self.complete_ke(ctx, offer.ke.as_ref(), &selected, payloads)?;
        let parts = Parts {
            id: offer.id,
            policy: offer.policy,
            spi_in: offer.spi_in,
            spi_out,
            mode,
            local_ts,
            remote_ts,
            replaces: offer.rekeys,
            per_cpu: offer.per_cpu && resource::is_asked(payloads),
            heritage: offer.heritage.clone(),
            dont_fragment,
            started: offer.started,
        };
        let child = self.unkeyed(ctx, &offer.config, selected, parts);
        let shared: Vec<_> = shared.iter().chain(additional).collect();
        self.keyed(ctx, child, &shared, nonces, ppk)
    }

    /// A child that `offer` is one more of; fails if there is none any more.
    fn members(&self, offer: &ChildOffer) -> Result<Option<&ChildSa>, Refusal> {
        let (Some(join), State::Established(established)) = (offer.join, &self.state) else {
            return Ok(None);
        };
        let other = established.sharing(join.policy).next();
        other.map(Some).ok_or_else(|| NotifyType::NO_ADDITIONAL_SAS.into())
    }

    fn complete_ke(
        &self,
        ctx: &Context<'_>,
        ours: Option<&(KeMethodId, Box<dyn PendingKe>)>,
        selected: &Selected,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<Secret>, Refusal> {
        let ke = payloads.ke()?;
        match (ours, selected.ke) {
            (_, KeMethodId::NONE) if ke.is_none() => Ok(None),
            (Some((method, pending)), chosen) if *method == chosen => {
                let ke = required(ke)?;
                let lengths = ctx.crypto.ke(chosen).map(|method| method.lengths());
                if ke.method != chosen
                    || lengths.is_none_or(|lengths| lengths.responder != ke.data.len())
                {
                    return Err(NotifyType::INVALID_SYNTAX.into());
                }
                pending.complete(ke.data).map(Some).map_err(|_| NotifyType::INVALID_SYNTAX.into())
            }
            _ => Err(NotifyType::INVALID_SYNTAX.into()),
        }
    }

    /// Responder: judges a request for a child and makes it. The log hears what does not fit.
    pub(crate) fn answer_child(
        &self,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
        request: &ChildRequest,
        old: Option<&ChildSa>,
    ) -> Result<AnsweredChild, Refusal> {
        let answer = self.make_child(ctx, payloads, request, old);
        if let Err(refusal) = &answer
            && let Some(why) = detail::child(&self.connection.children, payloads, refusal)
        {
            let remote_id = match &self.state {
                State::Established(established) => Some(established.remote_id.clone()),
                _ => None,
            };
            ctx.event(Event::ChildRefused { ike: self.id, remote_id, why });
        }
        answer
    }

    fn make_child(
        &self,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
        request: &ChildRequest,
        old: Option<&ChildSa>,
    ) -> Result<AnsweredChild, Refusal> {
        let started = ctx.now.mono;
        let sa = &required(payloads.sa()?)?.with_spi(Spi::is_usable);
        let ts_i = required(payloads.ts_i()?)?;
        let ts_r = required(payloads.ts_r()?)?;
        let asked = Asked::read(payloads);
        let transport = asked == Asked::Transport && ctx.plane.transport_mode;
        let (mode, chosen) = self.choose_mode(old, ts_r, ts_i, transport)?;
        let (config, local_ts, remote_ts) = chosen;
        let (mode, dont_fragment) = match asked {
            Asked::Aggfrag(Requirements::Met { dont_fragment })
                if ctx.plane.iptfs && config.mode == Mode::Iptfs =>
            {
                (Mode::Iptfs, dont_fragment)
            }
            _ => (mode, false),
        };
        let options = SelectOptions {
            ignore_ke: !request.with_ke,
            intermediate: self.extensions.intermediate,
        };
        let selected = proposal::select(&config.esp_proposals, sa, options)
            .filter(|selected| ctx.crypto.ciphers.lengths(selected.suite).is_some())
            .ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        let Spi::Esp(spi_out) = selected.spi else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        let place = match resource::is_asked(payloads) && old.is_none() {
            true => self.place(ctx, &config, (&selected, mode), &local_ts, &remote_ts)?,
            false => None,
        };
        let mut reply_ke = None;
        let mut shared = None;
        if request.with_ke && selected.ke != KeMethodId::NONE {
            let (public, secret) = respond_ke(ctx, selected.ke, payloads)?;
            reply_ke = Some((selected.ke, public));
            shared = Some(secret);
        }
        let id = ctx.ids.child();
        let parts = Parts {
            id,
            policy: match (old, &place) {
                (Some(old), _) => old.policy,
                (None, Some((policy, _))) => *policy,
                (None, None) => ctx.ids.policy(),
            },
            spi_in: ctx.ids.esp_spi(ctx.rng, (self.id, id)),
            spi_out,
            mode,
            local_ts,
            remote_ts,
            replaces: request.rekeys,
            per_cpu: resource::is_asked(payloads) && resource::wanted(&config, &ctx.plane),
            heritage: match old {
                Some(old) => Some(old.heritage()),
                None => place.map(|(_, heritage)| heritage),
            },
            dont_fragment,
            started,
        };
        let child = self.unkeyed(ctx, &config, selected, parts);
        Ok(AnsweredChild { child, shared, ke: reply_ke })
    }

    /// The place of a child that the peer wants one more of; `None` if it is the first.
    fn place(
        &self,
        ctx: &Context<'_>,
        config: &ChildConfig,
        (selected, mode): (&Selected, Mode),
        local_ts: &[TrafficSelector],
        remote_ts: &[TrafficSelector],
    ) -> Result<Option<(PolicyId, Heritage)>, Refusal> {
        let State::Established(established) = &self.state else { return Ok(None) };
        let Some(other) = established.sibling(config, local_ts, remote_ts) else { return Ok(None) };
        let place = established.place_beside(other, &ctx.plane)?;
        if !resource::is_alike(other, selected, mode, local_ts, remote_ts) {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        let heritage = other.heritage_beside(place.cpu, place.ordinal);
        Ok(Some((other.policy, heritage)))
    }

    /// Transport mode if it is asked for and configured, else tunnel mode.
    fn choose_mode(
        &self,
        old: Option<&ChildSa>,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        transport: bool,
    ) -> Result<(Mode, Chosen), Refusal> {
        if transport {
            let (local, remote) = self.as_seen_here(local, remote);
            if let Ok(chosen) = self.choose_child(old, &local, &remote)
                && chosen.0.mode == Mode::Transport
            {
                return Ok((Mode::Transport, chosen));
            }
        }
        self.choose_child(old, local, remote).map(|chosen| (Mode::Tunnel, chosen))
    }

    /// Selectors of transport mode, with the addresses of the IKE SA in the place of those that a NAT
    /// changes on the way (RFC 7296 §2.23.1).
    fn as_seen_here(
        &self,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
        let Path { local: here, remote: there, .. } = self.path;
        let local = translated(local, self.nat.local, here.ip().to_canonical());
        (local, translated(remote, self.nat.remote, there.ip().to_canonical()))
    }

    /// The child configuration that takes the request's first selectors in full, else the first one
    /// whose selectors meet the request's at all; and what is left of them.
    fn choose_child(
        &self,
        old: Option<&ChildSa>,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> Result<Chosen, Refusal> {
        if let Some(old) = old {
            let local_ts = few(narrow(&old.local_ts, local), &old.local_ts);
            let remote_ts = few(narrow(&old.remote_ts, remote), &old.remote_ts);
            if !local_ts.is_empty() && !remote_ts.is_empty() {
                return Ok((Arc::clone(&old.config), local_ts, remote_ts));
            }
        }
        let mut second_best = None;
        for config in &self.connection.children {
            if old.is_some_and(|old| old.config.name != config.name) {
                continue;
            }
            let ours = resolve(config, self.path, true);
            let local_ts = few(narrow(&ours, local), &ours);
            let ours = resolve(config, self.path, false);
            let remote_ts = few(narrow(&ours, remote), &ours);
            if local_ts.is_empty() || remote_ts.is_empty() {
                continue;
            }
            //= RFC 7296 §2.9
            //# If the responder's policy allows it to accept the first selector
            //# of TSi and TSr, then the responder MUST narrow the Traffic
            //# Selectors to a subset that includes the initiator's first
            //# choices.
            let best = takes_first(&local_ts, local) && takes_first(&remote_ts, remote);
            let chosen = (Arc::clone(config), local_ts, remote_ts);
            if best {
                return Ok(chosen);
            }
            second_best.get_or_insert(chosen);
        }
        second_best.ok_or_else(|| NotifyType::TS_UNACCEPTABLE.into())
    }

    /// Derives the keys of `child` from the shared secrets of its key exchanges, in their order, and its
    /// PPK (RFC 7296 §2.17, RFC 9370 §2.2.4, RFC 9867 §3.2.1).
    pub(crate) fn keyed(
        &self,
        ctx: &Context<'_>,
        mut child: ChildSa,
        shared: &[&Secret],
        (ni, nr): (&[u8], &[u8]),
        ppk: Option<MixedPpk>,
    ) -> Result<ReadyChild, Refusal> {
        let suite = child.selected.suite;
        let lengths = ctx.crypto.ciphers.lengths(suite).ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        let session = &self.session;
        let sk_d = ppk.as_ref().map_or(&session.keys.d, |ppk| &ppk.sk_d);
        let keys = ChildKeys::derive(session.prf, sk_d, shared, ni, nr, &lengths);
        child.ppk = ppk.map(|ppk| ppk.id);
        Ok(ReadyChild { child, keys })
    }

    fn unkeyed(
        &self,
        ctx: &mut Context<'_>,
        config: &Arc<ChildConfig>,
        selected: Selected,
        parts: Parts,
    ) -> ChildSa {
        let mut heritage = match parts.heritage {
            Some(heritage) => heritage,
            None => {
                let mut processing = ctx.processing(&self.connection, config, self.if_ids);
                if processing.per_cpu != parts.per_cpu {
                    Arc::make_mut(&mut processing).per_cpu = parts.per_cpu;
                }
                Heritage { processing, line: None, cpu: None, ordinal: 0 }
            }
        };
        let dont_frag = parts.dont_fragment || config.processing.iptfs.dont_frag;
        if parts.mode == Mode::Iptfs && heritage.processing.iptfs.dont_frag != dont_frag {
            Arc::make_mut(&mut heritage.processing).iptfs.dont_frag = dont_frag;
        }
        let Heritage { processing, line, cpu, ordinal } = heritage;
        let behind_nat = self.nat.local || self.nat.remote;
        let owner = match &self.state {
            State::Established(established) => {
                format!("{} [{}]", self.connection.name, established.remote_id)
            }
            _ => self.connection.name.clone(),
        };
        ChildSa {
            id: parts.id,
            config: Arc::clone(config),
            phase: Phase::Installing,
            policy: parts.policy,
            owner,
            selected,
            ppk: None,
            mode: parts.mode,
            processing,
            line: line.unwrap_or(parts.id),
            cpu,
            ordinal,
            spi_in: parts.spi_in,
            spi_out: parts.spi_out,
            local: self.path.local.ip(),
            remote: self.path.remote.ip(),
            encap: ChildSa::encap_on(self.path, behind_nat),
            local_ts: parts.local_ts,
            remote_ts: parts.remote_ts,
            pending_out: None,
            half_closed: false,
            routed: false,
            replaces: parts.replaces,
            started: parts.started,
            installed: ctx.now.mono,
            setup_time: std::time::Duration::ZERO,
            rekey_at: None,
            expires_at: None,
        }
    }
}

/// The mode that a peer granted which was asked for `wanted`, and whether it wants no inner packet to be
/// split.
fn granted(wanted: Mode, answer: Asked) -> Result<(Mode, bool), Refusal> {
    match (answer, wanted) {
        // Tunnel mode is what there is without a word of another.
        (Asked::Tunnel, _) => Ok((Mode::Tunnel, false)),
        (Asked::Transport, Mode::Transport) => Ok((Mode::Transport, false)),
        (Asked::Aggfrag(Requirements::Met { dont_fragment }), Mode::Iptfs) => {
            Ok((Mode::Iptfs, dont_fragment))
        }
        // The peer uses AGGFRAG payloads now, in a way that this end cannot: the SA has to go.
        (Asked::Aggfrag(Requirements::Beyond), Mode::Iptfs) => {
            Err(NotifyType::NO_PROPOSAL_CHOSEN.into())
        }
        _ => Err(NotifyType::INVALID_SYNTAX.into()),
    }
}

/// A child configuration, and the narrowed selectors of this end and of the peer.
type Chosen = (Arc<ChildConfig>, Vec<TrafficSelector>, Vec<TrafficSelector>);

struct Parts {
    id: ChildSaId,
    policy: PolicyId,
    spi_in: u32,
    spi_out: u32,
    mode: Mode,
    local_ts: Vec<TrafficSelector>,
    remote_ts: Vec<TrafficSelector>,
    replaces: Option<ChildSaId>,
    /// Both ends take more than one for the same traffic.
    per_cpu: bool,
    heritage: Option<Heritage>,
    /// The peer takes no split packets.
    dont_fragment: bool,
    started: Instant,
}

impl ReadyChild {
    /// Both halves and, if traffic is to be sent through it by the policy, that; inbound first.
    /// `initiator` is true at the end that asked.
    pub(crate) fn install_all(self, initiator: bool, routed: bool) -> (ChildSa, Vec<Command>) {
        let Self { mut child, keys } = self;
        let (inbound, outbound) = if initiator {
            (keys.responder, keys.initiator)
        } else {
            (keys.initiator, keys.responder)
        };
        child.routed = routed;
        let mut batch = vec![
            Command::InstallSa(child.spec(Direction::In, inbound)),
            Command::InstallSa(child.spec(Direction::Out, outbound)),
        ];
        batch.extend(routed.then(|| child.install_policy()));
        (child, batch)
    }

    /// The inbound half; the outbound one waits in the child until the peer uses the new SA
    /// (RFC 7296 §2.8).
    pub(crate) fn install_inbound(self, initiator: bool) -> (ChildSa, Vec<Command>) {
        let Self { mut child, keys } = self;
        let (inbound, outbound) = if initiator {
            (keys.responder, keys.initiator)
        } else {
            (keys.initiator, keys.responder)
        };
        let batch = vec![Command::InstallSa(child.spec(Direction::In, inbound))];
        child.pending_out = Some(child.spec(Direction::Out, outbound));
        (child, batch)
    }
}

/// Responder's half of the key exchange of a child or an IKE rekey.
pub(crate) fn respond_ke(
    ctx: &mut Context<'_>,
    chosen: KeMethodId,
    payloads: &Payloads<'_, '_>,
) -> Result<(Vec<u8>, Secret), Refusal> {
    let method = ctx.crypto.ke(chosen).ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
    match payloads.ke()? {
        Some(ke) if ke.method == chosen => {
            if ke.data.len() != method.lengths().initiator {
                return Err(NotifyType::INVALID_SYNTAX.into());
            }
            method.respond(ke.data, ctx.rng).map_err(|_| NotifyType::INVALID_SYNTAX.into())
        }
        // RFC 7296 §1.3: names the method that was chosen instead.
        _ => Err(invalid_ke(chosen)),
    }
}

/// The selectors of one end of `config`, with this path's addresses for `dynamic`.
pub(crate) fn resolve(config: &ChildConfig, path: Path, local: bool) -> Vec<TrafficSelector> {
    let (specs, host) = if local {
        (&config.local_ts, path.local.ip())
    } else {
        (&config.remote_ts, path.remote.ip())
    };
    specs.iter().map(|spec| spec.resolve(host.to_canonical())).collect()
}

/// Cuts off what a peer adds by splitting `configured` into pieces: every pair of selectors is an entry
/// of the SPD and every remote one a route. A responder may narrow (RFC 7296 §2.9).
fn few(mut narrowed: Vec<TrafficSelector>, configured: &[TrafficSelector]) -> Vec<TrafficSelector> {
    narrowed.truncate(configured.len().max(MAX_PIECES));
    narrowed
}

/// `selectors` with `address` in the place of their only one, if a NAT is in front of it. Those of
/// several addresses are not of transport mode and stay what they are.
fn translated(
    selectors: &[TrafficSelector],
    nat: bool,
    address: std::net::IpAddr,
) -> Vec<TrafficSelector> {
    let first = selectors.first().map(|ts| ts.start);
    let single = |ts: &TrafficSelector| Some(ts.start) == first && ts.start == ts.end;
    let mut selectors = selectors.to_vec();
    if nat && selectors.iter().all(single) {
        for ts in &mut selectors {
            (ts.start, ts.end) = (address, address);
        }
    }
    selectors
}

/// True if the first selector of `offered` is left in full.
fn takes_first(narrowed: &[TrafficSelector], offered: &[TrafficSelector]) -> bool {
    offered.first().is_some_and(|first| narrowed.iter().any(|ts| ts.contains(first)))
}

/// True if every selector of `inner` lies within one of `outer`.
fn within(inner: &[TrafficSelector], outer: &[TrafficSelector]) -> bool {
    !inner.is_empty() && inner.iter().all(|ts| outer.iter().any(|wide| wide.contains(ts)))
}
