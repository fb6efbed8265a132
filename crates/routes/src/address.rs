//! Virtual IPs: addresses of this host that a peer has assigned to it.
//!
//! They bear the protocol number of our routes if the kernel supports that (Linux 5.18), so that a later run
//! recognizes addresses that a crashed run left.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope,
};
use rtnetlink::packet_route::link::LinkAttribute;

/// Who added an address, as the kernel keeps it.
const OURS: AddressProtocol = AddressProtocol::Other(122);
const EEXIST: i32 = 17;
const EADDRNOTAVAIL: i32 = 99;

/// Where an address is to be.
#[derive(Debug, Clone, Copy)]
pub enum On<'a> {
    /// The interface of this name.
    Interface(&'a str),
    /// The interface that has this address.
    Holder(IpAddr),
}

/// An address that was added to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The address.
    pub address: IpAddr,
    /// The interface's index.
    pub index: u32,
    /// The interface's name.
    pub interface: String,
    /// False if it was there before, so that it is somebody else's.
    pub ours: bool,
}

/// Adds `address` alone, without a subnet around it. Needs CAP_NET_ADMIN; must be called in a tokio runtime.
pub async fn add(address: IpAddr, on: On<'_>) -> Result<Installed, String> {
    let handle = open()?;
    let index = match on {
        On::Interface(name) => by_name(&handle, name).await?,
        On::Holder(holder) => {
            let found = all(&handle).await?.into_iter().find(|m| has(m, holder));
            let found = found.ok_or_else(|| format!("no interface has the address {holder}"))?;
            found.header.index
        }
    };
    let interface = name_of(&handle, index).await.unwrap_or_else(|| index.to_string());
    let mut request = handle.address().add(index, address, full(address));
    let message = request.message_mut();
    message.attributes.push(AddressAttribute::Protocol(OURS));
    if address.is_ipv6() {
        // Nobody else on the link has it, and traffic is waiting; nor is it the source of anything else.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    } else {
        message.header.scope = AddressScope::Universe;
    }
    let ours = match request.execute().await {
        Ok(()) => true,
        Err(error) if code(&error) == Some(EEXIST) => {
            let present = all(&handle).await?.into_iter().find(|m| has(m, address));
            present.is_some_and(|message| is_ours(&message))
        }
        Err(error) => return Err(format!("address {address}: {error}")),
    };
    Ok(Installed { address, index, interface, ours })
}

/// Removes what [`add`] added; that it is gone already is as good.
pub async fn remove(installed: &Installed) -> Result<(), String> {
    if !installed.ours {
        return Ok(());
    }
    let handle = open()?;
    let there = all(&handle).await?.into_iter().find(|message| {
        message.header.index == installed.index
            && has(message, installed.address)
            && message.header.prefix_len == full(installed.address)
    });
    match there {
        Some(message) => delete(&handle, message).await,
        None => Ok(()),
    }
}

/// Removes what earlier runs have left behind; the number of them.
pub async fn forget_leftovers() -> Result<usize, String> {
    let handle = open()?;
    let mut removed = 0;
    for message in all(&handle).await?.into_iter().filter(is_ours) {
        delete(&handle, message).await?;
        removed += 1;
    }
    Ok(removed)
}

async fn delete(handle: &Handle, message: AddressMessage) -> Result<(), String> {
    match handle.address().del(message).execute().await {
        Err(error) if code(&error) != Some(EADDRNOTAVAIL) => Err(format!("address: {error}")),
        _ => Ok(()),
    }
}

fn open() -> Result<Handle, String> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|error| format!("netlink: {error}"))?;
    // Ends with the handle.
    tokio::spawn(connection);
    Ok(handle)
}

async fn all(handle: &Handle) -> Result<Vec<AddressMessage>, String> {
    let found: Result<Vec<_>, _> = handle.address().get().execute().try_collect().await;
    found.map_err(|error| format!("addresses: {error}"))
}

async fn by_name(handle: &Handle, name: &str) -> Result<u32, String> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    match links.try_next().await {
        Ok(Some(link)) => Ok(link.header.index),
        Ok(None) => Err(format!("there is no interface {name:?}")),
        Err(error) => Err(format!("interface {name:?}: {error}")),
    }
}

async fn name_of(handle: &Handle, index: u32) -> Option<String> {
    let mut links = handle.link().get().match_index(index).execute();
    let link = links.try_next().await.ok()??;
    link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    })
}

fn has(message: &AddressMessage, address: IpAddr) -> bool {
    let is = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
        message.attributes.iter().find_map(wanted)
    };
    let local = is(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let other = is(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    local.or(other) == Some(address)
}

fn is_ours(message: &AddressMessage) -> bool {
    message.attributes.contains(&AddressAttribute::Protocol(OURS))
}

fn full(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.code.map(|code| -code.get()),
        _ => None,
    }
}
