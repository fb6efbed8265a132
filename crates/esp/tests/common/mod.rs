//! Two planes back to back, and the packets that go through them.
#![allow(dead_code, reason = "each program uses its part of this")]
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esp::{Buffer, Carrier, DropReason, Inbound, Outbound, Outer, Outgoing, Plane, Verdict, ip};
use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherProvider, CipherSuite, Secret, SecureRandom};
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Event, Limits, Mode, PolicyAction,
    PolicyId, PolicySpec, Processing, SaId, SaSpec, TrafficSelector,
};
use pq_kem::sym::Ciphers;

pub static CIPHERS: Ciphers = Ciphers;

pub const GCM: CipherSuite =
    CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE };
pub const CHACHA: CipherSuite =
    CipherSuite { encr: EncrId::CHACHA20_POLY1305, key_bits: 0, integ: IntegId::NONE };
pub const CBC: CipherSuite =
    CipherSuite { encr: EncrId::AES_CBC, key_bits: 128, integ: IntegId::HMAC_SHA2_256_128 };

/// One suite of every kind the ESP packet format tells apart, and every ICV length.
pub const SUITES: [CipherSuite; 11] = [
    GCM,
    CipherSuite { key_bits: 256, ..GCM },
    CHACHA,
    CipherSuite { encr: EncrId::AES_CCM_8, ..GCM },
    CipherSuite { encr: EncrId::AES_CCM_16, ..GCM },
    CBC,
    CipherSuite { integ: IntegId::HMAC_SHA2_256_96, ..CBC },
    CipherSuite { key_bits: 192, integ: IntegId::HMAC_SHA1_96, ..CBC },
    CipherSuite { key_bits: 256, integ: IntegId::HMAC_SHA2_512_256, ..CBC },
    CipherSuite { encr: EncrId::AES_CTR, key_bits: 256, integ: IntegId::HMAC_SHA2_384_192 },
    CipherSuite { encr: EncrId::NULL, key_bits: 0, integ: IntegId::HMAC_SHA2_256_128 },
];

pub const POLICY: PolicyId = PolicyId(1);
pub const SPI: u32 = 0xc0ff_ee01;

/// A repeatable stand-in for randomness.
pub struct Counting(pub u64);

impl SecureRandom for Counting {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *octet = (self.0 >> 56) as u8;
        }
    }
}

/// What two ends agree on: packets go from `left` to `right`.
#[derive(Debug, Clone)]
pub struct Tunnel {
    pub suite: CipherSuite,
    pub mode: Mode,
    pub esn: bool,
    pub encap: bool,
    pub left: IpAddr,
    pub right: IpAddr,
    pub left_ts: Vec<TrafficSelector>,
    pub right_ts: Vec<TrafficSelector>,
    pub window: u32,
    pub limits: Limits,
    pub processing: Arc<Processing>,
}

impl Tunnel {
    pub fn v4() -> Self {
        Self {
            suite: GCM,
            mode: Mode::Tunnel,
            esn: false,
            encap: false,
            left: addr("192.0.2.1"),
            right: addr("198.51.100.1"),
            left_ts: vec![ts("10.1.0.0/16")],
            right_ts: vec![ts("10.2.0.0/16")],
            window: 64,
            limits: Limits::default(),
            processing: Arc::default(),
        }
    }

    pub fn v6() -> Self {
        Self {
            left: addr("2001:db8::1"),
            right: addr("2001:db8::2"),
            left_ts: vec![ts("2001:db8:1::/48")],
            right_ts: vec![ts("2001:db8:2::/48")],
            ..Self::v4()
        }
    }

    /// Transport mode between the two outer addresses.
    pub fn transport(self) -> Self {
        Self {
            mode: Mode::Transport,
            left_ts: vec![TrafficSelector::host(self.left)],
            right_ts: vec![TrafficSelector::host(self.right)],
            ..self
        }
    }

    pub fn id(&self) -> SaId {
        SaId { spi: SPI, dst: self.right }
    }

