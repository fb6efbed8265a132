//! What happens to datagrams between hosts.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::wire::Header;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Path, TransmitKind, Transport};

use crate::link::{Link, LinkModel};
use crate::random::Seeded;

/// A UDP datagram under way.
#[derive(Debug, Clone)]
pub struct Packet {
    /// When it was sent.
    pub sent: Duration,
    /// The host that sent it; `None` for what a test put on the wire.
    pub from: Option<usize>,
    /// Source address on this side of any NAT passed so far.
    pub src: SocketAddr,
    /// Destination address.
    pub dst: SocketAddr,
    /// True if the non-ESP marker is in front.
    pub marker: bool,
    /// The TCP connection it travels by, if it is no datagram.
    pub stream: Option<usize>,
    /// What the sender said it is.
    pub kind: TransmitKind,
    /// The message, without the marker.
    pub octets: Arc<[u8]>,
}

impl Packet {
    /// A packet as a test may put it on the wire.
    pub fn forged(src: SocketAddr, dst: SocketAddr, octets: impl Into<Arc<[u8]>>) -> Self {
        Self {
            sent: Duration::ZERO,
            from: None,
            src,
            dst,
            marker: dst.port() == 4500,
            stream: None,
            kind: TransmitKind::Ike,
            octets: octets.into(),
        }
    }

    /// The IKE header; `None` for a keepalive or garbage.
    pub fn header(&self) -> Option<Header> {
        Header::peek(&self.octets)
    }

    /// True if it is a message of this exchange.
    pub fn is(&self, exchange: ExchangeType, response: bool) -> bool {
        self.header().is_some_and(|h| h.exchange == exchange && h.flags.response == response)
    }

    /// Octets of the IP packet: message, non-ESP marker, UDP and IP header without options.
    pub fn ip_octets(&self) -> usize {
        let ip = if self.dst.is_ipv4() { 20 } else { 40 };
        let marker = if self.marker { 4 } else { 0 };
        ip + 8 + marker + self.octets.len()
    }

    /// One line for a failing test.
    pub fn describe(&self) -> String {
        let what = match self.header() {
            None => format!("{:?}", self.kind),
            Some(h) => format!(
                "{} {} {} I={} {:016x}/{:016x}",
                h.exchange,
                if h.flags.response { "response" } else { "request" },
                h.message_id,
                u8::from(h.flags.initiator),
                h.spi_i,
                h.spi_r,
            ),
        };
        let octets = self.octets.len();
        let stream = self.stream.map(|n| format!(" by TCP connection {n}")).unwrap_or_default();
        format!("{:?} {} -> {}: {what}, {octets} octets{stream}", self.sent, self.src, self.dst)
    }
}

/// What a link does to datagrams, in thousandths and durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Lost, of a thousand.
    pub loss: u32,
    /// Delivered twice, of a thousand.
    pub duplication: u32,
    /// Shortest time under way.
    pub delay: Duration,
    /// Up to this is added to the delay, which is what reorders.
    pub jitter: Duration,
}

impl Default for Conditions {
    /// Ten milliseconds, nothing lost, nothing out of order.
    fn default() -> Self {
        Self { loss: 0, duplication: 0, delay: Duration::from_millis(10), jitter: Duration::ZERO }
    }
}

/// What a tap wants done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// As the conditions say.
    Pass,
    /// Not delivered.
    Drop,
}

/// Sees each packet as it is sent, may change it, and may stop it.
pub type Tap = Box<dyn FnMut(&mut Packet) -> Fate + Send>;

/// A NAT that one host sits behind.
#[derive(Debug, Clone)]
pub struct Nat {
    /// Address of the host behind it.
    pub inside: IpAddr,
    /// Address the others see.
    pub outside: IpAddr,
    /// A mapping without traffic from inside for so long is forgotten; zero keeps it for ever.
    pub expiry: Duration,
    /// Inside address to outside port, and when it was last used.
    mappings: HashMap<SocketAddr, (u16, Duration)>,
    next_port: u16,
}

