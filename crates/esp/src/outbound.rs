//! Packets of the protected side on their way out (RFC 4301 §5.1).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ike_proto::crypto::{IvKind, SecureRandom};
use ike_proto::dataplane::{Direction, Encapsulation, Event, PolicyAction, SaId};

use crate::buffer::Buffer;
use crate::flow::{Decision, FlowCache, FlowKey};
use crate::ip::{Fragment, IPV4_HEADER, IpPacket, proto};
use crate::packet::MAX_IV;
use crate::plane::{Clock, Shared, Tables};
use crate::reassembly::Reassembler;
use crate::sad::{Contents, Sa, Spent};
use crate::selector::sides;
use crate::stats::{DropReason, Tally};
use crate::tos;

/// Protects packets. One per thread; it remembers the flows it has seen.
pub struct Outbound {
    shared: Arc<Shared>,
    cache: FlowCache,
    fragments: Reassembler,
    rng: Box<dyn SecureRandom>,
    tally: Tally,
    clock: Clock,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The ESP packet was appended to the buffer; it is to be sent like this.
    Send(Outgoing),
    /// A pass policy lets it through in clear.
    Pass,
    /// It is a fragment of a packet for transport mode, and kept until the rest is there.
    Held,
    /// It goes nowhere.
    Drop(DropReason),
}

/// How to send an ESP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// The SA.
    pub sa: SaId,
    /// Outer source address.
    pub src: IpAddr,
    /// Outer destination address.
    pub dst: IpAddr,
    /// In what between which ports; `None` is over IP as protocol 50.
    pub encap: Option<Encapsulation>,
    /// TOS or traffic class of the outer header.
    pub tos: u8,
    /// Don't Fragment of the inner header, for a front end that copies it (RFC 4301 §8.1).
    pub dont_fragment: bool,
    /// Octets of the ESP packet.
    pub len: usize,
}

impl Outbound {
    pub(crate) fn new(shared: Arc<Shared>, rng: Box<dyn SecureRandom>) -> Self {
        let (cache, fragments, tally) =
            (FlowCache::new(), Reassembler::default(), shared.stats.tally());
        Self { shared, cache, fragments, rng, tally, clock: Clock::default() }
    }

    /// Decides about the IP packet at the start of `packet`, and appends to `out` the ESP packet that
    /// protects it. Unless the verdict is [`Verdict::Send`], `out` stays as it was.
    pub fn handle(&mut self, now: Instant, packet: &[u8], out: &mut Buffer) -> Verdict {
        let verdict = self.verdict(now, packet, out).unwrap_or_else(Verdict::Drop);
        match verdict {
            Verdict::Send(_) => self.tally.sealed(),
            Verdict::Pass => self.tally.passed(),
            Verdict::Held => {}
            Verdict::Drop(reason) => _ = self.tally.dropped(reason),
        }
        verdict
    }

    #[inline(always)]
    fn verdict(
        &mut self,
        now: Instant,
        packet: &[u8],
        out: &mut Buffer,
    ) -> Result<Verdict, DropReason> {
        let Self { shared, cache, fragments, rng, clock, .. } = self;
        let now = clock.tick(shared, now);
        let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
        let sa = match remember(shared, cache, &ip) {
            Decision::Protect(sa) => sa,
            Decision::Pass => return Ok(Verdict::Pass),
            Decision::Trap(policy) => {
                shared.events.acquire(policy.id, &ip, now);
                return Err(DropReason::Trapped);
            }
            Decision::Drop(reason) => return Err(*reason),
        };
        if ip.fragment == Fragment::None || sa.contents == Contents::Packet {
            return protect(shared, rng.as_mut(), now, sa, &ip, packet, out);
        }
        match fragments.add(now, packet, &ip) {
            Ok(None) => Ok(Verdict::Held),
            Err(_) => Err(DropReason::TransportFragment),
            Ok(Some(whole)) => {
                // Ports are seen now, and may make it a matter of another policy.
                let ip = IpPacket::parse(&whole).map_err(|_| DropReason::Malformed)?;
                match remember(shared, cache, &ip) {
                    Decision::Protect(sa) => {
                        protect(shared, rng.as_mut(), now, sa, &ip, &whole, out)
                    }
                    _ => Err(DropReason::TransportFragment),
                }
            }
        }
    }
}

/// The decision about the flow of `ip`, made anew only if it is not in `cache`.
#[inline]
fn remember<'a>(shared: &Shared, cache: &'a mut FlowCache, ip: &IpPacket) -> &'a Decision {
    let generation = shared.generation();
    cache.get_or_insert(generation, &FlowKey::new(ip), || decide(&shared.tables(), ip))
}

