//! From `local_addrs` and `remote_addrs` to the two addresses a connection is initiated between.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ike_config::Ends;
use ike_proto::config::AddressSpec;

use crate::error::OperatorError;

/// How soon a `start_action` is tried again that has found no route, address or name,
const SOONEST: Duration = Duration::from_secs(1);
/// and how late, after twice as long each time.
const LATEST: Duration = Duration::from_secs(10);

/// The waits of a `start_action` until there is a route, an address or a name.
#[derive(Debug, Clone, Copy)]
pub struct StartWaits(Duration);

impl Default for StartWaits {
    fn default() -> Self {
        Self(SOONEST)
    }
}

impl StartWaits {
    /// The next one. `interval` is `retry_initiate_interval`, or zero.
    pub fn next(&mut self, interval: Duration) -> Duration {
        let at_most = if interval.is_zero() { LATEST } else { interval.min(LATEST) };
        let wait = self.0.min(at_most);
        self.0 = self.0.saturating_mul(2);
        wait
    }
}

/// The local and the remote address to initiate between: the first host of `remote`, and the first
/// of `local` that is of its family, or else what `source` says of the routes to the peer.
pub fn choose(
    ends: &Ends,
    source: &impl Fn(IpAddr) -> io::Result<IpAddr>,
) -> Result<(IpAddr, IpAddr), OperatorError> {
    let remotes: Vec<IpAddr> = ends.remote.iter().filter_map(|spec| spec.host()).collect();
    let mut last = OperatorError::NoRemoteAddress;
    for remote in remotes {
        match choose_local(&ends.local, remote, source) {
            Ok(local) => return Ok((local, remote)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// As [`choose`]. If the configuration names no host as the peer, the peer is the host at `last`.
pub fn choose_again(
    ends: &Ends,
    last: Option<IpAddr>,
    source: &impl Fn(IpAddr) -> io::Result<IpAddr>,
) -> Result<(IpAddr, IpAddr), OperatorError> {
    let named = ends.remote.iter().any(|spec| spec.host().is_some());
    match last.filter(|_| !named && !ends.remote.is_empty()) {
        Some(remote) => Ok((choose_local(&ends.local, remote, source)?, remote)),
        None => choose(ends, source),
    }
}

fn choose_local(
    local: &[AddressSpec],
    remote: IpAddr,
    source: &impl Fn(IpAddr) -> io::Result<IpAddr>,
) -> Result<IpAddr, OperatorError> {
    let host = local
        .iter()
        .filter_map(|spec| spec.host())
        .find(|address| address.is_ipv4() == remote.is_ipv4());
    if let Some(address) = host {
        return Ok(address);
    }
    let route = source(remote).map_err(|error| OperatorError::no_route(remote, &error))?;
    if local.iter().any(|spec| spec.contains(route)) {
        return Ok(route);
    }
    Err(OperatorError::NoLocalAddress { remote, route })
}

#[cfg(test)]
mod tests {
    use ike_config::HostSpec;

    use super::*;

    fn specs(texts: &[&str]) -> Vec<AddressSpec> {
        let parse = |text: &&str| match HostSpec::parse(text).unwrap() {
            HostSpec::Address(spec) => spec,
            HostSpec::Name(name) => panic!("{name} is a name"),
        };
        texts.iter().map(parse).collect()
    }

    fn chosen(local: &[&str], remote: &[&str]) -> Result<(IpAddr, IpAddr), OperatorError> {
        choose(&Ends { local: specs(local), remote: specs(remote) }, &looped)
    }

    /// A host with its own addresses alone.
    fn looped(remote: IpAddr) -> io::Result<IpAddr> {
        if remote.is_loopback() {
            Ok("127.0.0.1".parse().unwrap())
        } else {
            Err(io::ErrorKind::HostUnreachable.into())
        }
    }

    #[test]
    fn configured_hosts_come_first() {
        let ends =
            chosen(&["10.0.0.0/8", "2001:db8::1", "192.0.2.1"], &["192.0.2.0/24", "192.0.2.2"]);
        assert_eq!(ends, Ok(("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())));
        assert!(chosen(&["%any"], &["%any", "192.0.2.0/24"]).is_err());
    }

    #[test]
    fn else_the_route_decides() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(chosen(&["%any"], &["127.0.0.1"]), Ok((loopback, loopback)));
        assert!(chosen(&["192.0.2.0/24"], &["127.0.0.1"]).is_err());
    }

    #[test]
    fn a_peer_that_is_not_configured_is_the_last_one() {
        let last: IpAddr = "127.0.0.1".parse().unwrap();
        let ends = |remote: &[&str]| Ends { local: specs(&["%any"]), remote: specs(remote) };
        assert_eq!(choose_again(&ends(&["%any"]), Some(last), &looped), Ok((last, last)));
        assert_eq!(
            choose_again(&ends(&["127.0.0.2"]), Some(last), &looped).map(|ends| ends.1),
            Ok("127.0.0.2".parse().unwrap())
        );
        assert!(choose_again(&ends(&["%any"]), None, &looped).is_err());
        // A name that does not resolve is no licence to go elsewhere.
        assert!(choose_again(&ends(&[]), Some(last), &looped).is_err());
    }
}
