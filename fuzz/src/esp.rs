//! Target `esp`: a receiving end, a peer who holds the keys and puts anything into its packets, an
//! attacker who holds none, and a host that sends anything to be protected. Nothing forged or replayed
//! opens; what opens is what was sealed, and inside the selectors.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use esp::ip::IpPacket;
use esp::packet::{Cipher, MAX_IV};
use esp::selector::{any_match, sides};
use esp::udp::{Datagram, classify};
use esp::{Buffer, Carrier, Inbound, Outbound, Outer, Plane, Verdict};
use ike_proto::crypto::{CipherProvider, CipherSuite, Secret, SecureRandom};
use ike_proto::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Limits, Mode, PolicyAction, PolicyId,
    PolicySpec, SaId, SaSpec, TrafficSelector,
};
use ike_proto::wire::registry::{EncrId, IntegId};
use pq_kem::sym::Ciphers;

use crate::input::Input;

const SPI: u32 = 0xc0ff_ee01;
/// Decisions taken from one input.
const MAX_STEPS: usize = 200;

const GCM: CipherSuite =
    CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE };
const SUITES: [CipherSuite; 4] = [
    GCM,
    CipherSuite { encr: EncrId::CHACHA20_POLY1305, key_bits: 0, ..GCM },
    CipherSuite { encr: EncrId::AES_CBC, key_bits: 128, integ: IntegId::HMAC_SHA2_256_128 },
    CipherSuite { encr: EncrId::AES_CTR, key_bits: 256, integ: IntegId::HMAC_SHA2_512_256 },
];

/// The same octets over and over: IVs need no more here.
struct Fixed;

impl SecureRandom for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(0x5a);
    }
}

/// One way of a tunnel.
struct Bench {
    now: Instant,
    suite: CipherSuite,
    mode: Mode,
    esn: bool,
    encap: bool,
    window: u32,
    ends: (IpAddr, IpAddr),
    local_ts: Vec<TrafficSelector>,
    remote_ts: Vec<TrafficSelector>,
}

/// A packet that the keys' owner sealed.
struct Sealed {
    octets: Vec<u8>,
    payload: Vec<u8>,
    seq: u64,
    opened: bool,
}

