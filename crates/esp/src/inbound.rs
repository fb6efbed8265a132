//! ESP packets on their way in (RFC 4301 §5.2, RFC 4303 §3.4).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ike_proto::dataplane::{Encapsulation, Event, PolicyAction};

use crate::buffer::Buffer;
use crate::ip::{self, Fragment, IpPacket, proto};
use crate::packet;
use crate::plane::{Clock, Shared};
use crate::sad::{Contents, Refused, Sa};
use crate::selector::sides;
use crate::slots::Slots;
use crate::stats::{DropReason, Tally};
use crate::tos;

/// Opens ESP packets. One per thread; it remembers the SAs it has seen.
pub struct Inbound {
    shared: Arc<Shared>,
    cache: Slots<(u32, IpAddr), Arc<Sa>>,
    tally: Tally,
    clock: Clock,
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
        let tally = shared.stats.tally();
        Self { shared, cache: Slots::new(), tally, clock: Clock::default() }
    }

    /// Opens `esp` and appends the IP packet it protects to `out`; returns its length. On an error `out`
    /// stays as it was.
    pub fn handle(
        &mut self,
        now: Instant,
        outer: &Outer,
        esp: &[u8],
        out: &mut Buffer,
    ) -> Result<usize, DropReason> {
        let start = out.len();
        let now = self.clock.tick(&self.shared, now);
        match self.open(now, outer, esp, out) {
            Ok(()) => {
                self.tally.opened();
                Ok(out.len() - start)
            }
            Err(reason) => {
                out.truncate(start);
                Err(self.tally.dropped(reason))
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
        verdict.map_err(|reason| self.tally.dropped(reason))
    }

    #[inline(always)]
    fn open(
        &mut self,
        now: u64,
        outer: &Outer,
        esp: &[u8],
        out: &mut Buffer,
    ) -> Result<(), DropReason> {
        let (spi, low) = packet::header(esp).ok_or(DropReason::Truncated)?;
        let Self { shared, cache, .. } = self;
        let sa = lookup(shared, cache, spi, outer.dst)?;
        if sa.exhausted() {
            return Err(DropReason::SaExpired);
        }
        let seq = sa.check_replay(low).ok_or(DropReason::Replay)?;
        let start = out.len();
        // The header that transport mode puts in front of the payload.
        let header = match (sa.contents, outer.dst) {
            (Contents::Packet, _) => 0,
            (Contents::Payload, IpAddr::V4(_)) => ip::IPV4_HEADER,
            (Contents::Payload, IpAddr::V6(_)) => ip::IPV6_HEADER,
        };
        out.append(header);
        let opened = sa.cipher.open(esp, seq, out)?;
        authenticated(shared, now, outer, sa, seq, opened.payload)?;

        let packet = out.get_mut(start..).ok_or(DropReason::Truncated)?;
        let len = match (opened.next_header, sa.contents) {
            (proto::NONE, _) => return Err(DropReason::Dummy),
            (proto::IPV4 | proto::IPV6, Contents::Packet) => {
                tunnel(sa, outer, opened.next_header, packet)?
            }
            (_, Contents::Packet) => return Err(DropReason::NextHeader),
            (next, Contents::Payload) => transport(sa, outer, next, header, packet)?,
        };
        out.truncate(start + len);
        Ok(())
    }
}

#[inline]
fn lookup<'a>(
    shared: &Shared,
    cache: &'a mut Slots<(u32, IpAddr), Arc<Sa>>,
    spi: u32,
    dst: IpAddr,
) -> Result<&'a Sa, DropReason> {
    let find = || shared.tables().sad.inbound(spi, dst).cloned().ok_or(DropReason::UnknownSpi);
    // Whoever chose the SPIs in use, this end, chose them at random, but for the top octet, which is the
    // shard.
    let found = cache.get_or_try_insert(shared.generation(), u64::from(spi), &(spi, dst), find);
    found.map(|sa| &**sa)
}

/// Everything that follows from an authentic packet, whatever is inside.
#[inline]
fn authenticated(
    shared: &Shared,
    now: u64,
    outer: &Outer,
    sa: &Sa,
    seq: u64,
    len: usize,
) -> Result<(), DropReason> {
    let events = &shared.events;
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
    let accepted = sa.accept(seq, len, now, remote, expected).map_err(|refused| match refused {
        Refused::Replayed => DropReason::Replay,
        Refused::Exhausted(exhausted) => {
            if exhausted.first {
                events.push(Event::HardExpire(sa.id));
            }
            DropReason::SaExpired
        }
    })?;
    if accepted.first {
        events.push(Event::FirstPacket(sa.id));
    }
    if accepted.soft {
        events.push(Event::SoftExpire(sa.id));
    }
    if let Some(remote) = accepted.moved {
        events.push(Event::Mapping { sa: sa.id, remote });
    }
    Ok(())
}

/// Judges the payload of tunnel mode, and gives the packet in it the ECN of RFC 6040. Returns its length:
/// what follows it is TFC padding (RFC 4303 §2.7).
#[inline]
fn tunnel(
    sa: &Sa,
    outer: &Outer,
    next_header: u8,
    payload: &mut [u8],
) -> Result<usize, DropReason> {
    let ip = IpPacket::parse(payload).map_err(|_| DropReason::InnerMalformed)?;
    if ip.tunnel_protocol() != next_header {
        return Err(DropReason::NextHeader);
    }
    let (remote, local) = sides(&ip);
    if !sa.admits(&local, &remote) {
        return Err(DropReason::Selectors);
    }
    let tos = tos::decapsulate(ip.tos, outer.tos).ok_or(DropReason::Congestion)?;
    if tos != ip.tos {
        ip::set_tos(payload, tos);
    }
    Ok(ip.total_len)
}

/// Makes a packet of a transport mode payload, `header` octets into `packet`, with a new header between the
/// outer addresses. Returns its length.
fn transport(
    sa: &Sa,
    outer: &Outer,
    next_header: u8,
    header: usize,
    packet: &mut [u8],
) -> Result<usize, DropReason> {
    let (src, dst) = (outer.src.ip(), outer.dst);
    let payload_len = packet.len().saturating_sub(header);
    let (octets, len) = ip::header(src, dst, outer.tos, next_header, payload_len)
        .filter(|(_, len)| *len == header)
        .ok_or(DropReason::InnerMalformed)?;
    let place = packet.get_mut(..header).ok_or(DropReason::InnerMalformed)?;
    place.copy_from_slice(octets.get(..len).unwrap_or_default());
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
    Ok(packet.len())
}
