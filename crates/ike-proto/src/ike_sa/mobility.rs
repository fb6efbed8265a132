//! The path of an IKE SA with MOBIKE (RFC 4555): choosing another path, and moving the children there.
//!
//! The original initiator decides. Its path changes when its address is gone, when the peer says that the peer's
//! address is gone, or when the peer answers only by another path. The responder follows, and decides only if its
//! own address is gone.

use std::net::IpAddr;
use std::time::Instant;

use super::context::Context;
use super::state::{Established, IkePhase, Task};
use crate::channel::Whereabouts;
use crate::channel::mobike::{Heard, Mobike};
use crate::channel::{Channel, NatStatus};
use crate::event::{Output, Path, Transmit, TransmitKind, Transport};
use crate::exchange::mobike::Ends;
use crate::exchange::mobike::Mobility;
use crate::exchange::sent::Sent;
use crate::ike_sa::Children;

/// Transmissions of a request on one path before other paths are tried as well.
const TRIES_ALONE: u32 = 2;
/// Paths that are tried at the same time.
const MOST_PATHS: usize = 12;

impl Established {
    /// True if the peer may be waiting for this end behind a NAT that has another mapping now: it has lately put off a request
    /// of this end, maybe until it has the answer to a request that it sends to the former mapping.
    pub(crate) fn may_be_lost_behind_nat(&self, channel: &Channel, now: Instant) -> bool {
        let refused = self.queue.last_refused();
        let lately = refused.is_some_and(|last| now < last + channel.connection().dpd_delay);
        lately && channel.route().decides() && channel.route().nat().local
    }

    /// Handles a change of this host's addresses, or of the routes to the peer.
    pub(crate) fn on_network(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        if channel.route().mobike().is_none() {
            return;
        }
        let here = channel.route().path().local.ip().to_canonical();
        let still = ctx.network.addresses.contains(&here);
        let leads = ctx
            .network
            .source_to(channel.route().path().remote.ip())
            .filter(|ip| Ends::of(channel).fits(*ip));
        let moved_on = matches!(self.phase, IkePhase::Replaced(_));
        if channel.route().decides() {
            let better =
                leads.is_some_and(|source| source != here) && ctx.io.config.prefer_best_path;
            if !still || better {
                // If no route leads to the peer, there will be another change.
                if let Some(path) =
                    self.find_path(channel, ctx).filter(|path| *path != channel.route().path())
                {
                    self.move_to(channel, ctx, path);
                }
                return;
            }
            //= https://www.rfc-editor.org/rfc/rfc4555#section-3.5
            //# Unreliable information SHOULD be treated only as a hint
            //# that there might be a problem, and the initiator SHOULD trigger Dead
            //# Peer Detection
            if channel.route().nat().local {
                self.check_mapping();
            } else if leads != Some(here) {
                self.check_liveness();
            }
        } else if !still {
            if channel.route().path().transport == Transport::Tcp {
                // The connection breaks, and the other end has to open the next one.
                return;
            }
            let any = || {
                ctx.network
                    .addresses
                    .iter()
                    .copied()
                    .find(|ip| self.children.may_replace(channel, *ip))
            };
            let source = leads.filter(|ip| self.children.may_replace(channel, *ip)).or_else(any);
            let Some(source) = source else {
                let ike = channel.link().id();
                return tracing::debug!(?ike, %here, "address lost: no other one leads to the peer");
            };
            return self.lose_address(channel, ctx, source);
        }
        let further = Ends::of(channel).further_addresses(ctx, self.children.as_slice());
        if !moved_on && channel.route().mobike().is_some_and(|mobike| !mobike.has_told(&further)) {
            self.tell_again(Mobility::Addresses);
        }
    }

    /// Handles changes since this end's IKE_AUTH request, before which there was no MOBIKE.
    pub(crate) fn on_network_meanwhile(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        let here = channel.route().path().local.ip().to_canonical();
        let unknown = ctx.network.addresses.is_empty();
        let still = unknown || ctx.network.addresses.contains(&here);
        let told = |mobike: &Mobike| {
            mobike.has_told(&Ends::of(channel).further_addresses(ctx, self.children.as_slice()))
        };
        if channel.route().mobike().is_some_and(|mobike| !still || !told(mobike)) {
            self.on_network(channel, ctx);
        }
    }

    /// Queues a liveness check, unless one is queued or a request is in flight.
    pub(crate) fn check_liveness(&mut self) {
        if self.sent.is_none() {
            self.check_mapping();
        }
    }

    /// The same although a request is in flight: only the answer to a liveness check shows the mapping of a NAT.
    fn check_mapping(&mut self) {
        let asked = self.queue.tasks().any(|task| matches!(task, Task::Liveness));
        if !asked && self.phase == IkePhase::Alive {
            self.queue.push(Task::Liveness);
        }
    }

