//! Userspace ESP beside the bare ciphers: what `ike-bench esp` and the criterion bench `esp` run.
//!
//! A [`Tunnel`] is the way packets really go: flow cache, policy, SA, sequence number, padding and seal;
//! then SPI, replay window, open, selectors and the inner packet. A [`Bare`] is the cipher alone, on as
//! many octets.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use esp::{Buffer, Carrier, Fate, Inbound, Outbound, Outer, Outgoing, Plane, Verdict, ip};
use ike_proto::crypto::{CipherKey, CipherLengths, CipherProvider, CipherSuite, Frame, Secret};
use ike_proto::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Limits, Mode, PolicyAction, PolicyId,
    PolicySpec, SaId, SaSpec, TrafficSelector,
};
use ike_proto::wire::registry::{EncrId, IntegId};
use pq_kem::sym::Ciphers;

pub mod cli;
pub mod cores;
pub mod measure;

/// Lengths of IP packets, from that of a bare TCP acknowledgement to a jumbo frame.
pub const SIZES: [usize; 7] = [64, 128, 256, 512, 1400, 4096, 9000];

/// Packets that are sealed, and then opened, in one go; about what one receive or one read brings.
pub const BATCH: usize = 32;

/// A suite and its name in proposals.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// As in `esp_proposals`.
    pub name: &'static str,
    /// The suite.
    pub suite: CipherSuite,
}

/// The suites that ESP proposals can name, one of each kind and key length.
pub const SUITES: [Suite; 11] = [
    aead("aes128gcm16", EncrId::AES_GCM_16, 128),
    aead("aes192gcm16", EncrId::AES_GCM_16, 192),
    aead("aes256gcm16", EncrId::AES_GCM_16, 256),
    aead("chacha20poly1305", EncrId::CHACHA20_POLY1305, 0),
    aead("aes128ccm16", EncrId::AES_CCM_16, 128),
    aead("aes256ccm16", EncrId::AES_CCM_16, 256),
    with_mac("aes128-sha256", EncrId::AES_CBC, 128, IntegId::HMAC_SHA2_256_128),
    with_mac("aes256-sha256", EncrId::AES_CBC, 256, IntegId::HMAC_SHA2_256_128),
    with_mac("aes256-sha512", EncrId::AES_CBC, 256, IntegId::HMAC_SHA2_512_256),
    with_mac("aes256ctr-sha384", EncrId::AES_CTR, 256, IntegId::HMAC_SHA2_384_192),
    with_mac("null-sha256", EncrId::NULL, 0, IntegId::HMAC_SHA2_256_128),
];

const fn aead(name: &'static str, encr: EncrId, key_bits: u16) -> Suite {
    with_mac(name, encr, key_bits, IntegId::NONE)
}

const fn with_mac(name: &'static str, encr: EncrId, key_bits: u16, integ: IntegId) -> Suite {
    Suite { name, suite: CipherSuite { encr, key_bits, integ } }
}

/// Two planes back to back: packets go from the left one to the right one, in UDP.
pub struct Tunnel {
    now: Instant,
    left: Plane,
    right: Plane,
    outer: Outer,
}

impl Tunnel {
    /// One tunnel-mode SA of `suite`, with the replay window that is the daemon's default.
    pub fn new(suite: CipherSuite) -> Result<Self, String> {
        Self::with_window(suite, WINDOW)
    }

    /// The same with a replay window of so many packets.
    pub fn with_window(suite: CipherSuite, window: u32) -> Result<Self, String> {
        let now = Instant::now();
        let (mut left, mut right) = (Plane::new(now, &Ciphers), Plane::new(now, &Ciphers));
        let apply = |plane: &mut Plane, command| match plane.apply(command) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        let inbound = SaSpec { replay_window: window, ..sa(suite, Direction::In)? };
        apply(&mut left, Command::InstallSa(Box::new(sa(suite, Direction::Out)?)))?;
        apply(&mut left, Command::InstallPolicy(Box::new(policy())))?;
        apply(&mut right, Command::InstallSa(Box::new(inbound)))?;
        let src = SocketAddr::new(LEFT, PORTS.src_port);
        let outer =
            Outer { src, dst: RIGHT, fields: esp::Fields::default(), carrier: Carrier::Udp };
        Ok(Self { now, left, right, outer })
    }

    /// A worker that seals.
    pub fn sender(&self) -> Outbound {
        self.left.outbound(Box::new(pq_kem::os_random()))
    }

