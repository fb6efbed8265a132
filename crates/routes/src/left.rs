//! What runs of this program have left in the kernel.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteType};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::{Error, Handle, IpVersion, RouteMessageBuilder};

use super::message::{EAFNOSUPPORT, ENOENT, EOPNOTSUPP, OURS, code, is_gone};

/// Removes all routes and rules of this program. Returns how many.
pub(super) async fn remove_all() -> io::Result<usize> {
    let handle = open()?;
    let mut removed = 0;
    for version in [IpVersion::V4, IpVersion::V6] {
        for rule in rules(&handle, version).await.map_err(failed("routing rules"))? {
            let gone = handle.rule().del(rule).execute().await;
            gone.map_err(failed("routing rule not removed"))?;
            removed += 1;
        }
    }
    for route in routes(&handle).await? {
        match handle.route().del(route).execute().await {
            Err(error) if !is_gone(&error) => return Err(failed("route not removed")(error)),
            _ => removed += 1,
        }
    }
    Ok(removed)
}

/// How many routes of this program there are.
pub(super) async fn count() -> io::Result<usize> {
    routes(&open()?).await.map(|routes| routes.len())
}

fn open() -> io::Result<Handle> {
    let opened = rtnetlink::new_connection_with_strict_check();
    let named = |error: io::Error| io::Error::new(error.kind(), format!("netlink: {error}"));
    let (connection, handle, _) = opened.map_err(named)?;
    tokio::spawn(connection);
    Ok(handle)
}

fn failed(what: &'static str) -> impl Fn(Error) -> io::Error {
    move |error| io::Error::other(format!("{what}: {error}"))
}

/// The routes of this program, in all tables.
async fn routes(handle: &Handle) -> io::Result<Vec<RouteMessage>> {
    let mut found = dump(handle, 0, OURS).await.map_err(failed("routes"))?;
    // Older kernels do not filter.
    found.retain(|route| route.header.protocol == OURS);
    Ok(found)
}

/// The rules of this program.
async fn rules(handle: &Handle, version: IpVersion) -> Result<Vec<RuleMessage>, Error> {
    let found = handle.rule().get(version).execute().try_collect::<Vec<_>>().await;
    let mut found = match found {
        // There is no IPv6.
        Err(error) if matches!(code(&error), Some(EOPNOTSUPP | EAFNOSUPPORT)) => Vec::new(),
        found => found?,
    };
    found.retain(|rule| rule.attributes.contains(&RuleAttribute::Protocol(OURS)));
    Ok(found)
}

/// Routes of `table` by `protocol`; of all tables if the table is 0, and of all protocols if that is unspecific. `strict`
/// has strict checks.
pub(super) async fn dump(
    strict: &Handle,
    table: u32,
    protocol: RouteProtocol,
) -> Result<Vec<RouteMessage>, Error> {
    // Of every kind: a strict dump leaves out the others.
    let every = |mut request: RouteMessage| {
        request.header.kind = RouteType::Unspec;
        request.header.protocol = protocol;
        request
    };
    let any = [
        every(RouteMessageBuilder::<Ipv4Addr>::new().table_id(table).build()),
        every(RouteMessageBuilder::<Ipv6Addr>::new().table_id(table).build()),
    ];
    let mut all = Vec::new();
    for request in any {
        match strict.route().get(request).execute().try_collect::<Vec<_>>().await {
            Ok(found) => all.extend(found),
            // There is no such table yet, or no IPv6.
            Err(error) if matches!(code(&error), Some(ENOENT | EOPNOTSUPP | EAFNOSUPPORT)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