    /// The best path by the routes: to the peer's address in use if a route leads there.
    fn find_path(&self, channel: &Channel, ctx: &Context<'_>) -> Option<Path> {
        self.children.remotes(channel).find_map(|remote| {
            let local = ctx.network.source_to(remote).filter(|ip| Ends::of(channel).fits(*ip))?;
            Some(channel.route().nat().path_between(channel.route().path(), local, remote))
        })
    }

    /// All other paths that might lead to the peer.
    fn other_paths(&self, channel: &Channel, ctx: &Context<'_>) -> Vec<Path> {
        let mut paths = Vec::new();
        for remote in self.children.remotes(channel) {
            let first = ctx.network.source_to(remote);
            let own = ctx.network.addresses.iter().copied();
            for local in first.into_iter().chain(own.filter(|ip| Some(*ip) != first)) {
                let fits = local.is_ipv4() == remote.is_ipv4()
                    && (Some(local) == first && Ends::of(channel).fits(local)
                        || Ends::of(channel).may_have(local, self.children.as_slice()));
                let path =
                    channel.route().nat().path_between(channel.route().path(), local, remote);
                if fits && path != channel.route().path() && paths.len() < MOST_PATHS {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// Initiator: moves the SA to `path`.
    fn move_to(&mut self, channel: &mut Channel, ctx: &mut Context<'_>, path: Path) {
        let path = channel.route().first_tried(channel.link(), &ctx.io, path);
        let elsewhere =
            path.remote.ip().to_canonical() != channel.route().path().remote.ip().to_canonical();
        channel.take_path(&mut ctx.io, path);
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.7
        //# By
        //# default, the return routability check SHOULD be done before updating
        //# the IPsec SAs
        // A peer's address that is in use is proven.
        if elsewhere {
            channel.roaming().hold();
        }
        if !channel.route().is_held() {
            self.move_children(channel, ctx);
        }
        self.tell_again(Mobility::Update);
    }

    /// Responder: its address is gone, and it continues at `local`.
    fn lose_address(&mut self, channel: &mut Channel, ctx: &mut Context<'_>, local: IpAddr) {
        let mut path = channel.route().path();
        path.local.set_ip(local);
        channel.take_path(&mut ctx.io, path);
        channel.roaming().lost();
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.5
        //# If the source address that the responder is currently using becomes
        //# unavailable (i.e., sending packets using that source address is no
        //# longer possible), the responder is allowed to update the IPsec SAs to
        //# use some other address
        self.move_children(channel, ctx);
        self.tell_again(Mobility::Addresses);
    }

    /// Responder: handles an update that moves the SA to `path`.
    pub(crate) fn on_update(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        path: Path,
        nat: NatStatus,
    ) {
        let elsewhere =
            path.remote.ip().to_canonical() != channel.route().path().remote.ip().to_canonical();
        channel.take_update(&mut ctx.io, path, nat);
        // Over TCP the peer has proven its address already.
        let check =
            elsewhere && ctx.io.config.return_routability && path.transport != Transport::Tcp;
        if channel.roaming().updated(elsewhere, check) {
            return self.tell_again(Mobility::Routability);
        }
        self.move_children(channel, ctx);
        channel.arm_keepalive(&ctx.io);
    }

    /// Moves the children to the path of the IKE SA, because the peer has proven its address.
    pub(crate) fn release_held(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        if channel.roaming().release() {
            self.move_children(channel, ctx);
        }
    }

    /// Queues a request of MOBIKE before all others. An update includes a list of addresses.
    pub(crate) fn tell_again(&mut self, what: Mobility) {
        // A rekeyed SA sends it, too: the peer may not know its successor yet.
        if matches!(self.phase, IkePhase::Crossed(_)) {
            return;
        }
        let queued = |wanted: Mobility| move |task: &Task| matches!(task, Task::Mobility(what) if *what == wanted);
        if what == Mobility::Addresses && self.queue.tasks().any(queued(Mobility::Update)) {
            return;
        }
        let covered = |task: &Task| {
            queued(what)(task) || what == Mobility::Update && queued(Mobility::Addresses)(task)
        };
        self.queue.drop_needless(covered);
        self.queue.push_first(Task::Mobility(what));
    }

    /// Handles the peer's list of addresses. If the address in use is not in it, the SA moves.
    pub(crate) fn on_peer_addresses(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        let there = channel.route().path().remote.ip().to_canonical();
        if channel.route().mobike().is_none_or(|mobike| mobike.peer().any(|ip| ip == there)) {
            return;
        }
        // The first one is the source of the message.
        let next = channel.route().mobike().into_iter().flat_map(|mobike| mobike.peer());
        let here = channel.route().path().local.ip().to_canonical();
        let path = next.into_iter().find_map(|remote| {
            let known = ctx.network.source_to(remote).filter(|ip| Ends::of(channel).fits(*ip));
            let local = known.unwrap_or(here);
            (local.is_ipv4() == remote.is_ipv4()
                && Ends::of(channel).peer_may_have(remote, self.children.as_slice()))
            .then(|| channel.route().nat().path_between(channel.route().path(), local, remote))
        });
        if let Some(path) = path {
            self.move_to(channel, ctx, path);
        }
    }

    /// Moves to another path, because the peer has refused the present one.
    pub(crate) fn try_another(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        let retries = channel.route().mobike().map_or(0, |mobike| mobike.retries());
        let paths = self.other_paths(channel, ctx);
        let next = retries.saturating_sub(1).checked_rem(paths.len());
        if let Some(path) = next.and_then(|index| paths.get(index)) {
            self.move_to(channel, ctx, *path);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc4555#section-3.5
    //# An IKEv2 request has been re-transmitted several times, but no
    //# valid reply has been received.  This suggests the current path is
    //# no longer working.
    /// Sends the request in flight by all other paths as well.
    pub(crate) fn probe_paths(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        let tries = channel.window().tries();
        let paths = match channel.route().mobike() {
            Some(mobike) if channel.route().path().transport != Transport::Tcp => {
                // ESP shows the new mapping of a peer behind a NAT. IKE does not follow it by itself (RFC 4555 §3.8). But
                // if the old mapping gives no answer, the request goes to the new one as well.
                let elsewhere = mobike.esp_remote().filter(|_| tries > 1);
                let due = tries > TRIES_ALONE && mobike.searches();
                let mut paths = if due { self.other_paths(channel, ctx) } else { Vec::new() };
                paths.extend(elsewhere.map(|remote| Path { remote, ..channel.route().path() }));
                paths
            }
            _ => Vec::new(),
        };
        let request = channel.window().outstanding_datagrams().filter(|_| !paths.is_empty());
        if let Some(datagrams) = request.cloned() {
            channel.roaming().probed();
            let (kind, dscp) = (TransmitKind::Retransmission, channel.connection().dscp);
            for path in paths {
                let all = datagrams.iter();
                let all = all.map(|octets| Transmit { path, kind, dscp, octets: octets.clone() });
                ctx.io.out.extend(all.map(Output::Transmit));
            }
        }
    }

    /// Handles an authentic response by `path`.
    pub(crate) fn on_response_by(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        path: Path,
        heard: Heard,
    ) {
        let probing = heard.was_probing();
        channel.deadlines().on_response_over(path.transport);
        let ends = |path: Path| {
            (path.local.ip().to_canonical(), path.remote.ip().to_canonical(), path.transport)
        };
        let same_transport = path.transport == channel.route().path().transport;
        let esp = channel.route().mobike().and_then(Mobike::esp_remote);
        let mapped = esp == Some(path.remote);
        if probing && mapped && same_transport && !channel.route().decides() {
            // This is an authentic answer, not only ESP, so the peer is there.
            channel.take_path(&mut ctx.io, path);
            return self.move_children(channel, ctx);
        }
        if !probing || !same_transport || ends(path) == ends(channel.route().path()) {
            //= https://www.rfc-editor.org/rfc/rfc4555#section-3.6
            //# If the request to update the addresses is retransmitted using several
            //# different source addresses, a new INFORMATIONAL request MUST be sent.
            // The peer has moved to the path of the first one that it received.
            if probing && matches!(self.sent, Some(Sent::Mobility(_))) {
                channel.roaming().renumber();
            }
            return;
        }
        // The peer answers by this path, and not by the one in use.
        if channel.route().decides() {
            self.move_to(channel, ctx, path);
        } else if heard.was_astray() {
            channel.take_path(&mut ctx.io, path);
            self.move_children(channel, ctx);
            self.tell_again(Mobility::Addresses);
        }
    }

    /// Takes over the path of the predecessor, if it is newer, and tells the peer what it may not know.
    pub(crate) fn take_whereabouts(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        before: Option<Whereabouts>,
    ) {
        match before.and_then(|before| channel.continue_from(&mut ctx.io, before)) {
            Some(false) if channel.route().decides() => self.tell_again(Mobility::Update),
            Some(_) if channel.route().is_held() => self.tell_again(Mobility::Routability),
            Some(_) | None => {}
        }
    }
}

impl Children {
    /// True if `address` may replace this end's address in the present path.
    fn may_replace(&self, channel: &Channel, address: IpAddr) -> bool {
        let family =
            address.is_ipv4() == channel.route().path().remote.ip().to_canonical().is_ipv4();
        family && Ends::of(channel).may_have(address, self.as_slice())
    }

    /// The peer's addresses with the one in use first.
    fn remotes<'a>(&'a self, channel: &'a Channel) -> impl Iterator<Item = IpAddr> + 'a {
        let there = channel.route().path().remote.ip().to_canonical();
        let peer = channel.route().mobike().into_iter().flat_map(|mobike| mobike.peer());
        std::iter::once(there).chain(peer.filter(move |ip| {
            *ip != there && Ends::of(channel).peer_may_have(*ip, self.as_slice())
        }))
    }
}