    /// The SA as one of the ends installs it.
    pub fn sa(&self, direction: Direction) -> SaSpec {
        let lengths = CIPHERS.lengths(self.suite).expect("the backend has the suite");
        let key = |n, seed: u8| Secret::new((0..n).map(|i| i as u8 ^ seed).collect());
        let (local_ts, remote_ts) = match direction {
            Direction::Out => (self.left_ts.clone(), self.right_ts.clone()),
            Direction::In => (self.right_ts.clone(), self.left_ts.clone()),
        };
        SaSpec {
            id: self.id(),
            src: self.left,
            direction,
            mode: self.mode,
            policy: POLICY,
            suite: self.suite,
            encr_key: key(lengths.encr_key, 0x5a),
            integ_key: key(lengths.integ_key, 0xa5),
            esn: self.esn,
            replay_window: self.window,
            encap: self
                .encap
                .then_some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 })),
            local_ts,
            remote_ts,
            limits: self.limits,
            lifetime: Duration::ZERO,
            cpu: None,
            processing: Arc::clone(&self.processing),
        }
    }

    /// The left end's policy.
    pub fn policy(&self) -> PolicySpec {
        PolicySpec {
            id: POLICY,
            child: "net".into(),
            owner: "site [peer]".into(),
            local_ts: self.left_ts.clone(),
            remote_ts: self.right_ts.clone(),
            action: PolicyAction::Protect {
                mode: self.mode,
                local: self.left,
                remote: self.right,
                outbound: Some(self.id()),
            },
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        }
    }

    pub fn connect(&self) -> Pair {
        let now = start();
        let (mut left, mut right) = (Plane::new(now, &CIPHERS), Plane::new(now, &CIPHERS));
        left.apply(Command::InstallSa(Box::new(self.sa(Direction::Out)))).unwrap();
        left.apply(Command::InstallPolicy(Box::new(self.policy()))).unwrap();
        right.apply(Command::InstallSa(Box::new(self.sa(Direction::In)))).unwrap();
        let sender = left.outbound(Box::new(Counting(1)));
        let receiver = right.inbound();
        Pair { now, left, right, sender, receiver }
    }

    /// A packet from inside `left_ts` to inside `right_ts`, or between the ends in transport mode.
    pub fn packet(&self, payload: usize) -> Vec<u8> {
        let (src, dst) = (self.left_ts[0].start, self.right_ts[0].start);
        udp(src, dst, 1000, 2000, payload)
    }
}

/// A sending and a receiving plane.
pub struct Pair {
    pub now: Instant,
    pub left: Plane,
    pub right: Plane,
    pub sender: Outbound,
    pub receiver: Inbound,
}

impl Pair {
    /// Seals `packet`.
    pub fn seal(&mut self, packet: &[u8]) -> Result<(Outgoing, Vec<u8>), Verdict> {
        let mut out = Buffer::new();
        match self.sender.handle(self.now, packet, &mut out) {
            Verdict::Send(outgoing) => {
                assert_eq!(outgoing.len, out.len());
                Ok((outgoing, out.to_vec()))
            }
            other => {
                assert!(out.is_empty(), "a packet that is not sent leaves nothing behind");
                Err(other)
            }
        }
    }

    /// Opens what `seal` made, as if it came over the network.
    pub fn open(&mut self, outgoing: &Outgoing, esp: &[u8]) -> Result<Vec<u8>, DropReason> {
        self.open_from(&arrival(outgoing), esp)
    }

    pub fn open_from(&mut self, outer: &Outer, esp: &[u8]) -> Result<Vec<u8>, DropReason> {
        let mut out = Buffer::from(&[0xee; 3][..]);
        let opened = self.receiver.handle(self.now, outer, esp, &mut out);
        let (before, inner) = out.split_at(3);
        assert_eq!(before, [0xee; 3], "what was in the buffer stays");
        match opened {
            Ok(len) => assert_eq!(len, inner.len()),
            Err(_) => assert!(inner.is_empty(), "a dropped packet leaves nothing behind"),
        }
        opened.map(|_| inner.to_vec())
    }

    pub fn send(&mut self, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
        let (outgoing, esp) = self.seal(packet).expect("sealed");
        self.open(&outgoing, &esp)
    }

    pub fn advance(&mut self, by: Duration) {
        self.now += by;
    }
}

/// The headers that a packet sent like `outgoing` arrives under, without a NAT between.
pub fn arrival(outgoing: &Outgoing) -> Outer {
    let port = outgoing.encap.map_or(0, |encap| encap.ports().src_port);
    Outer {
        src: SocketAddr::new(outgoing.src, port),
        dst: outgoing.dst,
        fields: outgoing.fields,
        carrier: match outgoing.encap {
            None => Carrier::Ip,
            Some(Encapsulation::Udp(_)) => Carrier::Udp,
            Some(Encapsulation::Tcp(_)) => Carrier::Tcp,
        },
    }
}

pub fn events(plane: &mut Plane) -> Vec<Event> {
    std::iter::from_fn(|| plane.poll_event()).collect()
}

