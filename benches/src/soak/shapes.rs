//! Messages that an endpoint must not keep anything of, one shape after the other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ike_proto::wire::payload::{Ke, Notify, Payload, Sa, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, PayloadType, ProtocolId};
use ike_proto::wire::{Flags, Header, encode_message};
use ike_proto::{Path, Transport};
use ike_tests::Seeded;
use ike_tests::handmade::{Started, proposal};

use crate::memory::config::GATEWAY;

/// What the attacker has: what he saw of others, and nothing else.
pub struct Attacker {
    rng: Seeded,
    /// An IKE_SA_INIT request that would be answered.
    init: Started,
    /// Everything that the gateway got of its clients.
    pub seen: Vec<(Path, Vec<u8>)>,
    counter: u64,
}

/// One shape.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// In a few words.
    pub name: &'static str,
    /// Makes one.
    pub make: fn(&mut Attacker) -> (Path, Vec<u8>),
    /// The gateway demands a cookie of everybody; otherwise as by default.
    pub cookies: bool,
}

/// All of them.
pub const SHAPES: &[Shape] = &[
    shape("noise", |attacker| {
        let len = 1 + attacker.rng.below(120) as usize;
        let octets = noise(attacker, len);
        attacker.sent_from_anywhere(octets)
    }),
    shape("another major version", |attacker| {
        let mut octets = attacker.fresh_init();
        octets[17] = 0x30;
        attacker.sent_from_anywhere(octets)
    }),
    shape("a length that is not the datagram's", |attacker| {
        let mut octets = attacker.fresh_init();
        octets[27] ^= 1 << attacker.rng.below(6);
        attacker.sent_from_anywhere(octets)
    }),
    shape("a payload beyond the message", |attacker| {
        let mut octets = attacker.fresh_init();
        octets[30] = 0x7f;
        attacker.sent_from_anywhere(octets)
    }),
    shape("SPI of no IKE SA", |attacker| {
        let spi = attacker.rng.number();
        let octets = attacker.sealed((spi, !spi), PayloadType::SK, false, 1, &[]);
        attacker.sent_from_anywhere(octets)
    }),
    shape("SK that the peer did not seal", |attacker| {
        let (path, spis, id) = attacker.somebody();
        (path, attacker.sealed(spis, PayloadType::SK, false, id, &[]))
    }),
    shape("fragments that the peer did not seal", |attacker| {
        let (path, spis, id) = attacker.somebody();
        let number = attacker.rng.below(4) as u8;
        (path, attacker.sealed(spis, PayloadType::SKF, false, id, &[0, number, 0, 3]))
    }),
    shape("fragment numbers that cannot be", |attacker| {
        let (path, spis, id) = attacker.somebody();
        let numbers = if attacker.rng.chance(500) { [0, 0, 0, 3] } else { [0, 9, 0, 3] };
        (path, attacker.sealed(spis, PayloadType::SKF, false, id, &numbers))
    }),
    shape("responses nobody waits for", |attacker| {
        let (path, spis, _) = attacker.somebody();
        let id = attacker.rng.below(8) as u32;
        (path, attacker.sealed(spis, PayloadType::SK, true, id, &[]))
    }),
    shape("forged fragment acknowledgements", |attacker| {
        let (path, spis, id) = attacker.somebody();
        (path, attacker.sealed(spis, PayloadType::SK, true, id.saturating_sub(1), &[]))
    }),
    shape("requests played back", |attacker| {
        let place = attacker.rng.below(attacker.seen.len() as u64) as usize;
        attacker.seen[place].clone()
    }),
    shape("the same played back from anywhere", |attacker| {
        let place = attacker.rng.below(attacker.seen.len() as u64) as usize;
        let octets = attacker.seen[place].1.clone();
        attacker.sent_from_anywhere(octets)
    }),
    shape("an unknown critical payload", |attacker| {
        let mut octets = attacker.fresh_init();
        // SA becomes a payload of the private range, critical.
        octets[16] = 200;
        octets[29] = 0x80;
        attacker.sent_from_anywhere(octets)
    }),
    shape("no proposal to choose", |attacker| {
        let octets = attacker.init_with("aes128-sha256-x25519", KeMethodId::CURVE_25519, 32);
        attacker.sent_from_anywhere(octets)
    }),
    shape("another key exchange method", |attacker| {
        let ike = "aes256gcm16-prfsha384-modp2048-x25519";
        let octets = attacker.init_with(ike, KeMethodId::MODP_2048, 256);
        attacker.sent_from_anywhere(octets)
    }),
    shape("IKE_SA_INIT from anywhere", |attacker| {
        let octets = attacker.fresh_init();
        attacker.sent_from_anywhere(octets)
    }),
    shape("IKE_SA_INIT again and again", |attacker| {
        let octets = attacker.init.request.clone();
        (path(Ipv4Addr::new(203, 0, 113, 7), 500), octets)
    }),
    Shape {
        name: "cookies that were not made here",
        make: |attacker| {
            let cookie = noise(attacker, 33);
            let mut payloads = vec![Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
            payloads.extend(attacker.init.payloads());
            let octets = attacker.init.encode(&payloads);
            let octets = attacker.freshen(octets);
            attacker.sent_from_anywhere(octets)
        },
        cookies: true,
    },
    Shape {
        name: "IKE_SA_INIT without a cookie",
        make: |attacker| {
            let octets = attacker.fresh_init();
            attacker.sent_from_anywhere(octets)
        },
        cookies: true,
    },
];

const fn shape(name: &'static str, make: fn(&mut Attacker) -> (Path, Vec<u8>)) -> Shape {
    Shape { name, make, cookies: false }
}

impl Attacker {
    /// One that has seen `seen`.
    pub fn new(seen: Vec<(Path, Vec<u8>)>) -> Self {
        let init = Started::new(ike_tests::cheap::provider(), 7);
        let mut attacker = Self { rng: Seeded::new(11), init, seen, counter: 0 };
        let ike = "aes256gcm16-prfsha384-x25519";
        attacker.init.request = attacker.init_with(ike, KeMethodId::CURVE_25519, 32);
        attacker
    }

    /// A good request with an SPI of its own.
    fn fresh_init(&mut self) -> Vec<u8> {
        let octets = self.init.request.clone();
        self.freshen(octets)
    }

    fn freshen(&mut self, mut octets: Vec<u8>) -> Vec<u8> {
        self.counter += 1;
        octets[..8].copy_from_slice(&(self.counter << 20 | 1).to_be_bytes());
        octets
    }

    /// One with this proposal and a public value of `octets`.
    fn init_with(&mut self, ike: &str, method: KeMethodId, octets: usize) -> Vec<u8> {
        let sa: Sa = proposal(ProtocolId::IKE, ike, Spi::None);
        let data = noise(self, octets);
        let mut payloads = self.init.payloads();
        for payload in &mut payloads {
            match payload {
                Payload::Sa(own) => *own = sa.clone(),
                Payload::Ke(ke) => *ke = Ke { method, data: &data },
                _ => {}
            }
        }
        let octets = self.init.encode(&payloads);
        drop(payloads);
        self.freshen(octets)
    }

    /// Where a client is, its SPIs, and the message ID of its next request.
    fn somebody(&mut self) -> (Path, (u64, u64), u32) {
        let place = self.rng.below(self.seen.len() as u64) as usize;
        let (path, octets) = &self.seen[place];
        match Header::peek(octets) {
            Some(header) => (*path, (header.spi_i, header.spi_r), header.message_id + 1),
            None => (*path, (1, 1), 1),
        }
    }

    /// A message with an Encrypted payload, or a fragment of these numbers, that nobody sealed.
    fn sealed(
        &mut self,
        (spi_i, spi_r): (u64, u64),
        kind: PayloadType,
        response: bool,
        message_id: u32,
        numbers: &[u8],
    ) -> Vec<u8> {
        let header = Header {
            spi_i,
            spi_r,
            next_payload: kind,
            minor_version: 0,
            exchange: ExchangeType::INFORMATIONAL,
            flags: Flags { initiator: true, version: false, response },
            message_id,
            length: 0,
        };
        let mut octets = encode_message(&header, &[]);
        let body = noise(self, 40 + numbers.len());
        octets[16] = kind.0;
        octets.extend([0, 0]);
        let len = u16::try_from(4 + body.len()).unwrap_or(u16::MAX);
        octets.extend(len.to_be_bytes());
        octets.extend(body);
        octets[32..32 + numbers.len()].copy_from_slice(numbers);
        let len = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        octets[24..28].copy_from_slice(&len.to_be_bytes());
        octets
    }

    fn sent_from_anywhere(&mut self, octets: Vec<u8>) -> (Path, Vec<u8>) {
        // 11.0.0.0/8 to 126.0.0.0/8: no client is there.
        let host = 0x0b00_0000 + self.rng.below(0x7400_0000) as u32;
        let port = 1 + self.rng.below(65_535) as u16;
        (path(Ipv4Addr::from_bits(host), port), octets)
    }
}

fn noise(attacker: &mut Attacker, octets: usize) -> Vec<u8> {
    use ike_proto::crypto::SecureRandom;
    let mut out = vec![0; octets];
    attacker.rng.fill(&mut out);
    out
}

fn path(host: Ipv4Addr, port: u16) -> Path {
    Path {
        local: SocketAddr::new(GATEWAY, 500),
        remote: SocketAddr::new(IpAddr::V4(host), port),
        transport: Transport::Udp,
    }
}
