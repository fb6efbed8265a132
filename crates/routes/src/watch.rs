//! The addresses of this host, and word of changes to them, to links and to routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use netlink_packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::{Handle, MulticastGroup, new_multicast_connection};

use super::message::table_of;

/// Changes come in bursts: strongSwan waits as long.
const SETTLE: Duration = Duration::from_millis(100);

/// Watches where this host is in the network. Needs no privilege.
pub struct HostWatch {
    handle: Handle,
    changes: Pin<Box<dyn Stream<Item = ()> + Send + Sync>>,
}

impl HostWatch {
    /// Begins to watch; routes in `table` are nobody's news. Must be called in a tokio runtime.
    pub fn open(table: u32) -> Result<Self, String> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, handle, messages) =
            new_multicast_connection(&groups).map_err(|e| format!("netlink: {e}"))?;
        tokio::spawn(connection);
        let changes = messages.filter_map(move |(message, _)| {
            let changed = match message.payload {
                NetlinkPayload::InnerMessage(message) => is_news(&message, table),
                // Some were lost.
                NetlinkPayload::Overrun(_) => true,
                _ => false,
            };
            std::future::ready(changed.then_some(()))
        });
        Ok(Self { handle, changes: Box::pin(changes) })
    }

    /// Returns once something has changed, and a moment more has passed. False if nothing will be heard any
    /// more.
    pub async fn changed(&mut self) -> bool {
        if self.changes.next().await.is_none() {
            return false;
        }
        let more = async { while self.changes.next().await.is_some() {} };
        let _ = tokio::time::timeout(SETTLE, more).await;
        true
    }

    /// The addresses that the kernel sends from to other hosts: of links that are up and have a carrier, the loopback
    /// among them, on which routers have addresses that dynamic routing announces. Without 127.0.0.0/8, ::1 and link-local
    /// ones, and those that are not ready. One that is not to be used any more (deprecated, RFC 4862 §5.5.4) counts
    /// while its family has no other. Those of a VRF, which has routes of its own, count in a process that runs in it.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let failed = |e: rtnetlink::Error| format!("netlink: {e}");
        let links: Vec<_> =
            self.handle.link().get().execute().try_collect().await.map_err(failed)?;
        let mut all: Vec<AddressMessage> =
            self.handle.address().get().execute().try_collect().await.map_err(failed)?;
        let vrf = in_a_vrf(&links);
        all.retain(|message| !vrf.contains(&message.header.index) || is_own(message));
        Ok(usable(&links, &all))
    }
}

/// True if a message of the kernel is news of where this host is in the network. Routes in `table` are nobody's news.
pub(super) fn is_news(message: &RouteNetlinkMessage, table: u32) -> bool {
    use RouteNetlinkMessage as News;
    match message {
        News::NewAddress(_) | News::DelAddress(_) | News::NewLink(_) | News::DelLink(_) => true,
        News::NewRoute(route) | News::DelRoute(route) => table_of(route) != table,
        _ => false,
    }
}

/// The indices of VRFs, and of the links in them.
fn in_a_vrf(links: &[LinkMessage]) -> BTreeSet<u32> {
    let is_vrf = |link: &&LinkMessage| {
        let kind = LinkInfo::Kind(InfoKind::Vrf);
        link.attributes.iter().any(
            |attribute| matches!(attribute, LinkAttribute::LinkInfo(info) if info.contains(&kind)),
        )
    };
    let vrfs: BTreeSet<u32> = links.iter().filter(is_vrf).map(|link| link.header.index).collect();
    let is_in = |link: &&LinkMessage| {
        link.attributes.iter().any(
            |attribute| matches!(attribute, LinkAttribute::Controller(vrf) if vrfs.contains(vrf)),
        )
    };
    let members: Vec<u32> = links.iter().filter(is_in).map(|link| link.header.index).collect();
    vrfs.into_iter().chain(members).collect()
}

/// True if a socket of this process may have this address.
fn is_own(message: &AddressMessage) -> bool {
    usable_address(message).is_some_and(|(address, _)| UdpSocket::bind((address, 0)).is_ok())
}

/// Those of `all` addresses that the kernel sends from ([`HostWatch::addresses`]).
pub(super) fn usable(links: &[LinkMessage], all: &[AddressMessage]) -> Vec<IpAddr> {
    let usable: BTreeMap<u32, bool> = links
        .iter()
        .map(|link| (link.header.index, link.header.flags))
        .filter(|(_, flags)| flags.contains(LinkFlags::Up | LinkFlags::LowerUp))
        .map(|(index, flags)| (index, flags.contains(LinkFlags::Loopback)))
        .collect();
    let usable = |message: &AddressMessage| {
        let loopback = *usable.get(&message.header.index)?;
        let (address, deprecated) = usable_address(message)?;
        Some((deprecated, loopback, address))
    };
    let mut found: Vec<_> = all.iter().filter_map(usable).collect();
    let fresh = |ipv4: bool| found.iter().any(|(old, _, ip)| !old && ip.is_ipv4() == ipv4);
    let (v4, v6) = (fresh(true), fresh(false));
    found.retain(|(old, _, ip)| !(*old && if ip.is_ipv4() { v4 } else { v6 }));
    // Of the loopback last: only the first few are announced to a peer.
    found.sort_by_key(|(_, loopback, _)| *loopback);
    let mut addresses: Vec<_> = found.into_iter().map(|(_, _, address)| address).collect();
    addresses.dedup();
    addresses
}

/// An address that can be sent from, and whether it is deprecated.
fn usable_address(message: &AddressMessage) -> Option<(IpAddr, bool)> {
    let unready = AddressFlags::Tentative | AddressFlags::Dadfailed;
    let (mut local, mut address, mut deprecated) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            // Of a point-to-point link the address is the other end's.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(flags) if flags.intersects(unready) => return None,
            AddressAttribute::Flags(flags) => {
                deprecated = flags.contains(AddressFlags::Deprecated);
            }
            _ => {}
        }
    }
    let found = local.or(address).filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    });
    found.map(|address| (address, deprecated))
}

impl std::fmt::Debug for HostWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostWatch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = attributes;
        link
    }

    /// Faults: in `in_a_vrf`, leave the members out; take each link with a controller for one.
    #[test]
    fn a_vrf_and_the_links_in_it_are_known() {
        let kind = |kind| vec![LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])];
        let links = [
            link(2, vec![]),
            link(3, kind(InfoKind::Vrf)),
            link(4, vec![LinkAttribute::Controller(3)]),
            link(5, kind(InfoKind::Bridge)),
            link(6, vec![LinkAttribute::Controller(5)]),
        ];
        assert_eq!(in_a_vrf(&links), BTreeSet::from([3, 4]));
    }
}
