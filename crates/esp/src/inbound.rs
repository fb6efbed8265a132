//! ESP packets on their way in (RFC 4301 §5.2, RFC 4303 §3.4).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ike_proto::dataplane::{Encapsulation, Event, PolicyAction};

use crate::ip::{self, Fragment, IpPacket, proto};
use crate::packet;
use crate::plane::Shared;
use crate::sad::{Contents, Exhausted, Sa};
use crate::selector::sides;
use crate::stats::DropReason;
use crate::tos;

/// SAs a worker remembers; with more in use it starts to remember anew.
const MAX_CACHED: usize = 4096;

/// Opens ESP packets. One per thread; it remembers the SAs it has seen.
pub struct Inbound {
    shared: Arc<Shared>,
    cache: HashMap<(u32, IpAddr), Arc<Sa>>,
    generation: u64,
}

/// The headers that an ESP packet arrived under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Source address; the port is 0 for ESP over IP.
    pub src: SocketAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// TOS or traffic class; of it only ECN is used. 0 if the front end cannot know.
    pub tos: u8,
    /// What it came in.
    pub carrier: Carrier,
}

/// What carries ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// IP, as protocol 50.
    Ip,
    /// UDP (RFC 3948).
    Udp,
    /// TCP (RFC 9329).
    Tcp,
}

