//! What the library says of devices, compared with what `ip` and `ethtool` say. Devices are read without privilege.

use xfrm::offload::{Device, Devices, Feature};

use crate::support::{ip, run};

pub(crate) fn every_device_that_ip_lists_is_listed() {
    let text = ip("-o link");
    // "2: eth0@if5: <BROADCAST,…": as `ip` sees it.
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split([':', '@']).nth(1).map(str::trim)).collect();
    let devices = Devices::open().unwrap().list().unwrap();
    let ours: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(ours, names);
}

/// Where a device with ESP offload is: in the lab's guests.
pub(crate) fn features_are_those_that_ethtool_lists() {
    for device in Devices::open().unwrap().list().unwrap() {
        let text = run("ethtool", &format!("-k {}", device.name));
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
