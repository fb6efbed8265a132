//! Which policy a packet meets: one list of cases for every data plane
//! (`ipsec_types::dataplane::precedence`).
#![allow(clippy::unwrap_used, reason = "test code")]

use std::net::IpAddr;
use std::sync::Arc;

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, Secret};
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, Limits, Mode, PolicyAction, PolicyId, PolicySpec, SaId, SaSpec,
    TrafficSelector,
};

/// What becomes of a packet that is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meets {
    /// It passes in clear.
    Pass,
    /// It is dropped.
    Drop,
    /// It leaves by the SA of this policy.
    Sa(u64),
    /// It is dropped, and the plane asks for an SA.
    Trap,
}

/// A plane in which packets can be sent.
pub trait Tester {
    fn plane(&mut self) -> &mut dyn DataPlane;

    /// Sends a packet: addresses, protocol, and ports or ICMP type and code. For ESP, the SPI that it has.
    fn send(&mut self, packet: &Probe) -> (Meets, Option<u32>);
}

#[derive(Debug, Clone, Copy)]
pub struct Probe {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: u8,
    pub ports: (u16, u16),
}

#[derive(Clone, Copy)]
enum Do {
    Pass,
    Drop,
    Protect,
    /// The same on standby.
    Standby,
    Trap,
    Shunt,
}

struct Case<'a> {
    tester: &'a mut dyn Tester,
}

const SPI: u32 = 0xc000_0000;

impl Case<'_> {
    fn install(&mut self, id: u64, what: Do, local: &str, remote: &str) {
        self.install_as(id, "site", what, (local, remote), 0);
    }

    fn install_as(
        &mut self,
        id: u64,
        owner: &str,
        what: Do,
        selectors: (&str, &str),
        priority: u32,
    ) {
        self.install_of((id, &format!("child{id}")), owner, what, selectors, priority);
    }

    /// Installs a policy of a child with this name.
    fn install_of(
        &mut self,
        (id, child): (u64, &str),
        owner: &str,
        what: Do,
        (local, remote): (&str, &str),
        priority: u32,
    ) {
        let list = |text: &str| -> Vec<TrafficSelector> {
            text.split(',').map(|ts| ts.parse().unwrap()).collect()
        };
        let (local_ts, remote_ts) = (list(local), list(remote));
        let ends: (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
        let sa = SaId { spi: SPI + id as u32, dst: ends.1 };
        let action = match what {
            Do::Pass => PolicyAction::Pass,
            Do::Drop => PolicyAction::Drop,
            Do::Trap => PolicyAction::Trap,
            Do::Shunt => PolicyAction::Shunt { silent: true },
            Do::Protect | Do::Standby => PolicyAction::Protect {
                mode: Mode::Tunnel,
                local: ends.0,
                remote: ends.1,
                outbound: Some(sa),
            },
        };
        let plane = self.tester.plane();
        if let Do::Protect | Do::Standby = what {
            let spec = SaSpec {
                id: sa,
                src: ends.0,
                direction: Direction::Out,
                mode: Mode::Tunnel,
                policy: PolicyId(id),
                suite: CipherSuite {
                    encr: EncrId::AES_GCM_16,
                    key_bits: 128,
                    integ: IntegId::NONE,
                },
                encr_key: Secret::new(vec![id as u8; 20]),
                integ_key: Secret::new(Vec::new()),
                esn: false,
                replay_window: 0,
                encap: None,
                local_ts: local_ts.clone(),
                remote_ts: remote_ts.clone(),
                limits: Limits::default(),
                lifetime: std::time::Duration::ZERO,
                cpu: None,
                processing: Arc::default(),
            };
            plane.apply(Command::InstallSa(Box::new(spec))).unwrap();
        }
        let spec = PolicySpec {
            id: PolicyId(id),
            child: child.into(),
            owner: owner.into(),
            local_ts,
            remote_ts,
            action,
            priority,
            processing: Arc::default(),
            outer: None,
            standby: matches!(what, Do::Standby),
        };
        plane.apply(Command::InstallPolicy(Box::new(spec))).unwrap();
    }

    fn remove(&mut self, id: u64) {
        self.tester.plane().apply(Command::RemovePolicy(PolicyId(id))).unwrap();
    }

    #[track_caller]
    fn udp(&mut self, src: &str, dst: &str, meets: Meets) {
        self.expect(src, dst, 17, (1000, 2000), meets);
    }

    #[track_caller]
    fn expect(&mut self, src: &str, dst: &str, protocol: u8, ports: (u16, u16), meets: Meets) {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        let probe = Probe { src, dst, protocol, ports };
        let found = match self.tester.send(&probe) {
            (Meets::Sa(_), Some(spi)) => Meets::Sa(u64::from(spi - SPI)),
            (other, _) => other,
        };
        assert_eq!(found, meets, "{probe:?}");
    }
}

