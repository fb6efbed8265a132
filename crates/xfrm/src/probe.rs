//! The features of the running kernel. Each question is a request to the kernel, which refuses it if it lacks the
//! feature; the version is not used. A state or policy made for a question is deleted at once, and expires after a
//! second if this process dies before.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, Secret};
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::constants::{XFRMA_IF_ID, XFRMA_MTIMER_THRESH};
use netlink_packet_xfrm::monitor::MigrateMessage;
use serde::Serialize;

use crate::kernel::Kernel;
use crate::netlink::{Error, Kind, Transport, gaps};
use crate::policy::{Action, Policy, PolicyDirection, PolicyId};
use crate::selector::{Prefix, Selector};
use crate::state::{
    Direction, EncapPorts, Encapsulation, Lifetime, Mark, Mode, Offload, OffloadMode, Protection,
    Replay, State, StateId,
};

/// The features of a kernel; false where the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "a list of independent features")]
pub struct Features {
    /// ESP over IPv4.
    pub esp4: bool,
    /// ESP over IPv6.
    pub esp6: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// UDP encapsulation (RFC 3948).
    pub udp_encapsulation: bool,
    /// TCP encapsulation (RFC 9329).
    pub tcp_encapsulation: bool,
    /// BEET mode.
    pub beet: bool,
    /// IP-TFS (RFC 9347).
    pub iptfs: bool,
    /// States with a direction.
    pub directions: bool,
    /// States for each CPU (RFC 9611).
    pub per_cpu: bool,
    /// Reserving SPIs.
    pub allocate_spi: bool,
    /// Changing outer addresses in place.
    pub migrate: bool,
    /// XFRM interfaces: states and policies with an interface id.
    pub if_id: bool,
    /// A least time between MAPPING events.
    pub mapping_interval: bool,
    /// NAT keepalives sent by the kernel.
    pub nat_keepalive: bool,
    /// Offload of whole packets, where a device has it.
    pub packet_offload: bool,
}

impl Features {
    /// Name and presence of each.
    pub fn list(&self) -> [(&'static str, bool); 15] {
        [
            ("ESP over IPv4", self.esp4),
            ("ESP over IPv6", self.esp6),
            ("ESN", self.esn),
            ("UDP encapsulation", self.udp_encapsulation),
            ("TCP encapsulation", self.tcp_encapsulation),
            ("BEET", self.beet),
            ("IP-TFS", self.iptfs),
            ("directions", self.directions),
            ("per-CPU states", self.per_cpu),
            ("SPI allocation", self.allocate_spi),
            ("migration", self.migrate),
            ("interface ids", self.if_id),
            ("mapping intervals", self.mapping_interval),
            ("NAT keepalives", self.nat_keepalive),
            ("packet offload", self.packet_offload),
        ]
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |present: bool| {
            let list = self.list().into_iter().filter(move |&(_, has)| has == present);
            let names: Vec<_> = list.map(|(name, _)| name).collect();
            if names.is_empty() { "nothing".into() } else { names.join(", ") }
        };
        write!(f, "has {}; lacks {}", names(true), names(false))
    }
}

impl<T: Transport> Kernel<T> {
    /// Asks for every feature. An error is a missing privilege or a lost answer, not a missing feature.
    pub fn features(&mut self) -> Result<Features, Error> {
        let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));
        let v6 = IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0xfe));
        let plain = |dst| candidate(dst, Mode::Transport, aes_gcm());
        let esp4 = self.takes(&plain(v4))?;
        let esp6 = self.takes(&plain(v6))?;
        let dst = if esp4 { v4 } else { v6 };
        let esp = esp4 || esp6;
        let esn =
            State { replay: Replay { esn: true, window: 32, ..Replay::default() }, ..plain(dst) };
        let ports = EncapPorts { src_port: 4500, dst_port: 4500 };
        let encapsulated = |kind: fn(EncapPorts) -> Encapsulation| State {
            encapsulation: Some(kind(ports)),
            ..plain(dst)
        };
        let host = Prefix::host(dst);
        let beet = State {
            selector: Some(Selector::between(host, host)),
            ..candidate(dst, Mode::Beet, aes_gcm())
        };
        Ok(Features {
            esp4,
            esp6,
            esn: esp && self.takes(&esn)?,
            udp_encapsulation: esp && self.takes(&encapsulated(Encapsulation::Udp))?,
            tcp_encapsulation: esp && self.takes(&encapsulated(Encapsulation::Tcp))?,
            beet: esp && self.takes(&beet)?,
            iptfs: esp && self.has_iptfs(dst)?,
            directions: self.knows_directions()?,
            per_cpu: self.knows_attribute(gaps::XFRMA_SA_PCPU, &[0])?,
            allocate_spi: self.has_allocate_spi(v4)?,
            migrate: self.has_migrate()?,
            if_id: self.knows_attribute(XFRMA_IF_ID, &[0])?,
            mapping_interval: self.knows_attribute(XFRMA_MTIMER_THRESH, &[0])?,
            nat_keepalive: self.knows_attribute(gaps::XFRMA_NAT_KEEPALIVE_INTERVAL, &[0])?,
            packet_offload: self.has_packet_offload(v4)?,
        })
    }

    /// True if the kernel takes states with `suite`. The modules of its algorithms are loaded by that.
    pub fn takes_suite(&mut self, suite: CipherSuite) -> Result<bool, Error> {
        let (encr, integ) = key_lengths(suite);
        let keys = (Secret::new(vec![0x5a; encr]), Secret::new(vec![0xa5; integ]));
        let Ok(protection) = Protection::of_suite(suite, &keys.0, &keys.1) else {
            return Ok(false);
        };
        let dst = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));
        self.takes(&candidate(dst, Mode::Transport, protection))
    }

    /// Adds `state` and deletes it.
    fn takes(&mut self, state: &State) -> Result<bool, Error> {
        match self.add_state(state) {
            Ok(()) => self.delete_state(&state.id).map(|_| true),
            Err(error) if error.is_present() => Ok(true),
            Err(error) => lacks(error),
        }
    }

    /// A kernel without the module of IP-TFS takes such states, and forgets their options.
    fn has_iptfs(&mut self, dst: IpAddr) -> Result<bool, Error> {
        let mut state = candidate(dst, Mode::Iptfs, aes_gcm());
        state.iptfs.init_delay = Some(Duration::from_millis(1));
        if let Err(error) = self.add_state(&state) {
            return lacks(error);
        }
        let found = self.state(&state.id);
        self.delete_state(&state.id)?;
        Ok(found?.is_some_and(|found| found.iptfs.init_delay == state.iptfs.init_delay))
    }

    fn has_allocate_spi(&mut self, dst: IpAddr) -> Result<bool, Error> {
        match self.allocate_spi(dst, dst, 0, Mark::default(), (SPI, SPI + 0xff)) {
            Ok(spi) => self.delete_state(&StateId::new(spi, dst)).map(|_| true),
            Err(error) => lacks(error),
        }
    }

    /// A migration of nothing: kernels with and without migration answer differently.
    fn has_migrate(&mut self) -> Result<bool, Error> {
        let message = XfrmMessage::Migrate(MigrateMessage::default());
        match self.transport_mut().request(message, Kind::Ack) {
            Err(error) if error.errno == libc::ENOPROTOOPT => Ok(false),
            Err(error) if matches!(error.errno, libc::EINVAL | libc::ENOENT | libc::ESRCH) => {
                Ok(true)
            }
            Err(error) => lacks(error),
            Ok(_) => Ok(true),
        }
    }

    /// A policy on a device that is not there: a kernel that offloads policies refuses it, an older one
    /// does not look.
    fn has_packet_offload(&mut self, host: IpAddr) -> Result<bool, Error> {
        let selector =
            Selector { protocol: 255, ..Selector::between(Prefix::host(host), Prefix::host(host)) };
        let id = PolicyId::new(selector, PolicyDirection::In);
        let offload = Offload { ifindex: i32::MAX.cast_unsigned(), mode: OffloadMode::Packet };
        let policy =
            Policy { offload: Some(offload), ..Policy::new(id, u32::MAX, Action::Allow(vec![])) };
        match self.add_policy(&policy) {
            Ok(()) => self.delete_policy(&id).map(|_| false),
            Err(error) if error.errno == libc::EINVAL => Ok(true),
            Err(error) => lacks(error),
        }
    }
}