    /// A worker that opens.
    pub fn receiver(&self) -> Inbound {
        self.right.inbound()
    }

    /// Seals `packet` behind what is in `out`.
    pub fn seal(&self, sender: &mut Outbound, packet: &[u8], out: &mut Buffer) -> Outgoing {
        match sender.handle(self.now, packet, out) {
            Verdict::Send(outgoing) => outgoing,
            // A benchmark of dropping packets would be a fast one.
            other => panic!("not sealed: {other:?}"),
        }
    }

    /// Seals `packets` as the daemon does what one read of its device brings; returns the last one's
    /// length.
    pub fn seal_batch(
        &self,
        sender: &mut Outbound,
        packets: &[impl AsRef<[u8]>],
        out: &mut Buffer,
    ) -> usize {
        let mut len = 0;
        for packets in packets.chunks(BATCH) {
            let packets: ArrayVec<&[u8], BATCH> = packets.iter().map(AsRef::as_ref).collect();
            sender.handle_batch(self.now, &packets, out, |_, fate| match black_box(fate) {
                Fate::Send(sealed) => len = sealed.len,
                other => panic!("not sealed: {other:?}"),
            });
        }
        len
    }

    /// Opens ESP packets of `len` octets, as the daemon does what one receive brings, into a buffer each.
    pub fn open_batch(
        &self,
        receiver: &mut Inbound,
        packets: &[u8],
        len: usize,
        out: &mut [Buffer],
    ) {
        for (packets, out) in packets.chunks(len * BATCH).zip(out.chunks_mut(BATCH)) {
            let packets: ArrayVec<&[u8], BATCH> = packets.chunks(len).collect();
            let each = |result: Result<usize, _>| {
                assert!(black_box(&result).is_ok(), "not opened: {result:?}");
            };
            receiver.handle_batch(self.now, &self.outer, &packets, out, each);
        }
    }

    /// Opens `esp` and puts the packet in it behind what is in `out`; returns its length.
    pub fn open(&self, receiver: &mut Inbound, esp: &[u8], out: &mut Buffer) -> usize {
        match receiver.handle(self.now, &self.outer, esp, out) {
            Ok(len) => len,
            Err(reason) => panic!("not opened: {reason:?}"),
        }
    }
}

/// An IP packet of `size` octets of the tunnel's traffic; `flow` tells flows apart.
pub fn packet(size: usize, flow: u16) -> Vec<u8> {
    let payload = size.saturating_sub(ip::IPV4_HEADER);
    let (src, dst) = (IpAddr::from([10, 1, 0, 1]), IpAddr::from([10, 2, 0, 1]));
    let header = ip::header(src, dst, 0, ip::proto::TCP, payload);
    let (header, len) = header.expect("addresses of one family, and a packet of legal length");
    let mut packet = header.get(..len).unwrap_or_default().to_vec();
    packet.extend((0..payload).map(|i| i as u8));
    if let Some(port) = packet.get_mut(ip::IPV4_HEADER..ip::IPV4_HEADER + 2) {
        port.copy_from_slice(&flow.to_be_bytes());
    }
    packet
}

/// A cipher without ESP around it. Data and tag are as long as a packet's, and so is what is
/// authenticated in clear.
pub enum Bare {
    /// `aws-lc-rs`, called as its documentation has it.
    AwsLc {
        /// The key.
        key: LessSafeKey,
        /// Nonces used.
        count: u64,
    },
    /// The backend's other suites.
    Backend {
        /// The key.
        key: Box<dyn CipherKey>,
        /// Its lengths.
        lengths: CipherLengths,
    },
}

impl Bare {
    /// A key of `suite`.
    pub fn new(suite: CipherSuite) -> Result<Self, String> {
        let algorithm = match (suite.encr, suite.key_bits) {
            (EncrId::AES_GCM_16, 128) => &aead::AES_128_GCM,
            (EncrId::AES_GCM_16, 192) => &aead::AES_192_GCM,
            (EncrId::AES_GCM_16, 256) => &aead::AES_256_GCM,
            (EncrId::CHACHA20_POLY1305, _) => &aead::CHACHA20_POLY1305,
            _ => {
                let lengths = Ciphers.lengths(suite).ok_or("no such suite")?;
                let (encr, integ) = (vec![0x5a; lengths.encr_key], vec![0xa5; lengths.integ_key]);
                let key = Ciphers.key(suite, &encr, &integ).map_err(|e| e.to_string())?;
                return Ok(Self::Backend { key, lengths });
            }
        };
        let key = UnboundKey::new(algorithm, &vec![0x5a; algorithm.key_len()])
            .map_err(|_| "the backend refuses the key")?;
        Ok(Self::AwsLc { key: LessSafeKey::new(key), count: 0 })
    }

