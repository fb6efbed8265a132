//! Network devices as far as offload is concerned, and the one that owns an address.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use serde::Serialize;

use super::ethtool::{EspFeatures, Ethtool};
use super::query::{Questions, Reply};

/// A network device of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// The kind of virtual device as `ip link` names it: `vlan`, `bond`, `macvlan` and so on; empty for one with
    /// hardware of its own.
    pub kind: String,
    /// True if it is up.
    pub up: bool,
    /// Driver, as `ethtool -i` has it.
    pub driver: Option<String>,
    /// Where the hardware is: `pci/0000:03:00.0`.
    pub bus: Option<String>,
    /// True for a virtual function of a device with SR-IOV.
    pub virtual_function: bool,
    /// Name of the port at the switch it is on: `p0` is the uplink, `pf0vf1` the representor of a function.
    pub port: Option<String>,
    /// The device below a VLAN, macvlan or similar; the members of a bond.
    pub below: Vec<String>,
    /// Features that concern ESP.
    pub esp: EspFeatures,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

impl Device {
    /// True for the drivers of ConnectX and BlueField, subfunctions included.
    pub fn is_mlx5(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| driver.starts_with("mlx5_core"))
    }
}

impl fmt::Display for Device {
    /// `eth0 (mlx5_core)`, `vlan7 (vlan over eth0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (&self.driver, self.kind.as_str()) {
            (Some(driver), _) => write!(f, " ({driver})"),
            (None, "") => Ok(()),
            (None, kind) if self.below.is_empty() => write!(f, " ({kind})"),
            (None, kind) => write!(f, " ({kind} over {})", self.below.join(", ")),
        }
    }
}

/// Finds the device that ESP of an address can be offloaded to.
pub trait FindDevice {
    /// The device that owns `address`, if there is one.
    fn device_of(&mut self, address: IpAddr) -> io::Result<Option<Device>>;
}

/// The devices of the network namespace that the calling thread is in when it makes this.
#[derive(Debug)]
pub struct Devices {
    route: Questions,
    ethtool: Ethtool,
}

impl Devices {
    /// Opens the sockets; needs no privilege.
    pub fn open() -> io::Result<Self> {
        Ok(Self { route: Questions::open(NETLINK_ROUTE)?, ethtool: Ethtool::open()? })
    }

    /// All devices, by index.
    pub fn list(&mut self) -> io::Result<Vec<Device>> {
        let addresses = self.addresses()?;
        let links = self.links()?;
        let mut devices = Vec::new();
        for link in &links {
            devices.push(self.describe(link, &links, &addresses)?);
        }
        devices.sort_by_key(|device| device.index);
        Ok(devices)
    }

    /// The name and the kind of the device with this index, if there is one.
    pub fn kind_of(&mut self, index: u32) -> io::Result<Option<(String, String)>> {
        let links = self.links()?;
        let link = links.iter().find(|link| link.header.index == index);
        Ok(link.map(read).map(|device| (device.name, device.kind)))
    }

    fn describe(
        &mut self,
        link: &LinkMessage,
        links: &[LinkMessage],
        addresses: &[(u32, IpAddr)],
    ) -> io::Result<Device> {
        let mut device = read(link);
        device.below = below(link, links);
        // A device may be gone by now: then it has no features.
        device.esp =
            self.ethtool.features(&device.name).or_else(|error| match error.raw_os_error() {
                Some(libc::ENODEV) => Ok(EspFeatures::default()),
                _ => Err(error),
            })?;
        let own = addresses.iter().filter(|(index, _)| *index == device.index);
        device.addresses = own.map(|(_, address)| *address).collect();
        Ok(device)
    }

    fn links(&mut self) -> io::Result<Vec<LinkMessage>> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.route.ask(&question, Reply::All)?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        Ok(links.collect())
    }

    /// Interface index and address, for each address.
    fn addresses(&mut self) -> io::Result<Vec<(u32, IpAddr)>> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.route.ask(&question, Reply::All)?;
        let addresses = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(address) => own_address(&address),
            _ => None,
        });
        Ok(addresses.collect())
    }
}

impl FindDevice for Devices {
    fn device_of(&mut self, address: IpAddr) -> io::Result<Option<Device>> {
        let addresses = self.addresses()?;
        let Some((index, _)) = addresses.iter().find(|(_, own)| *own == address) else {
            return Ok(None);
        };
        let links = self.links()?;
        match links.iter().find(|link| link.header.index == *index) {
            Some(link) => self.describe(link, &links, &addresses).map(Some),
            None => Ok(None),
        }
    }
}

/// The address of this end; the other address of a point-to-point link is the peer's.
fn own_address(message: &AddressMessage) -> Option<(u32, IpAddr)> {
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => found = Some(*address),
            AddressAttribute::Address(address) => found = found.or(Some(*address)),
            _ => {}
        }
    }
    found.map(|address| (message.header.index, address))
}

fn read(link: &LinkMessage) -> Device {
    let mut device = Device {
        index: link.header.index,
        up: link.header.flags.contains(LinkFlags::Up),
        ..Device::default()
    };
    let (mut bus, mut slot) = (None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::PhysPortName(name) => device.port = Some(name.clone()),
            LinkAttribute::ParentDevBusName(name) => bus = Some(name),
            LinkAttribute::ParentDevName(name) => slot = Some(name),
            LinkAttribute::LinkInfo(info) => device.kind = kind(info),
            _ => {}
        }
    }
    if link.header.flags.contains(LinkFlags::Loopback) {
        device.kind = "loopback".into();
    }
    if let (Some(bus), Some(slot)) = (bus, slot) {
        let folder = Path::new("/sys/bus").join(bus).join("devices").join(slot);
        device.bus = Some(format!("{bus}/{slot}"));
        let driver = folder.join("driver").read_link().ok();
        device.driver =
            driver.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        device.virtual_function = folder.join("physfn").exists();
    }
    device
}

fn kind(info: &[LinkInfo]) -> String {
    let kind = info.iter().find_map(|info| match info {
        // netdevsim stands in for hardware.
        LinkInfo::Kind(kind) => Some(kind.to_string()).filter(|kind| kind != "netdevsim"),
        _ => None,
    });
    kind.unwrap_or_default()
}

fn below(link: &LinkMessage, links: &[LinkMessage]) -> Vec<String> {
    let index = link.header.index;
    let elsewhere = |a: &LinkAttribute| matches!(a, LinkAttribute::LinkNetNsId(_));
    let mut below = Vec::new();
    for attribute in &link.attributes {
        if let LinkAttribute::Link(lower) = attribute
            && *lower != index
            && !link.attributes.iter().any(elsewhere)
        {
            below.extend(links.iter().filter(|l| l.header.index == *lower).map(name));
        }
    }
    let member = |l: &&LinkMessage| l.attributes.contains(&LinkAttribute::Controller(index));
    below.extend(links.iter().filter(member).map(name));
    // Both ends of a veth pair in one namespace name each other.
    if read(link).kind == "veth" { Vec::new() } else { below }
}

fn name(link: &LinkMessage) -> String {
    read(link).name
}
