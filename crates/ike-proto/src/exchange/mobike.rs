//! MOBIKE (RFC 4555) on the wire: the announcements in IKE_AUTH, and the INFORMATIONAL exchanges that move an IKE
//! SA and its children. `ike_sa/mobility.rs` decides what moves, and when.
//!
//! ```text
//!    HDR, SK {N(UPDATE_SA_ADDRESSES), N(NAT_DETECTION_*), N(ADDITIONAL_*_ADDRESS)+, N(COOKIE2)}  -->
//!                               <--  HDR, SK {N(NAT_DETECTION_*), N(COOKIE2)}
//! ```

use std::net::IpAddr;

use super::OwnedNotifies;
use super::Payloads;
use super::child_sa::translated;
use super::sa_init::{NatHashes, detect_nat, status};
use crate::channel::{Channel, NatStatus};
use crate::child::ChildSa;
use crate::config::TsSpec;
use crate::dataplane::TrafficSelector;
use crate::event::{Failure, Path, Transport};
use crate::exchange::sent::Sent;
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::state::{Established, Task};
use crate::reason::PolicyReason;
use crate::wire::payload::Payload;
use crate::wire::registry::{ExchangeType, NotifyType};

/// Further addresses that are announced to the peer, and that are remembered of it.
const MOST_ADDRESSES: usize = 8;

/// The purpose of an INFORMATIONAL request of MOBIKE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mobility {
    /// UPDATE_SA_ADDRESSES: the SAs move to the path of the request.
    Update,
    /// The addresses of this end have changed; the path need not have.
    Addresses,
    /// A check that the peer receives at its address (RFC 4555 §3.7).
    Routability,
}

/// Such a request in flight.
#[derive(Debug)]
pub(crate) struct SentMobility {
    what: Mobility,
    /// The number of the move that it reports or checks.
    number: u32,
    cookie: [u8; 16],
}

/// The part of MOBIKE in the response to an INFORMATIONAL request.
#[derive(Default)]
pub(crate) struct MobilityReply {
    error: Option<NotifyType>,
    nat: Option<NatHashes>,
    cookie: Option<Vec<u8>>,
}

impl MobilityReply {
    pub(crate) fn payloads(&self) -> Vec<Payload<'_>> {
        let mut payloads = Vec::new();
        payloads.extend(self.error.map(status));
        if let Some(nat) = &self.nat {
            nat.push(&mut payloads);
        }
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.7
        //# the recipient of an
        //# INFORMATIONAL request MUST copy the notification as-is to the
        //# response.
        payloads.extend(self.cookie.iter().map(|cookie| notify(NotifyType::COOKIE2, cookie)));
        payloads
    }
}

/// Addresses in the form of ADDITIONAL_IP4_ADDRESS, ADDITIONAL_IP6_ADDRESS and NO_ADDITIONAL_ADDRESSES.
pub(crate) struct AddressList(Vec<(NotifyType, Vec<u8>)>);

impl AddressList {
    /// The list. `none_too` if an empty list is announced as well.
    fn new(addresses: &[IpAddr], none_too: bool) -> Self {
        let mut list: Vec<_> = addresses.iter().map(additional).collect();
        if list.is_empty() && none_too {
            list.push((NotifyType::NO_ADDITIONAL_ADDRESSES, Vec::new()));
        }
        Self(list)
    }

    pub(crate) fn payloads(&self) -> impl Iterator<Item = Payload<'_>> {
        self.0.iter().map(|(kind, data)| notify(*kind, data))
    }
}

fn additional(address: &IpAddr) -> (NotifyType, Vec<u8>) {
    match address {
        IpAddr::V4(ip) => (NotifyType::ADDITIONAL_IP4_ADDRESS, ip.octets().to_vec()),
        IpAddr::V6(ip) => (NotifyType::ADDITIONAL_IP6_ADDRESS, ip.octets().to_vec()),
    }
}