/// All cases, each in an empty plane.
pub fn all(mut fresh: impl FnMut() -> Box<dyn Tester>) {
    let cases: [fn(&mut Case<'_>); 11] = [
        narrower_wins,
        a_trap_takes_no_packet_of_its_child,
        a_child_comes_before_its_trap,
        priorities,
        shunts_come_last,
        same_selectors,
        standby,
        owners,
        an_owner_goes_on_being_first,
        pairs_and_families,
        ports_ranges_and_kinds,
    ];
    for case in cases {
        let mut tester = fresh();
        case(&mut Case { tester: tester.as_mut() });
    }
}

fn narrower_wins(case: &mut Case<'_>) {
    case.install(1, Do::Protect, "10.1.0.0/16", "10.2.0.0/16");
    case.install(2, Do::Drop, "0.0.0.0/0", "0.0.0.0/0");
    case.install(3, Do::Pass, "10.0.0.0/8", "10.2.0.0/16[tcp/22]");
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
    case.udp("10.1.0.1", "10.3.0.1", Meets::Drop);
    // Addresses weigh more than ports and protocols.
    case.expect("10.1.0.1", "10.2.0.1", 6, (9, 22), Meets::Sa(1));
    case.expect("10.4.0.1", "10.2.0.1", 6, (9, 22), Meets::Pass);
    case.expect("10.4.0.1", "10.2.0.1", 6, (9, 23), Meets::Drop);
    case.install(4, Do::Trap, "10.1.0.1/32", "10.2.0.0/16");
    case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
    case.remove(4);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
    case.remove(1);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Drop);
}

/// After a change of the configuration a trap is narrower than the SA of its child, on one side or both, or has a priority.
/// The engine answers its acquires with that SA, so its packets must find it.
/// Faults: in `Spd::find`, return `first`; in `Policies::wanted`, leave out the loop; in `put_ahead`, return at once.
fn a_trap_takes_no_packet_of_its_child(case: &mut Case<'_>) {
    let sa = ("10.1.0.0/16", "10.2.0.0/16");
    case.install_of((1, "net"), "site [peer]", Do::Protect, sa, 0);
    for (local, remote, priority) in [
        ("10.1.0.0/24", "10.2.0.0/24", 0),
        ("10.1.0.0/25", "10.0.0.0/12", 0),
        ("10.9.0.0/24,10.1.0.0/24", "10.2.0.0/24", 0),
        (sa.0, sa.1, 7),
        ("10.0.0.0/8", "10.0.0.0/8", 7),
    ] {
        case.install_of((2, "net"), "site", Do::Trap, (local, remote), priority);
        case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
        case.udp("10.1.200.1", "10.2.200.1", Meets::Sa(1));
    }
    case.udp("10.3.0.1", "10.2.0.1", Meets::Trap);
    // Traps of other children and connections are narrower as ever.
    for (name, owner) in [("net2", "site"), ("net", "site2"), ("net", "sit")] {
        case.install_of((3, name), owner, Do::Trap, ("10.1.0.1/32", "10.2.0.0/24"), 0);
        case.install_of((2, "net"), "site", Do::Trap, ("10.1.0.0/24", "10.2.0.0/24"), 0);
        case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
        case.udp("10.1.0.2", "10.2.0.1", Meets::Sa(1));
    }
    case.remove(3);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
    case.remove(1);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
}

