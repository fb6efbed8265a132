//! Virtual IPs: addresses of this host that a peer has assigned to it.
//!
//! They bear the protocol number of our routes if the kernel supports that (Linux 5.18), so that a later run
//! recognizes addresses that a crashed run left.

use std::net::IpAddr;
use std::{fmt, io};

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

/// Why an address is not added, removed or found.
#[derive(Debug)]
pub enum AddressError {
    /// There is no netlink.
    Netlink(io::Error),
    /// The kernel does not list addresses.
    List(rtnetlink::Error),
    /// There is no interface of this name.
    NoInterface(String),
    /// No interface has this address.
    NoHolder(IpAddr),
    /// The kernel does not find the interface of this name.
    Interface(String, rtnetlink::Error),
    /// The kernel refuses to add this address.
    Add(IpAddr, rtnetlink::Error),
    /// The kernel refuses to remove an address.
    Remove(rtnetlink::Error),
    /// The kernel does not answer.
    Unanswered,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Netlink(error) => write!(f, "netlink: {error}"),
            Self::List(error) => write!(f, "addresses: {error}"),
            Self::NoInterface(name) => write!(f, "there is no interface {name:?}"),
            Self::NoHolder(holder) => write!(f, "no interface has the address {holder}"),
            Self::Interface(name, error) => write!(f, "interface {name:?}: {error}"),
            Self::Add(address, error) => write!(f, "address {address}: {error}"),
            Self::Remove(error) => write!(f, "address: {error}"),
            Self::Unanswered => f.write_str("the kernel does not answer"),
        }
    }
}

impl std::error::Error for AddressError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Netlink(error) => Some(error),
            Self::List(error)
            | Self::Interface(_, error)
            | Self::Add(_, error)
            | Self::Remove(error) => Some(error),
            Self::NoInterface(_) | Self::NoHolder(_) | Self::Unanswered => None,
        }
    }
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
pub async fn add(address: IpAddr, on: On<'_>) -> Result<Installed, AddressError> {
    let handle = open()?;
    let index = match on {
        On::Interface(name) => by_name(&handle, name).await?,
        On::Holder(holder) => {
            let found = all(&handle).await?.into_iter().find(|m| has(m, holder));
            let found = found.ok_or(AddressError::NoHolder(holder))?;
            found.header.index
        }
    };
    set(&handle, address, index).await
}

/// Adds an address again that was taken away: to the interface of the same name, if the interface was made anew.
pub(crate) async fn again(installed: &Installed) -> Result<Installed, AddressError> {
    let handle = open()?;
    let index = by_name(&handle, &installed.interface).await?;
    set(&handle, installed.address, index).await
}

/// The addresses of this host with their interfaces' indices.
pub(crate) async fn present() -> Result<Vec<(IpAddr, u32)>, AddressError> {
    let all = all(&open()?).await?;
    Ok(all.iter().filter_map(|message| Some((local(message)?, message.header.index))).collect())
}

async fn set(handle: &Handle, address: IpAddr, index: u32) -> Result<Installed, AddressError> {
    let interface = name_of(handle, index).await.unwrap_or_else(|| index.to_string());
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
            let present = all(handle).await?.into_iter().find(|m| has(m, address));
            present.is_some_and(|message| is_ours(&message))
        }
        Err(error) => return Err(AddressError::Add(address, error)),
    };
    Ok(Installed { address, index, interface, ours })
}

/// Removes what [`add`] added; that it is gone already is as good.
pub async fn remove(installed: &Installed) -> Result<(), AddressError> {
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
pub async fn forget_leftovers() -> Result<usize, AddressError> {
    let handle = open()?;
    let mut removed = 0;
    for message in all(&handle).await?.into_iter().filter(is_ours) {
        delete(&handle, message).await?;
        removed += 1;
    }
    Ok(removed)
}

async fn delete(handle: &Handle, message: AddressMessage) -> Result<(), AddressError> {
    match handle.address().del(message).execute().await {
        Err(error) if code(&error) != Some(EADDRNOTAVAIL) => Err(AddressError::Remove(error)),
        _ => Ok(()),
    }
}

fn open() -> Result<Handle, AddressError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(AddressError::Netlink)?;
    // Ends with the handle.
    tokio::spawn(connection);
    Ok(handle)
}

async fn all(handle: &Handle) -> Result<Vec<AddressMessage>, AddressError> {
    let found: Result<Vec<_>, _> = handle.address().get().execute().try_collect().await;
    found.map_err(AddressError::List)
}

async fn by_name(handle: &Handle, name: &str) -> Result<u32, AddressError> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    match links.try_next().await {
        Ok(Some(link)) => Ok(link.header.index),
        Ok(None) => Err(AddressError::NoInterface(name.to_owned())),
        Err(error) => Err(AddressError::Interface(name.to_owned(), error)),
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
    local(message) == Some(address)
}

/// The address of this end of the link.
fn local(message: &AddressMessage) -> Option<IpAddr> {
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
    local.or(other)
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
