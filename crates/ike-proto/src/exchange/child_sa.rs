//! Negotiating one Child SA, for IKE_AUTH and CREATE_CHILD_SA alike (RFC 7296 §1.2, §1.3).
//!
//! [`requested_child`](super::requested_child) has the initiator's request. The responder does everything in
//! `answer_child`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::key_exchange::{Halt, Undone};
use super::mode::{Asked, Requirements};
use super::ppk::MixedPpk;
use super::resource;
use super::sa_init::invalid_ke;
use super::{Payloads, Refusal, detail, required, tfc};
use crate::channel::Channel;
use crate::child::processing::{Asker, NoneLeft};
use crate::child::selectors::{is_whole, narrow};
use crate::child::{ChildSa, Heritage, Phase};
use crate::config::ChildConfig;
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::crypto::Secret;
use crate::dataplane::{Command, Direction, Mode, PolicyId, TrafficSelector};
use crate::event::{ChildSaId, Event};
use crate::exchange::mobike::Ends;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::Established;
use crate::ike_sa::{Children, Identity, Seen};
use crate::keys::{ChildKeys, Nonces};
use crate::wire::payload::Spi;
use crate::wire::registry::{KeMethodId, NotifyType};

/// Selectors of one end that a peer may request beyond the configured number.
const MAX_PIECES: usize = 32;

/// A Child SA that is ready to be installed.
pub(crate) struct ReadyChild {
    pub(crate) child: ChildSa,
    pub(crate) keys: ChildKeys,
}

/// The responder's result: the child, and the material of its keys as far as it is known.
pub(crate) struct AnsweredChild {
    pub(crate) child: ChildSa,
    pub(crate) shared: Option<Secret>,
    pub(crate) ke: Option<(KeMethodId, Vec<u8>)>,
}

/// The responder's view of a request for a child.
pub(crate) struct ChildRequest {
    pub(crate) rekeys: Option<ChildSaId>,
    /// False in IKE_AUTH.
    pub(crate) with_ke: bool,
}

/// What the keys of a new child are made of, beside SK_d.
pub(crate) struct KeyMaterial<'a> {
    /// The shared secrets of its key exchanges, in their order.
    pub(super) shared: &'a [&'a Secret],
    pub(super) nonces: Nonces<'a>,
    /// The PPK of the exchange.
    pub(super) ppk: Option<MixedPpk>,
}

impl Established {
    /// Responder: judges a request for a child and makes the child. The log gets what does not fit.
    pub(crate) fn answer_child(
        &self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
        request: &ChildRequest,
        old: Option<&ChildSa>,
    ) -> Result<AnsweredChild, Halt> {
        let answer = self.make_child(seen, ctx, payloads, request, old);
        if let Err(Halt::Refuse(refusal)) = &answer
            && let connection = ctx.present_connection(seen, self.identity.authenticated())
            && let Some(mut why) = detail::child(&connection.children, payloads, refusal)
        {
            let remote_id = Some(self.identity.remote_id().clone());
            if refusal.kind == NotifyType::TS_UNACCEPTABLE
                && self.identity.has_certified_addresses()
            {
                why.push_str("; the peer's certificate limits its addresses (RFC 3779)");
            }
            ctx.io.event(Event::ChildRefused { ike: seen.channel.link().id(), remote_id, why });
        }
        answer
    }

