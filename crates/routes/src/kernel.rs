//! What the routing table asks of the kernel. There is a second one for tests, `sim`, in which the lives of `tests/lives`
//! put the same decisions to the test.

use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::sys::AsyncSocket;
use rtnetlink::{Error, Handle, IpVersion};

use super::hop::{self, AskError, Hop};
use super::left;

/// A kernel with rules, routes and addresses.
pub(super) trait Kernel {
    /// Adds a rule. With `again` also if there is one like it.
    async fn add_rule(&self, rule: RuleMessage, again: bool) -> Result<(), Error>;
    /// Removes the first rule that is like this one.
    async fn remove_rule(&self, rule: RuleMessage) -> Result<(), Error>;
    async fn rules(&self, ipv4: bool) -> Result<Vec<RuleMessage>, Error>;
    /// Sets a route, in the place of one to the same prefix with the same metric.
    async fn set_route(&self, route: RouteMessage) -> Result<(), Error>;
    async fn remove_route(&self, route: RouteMessage) -> Result<(), Error>;
    /// Routes of `table` by `protocol`; of all tables if the table is 0, and of all protocols if that is unspecific.
    async fn routes(&self, table: u32, protocol: RouteProtocol)
    -> Result<Vec<RouteMessage>, Error>;
    /// The addresses of this host.
    async fn addresses(&self) -> Result<Vec<IpAddr>, AskError>;
    /// The way that packets with `mark` from `local` take to `remote`; `None` if that is this host itself.
    async fn towards(
        &self,
        local: IpAddr,
        remote: IpAddr,
        mark: u32,
    ) -> Result<Option<Hop>, AskError>;
}

/// The kernel of this host, by netlink.
pub(super) struct Netlink {
    handle: Handle,
    /// Of these dumps the kernel leaves out what is not asked for: a router may have very many routes.
    strict: Handle,
    /// The netlink port of `handle`: the kernel names it in its news of what this thread changes.
    port: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let (mut connection, handle, _) = rtnetlink::new_connection()?;
        let port = connection.socket_mut().socket_mut().bind_auto()?.port_number();
        tokio::spawn(connection);
        let strict = rtnetlink::new_connection_with_strict_check();
        let (connection, strict, _) = strict.or_else(|_| rtnetlink::new_connection())?;
        tokio::spawn(connection);
        Ok(Self { handle, strict, port })
    }

    /// The netlink port by which rules and routes are changed.
    pub(super) fn port(&self) -> u32 {
        self.port
    }
}

impl Kernel for Netlink {
    async fn add_rule(&self, rule: RuleMessage, again: bool) -> Result<(), Error> {
        let mut request = self.handle.rule().add();
        if again {
            request = request.replace();
        }
        *request.message_mut() = rule;
        request.execute().await
    }

    async fn remove_rule(&self, rule: RuleMessage) -> Result<(), Error> {
        self.handle.rule().del(rule).execute().await
    }

    async fn rules(&self, ipv4: bool) -> Result<Vec<RuleMessage>, Error> {
        let version = if ipv4 { IpVersion::V4 } else { IpVersion::V6 };
        self.handle.rule().get(version).execute().try_collect().await
    }

    async fn set_route(&self, route: RouteMessage) -> Result<(), Error> {
        self.handle.route().add(route).replace().execute().await
    }

    async fn remove_route(&self, route: RouteMessage) -> Result<(), Error> {
        self.handle.route().del(route).execute().await
    }

    async fn routes(
        &self,
        table: u32,
        protocol: RouteProtocol,
    ) -> Result<Vec<RouteMessage>, Error> {
        left::dump(&self.strict, table, protocol).await
    }

    async fn addresses(&self) -> Result<Vec<IpAddr>, AskError> {
        hop::addresses(&self.handle).await
    }

    async fn towards(
        &self,
        local: IpAddr,
        remote: IpAddr,
        mark: u32,
    ) -> Result<Option<Hop>, AskError> {
        hop::towards(&self.handle, local, remote, mark).await
    }
}