/// The addresses in a message; `None` if it has no list.
fn read_addresses(payloads: &Payloads<'_, '_>) -> Option<Vec<IpAddr>> {
    let mut said = false;
    let mut addresses = Vec::new();
    for notify in payloads.notifies() {
        let address: Option<IpAddr> = match notify.kind {
            NotifyType::ADDITIONAL_IP4_ADDRESS => {
                <[u8; 4]>::try_from(notify.data).ok().map(IpAddr::from)
            }
            NotifyType::ADDITIONAL_IP6_ADDRESS => {
                <[u8; 16]>::try_from(notify.data).ok().map(IpAddr::from)
            }
            NotifyType::NO_ADDITIONAL_ADDRESSES => None,
            _ => continue,
        };
        said = true;
        let address = address.filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
        if let Some(address) = address.map(|ip| ip.to_canonical())
            && addresses.len() < MOST_ADDRESSES
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    said.then_some(addresses)
}

/// True if `address` is inside a tunnel with this selector, whose end is at `end`.
fn is_inner(ts: &TrafficSelector, address: IpAddr, end: IpAddr) -> bool {
    let has = |ip: IpAddr| ts.start.is_ipv4() == ip.is_ipv4() && ts.start <= ip && ip <= ts.end;
    has(address) && !has(end)
}

/// The contents of NO_NATS_ALLOWED for a message from `source` to `destination` (RFC 4555 §4.2.6).
fn no_nats(path: Path, sent: bool) -> Vec<u8> {
    let (from, to) = if sent { (path.local, path.remote) } else { (path.remote, path.local) };
    let mut data = Vec::with_capacity(36);
    for end in [from, to] {
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => data.extend(ip.octets()),
            IpAddr::V6(ip) => data.extend(ip.octets()),
        }
    }
    data.extend(from.port().to_be_bytes());
    data.extend(to.port().to_be_bytes());
    data
}

impl Established {
    /// Sends a request of MOBIKE.
    pub(crate) fn send_mobility(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        what: Mobility,
    ) {
        let further = Ends::of(stem.channel).further_addresses(ctx, self.children.as_slice());
        let mut cookie = [0; 16];
        ctx.io.rng.fill(&mut cookie);
        let mut roaming = stem.channel.roaming();
        let Some(number) = roaming.begin_request() else {
            // The task may have come from another IKE SA, whose children this one has taken over.
            let ike = stem.channel.link().id();
            return tracing::debug!(?ike, ?what, "request not sent: no MOBIKE");
        };
        if what != Mobility::Routability {
            roaming.note_told(further.clone());
        }
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.8
        //# NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP
        //# notifications MAY be included in any INFORMATIONAL request
        // libreswan copies COOKIE2 only to a response with NAT detection.
        let nat = stem.channel.route().nat().supported && what != Mobility::Addresses;
        let nat = nat.then(|| Ends::of(stem.channel).nat_hashes(ctx));
        let protected = !stem.channel.route().nat().supported && what != Mobility::Routability;
        let protected = protected.then(|| no_nats(stem.channel.route().path(), true));
        let list = AddressList::new(&further, true);
        let mut payloads = Vec::new();
        if what == Mobility::Update {
            payloads.push(status(NotifyType::UPDATE_SA_ADDRESSES));
        }
        if let Some(nat) = &nat {
            nat.push(&mut payloads);
        }
        payloads.extend(protected.iter().map(|data| notify(NotifyType::NO_NATS_ALLOWED, data)));
        if what != Mobility::Routability {
            payloads.extend(list.payloads());
        }
        payloads.push(notify(NotifyType::COOKIE2, &cookie));
        let sent = stem.channel.request(&mut ctx.io, ExchangeType::INFORMATIONAL, &payloads);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        let sent = SentMobility { what, number, cookie };
        self.sent = Some(Sent::Mobility(Box::new(sent)));
    }