/// False for a refusal that says the feature is not there; other errors stay errors.
fn lacks(error: Error) -> Result<bool, Error> {
    let lacking = [
        libc::EPROTONOSUPPORT,
        libc::ENOSYS,
        libc::ENOENT,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        libc::ENOPROTOOPT,
        libc::EAFNOSUPPORT,
    ];
    if lacking.contains(&error.errno) { Ok(false) } else { Err(error) }
}

/// A harmless state: to an address that nobody has, for a second.
fn candidate(dst: IpAddr, mode: Mode, protection: Protection) -> State {
    State {
        direction: Some(Direction::Out),
        lifetime: Lifetime { hard_seconds: 1, ..Lifetime::default() },
        ..State::new(StateId::new(SPI, dst), dst, mode, protection)
    }
}

fn aes_gcm() -> Protection {
    Protection::Aead(crate::state::Algorithm {
        name: "rfc4106(gcm(aes))".into(),
        key: Secret::new(vec![0x5a; 20]),
        icv_bits: 128,
    })
}

/// Octets of both keys of `suite`, salt included.
fn key_lengths(suite: CipherSuite) -> (usize, usize) {
    let key = usize::from(suite.key_bits) / 8;
    let encr = match suite.encr {
        EncrId::CHACHA20_POLY1305 => 36,
        EncrId::DES3 => 24,
        EncrId::AES_CCM_8 | EncrId::AES_CCM_12 | EncrId::AES_CCM_16 => key + 3,
        EncrId::CAMELLIA_CCM_8 | EncrId::CAMELLIA_CCM_12 | EncrId::CAMELLIA_CCM_16 => key + 3,
        EncrId::AES_CBC | EncrId::CAMELLIA_CBC | EncrId::NULL => key,
        _ => key + 4,
    };
    let integ = match suite.integ {
        IntegId::NONE => 0,
        IntegId::HMAC_SHA1_96 => 20,
        IntegId::HMAC_SHA2_256_128 => 32,
        IntegId::HMAC_SHA2_384_192 => 48,
        IntegId::HMAC_SHA2_512_256 => 64,
        _ => 16,
    };
    (encr, integ)
}

/// Of the probes' states.
const SPI: u32 = 0xfffe_5000;