impl Nat {
    /// A NAT in front of `inside`.
    pub fn new(inside: IpAddr, outside: IpAddr) -> Self {
        let (expiry, mappings) = (Duration::ZERO, HashMap::new());
        Self { inside, outside, expiry, mappings, next_port: 20_000 }
    }

    /// Forgets every mapping: the next datagram comes from another port.
    pub fn rebind(&mut self) {
        self.mappings.clear();
    }

    /// The mappings: inside address and outside port.
    pub fn mappings(&self) -> impl Iterator<Item = (SocketAddr, u16)> {
        self.mappings.iter().map(|(inside, (port, _))| (*inside, *port))
    }

    fn outward(&mut self, now: Duration, src: SocketAddr) -> SocketAddr {
        self.expire(now);
        let next = &mut self.next_port;
        let mapping = self.mappings.entry(src).or_insert_with(|| {
            *next += 1;
            (*next, now)
        });
        mapping.1 = now;
        SocketAddr::new(self.outside, mapping.0)
    }

    fn inward(&mut self, now: Duration, dst: SocketAddr) -> Option<SocketAddr> {
        self.expire(now);
        let found = self.mappings.iter().find(|(_, (port, _))| *port == dst.port());
        found.map(|(inside, _)| *inside)
    }

    fn expire(&mut self, now: Duration) {
        let expiry = self.expiry;
        if !expiry.is_zero() {
            self.mappings.retain(|_, (_, used)| now.saturating_sub(*used) <= expiry);
        }
    }
}

/// The network between the hosts of a [`World`](crate::World).
pub struct Network {
    /// For every link that is not in `links`.
    pub conditions: Conditions,
    /// Conditions by sending and receiving host.
    pub links: HashMap<(usize, usize), Conditions>,
    /// Links by sending and receiving host that are more than conditions; these do not count there.
    pub modelled: HashMap<(usize, usize), Link>,
    /// NATs.
    pub nats: Vec<Nat>,
    /// Octets of the largest IP packet with UDP that arrives. Larger packets are lost, and so are their fragments, without
    /// ICMP. IKE_SA_INIT always arrives.
    pub narrow: Option<usize>,
    /// Taps, asked in order when a packet is sent.
    pub taps: Vec<Tap>,
    /// Delivers nothing by itself: packets wait in `mailbox` until a test takes them.
    pub manual: bool,
    /// What waits to be delivered by hand, in the order of sending.
    pub mailbox: Vec<Packet>,
    /// Keeps what was sent.
    pub tracing: bool,
    /// What was sent, if `tracing`.
    pub trace: Vec<Packet>,
    /// Datagrams a receiver could not read as IKE, for want or excess of a marker.
    pub misdirected: u64,
    /// Datagrams from an address that is not the sender's.
    pub unsendable: u64,
    pub(crate) rng: Seeded,
}

impl Network {
    pub(crate) fn new(rng: Seeded) -> Self {
        Self {
            conditions: Conditions::default(),
            links: HashMap::new(),
            modelled: HashMap::new(),
            nats: Vec::new(),
            narrow: None,
            taps: Vec::new(),
            manual: false,
            mailbox: Vec::new(),
            tracing: true,
            trace: Vec::new(),
            misdirected: 0,
            unsendable: 0,
            rng,
        }
    }

    /// Puts a link between two hosts that does the same in both directions, each by itself.
    pub fn join(&mut self, one: usize, other: usize, model: LinkModel) {
        self.modelled.insert((one, other), Link::new(model));
        self.modelled.insert((other, one), Link::new(model));
    }

