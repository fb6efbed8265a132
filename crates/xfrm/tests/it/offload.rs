//! What is asked of a kernel for a ConnectX or BlueField that is not there: mlx5's rules, the order of
//! `auto`, and policies that let IKE pass.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use crate::support::{addr, gcm, state};
use ipsec_types::dataplane::HwOffload;
use xfrm::SimKernel;
use xfrm::kernel::Kernel;
use xfrm::offload::{
    Device, EspFeatures, Feature, FindDevice, InstallError, Link, LinkChange, Offloader,
    policy_offload,
};
use xfrm::policy::PolicyDirection;
use xfrm::selector::{Port, Prefix, Selector};
use xfrm::state::{
    Algorithm, Direction, EncapPorts, Encapsulation, Lifetime, Mode, Offload, OffloadMode,
    Protection, State,
};

const LOCAL: &str = "192.0.2.1";
const PEER: &str = "192.0.2.2";

/// One device, which owns every address.
struct Nic(Device);

impl FindDevice for Nic {
    fn device_of(&mut self, _: IpAddr) -> io::Result<Option<Device>> {
        Ok(Some(self.0.clone()))
    }
}

fn connectx() -> Device {
    Device {
        index: 7,
        name: "enp3s0f0".into(),
        up: true,
        driver: Some("mlx5_core".into()),
        bus: Some("pci/0000:03:00.0".into()),
        esp: EspFeatures { crypto: Feature::On, ..EspFeatures::default() },
        ..Device::default()
    }
}

fn inbound() -> State {
    State {
        direction: Some(Direction::In),
        protection: gcm(256),
        ..state(0xc000_0001, PEER, LOCAL)
    }
}

fn gcm_with_icv(bits: u32) -> Protection {
    match gcm(256) {
        Protection::Aead(algorithm) => Protection::Aead(Algorithm { icv_bits: bits, ..algorithm }),
        other => other,
    }
}

/// Installs into a kernel that takes everything; the mode, and the kernel.
fn install(
    device: Device,
    mut state: State,
    wanted: HwOffload,
    protocols: &[u8],
) -> (Result<Option<OffloadMode>, InstallError>, SimKernel) {
    let sim = SimKernel::new();
    let mut kernel = Kernel::new(sim.clone());
    let mut offloader = Offloader::new(Nic(device), vec![500, 4500]);
    let protocols: BTreeSet<u8> = protocols.iter().copied().collect();
    let done = offloader.install(&mut kernel, &mut state, wanted, &protocols);
    (done.map(|offload| offload.map(|offload| offload.mode)), sim)
}

#[test]
fn what_mlx5_takes_is_asked_for() {
    for (wanted, mode) in [
        (HwOffload::Packet, Some(OffloadMode::Packet)),
        (HwOffload::Crypto, Some(OffloadMode::Crypto)),
        (HwOffload::Auto, Some(OffloadMode::Packet)),
        (HwOffload::No, None),
    ] {
        let mut state = inbound();
        state.replay.esn = true;
        let (done, sim) = install(connectx(), state, wanted, &[0, 6, 17]);
        assert_eq!(done, Ok(mode), "{wanted:?}");
        let there = sim.state(0xc000_0001).unwrap().offload;
        assert_eq!(there, mode.map(|mode| Offload { ifindex: 7, mode }));
        let bypass = if mode == Some(OffloadMode::Packet) { 8 } else { 0 };
        assert_eq!(sim.policies().len(), bypass, "{wanted:?}");
    }
}

/// Each rule: what breaks it, which modes it is about, and what the sentence says.
#[test]
fn each_rule_of_mlx5_is_a_sentence_before_the_kernel_is_asked() {
    use HwOffload::{Crypto, Packet};
    let encap = Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 }));
    let tcp = Some(Encapsulation::Tcp(EncapPorts { src_port: 4500, dst_port: 4500 }));
    let any = Prefix { address: addr("0.0.0.0"), length: 0 };
    let port = Port::default();
    let icmp =
        Selector { src: any, dst: any, protocol: 1, src_port: port, dst_port: port, ifindex: 0 };
    let cbc = || Protection::Separate {
        encryption: Algorithm { name: "cbc(aes)".into(), key: gcm_key(32), icv_bits: 0 },
        integrity: Algorithm { name: "hmac(sha256)".into(), key: gcm_key(32), icv_bits: 128 },
    };
    let limits =
        |soft_bytes, hard_bytes| Lifetime { soft_bytes, hard_bytes, ..Lifetime::default() };
    let mut wide = inbound();
    wide.replay.window = 48;
    let mut no_window = inbound();
    no_window.replay.esn = true;
    no_window.replay.window = 0;
    let cases: Vec<(State, &[HwOffload], &str)> = vec![
        (State { protection: cbc(), ..inbound() }, &[Crypto, Packet], "AES-GCM only"),
        (
            State { protection: gcm_with_icv(96), ..inbound() },
            &[Crypto, Packet],
            "ICV of 16 octets",
        ),
        (State { protection: gcm(192), ..inbound() }, &[Crypto, Packet], "128 and 256 bits"),
        (State { encapsulation: tcp, ..inbound() }, &[Crypto, Packet], "no ESP in TCP"),
        (State { encapsulation: encap, ..inbound() }, &[Crypto], "in packet mode only"),
        (State { encapsulation: encap, ..inbound() }, &[Packet], "in transport mode only"),
        (State { tfc_padding: 1400, ..inbound() }, &[Crypto, Packet], "tfc_padding"),
        (State { mode: Mode::Iptfs, ..inbound() }, &[Crypto, Packet], "tunnel and transport mode"),
        (State { selector: Some(icmp), ..inbound() }, &[Crypto, Packet], "TCP, UDP or any"),
        (State { reqid: 0, ..inbound() }, &[Packet], "reqid"),
        (wide, &[Packet], "replay_window"),
        (no_window, &[Packet], "replay_window"),
        (
            State { lifetime: limits(10, 10), ..inbound() },
            &[Packet],
            "rekey_bytes below life_bytes",
        ),
        (State { lifetime: limits(0, 10), ..inbound() }, &[Packet], "rekey_bytes below life_bytes"),
    ];
    for (state, modes, words) in cases {
        for &wanted in modes {
            let (done, sim) = install(connectx(), again(&state), wanted, &[0]);
            let error = done.unwrap_err().to_string();
            assert!(error.contains(words), "{words} in {error}");
            assert!(error.contains("SA c0000001: enp3s0f0 (mlx5_core): it offloads"), "{error}");
            assert!(sim.is_empty(), "{words}");
        }
        // What the rule is not about is no reason, and `auto` does without at worst.
        let (done, sim) = install(connectx(), state, HwOffload::Auto, &[0]);
        let expected = if modes.contains(&Crypto) { None } else { Some(OffloadMode::Crypto) };
        if words != "in transport mode only" {
            assert_eq!(done, Ok(expected), "{words}");
        }
        assert_eq!(sim.states().len(), 1, "{words}");
    }
    let (done, sim) = install(connectx(), inbound(), Packet, &[0, 132]);
    assert!(done.unwrap_err().to_string().contains("traffic selectors for TCP, UDP or any"));
    assert!(sim.is_empty());
}