    /// Handles the response to a request of MOBIKE.
    pub(crate) fn on_mobility_response(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        sent: &SentMobility,
        payloads: &[Payload<'_>],
    ) {
        let payloads = Payloads(payloads);
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.7
        //# If the values do not
        //# match, the IKE_SA MUST be closed.
        let cookie = payloads.notify(NotifyType::COOKIE2);
        if cookie.is_some_and(|cookie| cookie.data != sent.cookie) {
            let reason = Failure::Policy(PolicyReason::OtherCookie2);
            return self.queue.push_first(Task::DeleteIke { reason, request: None });
        }
        // A response without COOKIE2 proves only that its sender has the keys.
        let shown = cookie.is_some();
        if channel.route().mobike().is_none_or(|mobike| mobike.moves() != sent.number) {
            //= https://www.rfc-editor.org/rfc/rfc4555#section-3.5
            //# If an address change has occurred after the request was first
            //# sent, no MOBIKE processing is done for the reply message
            return self.tell_again(sent.what);
        }
        match sent.what {
            Mobility::Addresses => {
                let changed = payloads.notify(NotifyType::UNEXPECTED_NAT_DETECTED).is_some();
                if !changed {
                    channel.roaming().taken();
                } else if channel.roaming().refused() {
                    self.tell_again(Mobility::Addresses);
                }
            }
            Mobility::Routability if shown => self.release_held(channel, ctx),
            Mobility::Routability => self.queue.give_up_unproven(),
            Mobility::Update => self.on_updated(channel, ctx, &payloads, shown),
        }
    }

    /// Handles the response to an update. `shown` if it has the COOKIE2 of the request.
    fn on_updated(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
        shown: bool,
    ) {
        let refused = payloads.notify(NotifyType::UNACCEPTABLE_ADDRESSES).is_some();
        let changed = payloads.notify(NotifyType::UNEXPECTED_NAT_DETECTED).is_some();
        if refused || changed {
            return match channel.roaming().refused() {
                true if changed => self.tell_again(Mobility::Update),
                true => self.try_another(channel, ctx),
                false => {}
            };
        }
        if channel.route().is_held() && !shown {
            return self.queue.give_up_unproven();
        }
        channel.roaming().confirmed();
        let before = (channel.route().nat().local, channel.route().nat().remote);
        let detected = Ends::of(channel).detect_nat(ctx, channel.route().path(), payloads);
        if detected.supported {
            let seen = payloads.notify(NotifyType::NAT_DETECTION_DESTINATION_IP);
            let seen = seen.and_then(|notify| notify.data.try_into().ok());
            channel.roaming().note_nat(detected, seen);
        }
        if before != (channel.route().nat().local, channel.route().nat().remote)
            && !channel.route().is_held()
        {
            self.move_children(channel, ctx);
        }
        self.release_held(channel, ctx);
        channel.arm_keepalive(&ctx.io);
    }

    /// Handles the response to a liveness check with NAT detection.
    pub(crate) fn on_mapping_seen(&mut self, channel: &mut Channel, payloads: &[Payload<'_>]) {
        let payloads = Payloads(payloads);
        if !channel.route().decides() {
            return;
        }
        let seen = payloads.notify(NotifyType::NAT_DETECTION_DESTINATION_IP);
        let seen = seen.and_then(|notify| notify.data.try_into().ok());
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.8
        //# If the values do not match, the IP address
        //# and/or port seen by the responder has changed, and the initiator
        //# SHOULD send UPDATE_SA_ADDRESSES
        // The first value may differ from that of IKE_SA_INIT. Behind a NAT that causes one further update.
        if seen.is_some_and(|seen| channel.roaming().sees_another(seen)) {
            self.tell_again(Mobility::Update);
        }
    }

    /// Does what a request of MOBIKE demands. Returns the part of the response.
    pub(crate) fn on_mobility_request(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> MobilityReply {
        let mut reply = MobilityReply::default();
        if channel.route().mobike().is_none() {
            return reply;
        }
        let path = channel.route().answer_to();
        let cookie = payloads.notify(NotifyType::COOKIE2);
        reply.cookie = cookie.filter(|c| (8..=64).contains(&c.data.len())).map(|c| c.data.to_vec());
        // Only the original initiator decides about the addresses.
        let update = !channel.route().decides()
            && payloads.notify(NotifyType::UPDATE_SA_ADDRESSES).is_some();
        let addresses = read_addresses(payloads);
        if let Some(said) = payloads.notify(NotifyType::NO_NATS_ALLOWED)
            && (update || addresses.is_some())
            && said.data != no_nats(path, false)
        {
            reply.error = Some(NotifyType::UNEXPECTED_NAT_DETECTED);
            return reply;
        }
        let detected = Ends::of(channel).detect_nat(ctx, path, payloads);
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.8
        //# if the
        //# request includes them, the responder MUST also include them in the
        //# response
        if detected.supported {
            let fake = channel.connection().encap.fakes_nat(ctx.plane);
            reply.nat = Some(NatHashes::new(ctx.crypto, channel.link().spis(), path, fake));
        }
        if update && !Ends::of(channel).is_acceptable(path) {
            reply.error = Some(NotifyType::UNACCEPTABLE_ADDRESSES);
            return reply;
        }
        if let Some(addresses) = &addresses {
            //= https://www.rfc-editor.org/rfc/rfc4555#section-3.6
            //# Updates the set of peer addresses based on the IP header and the
            //# ADDITIONAL_IP4_ADDRESS, ADDITIONAL_IP6_ADDRESS, and
            //# NO_ADDITIONAL_ADDRESSES notifications.
            channel.roaming().peer_has(addresses, path.remote.ip().to_canonical());
        }
        if update {
            let nat = if detected.supported { detected } else { channel.route().nat() };
            self.on_update(channel, ctx, path, nat);
        } else if addresses.is_some() && channel.route().decides() {
            self.on_peer_addresses(channel, ctx);
        }
        reply
    }
}

/// The addresses of the peer's message were changed on the path although the peer has no NAT traversal.
pub(crate) struct Translated;

/// The addresses of both ends, as the connection and the children permit them.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    channel: &'a Channel,
}

impl<'a> Ends<'a> {
    /// Those of an SA with this channel.
    pub(crate) fn of(channel: &'a Channel) -> Self {
        Self { channel }
    }

    /// The notifies of this end's IKE_AUTH message with the SA payload, and the addresses in them.
    pub(crate) fn in_auth(
        self,
        ctx: &Context<'_>,
        children: &[ChildSa],
    ) -> (OwnedNotifies, Vec<IpAddr>) {
        let (link, route) = (self.channel.link(), self.channel.route());
        let supported =
            if link.is_initiator() { link.connection().mobike } else { route.mobike().is_some() };
        if !supported {
            return Default::default();
        }
        let further = self.further_addresses(ctx, children);
        let mut notifies = vec![(NotifyType::MOBIKE_SUPPORTED, Vec::new())];
        if link.is_initiator() && !route.nat().supported {
            notifies.push((NotifyType::NO_NATS_ALLOWED, no_nats(route.path(), true)));
        }
        notifies.extend(further.iter().map(additional));
        (notifies, further)
    }

    /// The addresses in the peer's IKE_AUTH message, if both ends have MOBIKE.
    pub(crate) fn of_auth(
        self,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<Vec<IpAddr>>, Translated> {
        let (link, route) = (self.channel.link(), self.channel.route());
        if !link.connection().mobike || payloads.notify(NotifyType::MOBIKE_SUPPORTED).is_none() {
            return Ok(None);
        }
        if let Some(said) = payloads.notify(NotifyType::NO_NATS_ALLOWED)
            && !link.is_initiator()
            && said.data != no_nats(route.answer_to(), false)
        {
            return Err(Translated);
        }
        Ok(Some(read_addresses(payloads).unwrap_or_default()))
    }

    /// Addresses of this end besides the one in use that the connection allows.
    pub(crate) fn further_addresses(self, ctx: &Context<'_>, children: &[ChildSa]) -> Vec<IpAddr> {
        let here = self.channel.route().path().local.ip().to_canonical();
        let own = ctx.network.addresses.iter().copied();
        own.filter(|ip| *ip != here && self.may_have(*ip, children)).take(MOST_ADDRESSES).collect()
    }

    /// True if this end may use `address`: `local_addrs` contains it, and it is not an inner address of a tunnel.
    pub(crate) fn may_have(self, address: IpAddr, children: &[ChildSa]) -> bool {
        let here = self.channel.route().path().local.ip().to_canonical();
        self.fits(address) && !self.selectors(children, true).any(|ts| is_inner(ts, address, here))
    }

    /// True if the peer may be reached at `address`, by the same rule.
    pub(crate) fn peer_may_have(self, address: IpAddr, children: &[ChildSa]) -> bool {
        let there = self.channel.route().path().remote.ip().to_canonical();
        !self.selectors(children, false).any(|ts| is_inner(ts, address, there))
    }

    /// The traffic selectors of the children, configured and negotiated.
    fn selectors(
        self,
        children: &'a [ChildSa],
        local: bool,
    ) -> impl Iterator<Item = &'a TrafficSelector> {
        let configured = self.channel.connection().children.iter().flat_map(move |child| {
            let list = if local { &child.local_ts } else { &child.remote_ts };
            list.iter().filter_map(|ts| match ts {
                TsSpec::Fixed(ts) => Some(ts),
                TsSpec::Dynamic { .. } => None,
            })
        });
        configured.chain(children.iter().flat_map(move |child| {
            if local { child.local_ts.iter() } else { child.remote_ts.iter() }
        }))
    }

    /// True if `local_addrs` has `address`.
    pub(crate) fn fits(self, address: IpAddr) -> bool {
        self.channel.connection().local_addrs.iter().any(|spec| spec.contains(address))
    }

    /// The NAT detection hashes of a message on the present path.
    pub(crate) fn nat_hashes(self, ctx: &Context<'_>) -> NatHashes {
        let fake = self.channel.connection().encap.fakes_nat(ctx.plane);
        NatHashes::new(ctx.crypto, self.channel.link().spis(), self.channel.route().path(), fake)
    }

    /// The result of NAT detection in a message by `path`.
    fn detect_nat(self, ctx: &Context<'_>, path: Path, payloads: &Payloads<'_, '_>) -> NatStatus {
        let mut nat = detect_nat(ctx.crypto, payloads, self.channel.link().spis(), path);
        nat.local |= (self.channel.connection().encap.fakes_nat(ctx.plane)) && nat.supported;
        nat
    }

    /// The local policy for moves: to addresses that the connection allows, and not back from the port for NAT
    /// traversal.
    fn is_acceptable(self, path: Path) -> bool {
        let back = self.channel.route().path().transport == Transport::UdpEncap
            && path.transport == Transport::Udp;
        !back && self.fits(path.local.ip().to_canonical())
    }

    /// Selectors of transport mode, with the addresses of the IKE SA instead of those that a NAT changes (RFC 7296
    /// §2.23.1).
    pub(super) fn as_seen_here(
        self,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
        let Path { local: here, remote: there, .. } = self.channel.route().esp_path();
        let local = translated(local, self.channel.route().nat().local, here.ip().to_canonical());
        (local, translated(remote, self.channel.route().nat().remote, there.ip().to_canonical()))
    }
}
