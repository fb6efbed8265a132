//! Offload to netdevsim, the kernel's simulated NIC: what `ip` and the NIC say was installed, and what is
//! left after a refusal. Its shipped rules take crypto offload of AES-GCM with an ICV of 16 octets; the
//! lab's kernel can be told to take whole packets as well.

use std::collections::BTreeSet;

use crate::nsim::{Nsim, log_of};
use crate::support::{addr, gcm, ip, ip_words, kernel, run, state};
use ipsec_types::dataplane::HwOffload;
use xfrm::kernel::Kernel;
use xfrm::netlink::{FaultyTransport, NetlinkFault, Socket, Transport};
use xfrm::offload::{
    Devices, Feature, FindDevice, InstallError, Link, LinkChange, LinkWatch, Offloader,
};
use xfrm::state::{Algorithm, Direction, Offload, OffloadMode, Protection, State};

/// Its own address is the NIC's.
const LOCAL: &str = "192.0.2.1";
const PEER: &str = "192.0.2.2";

fn offloader() -> Offloader<Devices> {
    Offloader::new(Devices::open().unwrap(), vec![500, 4500])
}

fn outbound(spi: u32) -> State {
    State { direction: Some(Direction::Out), ..state(spi, LOCAL, PEER) }
}

fn inbound(spi: u32) -> State {
    State { direction: Some(Direction::In), ..state(spi, PEER, LOCAL) }
}

fn install<T: Transport>(
    kernel: &mut Kernel<T>,
    offloader: &mut Offloader<Devices>,
    mut state: State,
    wanted: HwOffload,
) -> Result<Option<OffloadMode>, InstallError> {
    let offload = offloader.install(kernel, &mut state, wanted, &BTreeSet::from([0]))?;
    assert_eq!(state.offload, offload);
    Ok(offload.map(|offload: Offload| offload.mode))
}

/// AES-GCM with 8 octets of ICV, which netdevsim does not take.
fn short_icv() -> Protection {
    match gcm(256) {
        Protection::Aead(algorithm) => Protection::Aead(Algorithm { icv_bits: 64, ..algorithm }),
        other => other,
    }
}

fn nothing_is_left() {
    assert_eq!((ip("xfrm state"), ip("xfrm policy")), (String::new(), String::new()));
}

pub(crate) fn the_nic_is_found_by_its_address_and_its_features_are_ethtools() {
    let _kernel = kernel();
    let nsim = Nsim::new(false);
    ip(&format!("link add link {} name v7 type vlan id 7", nsim.name));
    ip("address add 192.0.2.129/25 dev v7");
    let mut devices = Devices::open().unwrap();
    let nic = devices.device_of(addr(LOCAL)).unwrap().unwrap();
    assert_eq!((nic.name.as_str(), nic.index), (nsim.name.as_str(), nsim.index));
    assert_eq!(nic.driver.as_deref(), Some("netdevsim"));
    assert_eq!(nic.bus, Some(format!("netdevsim/netdevsim{}", nsim.id)));
    assert_eq!(nic.esp.crypto, Feature::On);
    run("ethtool", &format!("-K {} esp-hw-offload off", nsim.name));
    let nic = devices.device_of(addr(LOCAL)).unwrap().unwrap();
    assert_eq!(nic.esp.crypto, Feature::Off);
    assert_eq!(nic.esp.checksum, Feature::On);
    let vlan = devices.device_of(addr("192.0.2.129")).unwrap().unwrap();
    assert_eq!((vlan.name.as_str(), vlan.kind.as_str()), ("v7", "vlan"));
    assert_eq!(vlan.below, [nsim.name.as_str()]);
    assert_eq!(vlan.esp.crypto, Feature::Missing);
}

pub(crate) fn crypto_offload_reaches_the_nic() {
    let mut kernel = kernel();
    let nsim = Nsim::new(false);
    let mut offloader = offloader();
    let crypto = Ok(Some(OffloadMode::Crypto));
    let (out, inn) = (outbound(0xc000_0001), inbound(0xc000_0002));
    assert_eq!(install(&mut kernel, &mut offloader, out, HwOffload::Crypto), crypto);
    assert_eq!(install(&mut kernel, &mut offloader, inn, HwOffload::Crypto), crypto);
    let said = ip_words("xfrm state");
    for (dir, spi) in [("out", "0xc0000001"), ("in", "0xc0000002")] {
        assert!(said.contains(&format!("proto esp spi {spi}")), "{said}");
        let parameters =
            format!("crypto offload parameters: dev {} dir {dir} mode crypto", nsim.name);
        assert!(said.contains(&parameters), "{said}");
    }
    let nic = nsim.sas();
    assert!(nic.contains("spi=0xc0000001") && nic.contains("spi=0xc0000002"), "{nic}");
    // The key is 01…10 and the salt 11…14, as bytes on the wire.
    assert!(nic.contains("salt=0x14131211"), "{nic}");
    assert!(nic.contains("key=0x04030201 08070605 0c0b0a09 100f0e0d"), "{nic}");
    assert_eq!(ip("xfrm policy"), "", "crypto offload needs no policy of its own");
}

