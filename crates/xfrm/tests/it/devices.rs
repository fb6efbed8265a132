//! What the kernel says of its devices, compared with what `ip` says. Devices are read without privilege.

use std::process::Command;

use xfrm::offload::{Device, Devices, Feature, FindDevice};

#[test]
fn loopback_owns_its_address_and_offloads_nothing() {
    let mut devices = Devices::open().unwrap();
    let device = devices.device_of("127.0.0.1".parse().unwrap()).unwrap().unwrap();
    assert_eq!((device.name.as_str(), device.kind.as_str()), ("lo", "loopback"));
    assert_eq!(device.esp.crypto, Feature::Missing);
    assert!(device.driver.is_none() && device.below.is_empty());
}

#[test]
fn an_address_of_somebody_else_is_on_no_device() {
    let mut devices = Devices::open().unwrap();
    assert_eq!(devices.device_of("192.0.2.77".parse().unwrap()).unwrap(), None);
}

#[test]
fn every_device_that_ip_lists_is_listed() {
    let Ok(output) = Command::new("ip").args(["-o", "link"]).output() else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    // "2: eth0@if5: <BROADCAST,…": as `ip` sees it.
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split([':', '@']).nth(1).map(str::trim)).collect();
    let devices = Devices::open().unwrap().list().unwrap();
    let ours: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(ours, names);
}

/// Where a device with ESP offload is: in the lab's guests.
#[test]
fn features_are_those_that_ethtool_lists() {
    for device in Devices::open().unwrap().list().unwrap() {
        let Ok(output) = Command::new("ethtool").args(["-k", &device.name]).output() else {
            return;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        let Device { name, esp, .. } = &device;
        for (feature, ours) in [
            ("esp-hw-offload", esp.crypto),
            ("esp-tx-csum-hw-offload", esp.checksum),
            ("tx-esp-segmentation", esp.segmentation),
        ] {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(feature));
            let theirs = match line.map(|rest| rest.trim_start_matches(": ")) {
                Some("on" | "on [fixed]") => Feature::On,
                Some("off" | "off [requested on]") => Feature::Off,
                _ => Feature::Missing,
            };
            assert_eq!(ours, theirs, "{feature} of {name}");
        }
    }
}