/// Other rules for other drivers, which the kernel knows.
#[test]
fn rules_of_mlx5_are_not_asked_of_others() {
    let other = Device { driver: Some("ixgbe".into()), ..connectx() };
    let state = State { protection: gcm_with_icv(96), ..inbound() };
    let (done, _) = install(other, state, HwOffload::Crypto, &[0]);
    assert_eq!(done, Ok(Some(OffloadMode::Crypto)));
}

#[test]
fn a_virtual_function_without_ipsec_is_named() {
    let vf = Device { virtual_function: true, esp: EspFeatures::default(), ..connectx() };
    let (done, sim) = install(vf.clone(), inbound(), HwOffload::Crypto, &[0]);
    let error = done.unwrap_err().to_string();
    assert!(error.contains("devlink port function set"), "{error}");
    assert!(sim.is_empty());
    assert_eq!(install(vf, inbound(), HwOffload::Auto, &[0]).0, Ok(None));
}

#[test]
fn policies_follow_in_packet_mode_where_the_device_sees_packets() {
    let packet = Some(Offload { ifindex: 7, mode: OffloadMode::Packet });
    let crypto = Some(Offload { ifindex: 7, mode: OffloadMode::Crypto });
    assert_eq!(policy_offload(packet, PolicyDirection::In), packet);
    assert_eq!(policy_offload(packet, PolicyDirection::Out), packet);
    assert_eq!(policy_offload(packet, PolicyDirection::Forward), None);
    assert_eq!(policy_offload(crypto, PolicyDirection::Out), None);
    assert_eq!(policy_offload(None, PolicyDirection::Out), None);
}

#[test]
fn what_an_earlier_run_left_is_removed_and_a_device_that_is_gone_forgotten() {
    let sim = SimKernel::new();
    let mut kernel = Kernel::new(sim.clone());
    let new = || Offloader::new(Nic(connectx()), vec![4500, 500, 500]);
    let none = BTreeSet::new();
    let mut crashed = new();
    crashed.install(&mut kernel, &mut inbound(), HwOffload::Packet, &none).unwrap();
    assert_eq!(sim.policies().len(), 8);
    let mut offloader = new();
    assert_eq!(offloader.remove_leftovers(&mut kernel), Ok(8));
    assert_eq!(sim.policies().len(), 0);

    let mut second = inbound();
    second.id.spi += 1;
    offloader.install(&mut kernel, &mut second, HwOffload::Packet, &none).unwrap();
    assert_eq!(offloader.remove_leftovers(&mut kernel), Ok(0), "they are in use");
    let other = LinkChange { index: 8, now: Link::Down };
    assert!(!offloader.link_changed(&mut kernel, other));
    assert!(offloader.link_changed(&mut kernel, LinkChange { index: 7, now: Link::Gone }));
    assert!(!offloader.link_changed(&mut kernel, LinkChange { index: 7, now: Link::Gone }));
}

fn gcm_key(octets: usize) -> ipsec_types::crypto::Secret {
    ipsec_types::crypto::Secret::new(vec![1; octets])
}

/// The same once more; keys are not copied by accident.
fn again(state: &State) -> State {
    let copy = |a: &Algorithm| Algorithm {
        name: a.name.clone(),
        key: a.key.duplicate(),
        icv_bits: a.icv_bits,
    };
    let protection = match &state.protection {
        Protection::Aead(algorithm) => Protection::Aead(copy(algorithm)),
        Protection::Separate { encryption, integrity } => {
            Protection::Separate { encryption: copy(encryption), integrity: copy(integrity) }
        }
    };
    State {
        protection,
        reqid: state.reqid,
        replay: state.replay.clone(),
        encapsulation: state.encapsulation,
        tfc_padding: state.tfc_padding,
        selector: state.selector,
        lifetime: state.lifetime,
        direction: state.direction,
        ..State::new(state.id, state.src, state.mode, gcm(128))
    }
}