    fn make_child(
        &self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
        request: &ChildRequest,
        old: Option<&ChildSa>,
    ) -> Result<AnsweredChild, Halt> {
        let started = ctx.io.now.mono;
        let sa = &*required(payloads.sa()?)?.with_spi(Spi::is_usable);
        let ts_i = required(payloads.ts_i()?)?;
        let ts_r = required(payloads.ts_r()?)?;
        let asked = Asked::read(payloads);
        let transport = asked == Asked::Transport && ctx.plane.transport_mode;
        let connection = ctx.present_connection(seen, self.identity.authenticated());
        let source = match old {
            Some(old) => Source::Rekey(old),
            None => Source::Configured(&connection.children),
        };
        let (mode, chosen) = self.choose_mode(seen, source, ts_r, ts_i, transport)?;
        let (config, local_ts, remote_ts) = chosen;
        let (mode, dont_fragment) = match asked {
            Asked::Aggfrag(Requirements::Met { dont_fragment })
                if ctx.plane.iptfs && config.mode == Mode::Iptfs =>
            {
                (Mode::Iptfs, dont_fragment)
            }
            _ => (mode, false),
        };
        // RFC 9370 §2.2.1 requires IKE_INTERMEDIATE for IKE_SA_INIT only.
        let sent = payloads.ke()?.map(|ke| ke.method);
        let options = SelectOptions { ignore_ke: !request.with_ke, intermediate: true, sent };
        let kin = old.filter(|old| old.processing.per_cpu);
        let beside = match resource::is_asked(payloads) && old.is_none() {
            true => self.children.same_traffic(&config, &local_ts, &remote_ts),
            false => None,
        };
        // The suite of the others counts more than the preference of this end.
        let alike = kin.or(beside).map(|other| resource::alike(sa, &other.selected));
        let selected = alike
            .and_then(|alike| proposal::select(&config.esp_proposals, &alike, options))
            .or_else(|| proposal::select(&config.esp_proposals, sa, options))
            .filter(|selected| ctx.crypto.ciphers.lengths(selected.suite).is_some())
            .ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        let Spi::Esp(spi_out) = selected.spi else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        if kin.is_some_and(|old| !resource::is_alike(old, &selected, mode, &local_ts, &remote_ts)) {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
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
        let spi_in = ctx.ids.esp_spi(ctx.io.rng, (seen.channel.link().id(), id));
        let terms = Terms {
            id,
            policy: match (old, &place) {
                (Some(old), _) => old.policy,
                (None, Some((policy, _))) => *policy,
                (None, None) => ctx.ids.policy(),
            },
            spi_in,
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
            takes_tfc: tfc::is_taken(payloads),
            asker: Asker::Peer,
            started,
        };
        let child = terms
            .unkeyed(seen, &self.identity, ctx, &config, selected)
            .inspect_err(|_| ctx.ids.esp.remove(&spi_in))?;
        Ok(AnsweredChild { child, shared, ke: reply_ke })
    }

    /// The place of a further child for the same traffic; `None` for the first one.
    fn place(
        &self,
        ctx: &Context<'_>,
        config: &ChildConfig,
        (selected, mode): (&Selected, Mode),
        local_ts: &[TrafficSelector],
        remote_ts: &[TrafficSelector],
    ) -> Result<Option<(PolicyId, Heritage)>, Refusal> {
        let Some(other) = self.children.sibling(config, local_ts, remote_ts) else {
            return Ok(None);
        };
        let place = self.places().beside(other, &ctx.plane)?;
        if !resource::is_alike(other, selected, mode, local_ts, remote_ts) {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        let heritage = other.heritage_beside(place.cpu, place.ordinal);
        Ok(Some((other.policy, heritage)))
    }

    /// Transport mode if it is requested and configured, otherwise tunnel mode.
    fn choose_mode(
        &self,
        seen: Seen<'_>,
        source: Source<'_>,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        transport: bool,
    ) -> Result<(Mode, Chosen), Refusal> {
        if transport {
            let (local, remote) = Ends::of(seen.channel).as_seen_here(local, remote);
            if let Ok(chosen) = self.choose_child(seen, source, &local, &remote)
                && chosen.0.mode == Mode::Transport
            {
                return Ok((Mode::Transport, chosen));
            }
        }
        self.choose_child(seen, source, local, remote).map(|chosen| (Mode::Tunnel, chosen))
    }

    /// The child configuration that accepts the request's first selectors in full, otherwise the first one whose
    /// selectors overlap with the request's; and the intersection.
    fn choose_child(
        &self,
        seen: Seen<'_>,
        source: Source<'_>,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> Result<Chosen, Refusal> {
        let configured = match source {
            Source::Configured(children) => children,
            Source::Rekey(old) => {
                let within = |(ours, theirs): (&[_], &[_])| {
                    let local_ts = few(narrow(ours, local), ours);
                    let remote_ts = few(narrow(theirs, remote), theirs);
                    let remote_ts = self.identity.narrow_to_certified(remote_ts);
                    let whole = is_whole((&local_ts, &remote_ts), (ours, theirs));
                    whole.then(|| (Arc::clone(&old.config), local_ts, remote_ts))
                };
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9.2
                //# Thus, the new
                //# SA MUST NOT have narrower selectors than the original.
                // What they leave out would leave without protection. If a host has moved, what the configuration calls
                // `dynamic` has another address now.
                let ours = self.identity.resolve(seen, &old.config, true);
                let theirs = self.identity.resolve(seen, &old.config, false);
                let chosen =
                    within((&old.local_ts, &old.remote_ts)).or_else(|| within((&ours, &theirs)));
                return chosen.ok_or_else(|| NotifyType::TS_UNACCEPTABLE.into());
            }
        };
        let mut second_best = None;
        for config in configured {
            let ours = self.identity.resolve(seen, config, true);
            let local_ts = few(narrow(&ours, local), &ours);
            let ours = self.identity.resolve(seen, config, false);
            let remote_ts = few(narrow(&ours, remote), &ours);
            if local_ts.is_empty() || remote_ts.is_empty() {
                continue;
            }
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
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
}

/// Where the configuration of a requested child comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// The request rekeys this child.
    Rekey(&'a ChildSa),
    /// One of these children fits.
    Configured(&'a [Arc<ChildConfig>]),
}

/// A child configuration, and the narrowed selectors of this end and of the peer.
type Chosen = (Arc<ChildConfig>, Vec<TrafficSelector>, Vec<TrafficSelector>);

/// What both ends have agreed about a new child, beside its algorithms and keys.
pub(super) struct Terms {
    pub(super) id: ChildSaId,
    pub(super) policy: PolicyId,
    pub(super) spi_in: u32,
    pub(super) spi_out: u32,
    pub(super) mode: Mode,
    pub(super) local_ts: Vec<TrafficSelector>,
    pub(super) remote_ts: Vec<TrafficSelector>,
    pub(super) replaces: Option<ChildSaId>,
    /// Both ends accept several children for the same traffic.
    pub(super) per_cpu: bool,
    pub(super) heritage: Option<Heritage>,
    /// The peer accepts no split packets.
    pub(super) dont_fragment: bool,
    /// The peer accepts padding against traffic analysis.
    pub(super) takes_tfc: bool,
    pub(super) asker: Asker,
    pub(super) started: Instant,
}

impl Terms {
    /// The child, without its keys.
    pub(super) fn unkeyed(
        self,
        seen: Seen<'_>,
        identity: &Identity,
        ctx: &mut Context<'_>,
        config: &Arc<ChildConfig>,
        selected: Selected,
    ) -> Result<ChildSa, Refusal> {
        let mut heritage = match self.heritage {
            Some(heritage) => heritage,
            None => {
                let if_ids = seen.peer.if_ids();
                let (mut processing, lease) = ctx
                    .processing(seen.channel.connection(), config, if_ids, self.asker)
                    .map_err(|NoneLeft| NotifyType::NO_ADDITIONAL_SAS)?;
                if processing.per_cpu != self.per_cpu {
                    Arc::make_mut(&mut processing).per_cpu = self.per_cpu;
                }
                Heritage { processing, lease, line: None, cpu: None, ordinal: 0 }
            }
        };
        let dont_frag = self.dont_fragment || config.processing.iptfs.dont_frag;
        if self.mode == Mode::Iptfs && heritage.processing.iptfs.dont_frag != dont_frag {
            Arc::make_mut(&mut heritage.processing).iptfs.dont_frag = dont_frag;
        }
        let padding = tfc::agreed(config.processing.tfc_padding, self.mode, self.takes_tfc);
        if heritage.processing.tfc_padding != padding {
            Arc::make_mut(&mut heritage.processing).tfc_padding = padding;
        }
        let Heritage { processing, lease, line, cpu, ordinal } = heritage;
        let udp = seen.channel.route().puts_esp_in_udp();
        let owner = format!("{} [{}]", seen.channel.connection().name, identity.remote_id());
        Ok(ChildSa {
            id: self.id,
            config: Arc::clone(config),
            standby: false,
            asker: line.map_or(self.asker, |(_, asker)| asker),
            phase: Phase::Installing,
            policy: self.policy,
            owner,
            selected,
            ppk: None,
            mode: self.mode,
            processing,
            lease,
            line: line.map_or(self.id, |(first, _)| first),
            cpu,
            ordinal,
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            local: seen.channel.route().esp_path().local.ip(),
            remote: seen.channel.route().esp_path().remote.ip(),
            encap: ChildSa::encap_on(seen.channel.route().esp_path(), udp),
            local_ts: self.local_ts,
            remote_ts: self.remote_ts,
            pending_out: None,
            half_closed: false,
            routed: false,
            replaces: self.replaces,
            started: self.started,
            installed: ctx.io.now.mono,
            setup_time: Duration::ZERO,
            rekey_at: None,
            expires_at: None,
            soft_at: None,
            reached: None,
        })
    }
}

impl ReadyChild {
    /// Derives the keys of `child` (RFC 7296 §2.17, RFC 9370 §2.2.4, RFC 9867 §3.2.1).
    pub(crate) fn keyed(
        channel: &Channel,
        children: &Children,
        ctx: &Context<'_>,
        mut child: ChildSa,
        material: KeyMaterial<'_>,
    ) -> Result<Self, Refusal> {
        let suite = child.selected.suite;
        let lengths = ctx.crypto.ciphers.lengths(suite).ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        let session = channel.session();
        let KeyMaterial { shared, nonces, ppk } = material;
        let sk_d = ppk.as_ref().map_or(session.keys.d(), |ppk| &ppk.sk_d);
        let keys = ChildKeys::derive(session.prf, sk_d, shared, nonces, &lengths);
        child.ppk = ppk.map(MixedPpk::into_id);
        let beside = || children.iter().find(|other| other.phase == Phase::Installed);
        if channel.route().is_held()
            && let Some(other) = beside()
        {
            // It uses the path of the others, until they move.
            (child.local, child.remote, child.encap) = (other.local, other.remote, other.encap);
        } else {
            // The path may have changed since the exchange began, without MOBIKE by a NAT.
            let path = channel.route().esp_path();
            let udp = match channel.route().mobike() {
                Some(_) => channel.route().puts_esp_in_udp(),
                None => child.encap.is_some(),
            };
            let held = channel.route().is_held();
            let proven = channel.route().mobike().filter(|_| !held).map(|_| channel.route().path());
            child.follow_addresses(path, proven);
            (child.local, child.remote) = (path.local.ip(), path.remote.ip());
            child.encap = ChildSa::encap_on(path, udp);
        }
        Ok(Self { child, keys })
    }

    /// Commands for both SAs and, if its policy is to send by it, for the policy; inbound first. `initiator` is
    /// true at the end that has requested it. `schedule` is the length of a retransmission schedule.
    pub(crate) fn install_all(
        self,
        initiator: bool,
        routed: bool,
        schedule: Duration,
    ) -> (ChildSa, Vec<Command>) {
        let Self { mut child, keys } = self;
        let (inbound, outbound) = if initiator {
            (keys.responder, keys.initiator)
        } else {
            (keys.initiator, keys.responder)
        };
        child.routed = routed;
        let mut batch = Vec::with_capacity(3);
        batch.push(Command::InstallSa(child.spec(Direction::In, inbound, schedule)));
        batch.push(Command::InstallSa(child.spec(Direction::Out, outbound, schedule)));
        batch.extend(routed.then(|| child.install_policy()));
        (child, batch)
    }

    /// The command for the inbound SA. The outbound one waits in the child until the peer uses the new SA (RFC
    /// 7296 §2.8).
    pub(crate) fn install_inbound(
        self,
        initiator: bool,
        schedule: Duration,
    ) -> (ChildSa, Vec<Command>) {
        let Self { mut child, keys } = self;
        let (inbound, outbound) = if initiator {
            (keys.responder, keys.initiator)
        } else {
            (keys.initiator, keys.responder)
        };
        let batch = vec![Command::InstallSa(child.spec(Direction::In, inbound, schedule))];
        child.pending_out = Some(child.spec(Direction::Out, outbound, schedule));
        (child, batch)
    }
}

/// The responder's part of the key exchange of a child or an IKE rekey.
pub(crate) fn respond_ke(
    ctx: &mut Context<'_>,
    chosen: KeMethodId,
    payloads: &Payloads<'_, '_>,
) -> Result<(Vec<u8>, Secret), Halt> {
    let method = ctx.crypto.ke(chosen).ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
    match payloads.ke()? {
        Some(ke) if ke.method == chosen => {
            if ke.data.len() != method.lengths().initiator {
                return Err(NotifyType::INVALID_SYNTAX.into());
            }
            ctx.respond_to(method, ke.data).map_err(Undone::halt)
        }
        // RFC 7296 §1.3: the notify names the method that was chosen instead.
        _ => Err(invalid_ke(chosen).into()),
    }
}

/// Drops the selectors that a peer adds by splitting `configured` into pieces, because every pair of selectors is
/// an entry of the SPD and every remote one a route. A responder may narrow (RFC 7296 §2.9).
fn few(mut narrowed: Vec<TrafficSelector>, configured: &[TrafficSelector]) -> Vec<TrafficSelector> {
    narrowed.truncate(configured.len().max(MAX_PIECES));
    narrowed
}

/// `selectors` with `address` instead of their only one, if a NAT is in front of it. Selectors of several
/// addresses are not those of transport mode and stay as they are.
pub(super) fn translated(
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

/// True if the first selector of `offered` is accepted in full.
fn takes_first(narrowed: &[TrafficSelector], offered: &[TrafficSelector]) -> bool {
    offered.first().is_some_and(|first| narrowed.iter().any(|ts| ts.contains(first)))
}