    /// The length of a buffer for `size` octets of data, with what the cipher adds to it.
    pub fn len(&self, size: usize) -> usize {
        match self {
            Self::AwsLc { key, .. } => size + key.algorithm().tag_len(),
            Self::Backend { lengths, .. } => size.next_multiple_of(lengths.block) + lengths.icv,
        }
    }

    /// Seals all of `buffer` but the room for the tag at its end.
    pub fn seal(&mut self, buffer: &mut [u8]) {
        match self {
            Self::AwsLc { key, count } => {
                *count += 1;
                let tag_at = buffer.len() - key.algorithm().tag_len();
                let (data, place) = buffer.split_at_mut(tag_at);
                let tag = key.seal_in_place_separate_tag(nonce(*count), Aad::from(CLEAR), data);
                place.copy_from_slice(tag.expect("data are no longer than allowed").as_ref());
            }
            Self::Backend { key, lengths } => {
                let (data, icv) = buffer.split_at_mut(buffer.len() - lengths.icv);
                let frame = Frame { iv: &IV[..lengths.iv], aad: &CLEAR, trailer: &[] };
                key.seal(frame, data, icv).expect("lengths are those of the suite");
            }
        }
    }

    /// Opens what the `nth` of the last `of` calls of [`Self::seal`] sealed.
    pub fn open(&mut self, buffer: &mut [u8], nth: usize, of: usize) {
        match self {
            Self::AwsLc { key, count } => {
                let nonce = nonce(*count - of as u64 + nth as u64 + 1);
                key.open_in_place(nonce, Aad::from(CLEAR), buffer).expect("it is authentic");
            }
            Self::Backend { key, lengths } => {
                let (data, icv) = buffer.split_at_mut(buffer.len() - lengths.icv);
                let frame = Frame { iv: &IV[..lengths.iv], aad: &CLEAR, trailer: &[] };
                key.open(frame, data, icv).expect("it is authentic");
            }
        }
    }
}

fn nonce(count: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn sa(suite: CipherSuite, direction: Direction) -> Result<SaSpec, String> {
    let lengths = Ciphers.lengths(suite).ok_or("no such suite")?;
    let (local_ts, remote_ts) = match direction {
        Direction::Out => selectors(),
        Direction::In => {
            let (left, right) = selectors();
            (right, left)
        }
    };
    Ok(SaSpec {
        id: ID,
        src: LEFT,
        direction,
        mode: Mode::Tunnel,
        policy: POLICY,
        suite,
        encr_key: Secret::new(vec![0x5a; lengths.encr_key]),
        integ_key: Secret::new(vec![0xa5; lengths.integ_key]),
        esn: false,
        replay_window: WINDOW,
        encap: Some(Encapsulation::Udp(PORTS)),
        local_ts,
        remote_ts,
        limits: Limits::default(),
        lifetime: std::time::Duration::ZERO,
        cpu: None,
        processing: Arc::default(),
    })
}

fn policy() -> PolicySpec {
    let (local_ts, remote_ts) = selectors();
    PolicySpec {
        id: POLICY,
        child: "net".into(),
        owner: "site".into(),
        local_ts,
        remote_ts,
        action: PolicyAction::Protect {
            mode: Mode::Tunnel,
            local: LEFT,
            remote: RIGHT,
            outbound: Some(ID),
        },
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    }
}

fn selectors() -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let network = |second| TrafficSelector {
        protocol: 0,
        start_port: 0,
        end_port: u16::MAX,
        start: IpAddr::from([10, second, 0, 0]),
        end: IpAddr::from([10, second, 255, 255]),
    };
    (vec![network(1)], vec![network(2)])
}

const LEFT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const RIGHT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));
const PORTS: EncapPorts = EncapPorts { src_port: 4500, dst_port: 4500 };
const POLICY: PolicyId = PolicyId(1);
const ID: SaId = SaId { spi: 0xc0ff_ee01, dst: RIGHT };
const WINDOW: u32 = 32;
/// SPI and sequence number.
const CLEAR: [u8; 8] = [0; 8];
const IV: [u8; 16] = [0; 16];