impl Inbound {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, cache: HashMap::new(), generation: 0 }
    }

    /// Opens `esp` in place and appends the IP packet it protects to `out`; returns its length. On an
    /// error `out` stays as it was.
    pub fn handle(
        &mut self,
        now: Instant,
        outer: &Outer,
        esp: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, DropReason> {
        let start = out.len();
        let now = self.shared.tick(now);
        match self.open(now, outer, esp, out) {
            Ok(()) => {
                self.shared.stats.opened.fetch_add(1, Ordering::Relaxed);
                Ok(out.len() - start)
            }
            Err(reason) => {
                out.truncate(start);
                Err(self.shared.stats.count(reason))
            }
        }
    }

    /// Judges a packet that arrived in clear, for a front end that sees those: what a policy wants
    /// protected must not come like this (RFC 4301 §5.2).
    pub fn handle_clear(&mut self, packet: &[u8]) -> Result<(), DropReason> {
        let verdict = match IpPacket::parse(packet) {
            Err(_) => Err(DropReason::Malformed),
            Ok(ip) => {
                let (remote, local) = sides(&ip);
                match self.shared.tables().spd.find(&local, &remote).map(|p| &p.action) {
                    Some(PolicyAction::Pass) => Ok(()),
                    Some(PolicyAction::Drop) => Err(DropReason::PolicyDrop),
                    Some(
                        PolicyAction::Protect { .. }
                        | PolicyAction::Trap
                        | PolicyAction::Shunt { .. },
                    ) => Err(DropReason::Unprotected),
                    None => Err(DropReason::NoPolicy),
                }
            }
        };
        verdict.map_err(|reason| self.shared.stats.count(reason))
    }

    fn open(
        &mut self,
        now: u64,
        outer: &Outer,
        esp: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DropReason> {
        let (spi, low) = packet::header(esp).ok_or(DropReason::Truncated)?;
        let sa = self.lookup(spi, outer.dst)?;
        if sa.exhausted() {
            return Err(DropReason::SaExpired);
        }
        let seq = sa.check_replay(low).ok_or(DropReason::Replay)?;
        let opened = sa.cipher.open(esp, seq)?;
        self.authenticated(now, outer, &sa, seq, opened.payload.len())?;

        let payload = esp.get(opened.payload).ok_or(DropReason::Truncated)?;
        match (opened.next_header, sa.contents) {
            (proto::NONE, _) => Err(DropReason::Dummy),
            (proto::IPV4 | proto::IPV6, Contents::Packet) => {
                tunnel(&sa, outer, opened.next_header, payload, out)
            }
            (_, Contents::Packet) => Err(DropReason::NextHeader),
            (next, Contents::Payload) => transport(&sa, outer, next, payload, out),
        }
    }

    fn lookup(&mut self, spi: u32, dst: IpAddr) -> Result<Arc<Sa>, DropReason> {
        let generation = self.shared.generation();
        if self.generation != generation || self.cache.len() >= MAX_CACHED {
            self.cache.clear();
            self.generation = generation;
        }
        if let Some(sa) = self.cache.get(&(spi, dst)) {
            return Ok(Arc::clone(sa));
        }
        let found = self.shared.tables().sad.inbound(spi, dst).cloned();
        let sa = found.ok_or(DropReason::UnknownSpi)?;
        self.cache.insert((spi, dst), Arc::clone(&sa));
        Ok(sa)
    }

    /// Everything that follows from an authentic packet, whatever is inside.
    fn authenticated(
        &self,
        now: u64,
        outer: &Outer,
        sa: &Sa,
        seq: u64,
        len: usize,
    ) -> Result<(), DropReason> {
        let events = &self.shared.events;
        let (carrier, port) = match sa.path.encap {
            Some(Encapsulation::Udp(ports)) => (Carrier::Udp, ports.src_port),
            //= RFC 9329 §6.1
            //# It SHOULD choose the TCP connection on which it last received
            //# a valid and decryptable IKE or ESP message.
            Some(Encapsulation::Tcp(ports)) => (Carrier::Tcp, ports.src_port),
            None => (Carrier::Ip, 0),
        };
        let moves = carrier != Carrier::Ip && outer.carrier == carrier;
        let remote = moves.then_some(outer.src);
        let expected = SocketAddr::new(sa.path.src, port);
        let accepted = sa.accept(seq, remote, expected).ok_or(DropReason::Replay)?;
        let used = sa.charge(len, now).map_err(|Exhausted { first }| {
            if first {
                events.push(Event::HardExpire(sa.id));
            }
            DropReason::SaExpired
        })?;
        if used.first {
            events.push(Event::FirstPacket(sa.id));
        }
        if used.soft {
            events.push(Event::SoftExpire(sa.id));
        }
        if let Some(remote) = accepted.moved {
            events.push(Event::Mapping { sa: sa.id, remote });
        }
        Ok(())
    }
}

/// The packet inside a tunnel mode payload, with the ECN of RFC 6040. What follows it is TFC padding
/// (RFC 4303 §2.7) and is left behind.
fn tunnel(
    sa: &Sa,
    outer: &Outer,
    next_header: u8,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), DropReason> {
    let ip = IpPacket::parse(payload).map_err(|_| DropReason::InnerMalformed)?;
    if ip.tunnel_protocol() != next_header {
        return Err(DropReason::NextHeader);
    }
    let (remote, local) = sides(&ip);
    if !sa.admits(&local, &remote) {
        return Err(DropReason::Selectors);
    }
    let tos = tos::decapsulate(ip.tos, outer.tos).ok_or(DropReason::Congestion)?;
    let start = out.len();
    out.extend_from_slice(payload.get(..ip.total_len).ok_or(DropReason::InnerMalformed)?);
    if tos != ip.tos {
        ip::set_tos(out.get_mut(start..).unwrap_or_default(), tos);
    }
    Ok(())
}

/// The packet that a transport mode payload was part of, under a new header between the outer
/// addresses.
fn transport(
    sa: &Sa,
    outer: &Outer,
    next_header: u8,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), DropReason> {
    let (src, dst) = (outer.src.ip(), outer.dst);
    let (header, len) = ip::header(src, dst, outer.tos, next_header, payload.len())
        .ok_or(DropReason::InnerMalformed)?;
    let start = out.len();
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    out.extend_from_slice(payload);
    let packet = out.get_mut(start..).unwrap_or_default();
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::InnerMalformed)?;
    if ip.fragment != Fragment::None {
        return Err(DropReason::TransportFragment);
    }
    let (remote, local) = sides(&ip);
    if !sa.admits(&local, &remote) {
        return Err(DropReason::Selectors);
    }
    if outer.carrier != Carrier::Ip {
        ip::fix_checksum(src, dst, next_header, packet.get_mut(len..).unwrap_or_default());
    }
    Ok(())
}