/// Runs one input; counts the packets that were opened.
pub fn run(octets: &[u8]) -> usize {
    let mut input = Input(octets);
    let mut bench = Bench::new(&mut input);
    let mut receiver = Plane::new(bench.now, &Ciphers);
    let mut host = Plane::new(bench.now, &Ciphers);
    let install = |plane: &mut Plane, command| {
        plane.apply(command).expect("the suites are there");
    };
    install(&mut receiver, Command::InstallSa(Box::new(bench.spec(Direction::In))));
    install(&mut receiver, bench.policy(false));
    install(&mut host, Command::InstallSa(Box::new(bench.spec(Direction::Out))));
    install(&mut host, bench.policy(true));
    let mut inbound = receiver.inbound();
    let mut outbound = host.outbound(Box::new(Fixed));
    let cipher = bench.cipher();
    let mut sealed: Vec<Sealed> = Vec::new();
    let (mut seq, mut opened) = (0_u64, 0);
    for _ in 0..MAX_STEPS {
        let Some(step) = input.next() else { break };
        match step % 8 {
            0 => bench.stranger(&mut inbound, &mut input, step),
            1 | 2 => {
                seq += u64::from(input.octet() % 40) + 1;
                let packet = bench.seal(&cipher, seq, &mut input);
                sealed.push(packet);
                let last = sealed.len() - 1;
                opened += usize::from(bench.deliver(&mut inbound, &mut sealed[last]));
            }
            3 => {
                if let Some(index) = input.index(sealed.len()) {
                    opened += usize::from(bench.deliver(&mut inbound, &mut sealed[index]));
                }
            }
            4 => {
                if let Some(index) = input.index(sealed.len()) {
                    bench.mangled(&mut inbound, &sealed[index], &mut input);
                }
            }
            5 => bench.protect(&mut outbound, &cipher, &mut input),
            6 => {
                let len = usize::from(input.octet());
                _ = inbound.handle_clear(input.take(len));
            }
            _ => bench.now += Duration::from_millis(u64::from(input.word())),
        }
    }
    assert_eq!(receiver.stats().opened(), opened as u64);
    opened
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        // An Instant can be had from nowhere else; which one it is, is no matter.
        static START: OnceLock<Instant> = OnceLock::new();
        let flags = input.octet();
        let bit = |n: u8| flags >> n & 1 == 1;
        let ipv6_outside = bit(2);
        let mode = if bit(3) { Mode::Transport } else { Mode::Tunnel };
        let address = |text: &str| text.parse().expect("an address");
        let ends = match ipv6_outside {
            true => (address("2001:db8::1"), address("2001:db8::2")),
            false => (address("192.0.2.1"), address("198.51.100.1")),
        };
        let select =
            |texts: &[&str]| texts.iter().map(|t| t.parse().expect("a selector")).collect();
        let (local_ts, remote_ts) = match (mode, bit(4)) {
            (Mode::Transport, _) => {
                (vec![TrafficSelector::host(ends.0)], vec![TrafficSelector::host(ends.1)])
            }
            (_, false) => {
                (select(&["10.1.0.0/16", "fd01::/64"]), select(&["10.2.0.0/16", "fd02::/64"]))
            }
            (_, true) => (
                select(&["10.1.0.0/16[udp]", "fd01::/64[icmpv6]", "10.1.0.0/16[tcp/80]"]),
                select(&["10.2.0.0/16[udp/53-99]", "fd02::/64[icmpv6]", "10.2.0.0/16[tcp]"]),
            ),
        };
        Self {
            now: *START.get_or_init(Instant::now),
            suite: SUITES[usize::from(flags & 3)],
            mode,
            esn: bit(5),
            encap: bit(6),
            window: if bit(7) { 64 } else { 1024 },
            ends,
            local_ts,
            remote_ts,
        }
    }

    fn id(&self) -> SaId {
        SaId { spi: SPI, dst: self.ends.1 }
    }

    /// The SA as the sender (`Out`) or the receiver has it.
    fn spec(&self, direction: Direction) -> SaSpec {
        let lengths = Ciphers.lengths(self.suite).expect("the suites are there");
        let (local, remote) = (self.local_ts.clone(), self.remote_ts.clone());
        let (local_ts, remote_ts) =
            if direction == Direction::Out { (local, remote) } else { (remote, local) };
        SaSpec {
            id: self.id(),
            src: self.ends.0,
            direction,
            mode: self.mode,
            policy: PolicyId(1),
            suite: self.suite,
            encr_key: Secret::new(vec![0x17; lengths.encr_key]),
            integ_key: Secret::new(vec![0x71; lengths.integ_key]),
            esn: self.esn,
            replay_window: self.window,
            encap: self
                .encap
                .then_some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 })),
            local_ts,
            remote_ts,
            limits: Limits::default(),
            lifetime: Duration::ZERO,
            cpu: None,
            processing: Arc::default(),
        }
    }

    fn policy(&self, sender: bool) -> Command {
        let (local, remote) = (self.local_ts.clone(), self.remote_ts.clone());
        let (local_ts, remote_ts) = if sender { (local, remote) } else { (remote, local) };
        let (local, remote) = if sender { self.ends } else { (self.ends.1, self.ends.0) };
        let outbound = sender.then(|| self.id());
        Command::InstallPolicy(Box::new(PolicySpec {
            id: PolicyId(1),
            child: "net".to_owned(),
            owner: "site".to_owned(),
            local_ts,
            remote_ts,
            action: PolicyAction::Protect { mode: self.mode, local, remote, outbound },
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        }))
    }

    fn cipher(&self) -> Cipher {
        let SaSpec { encr_key, integ_key, .. } = self.spec(Direction::Out);
        let key = Ciphers.key(self.suite, encr_key.expose(), integ_key.expose());
        let lengths = Ciphers.lengths(self.suite).expect("the suites are there");
        Cipher { key: key.expect("keys of these lengths"), lengths, esn: self.esn }
    }

    fn outer(&self) -> Outer {
        let port = if self.encap { 4500 } else { 0 };
        let src = SocketAddr::new(self.ends.0, port);
        Outer {
            src,
            dst: self.ends.1,
            fields: esp::Fields::default(),
            carrier: if self.encap { Carrier::Udp } else { Carrier::Ip },
        }
    }

    /// Whoever has no key: any octets, or an SPI and any octets.
    fn stranger(&self, inbound: &mut Inbound, input: &mut Input<'_>, step: u8) {
        let mut datagram = if step & 8 == 0 { Vec::new() } else { SPI.to_be_bytes().to_vec() };
        let len = usize::from(input.octet()) * 8;
        datagram.extend_from_slice(input.take(len));
        if !self.encap || matches!(classify(&datagram), Datagram::Esp(_)) {
            let refused = self.open(inbound, &datagram);
            assert!(refused.is_none(), "octets of nobody opened");
        }
    }

    /// Whoever has the keys: any next header, and any payload.
    fn seal(&self, cipher: &Cipher, seq: u64, input: &mut Input<'_>) -> Sealed {
        let next_header = match input.octet() {
            n @ 0..4 => [4, 41, 17, 59][usize::from(n)],
            n => n,
        };
        let len = usize::from(input.word() % 1500);
        let mut payload = input.take(len).to_vec();
        if next_header == 17 {
            payload.resize(len, 0xcc);
        }
        let mut octets = Buffer::new();
        let iv = &[0x5a; MAX_IV][..cipher.lengths.iv];
        cipher.seal(SPI, seq, iv, next_header, &payload, &mut octets).expect("sealed");
        Sealed { octets: octets.to_vec(), payload, seq, opened: false }
    }

    /// True if it opened.
    fn deliver(&self, inbound: &mut Inbound, packet: &mut Sealed) -> bool {
        let opened = self.open(inbound, &packet.octets);
        let Some(inner) = opened else { return false };
        assert!(!packet.opened, "the packet of number {} opened twice", packet.seq);
        packet.opened = true;
        let ip = IpPacket::parse(&inner).expect("what opens is an IP packet");
        let (from, to) = sides(&ip);
        assert!(any_match(&self.local_ts, &from, &self.remote_ts, &to), "{ip:?}");
        match self.mode {
            Mode::Transport => assert_eq!(inner.len(), ip.base_len + packet.payload.len()),
            _ => assert_eq!(inner.len(), ip.total_len),
        }
        true
    }

    /// A genuine packet with one octet changed, or cut.
    fn mangled(&self, inbound: &mut Inbound, packet: &Sealed, input: &mut Input<'_>) {
        let mut octets = packet.octets.clone();
        let at = usize::from(input.word()) % octets.len();
        match input.octet() {
            0 => octets.truncate(at),
            change => octets[at] ^= change,
        }
        assert!(self.open(inbound, &octets).is_none(), "a mangled packet opened");
    }

    /// A packet from the host, which is protected or does not leave.
    fn protect(&self, outbound: &mut Outbound, cipher: &Cipher, input: &mut Input<'_>) {
        let len = usize::from(input.word() % 1500);
        let packet = input.take(len);
        let mut out = Buffer::from(&[0xee; 3][..]);
        match outbound.handle(self.now, packet, &mut out) {
            Verdict::Send(outgoing) => {
                let octets = &out[3..];
                assert_eq!((outgoing.len, outgoing.sa), (octets.len(), self.id()));
                let (_, low) = esp::packet::header(octets).expect("a header");
                let mut inner = Buffer::new();
                cipher.open(octets, u64::from(low), &mut inner).expect("it opens");
                if self.mode == Mode::Tunnel {
                    let ip = IpPacket::parse(packet).expect("only such are protected");
                    assert_eq!(Some(&*inner), packet.get(..ip.total_len));
                }
            }
            Verdict::Pass => panic!("no policy lets anything pass"),
            Verdict::Held | Verdict::TooBig(_) | Verdict::Drop(_) => assert_eq!(*out, [0xee; 3]),
        }
    }

    fn open(&self, inbound: &mut Inbound, octets: &[u8]) -> Option<Vec<u8>> {
        let mut out = Buffer::from(&[0xee; 3][..]);
        let result = inbound.handle(self.now, &self.outer(), octets, &mut out);
        let (before, inner) = out.split_at(3);
        assert_eq!(before, [0xee; 3], "what was in the buffer stays");
        match result {
            Ok(len) => {
                assert_eq!(len, inner.len());
                Some(inner.to_vec())
            }
            Err(_) => {
                assert!(inner.is_empty());
                None
            }
        }
    }
}