pub(crate) fn without_packet_offload_auto_takes_crypto_and_says_so() {
    let mut kernel = kernel();
    let nsim = Nsim::new(false);
    let mut offloader = offloader();
    let (mode, log) =
        log_of(|| install(&mut kernel, &mut offloader, outbound(0xc000_0001), HwOffload::Auto));
    assert_eq!(mode, Ok(Some(OffloadMode::Crypto)));
    let name = &nsim.name;
    assert!(
        log.contains(&format!("no packet offload of SA c0000001: {name} (netdevsim)")),
        "{log}"
    );
    assert!(log.contains("the driver has crypto offload only"), "{log}");
    assert!(log.contains(&format!("SA c0000001: crypto offload on {name} (netdevsim)")), "{log}");
    assert!(ip_words("xfrm state").contains("mode crypto"));
}

pub(crate) fn what_no_offload_takes_auto_does_in_software_and_says_so() {
    let mut kernel = kernel();
    let _nsim = Nsim::new(false);
    let mut offloader = offloader();
    let state = State { protection: short_icv(), ..outbound(0xc000_0001) };
    let (mode, log) = log_of(|| install(&mut kernel, &mut offloader, state, HwOffload::Auto));
    assert_eq!(mode, Ok(None));
    for words in
        ["no packet offload of SA c0000001", "no crypto offload of SA c0000001", "in software"]
    {
        assert!(log.contains(words), "{words} in {log}");
    }
    assert!(log.contains("rfc4106(gcm(aes)) with 288 bits of key and salt, ICV 64 bits"), "{log}");
    let said = ip_words("xfrm state");
    assert!(said.contains("spi 0xc0000001") && !said.contains("offload"), "{said}");
    assert_eq!(ip("xfrm policy"), "");
}

pub(crate) fn a_mode_asked_for_by_name_fails_with_the_reason_and_leaves_nothing() {
    let mut kernel = kernel();
    let nsim = Nsim::new(false);
    let mut offloader = offloader();
    let mut refused = |state: State, wanted| {
        let error = install(&mut kernel, &mut offloader, state, wanted).unwrap_err();
        assert!(matches!(error, InstallError::Refused(_)), "{error}");
        nothing_is_left();
        error.to_string()
    };
    let packet = refused(outbound(0xc000_0001), HwOffload::Packet);
    let crypto = State { protection: short_icv(), ..inbound(0xc000_0002) };
    let crypto = refused(crypto, HwOffload::Crypto);
    for (said, mode) in [(&packet, "packet"), (&crypto, "crypto")] {
        let begin = format!("no {mode} offload of SA c000000");
        assert!(said.starts_with(&begin) && said.contains(&nsim.name), "{said}");
        assert!(said.contains("the kernel says: "), "{said}");
    }
    assert!(packet.contains("the driver has crypto offload only"), "{packet}");
    assert!(crypto.contains("288 bits of key and salt, ICV 64 bits"), "{crypto}");

    run("ethtool", &format!("-K {} esp-hw-offload off", nsim.name));
    let off = refused(outbound(0xc000_0003), HwOffload::Crypto);
    assert!(off.contains(&format!("ethtool -K {} esp-hw-offload on", nsim.name)), "{off}");
    let elsewhere =
        State { direction: Some(Direction::Out), ..state(0xc000_0004, "203.0.113.1", PEER) };
    let nowhere = refused(elsewhere, HwOffload::Packet);
    assert!(nowhere.contains("no interface has the local address 203.0.113.1"), "{nowhere}");
}

/// The kernel takes crypto offload on any device and leaves it out in silence.
pub(crate) fn what_the_kernel_leaves_out_in_silence_is_noticed() {
    let mut kernel = kernel();
    ip("link add v0 type veth peer name v1");
    ip(&format!("address add {LOCAL}/24 dev v0"));
    for wanted in [HwOffload::Crypto, HwOffload::Packet] {
        let error = install(&mut kernel, &mut offloader(), outbound(0xc000_0001), wanted);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("v0 (veth): "), "{error}");
        assert!(error.contains("a veth device has no hardware"), "{error}");
        nothing_is_left();
    }
    let auto = install(&mut kernel, &mut offloader(), outbound(0xc000_0001), HwOffload::Auto);
    assert_eq!(auto, Ok(None));
    assert!(ip_words("xfrm state").contains("spi 0xc0000001"));
}