/// What the policies say about the flow of `ip`.
fn decide(tables: &Tables, ip: &IpPacket) -> Decision {
    let (local, remote) = sides(ip);
    let Some(policy) = tables.spd.find(&local, &remote) else {
        return Decision::Drop(DropReason::NoPolicy);
    };
    let outbound = match &policy.action {
        PolicyAction::Protect { outbound, .. } => *outbound,
        PolicyAction::Trap => return Decision::Trap(Arc::clone(policy)),
        PolicyAction::Pass => return Decision::Pass,
        PolicyAction::Drop => return Decision::Drop(DropReason::PolicyDrop),
        PolicyAction::Shunt { .. } => return Decision::Drop(DropReason::NoSa),
    };
    // Without its SA a protect policy drops: nothing it covers leaves in clear.
    let Some(sa) = outbound.and_then(|id| tables.sad.get(id)) else {
        return Decision::Drop(DropReason::NoSa);
    };
    if sa.direction != Direction::Out {
        return Decision::Drop(DropReason::NoSa);
    }
    if !sa.admits(&local, &remote) {
        return Decision::Drop(DropReason::Selectors);
    }
    Decision::Protect(Arc::clone(sa))
}

#[inline(always)]
fn protect(
    shared: &Shared,
    rng: &mut dyn SecureRandom,
    now: u64,
    sa: &Sa,
    ip: &IpPacket,
    packet: &[u8],
    out: &mut Buffer,
) -> Result<Verdict, DropReason> {
    let packet = packet.get(..ip.total_len).ok_or(DropReason::Malformed)?;
    let (next_header, payload) = match sa.contents {
        Contents::Packet => (ip.tunnel_protocol(), packet),
        Contents::Payload => transport_payload(sa, ip, packet)?,
    };
    let (seq, soft) = sa.take_sequence(payload.len(), now).map_err(|spent| {
        let (exhausted, reason) = match spent {
            Spent::Limit(exhausted) => (exhausted, DropReason::SaExpired),
            Spent::Sequence(exhausted) => (exhausted, DropReason::SequenceOverflow),
        };
        if exhausted.first {
            shared.events.push(Event::HardExpire(sa.id));
        }
        reason
    })?;
    if soft {
        shared.events.push(Event::SoftExpire(sa.id));
    }

    let start = out.len();
    let mut iv = [0; MAX_IV];
    let iv = iv.get_mut(..sa.cipher.lengths.iv).ok_or(DropReason::Crypto)?;
    make_iv(sa.cipher.lengths.iv_kind, seq, rng, iv);
    sa.cipher
        .seal(sa.id.spi, seq, iv, next_header, payload, out)
        .map_err(|_| DropReason::Crypto)?;
    Ok(Verdict::Send(Outgoing {
        sa: sa.id,
        src: sa.path.src,
        dst: sa.path.dst,
        encap: sa.path.encap,
        tos: tos::encapsulate(ip.tos),
        dont_fragment: ip.dont_fragment,
        len: out.len() - start,
    }))
}

/// What of `packet` goes into a transport mode ESP packet (RFC 4303 §3.1.1): all behind the IP header.
/// The header in front of ESP is made by the front end, so a packet with options or extension headers
/// that belong there cannot be carried.
fn transport_payload<'a>(
    sa: &Sa,
    ip: &IpPacket,
    packet: &'a [u8],
) -> Result<(u8, &'a [u8]), DropReason> {
    if ip.fragment != Fragment::None {
        return Err(DropReason::TransportFragment);
    }
    if ip.dst != sa.path.dst {
        return Err(DropReason::Selectors);
    }
    let headers = match ip.dst {
        IpAddr::V4(_) => ip.base_len != IPV4_HEADER,
        IpAddr::V6(_) => matches!(ip.base_next, proto::HOP_BY_HOP | proto::ROUTING),
    };
    if headers {
        return Err(DropReason::TransportHeaders);
    }
    let payload = packet.get(ip.base_len..).ok_or(DropReason::Malformed)?;
    Ok((ip.base_next, payload))
}

/// An IV that never repeats under a key: the sequence number does not either. A random one for CBC.
fn make_iv(kind: IvKind, seq: u64, rng: &mut dyn SecureRandom, iv: &mut [u8]) {
    match kind {
        IvKind::Random => rng.fill(iv),
        IvKind::Counter => {
            for (octet, count) in iv.iter_mut().rev().zip(seq.to_be_bytes().into_iter().rev()) {
                *octet = count;
            }
        }
    }
}
