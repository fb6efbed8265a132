//! What the kernel says of its devices, compared with what `ip` says. Devices are read without privilege.

use std::process::Command;

use xfrm::offload::{Devices, Feature, FindDevice};

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
