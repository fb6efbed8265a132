//! What the kernel says of its devices, which needs no privilege.

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
