//! Where packets go next, and which source address they should have.

use std::net::IpAddr;
use std::{fmt, io};

use futures_util::{StreamExt, TryStreamExt};
use ipsec_types::dataplane::TrafficSelector;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};

/// The way to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    /// The router; `None` if the peer is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// Interface index.
    pub(super) interface: u32,
}

/// Why the kernel has not told a way, or the addresses of this host.
#[derive(Debug)]
pub(super) enum AskError {
    Kernel(rtnetlink::Error),
    Refused(IpAddr, rtnetlink::Error),
    Prefix(IpAddr, io::Error),
    NoAnswer(IpAddr),
    NoInterface(IpAddr),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(error) => write!(f, "{error}"),
            Self::Refused(to, error) => write!(f, "the way to {to}: {error}"),
            Self::Prefix(to, error) => write!(f, "the way to {to}: {error}"),
            Self::NoAnswer(to) => write!(f, "the way to {to}: no answer"),
            Self::NoInterface(to) => write!(f, "the way to {to}: the route has no interface"),
        }
    }
}

/// The way that packets with `mark` from `local` take to `remote`; `None` if that is this host itself.
pub(super) async fn towards(
    handle: &Handle,
    local: IpAddr,
    remote: IpAddr,
    mark: u32,
) -> Result<Option<Hop>, AskError> {
    let width = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let mut request = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(remote, width(remote))
        .map_err(|e| AskError::Prefix(remote, io::Error::other(e)))?
        .mark(mark);
    if !local.is_unspecified() {
        request = request
            .source_prefix(local, width(local))
            .map_err(|e| AskError::Prefix(remote, io::Error::other(e)))?;
    }
    let mut answers = std::pin::pin!(handle.route().get(request.build()).execute());
    let answer = answers.next().await;
    let answer = answer.ok_or(AskError::NoAnswer(remote))?;
    let answer = answer.map_err(|e| AskError::Refused(remote, e))?;
    if answer.header.kind == RouteType::Local {
        return Ok(None);
    }
    hop(&answer).map(Some).ok_or(AskError::NoInterface(remote))
}

fn hop(route: &RouteMessage) -> Option<Hop> {
    let mut gateway = None;
    let mut interface = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => {
                gateway = Some((*address).into())
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => {
                gateway = Some((*address).into());
            }
            RouteAttribute::Oif(index) => interface = Some(*index),
            _ => {}
        }
    }
    Some(Hop { gateway, interface: interface? })
}

/// The addresses of this host.
pub(super) async fn addresses(handle: &Handle) -> Result<Vec<IpAddr>, AskError> {
    let mut found = Vec::new();
    let mut messages = handle.address().get().execute();
    while let Some(message) = messages.try_next().await.map_err(AskError::Kernel)? {
        let local = message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let address = message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        found.extend(local.or(address));
    }
    Ok(found)
}

/// The address that packets to `to` should have: one of ours inside the local selectors, and not one that
/// means something on this host or link only.
pub(super) fn source_for(
    addresses: &[IpAddr],
    to: IpAddr,
    local: &[TrafficSelector],
) -> Option<IpAddr> {
    addresses.iter().copied().find(|&address| {
        let narrow = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        address.is_ipv4() == to.is_ipv4()
            && !narrow
            && local.iter().any(|ts| ts.contains_addr(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_inside_the_selectors_and_of_global_scope() {
        let parse = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let ours: Vec<IpAddr> =
            parse(&["127.0.0.1", "::1", "169.254.1.1", "192.0.2.7", "fe80::1", "2001:db8::7"]);
        let selectors = |texts: &[&str]| -> Vec<TrafficSelector> {
            texts.iter().map(|t| t.parse().unwrap()).collect()
        };
        let source = |to: &str, local: &[&str]| {
            source_for(&ours, to.parse().unwrap(), &selectors(local)).map(|a| a.to_string())
        };
        assert_eq!(source("10.0.0.0", &["0.0.0.0/0"]).as_deref(), Some("192.0.2.7"));
        assert_eq!(source("2001:db8::", &["0.0.0.0/0", "::/0"]).as_deref(), Some("2001:db8::7"));
        assert_eq!(source("10.0.0.0", &["10.1.0.0/16"]), None, "a gateway without one");
        assert_eq!(source("2001:db8::", &["0.0.0.0/0"]), None);
    }
}
