//! The addresses of this host, and word of changes to them, to links and to routes.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use netlink_packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::{Handle, MulticastGroup, new_multicast_connection};

use super::table::table_of;

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
            use RouteNetlinkMessage as News;
            let changed = match message.payload {
                NetlinkPayload::InnerMessage(
                    News::NewAddress(_) | News::DelAddress(_) | News::NewLink(_) | News::DelLink(_),
                ) => true,
                NetlinkPayload::InnerMessage(News::NewRoute(route) | News::DelRoute(route)) => {
                    table_of(&route) != table
                }
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

    /// The addresses that something can be sent from to other hosts: of links that are up and have a carrier,
    /// without the loopback, link-local ones, and those that are not ready or not to be used any more.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let failed = |e: rtnetlink::Error| format!("netlink: {e}");
        let links: Vec<_> =
            self.handle.link().get().execute().try_collect().await.map_err(failed)?;
        let usable: Vec<u32> = links
            .iter()
            .filter(|link| {
                let flags = link.header.flags;
                flags.contains(LinkFlags::Up | LinkFlags::LowerUp)
                    && !flags.contains(LinkFlags::Loopback)
            })
            .map(|link| link.header.index)
            .collect();
        let all: Vec<AddressMessage> =
            self.handle.address().get().execute().try_collect().await.map_err(failed)?;
        let mut addresses: Vec<_> = all
            .iter()
            .filter(|message| usable.contains(&message.header.index))
            .filter_map(usable_address)
            .collect();
        addresses.dedup();
        Ok(addresses)
    }
}

fn usable_address(message: &AddressMessage) -> Option<IpAddr> {
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed | AddressFlags::Deprecated;
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // Of a point-to-point link the address is the other end's.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(flags) if flags.intersects(unusable) => return None,
            _ => {}
        }
    }
    local.or(address).filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    })
}

impl std::fmt::Debug for HostWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostWatch")
    }
}