/// The tests' only look at a clock: an `Instant` cannot be made otherwise.
#[expect(clippy::disallowed_methods, reason = "an Instant to count from")]
pub fn start() -> Instant {
    Instant::now()
}

pub fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn ts(text: &str) -> TrafficSelector {
    text.parse().unwrap()
}

/// An IP packet around `payload`.
pub fn packet(src: IpAddr, dst: IpAddr, tos: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (header, len) = ip::header(src, dst, tos, protocol, payload.len()).unwrap();
    [&header[..len], payload].concat()
}

/// A UDP packet with a right checksum.
pub fn udp(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, payload: usize) -> Vec<u8> {
    let len = (payload + 8) as u16;
    let mut segment = Vec::new();
    for field in [sport, dport, len, 0xffff] {
        segment.extend_from_slice(&field.to_be_bytes());
    }
    segment.extend((0..payload).map(|i| i as u8));
    ip::fix_checksum(src, dst, ip::proto::UDP, &mut segment);
    packet(src, dst, 0, ip::proto::UDP, &segment)
}

/// A TCP segment's first 20 octets and some data.
pub fn tcp(src: IpAddr, dst: IpAddr, sport: u16, dport: u16) -> Vec<u8> {
    let mut segment = vec![0; 32];
    segment[..2].copy_from_slice(&sport.to_be_bytes());
    segment[2..4].copy_from_slice(&dport.to_be_bytes());
    segment[12] = 0x50;
    ip::fix_checksum(src, dst, ip::proto::TCP, &mut segment);
    packet(src, dst, 0, ip::proto::TCP, &segment)
}

/// A TCP segment with `payload` octets and the flag ACK.
pub fn tcp_segment(src: IpAddr, dst: IpAddr, payload: usize) -> Vec<u8> {
    let mut segment = vec![0; 20 + payload];
    (segment[12], segment[13]) = (0x50, 0x10);
    ip::fix_checksum(src, dst, ip::proto::TCP, &mut segment);
    packet(src, dst, 0, ip::proto::TCP, &segment)
}

/// Turns an IPv4 packet into a fragment with this offset (in octets).
pub fn fragment(mut packet: Vec<u8>, offset: u16, more: bool) -> Vec<u8> {
    let field = (offset / 8) | if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&field.to_be_bytes());
    packet[10..12].fill(0);
    let sum = ip::checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The fragments of `packet` with up to `size` octets of payload each, in order.
pub fn fragments(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let v4 = packet[0] >> 4 == 4;
    let (header, payload) = packet.split_at(if v4 { 20 } else { 40 });
    let count = payload.len().div_ceil(size);
    let pieces = payload.chunks(size).enumerate().map(|(n, data)| {
        let (offset, more) = (n * size, n + 1 < count);
        let mut piece = header.to_vec();
        if v4 {
            piece.extend_from_slice(data);
            let len = piece.len() as u16;
            piece[2..4].copy_from_slice(&len.to_be_bytes());
            return fragment(piece, offset as u16, more);
        }
        piece[4..6].copy_from_slice(&(data.len() as u16 + 8).to_be_bytes());
        piece[6] = ip::proto::FRAGMENT;
        piece.extend_from_slice(&[header[6], 0]);
        piece.extend_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
        piece.extend_from_slice(&[0, 0, 0, 9]);
        piece.extend_from_slice(data);
        piece
    });
    pieces.collect()
}

/// A fragment with another identification.
pub fn with_id(mut piece: Vec<u8>, id: u8) -> Vec<u8> {
    let at = if piece[0] >> 4 == 4 { 5 } else { 47 };
    piece[at] = id;
    piece
}

/// Packets of `tunnel` that are unlike each other in every field that transport mode leaves alone.
pub fn of_many_fields(tunnel: &Tunnel) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (tos, limit, df, label) in
        [(0, 64, true, 1), (0xb8, 255, false, 0x1_2345), (0x28 | 0b10, 1, false, 0xf_ffff)]
    {
        let mut packet = tunnel.packet(40);
        ip::set_tos(&mut packet, tos);
        if packet[0] >> 4 == 4 {
            packet[8] = limit;
            packet[6] = if df { 0x40 } else { 0 };
            packet[10..12].fill(0);
            let sum = ip::checksum(&[&packet[..20]]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            packet[7] = limit;
            let first = 6_u32 << 28 | u32::from(tos) << 20 | label;
            packet[..4].copy_from_slice(&first.to_be_bytes());
        }
        packets.push(packet);
    }
    packets
}
