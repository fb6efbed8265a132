//! Negotiating one Child SA, for IKE_AUTH and CREATE_CHILD_SA alike (RFC 7296 §1.2, §1.3).
//!
//! The initiator makes a [`ChildOffer`] and later `complete_child`s it; the responder does it all in
//! `answer_child`.

use std::sync::Arc;
use std::time::Instant;

use super::ppk::{self, MixedPpk};
use super::sa_init::invalid_ke;
use super::{Payloads, Refusal, detail, required};
use crate::child::selectors::narrow;
use crate::child::{ChildSa, Phase};
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::config::{ChildConfig, ProposalConfig};
use crate::crypto::{PendingKe, Secret};
use crate::dataplane::{Command, Direction, Flow, Mode, PolicyId, TrafficSelector};
use crate::event::{ChildSaId, Event, Failure, IkeSaId, Path, RequestId};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ChildOffer, Retry, State};
use crate::keys::schedule::ChildKeys;
use crate::wire::payload::{Ke, Notify, Payload, Sa, Spi};
use crate::wire::registry::{KeMethodId, NotifyType};

/// Selectors of one end that a peer may ask for beyond the number configured.
const MAX_PIECES: usize = 32;

/// What distinguishes one offer from another.
pub(crate) struct OfferSpec<'a> {
    pub(crate) config: &'a Arc<ChildConfig>,
    /// The child to rekey.
    pub(crate) rekeys: Option<&'a ChildSa>,
    /// The packet that asks for it.
    pub(crate) packet: Option<Flow>,
    /// False in IKE_AUTH, which has no key exchange for the child (RFC 7296 §1.2).
    pub(crate) with_ke: bool,
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
    let id = ctx.ids.child();
    let (local_ts, remote_ts, mode) = match spec.rekeys {
        // RFC 7296 §2.9.2: the traffic that flows now must fit the new SA as well.
        Some(old) => (old.local_ts.clone(), old.remote_ts.clone(), old.mode),
        None => {
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
        policy: spec.rekeys.map_or_else(|| ctx.ids.policy(), |old| old.policy),
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
    /// The payloads of the offer, in the order of RFC 7296 §1.3.1: SA, \[Ni, \[KEi\]\], TSi, TSr,
    /// after the notifies that go in front.
    pub(crate) fn payloads(&self, with_nonce: bool) -> Vec<Payload<'_>> {
        let mut payloads = Vec::with_capacity(8);
        if self.mode == Mode::Transport {
            payloads.push(Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, &[])));
        }
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
        ctx: &Context<'_>,
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
        let transport = payloads.notify(NotifyType::USE_TRANSPORT_MODE).is_some();
        if transport {
            //= RFC 7296 §2.23.1
            //# Do address substitution before using those Traffic Selectors
            //# for anything other than storing original content of them.
            (local_ts, remote_ts) = self.as_seen_here(&local_ts, &remote_ts);
        }
        // RFC 7296 §2.9: the responder may narrow, never widen.
        if !within(&local_ts, &offer.local_ts) || !within(&remote_ts, &offer.remote_ts) {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        if transport && offer.mode != Mode::Transport {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
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
            started: offer.started,
        };
        let child = self.unkeyed(ctx, &offer.config, selected, parts);
        let shared: Vec<_> = shared.iter().chain(additional).collect();
        self.keyed(ctx, child, &shared, nonces, ppk)
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
        let transport = payloads.notify(NotifyType::USE_TRANSPORT_MODE).is_some();
        let transport = transport && ctx.plane.transport_mode;
        let (mode, chosen) = self.choose_mode(old, ts_r, ts_i, transport)?;
        let (config, local_ts, remote_ts) = chosen;
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
            policy: old.map_or_else(|| ctx.ids.policy(), |old| old.policy),
            spi_in: ctx.ids.esp_spi(ctx.rng, (self.id, id)),
            spi_out,
            mode,
            local_ts,
            remote_ts,
            replaces: request.rekeys,
            started,
        };
        let child = self.unkeyed(ctx, &config, selected, parts);
        Ok(AnsweredChild { child, shared, ke: reply_ke })
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
        ctx: &Context<'_>,
        config: &Arc<ChildConfig>,
        selected: Selected,
        parts: Parts,
    ) -> ChildSa {
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
    started: Instant,
}

impl ReadyChild {
    /// Both halves and the policy, inbound first. `initiator` is true at the end that asked.
    pub(crate) fn install_all(self, initiator: bool) -> (ChildSa, Vec<Command>) {
        let Self { mut child, keys } = self;
        let (inbound, outbound) = if initiator {
            (keys.responder, keys.initiator)
        } else {
            (keys.initiator, keys.responder)
        };
        child.routed = true;
        let batch = vec![
            Command::InstallSa(child.spec(Direction::In, inbound)),
            Command::InstallSa(child.spec(Direction::Out, outbound)),
            child.install_policy(),
        ];
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