/// A peer may have agreed to the wider of two selectors alone.
/// Faults: those of `a_trap_takes_no_packet_of_its_child`.
fn a_child_comes_before_its_trap(case: &mut Case<'_>) {
    let trap = ("10.1.0.0/16", "10.0.0.0/8,10.2.0.0/16");
    case.install_of((1, "net"), "site", Do::Trap, trap, 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
    case.install_of((2, "net"), "site [peer]", Do::Protect, ("10.1.0.0/16", "10.0.0.0/8"), 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
    case.udp("10.1.0.1", "10.3.0.1", Meets::Sa(2));
    case.remove(1);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
    case.install_of((1, "net"), "site", Do::Trap, trap, 0);
    case.remove(2);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
}

fn priorities(case: &mut Case<'_>) {
    let (net, any) = (("10.1.0.0/16", "10.2.0.0/16"), ("0.0.0.0/0", "0.0.0.0/0"));
    case.install_as(1, "site", Do::Protect, net, 0);
    case.install_as(2, "site", Do::Drop, any, u32::MAX);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Drop);
    case.install_as(3, "site", Do::Pass, any, 500);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Pass);
    case.install_as(4, "site", Do::Trap, any, 499);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
    for id in [4, 3, 2] {
        case.remove(id);
    }
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
}

fn shunts_come_last(case: &mut Case<'_>) {
    case.install_as(1, "site", Do::Shunt, ("10.1.0.1/32", "10.2.0.1/32"), 1);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Drop);
    case.install(2, Do::Pass, "0.0.0.0/0", "0.0.0.0/0");
    case.udp("10.1.0.1", "10.2.0.1", Meets::Pass);
    case.install(3, Do::Protect, "10.1.0.1/32", "10.2.0.1/32");
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(3));
    case.remove(3);
    case.remove(2);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Drop);
}

fn same_selectors(case: &mut Case<'_>) {
    let net = ("10.1.0.0/16", "10.2.0.0/16");
    for (id, what, meets) in [
        (1, Do::Shunt, Meets::Drop),
        (2, Do::Trap, Meets::Trap),
        (3, Do::Protect, Meets::Sa(3)),
        (4, Do::Drop, Meets::Drop),
        (5, Do::Pass, Meets::Pass),
    ] {
        // Whoever comes first of several owners: rule 4 is before rule 5.
        case.install_as(id, &format!("site{id}"), what, net, 0);
        case.udp("10.1.0.1", "10.2.0.1", meets);
    }
    case.remove(5);
    case.remove(4);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(3));
    case.remove(3);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Trap);
}

/// Fault: in `Rank`, leave `standby` out of the comparison.
fn standby(case: &mut Case<'_>) {
    let (local, remote) = ("10.1.0.0/16", "10.2.0.0/16");
    case.install(1, Do::Trap, local, remote);
    case.install(2, Do::Standby, local, remote);
    // Nothing else protects.
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
    case.remove(2);
    case.install(2, Do::Protect, local, remote);
    case.install(3, Do::Standby, local, remote);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
    case.install(3, Do::Protect, local, remote);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(3));
    case.install(4, Do::Standby, local, remote);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(3));
    case.remove(3);
    // An older one comes first as well.
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
    case.remove(2);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(4));
}

