//! What the routing table asks of a simulated kernel. Of IPv6 it has rules at most.

use std::net::IpAddr;
use std::num::NonZeroI32;

use netlink_packet_core::ErrorMessage;
use rtnetlink::Error;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::packet_route::rule::RuleMessage;

use super::SimHost;
use crate::hop::{AskError, Hop};
use crate::kernel::Kernel;
use crate::message::{EAFNOSUPPORT, table_of};

const ENOBUFS: i32 = 105;

pub(super) struct SimKernel(pub(super) SimHost);

/// As the kernel refuses something.
fn refused(code: i32) -> Error {
    let mut message = ErrorMessage::default();
    message.code = NonZeroI32::new(-code);
    Error::NetlinkError(message)
}

impl Kernel for SimKernel {
    async fn add_rule(&self, rule: RuleMessage, again: bool) -> Result<(), Error> {
        let ipv4 = rule.header.family == AddressFamily::Inet;
        let mut state = self.0.lock();
        if !ipv4 && !state.ipv6 {
            return Err(refused(EAFNOSUPPORT));
        }
        if state.rules_full == Some(ipv4) {
            return Err(refused(ENOBUFS));
        }
        state.add_rule(rule, again).map_err(refused)
    }

    async fn remove_rule(&self, rule: RuleMessage) -> Result<(), Error> {
        self.0.lock().remove_rule(&rule).map_err(refused)
    }

    async fn rules(&self, ipv4: bool) -> Result<Vec<RuleMessage>, Error> {
        let state = self.0.lock();
        if ipv4 || state.ipv6 { Ok(state.rules(ipv4)) } else { Err(refused(EAFNOSUPPORT)) }
    }

    async fn set_route(&self, route: RouteMessage) -> Result<(), Error> {
        if route.header.address_family != AddressFamily::Inet {
            return Err(refused(EAFNOSUPPORT));
        }
        let mut state = self.0.lock();
        if state.full == Some(table_of(&route)) {
            return Err(refused(ENOBUFS));
        }
        state.set_route(route, true).map_err(refused)
    }

    async fn remove_route(&self, route: RouteMessage) -> Result<(), Error> {
        self.0.lock().remove_route(&route).map_err(refused)
    }

    async fn routes(
        &self,
        table: u32,
        protocol: RouteProtocol,
    ) -> Result<Vec<RouteMessage>, Error> {
        let state = self.0.lock();
        if state.unreadable && table == 0 {
            return Err(refused(ENOBUFS));
        }
        Ok(state.routes(table, protocol))
    }

    async fn addresses(&self) -> Result<Vec<IpAddr>, AskError> {
        Ok(self.0.lock().addresses())
    }

    async fn towards(
        &self,
        local: IpAddr,
        remote: IpAddr,
        mark: u32,
    ) -> Result<Option<Hop>, AskError> {
        let state = self.0.lock();
        if state.has(remote) {
            return Ok(None);
        }
        let from = (!local.is_unspecified()).then_some(local);
        let road = state.road(from, remote, mark).ok_or(AskError::NoAnswer(remote))?;
        Ok(Some(Hop { gateway: None, interface: road.device }))
    }
}