    /// When a packet of `from` to `to`, handed over now, arrives: once, twice or never.
    pub(crate) fn carry(
        &mut self,
        now: Duration,
        from: usize,
        to: usize,
        packet: &Packet,
    ) -> Vec<Duration> {
        // Nobody can send IKE_SA_INIT in smaller pieces.
        let first = packet.header().is_some_and(|h| h.exchange == ExchangeType::IKE_SA_INIT);
        let fits = |most| packet.stream.is_some() || first || packet.ip_octets() <= most;
        if !self.narrow.is_none_or(fits) {
            return Vec::new();
        }
        if let Some(link) = self.modelled.get_mut(&(from, to)) {
            return link.carry(now, packet.ip_octets(), &mut self.rng).into_iter().collect();
        }
        let link = self.link(Some(from), to);
        if self.rng.chance(link.loss) {
            return Vec::new();
        }
        let copies = 1 + u32::from(self.rng.chance(link.duplication));
        let jitter = u64::try_from(link.jitter.as_micros()).unwrap_or(u64::MAX - 1);
        let arrival = |_| now + link.delay + Duration::from_micros(self.rng.below(jitter + 1));
        (0..copies).map(arrival).collect()
    }

    /// Adds a tap.
    pub fn tap(&mut self, tap: impl FnMut(&mut Packet) -> Fate + Send + 'static) {
        self.taps.push(Box::new(tap));
    }

    /// Shows every tap a packet; what they have decided.
    pub(crate) fn tapped(&mut self, packet: &mut Packet) -> Fate {
        let fates: Vec<_> = self.taps.iter_mut().map(|tap| tap(packet)).collect();
        if fates.contains(&Fate::Drop) { Fate::Drop } else { Fate::Pass }
    }

    /// Loses the `n`-th packet from now, counted from 1, for which `which` is true.
    pub fn lose(&mut self, n: u32, which: impl Fn(&Packet) -> bool + Send + 'static) {
        let mut seen = 0;
        self.tap(move |packet| {
            seen += u32::from(which(packet));
            if which(packet) && seen == n { Fate::Drop } else { Fate::Pass }
        });
    }

    /// Conditions from host `from` to host `to`.
    pub fn link(&self, from: Option<usize>, to: usize) -> Conditions {
        let own = from.and_then(|from| self.links.get(&(from, to)));
        own.copied().unwrap_or(self.conditions)
    }

    /// The source of a packet from `src` on the far side of the NATs.
    pub(crate) fn outward(&mut self, now: Duration, src: SocketAddr) -> SocketAddr {
        match self.nats.iter_mut().find(|nat| nat.inside == src.ip()) {
            Some(nat) => nat.outward(now, src),
            None => src,
        }
    }

    /// Where a packet to `dst` would come out behind the NATs; `None` if they let none through.
    pub fn leads_to(&self, dst: SocketAddr) -> Option<SocketAddr> {
        if self.nats.iter().any(|nat| nat.inside == dst.ip()) {
            return None;
        }
        let Some(nat) = self.nats.iter().find(|nat| nat.outside == dst.ip()) else {
            return Some(dst);
        };
        nat.mappings().find(|(_, port)| *port == dst.port()).map(|(inside, _)| inside)
    }

    /// Translates the source of what leaves a NAT.
    pub(crate) fn leave(&mut self, now: Duration, packet: &mut Packet) {
        packet.src = self.outward(now, packet.src);
    }

    /// Translates the destination of what enters a NAT; false if it has no mapping for it.
    pub(crate) fn enter(&mut self, now: Duration, packet: &mut Packet) -> bool {
        if self.nats.iter().any(|nat| nat.inside == packet.dst.ip()) {
            // Private addresses are not routed.
            return false;
        }
        let nat = self.nats.iter_mut().find(|nat| nat.outside == packet.dst.ip());
        match nat {
            None => true,
            Some(nat) => match nat.inward(now, packet.dst) {
                Some(inside) => {
                    packet.dst = inside;
                    true
                }
                None => false,
            },
        }
    }
}

/// The path a receiver sees, if it can read the datagram as IKE at all.
pub(crate) fn arrival(packet: &Packet, natt_port: u16) -> Option<Path> {
    let encap = packet.dst.port() == natt_port;
    let transport = if encap { Transport::UdpEncap } else { Transport::Udp };
    (encap == packet.marker).then_some(Path { local: packet.dst, remote: packet.src, transport })
}