pub(crate) fn packet_offload_brings_policies_that_let_ike_pass() {
    let mut kernel = kernel();
    let nsim = Nsim::new(true);
    let mut offloader = offloader();
    let packet = Ok(Some(OffloadMode::Packet));
    let (first, second) = (outbound(0xc000_0001), inbound(0xc000_0002));
    let ids = [first.id, second.id];
    assert_eq!(install(&mut kernel, &mut offloader, first, HwOffload::Packet), packet);
    assert_eq!(install(&mut kernel, &mut offloader, second, HwOffload::Auto), packet);
    let states = ip_words("xfrm state");
    for dir in ["out", "in"] {
        let parameters = format!("dev {} dir {dir} mode packet", nsim.name);
        assert!(states.contains(&parameters), "{states}");
    }
    assert!(nsim.sas().contains("spi=0xc0000001"));
    let policies = ip_words("xfrm policy");
    for any in ["0.0.0.0/0", "::/0"] {
        for port in [500, 4500] {
            for (dir, side) in [("out", "sport"), ("in", "dport")] {
                let policy = format!(
                    "src {any} dst {any} proto udp {side} {port} dev {} dir {dir} priority 1",
                    nsim.name
                );
                assert!(policies.contains(&policy), "{policy} in {policies}");
            }
        }
    }
    let offloaded = format!("crypto offload parameters: dev {} mode packet", nsim.name);
    assert_eq!(policies.matches(&offloaded).count(), 8, "{policies}");
    assert!(!policies.contains("dir fwd"), "{policies}");

    for (id, left) in ids.into_iter().zip([8, 0]) {
        assert!(kernel.delete_state(&id).unwrap());
        offloader.removed(&mut kernel, &id);
        assert_eq!(ip_words("xfrm policy").matches(&offloaded).count(), left);
    }
    nothing_is_left();
}

pub(crate) fn a_device_that_goes_down_loses_its_sas_and_gets_its_policies_again() {
    let mut kernel = kernel();
    let nsim = Nsim::new(true);
    let mut offloader = offloader();
    let mut watch = LinkWatch::open().unwrap();
    install(&mut kernel, &mut offloader, outbound(0xc000_0001), HwOffload::Packet).unwrap();
    ip(&format!("link set {} down", nsim.name));
    assert_eq!(ip("xfrm state"), "", "the kernel drops what was offloaded");
    let mut next = || watch.next_change().unwrap();
    let down = next().unwrap();
    assert_eq!(down, LinkChange { index: nsim.index, now: Link::Down });
    assert!(offloader.link_changed(&mut kernel, down), "SAs were lost");
    while next().is_some() {}
    ip(&format!("link set {} up", nsim.name));
    let up = next().unwrap();
    assert_eq!(up, LinkChange { index: nsim.index, now: Link::Up });
    assert!(!offloader.link_changed(&mut kernel, up));
    assert_eq!(ip_words("xfrm policy").matches("mode packet").count(), 8);
    offloader.flush(&mut kernel).unwrap();
    nothing_is_left();
}

/// Whatever request fails or loses its answer: an error leaves nothing, and what is installed is as told.
pub(crate) fn no_failure_leaves_half_of_it() {
    let kernel = kernel();
    drop(kernel);
    let _nsim = Nsim::new(true);
    for wanted in [HwOffload::Crypto, HwOffload::Packet, HwOffload::Auto] {
        for nth in 1..16 {
            for fault in [NetlinkFault::Nth(nth, libc::ENOMEM), NetlinkFault::LostAck(nth)] {
                let mut kernel = Kernel::new(FaultyTransport::new(Socket::open().unwrap()));
                kernel.transport_mut().fail(fault.clone());
                let mut offloader = offloader();
                let done = install(&mut kernel, &mut offloader, outbound(0xc000_0001), wanted);
                let said = ip_words("xfrm state");
                match done {
                    Ok(Some(OffloadMode::Packet)) => {
                        assert!(said.contains("mode packet"), "{fault:?}")
                    }
                    Ok(Some(OffloadMode::Crypto)) => {
                        assert!(said.contains("mode crypto"), "{fault:?}")
                    }
                    Ok(None) => {
                        assert!(said.contains("spi") && !said.contains("offload"), "{fault:?}")
                    }
                    Err(_) => assert_eq!(said, "", "{wanted:?} {fault:?}"),
                }
                if !matches!(done, Ok(Some(OffloadMode::Packet))) {
                    kernel.transport_mut().heal();
                    offloader.flush(&mut kernel).unwrap();
                    assert_eq!(ip("xfrm policy"), "", "{wanted:?} {fault:?} {done:?}");
                }
                ip("xfrm state flush");
                ip("xfrm policy flush");
            }
        }
    }
}

pub(crate) fn extended_sequence_numbers_are_named_as_the_reason() {
    let mut kernel = kernel();
    let _nsim = Nsim::new(false);
    let mut state = inbound(0xc000_0001);
    state.replay.esn = true;
    let error = install(&mut kernel, &mut offloader(), state, HwOffload::Crypto).unwrap_err();
    assert!(error.to_string().contains("propose noesn"), "{error}");
    nothing_is_left();
}