fn owners(case: &mut Case<'_>) {
    let net = ("10.1.0.0/16", "10.2.0.0/16");
    case.install_as(1, "site [a]", Do::Protect, net, 0);
    case.install_as(2, "site [b]", Do::Protect, net, 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
    // Neither by a rekey of the first one's, which installs its policy again, …
    case.install_as(1, "site [a]", Do::Protect, net, 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
    // … nor because the owner has a newer one.
    case.install_as(3, "site [a]", Do::Protect, net, 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(3));
    case.remove(3);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(1));
    case.remove(1);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
    // Narrower selectors are narrower, whoever was first.
    case.install_as(4, "site [c]", Do::Protect, ("10.1.0.0/16", "10.2.0.0/24"), 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(4));
    case.udp("10.1.0.1", "10.2.1.1", Meets::Sa(2));
}

fn an_owner_goes_on_being_first(case: &mut Case<'_>) {
    let net = ("10.1.0.0/16", "10.2.0.0/16");
    case.install_as(1, "site [a]", Do::Protect, net, 0);
    case.install_as(2, "site [b]", Do::Protect, net, 0);
    case.install_as(7, "site [a]", Do::Protect, net, 0);
    case.remove(1);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(7));
    case.install_as(7, "site [a]", Do::Protect, net, 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(7));
    case.remove(7);
    case.install_as(8, "site [a]", Do::Protect, net, 0);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Sa(2));
}

fn pairs_and_families(case: &mut Case<'_>) {
    case.install(1, Do::Drop, "0.0.0.0/0,::/0", "0.0.0.0/0,::/0");
    let local = "10.1.0.0/16,10.11.0.0/16,2001:db8::/32";
    case.install(2, Do::Pass, local, "10.2.0.0/16,2001:db8:f::/48");
    for (src, dst, meets) in [
        ("10.1.0.1", "10.2.0.1", Meets::Pass),
        ("10.11.0.1", "10.2.0.1", Meets::Pass),
        ("2001:db8::1", "2001:db8:f::1", Meets::Pass),
        ("10.12.0.1", "10.2.0.1", Meets::Drop),
        ("10.1.0.1", "10.3.0.1", Meets::Drop),
        ("2001:db8::1", "2001:db8:e::1", Meets::Drop),
    ] {
        case.udp(src, dst, meets);
    }
    // A replaced policy has its new selectors and not the old ones.
    case.install(2, Do::Pass, "10.12.0.0/16", "10.2.0.0/16");
    case.udp("10.12.0.1", "10.2.0.1", Meets::Pass);
    case.udp("10.1.0.1", "10.2.0.1", Meets::Drop);
}

fn ports_ranges_and_kinds(case: &mut Case<'_>) {
    case.install(1, Do::Drop, "0.0.0.0/0", "0.0.0.0/0");
    case.install(2, Do::Pass, "10.1.0.3-10.1.0.9", "10.2.0.0/16[udp/1995-2004]");
    for (last, port, meets) in [
        (3, 1995, Meets::Pass),
        (9, 2004, Meets::Pass),
        (6, 2000, Meets::Pass),
        (2, 2000, Meets::Drop),
        (10, 2000, Meets::Drop),
        (5, 1994, Meets::Drop),
        (5, 2005, Meets::Drop),
    ] {
        case.expect(&format!("10.1.0.{last}"), "10.2.0.1", 17, (7, port), meets);
    }
    case.expect("10.1.0.5", "10.2.0.1", 6, (7, 2000), Meets::Drop);
    case.install(3, Do::Pass, "10.1.0.0/16[icmp/8(0)]", "10.2.0.0/16[icmp/8(0)]");
    case.install(4, Do::Pass, "10.1.0.0/16[icmp/3]", "10.2.0.0/16[icmp/3]");
    for (kind, meets) in [
        ((8, 0), Meets::Pass),
        ((8, 1), Meets::Drop),
        ((3, 4), Meets::Pass),
        ((3, 0), Meets::Pass),
        ((0, 0), Meets::Drop),
    ] {
        case.expect("10.1.0.5", "10.2.0.1", 1, kind, meets);
    }
}
