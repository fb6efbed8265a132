//! The grants in a RADIUS server's Access-Accept: groups and a lifetime, which count at once, and other
//! attributes, which stay with the session.

use std::net::IpAddr;
use std::time::Duration;

use ::eap::radius::{Response, all, attribute, of_vendor};
use ike_config::GroupSources;
use ike_proto::IkeStatus;
use ike_proto::wire::payload::Attribute;

/// What is in one Access-Accept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) groups: Vec<Vec<u8>>,
    /// Session-Timeout, if it limits the session: 0 is the profiles' word for no limit.
    pub(crate) lifetime: Option<Duration>,
    /// Attributes that count later, as they stand.
    pub(crate) kept: Box<[u8]>,
}

/// A longer Class is no name of a group: some servers use it for themselves.
const LONGEST_CLASS: usize = 43;
/// The least Acct-Interim-Interval of a server that counts.
const SHORTEST_INTERIM: Duration = Duration::from_secs(60);
/// Tunnel-Type (RFC 2868 §3.1): ESP.
const ESP: [u8; 3] = [0, 0, 9];

const MICROSOFT: u32 = 311;
/// Altiga's, of whose products Cisco's VPN 3000 came.
const ALTIGA: u32 = 3076;

impl Grants {
    pub(crate) fn of(response: &Response<'_>, sources: GroupSources) -> Self {
        let mut grants = Self::default();
        let mut kept = Vec::new();
        let (mut filter_id, mut is_esp) = (None, false);
        for (kind, value) in response.all() {
            match kind {
                attribute::CLASS if sources.class && value.len() <= LONGEST_CLASS => {
                    grants.groups.push(value.to_vec());
                }
                attribute::FILTER_ID => filter_id = Some(value),
                // A tag is in front.
                attribute::TUNNEL_TYPE if value.len() == 4 => is_esp = value[1..] == ESP,
                attribute::SESSION_TIMEOUT => {
                    grants.lifetime = seconds(value).filter(|time| !time.is_zero());
                }
                _ => {}
            }
            let counts = match kind {
                attribute::CLASS => true,
                attribute::VENDOR_SPECIFIC => of_vendor(value).any(|one| server(one).is_some()),
                _ => address(kind, value).is_some() || is_for_all(kind, value),
            };
            if let (true, Ok(len)) = (counts, u8::try_from(value.len() + 2)) {
                kept.extend([kind, len]);
                kept.extend(value);
            }
        }
        if let Some(name) = filter_id.filter(|name| sources.filter_id && is_esp && !name.is_empty())
        {
            grants.groups.push(name.to_vec());
        }
        grants.kept = kept.into();
        grants
    }

    /// True if the peer is in one of `groups`, or none is asked for. Letters count the same in both cases, as in
    /// strongSwan's names.
    pub(crate) fn fit(&self, groups: &[String]) -> bool {
        let has = |wanted: &String| {
            self.groups.iter().any(|group| group.eq_ignore_ascii_case(wanted.as_bytes()))
        };
        groups.is_empty() || groups.iter().any(has)
    }
}

/// What the peer of an IKE SA was granted.
pub(crate) fn of_sa(status: &IkeStatus) -> &[u8] {
    let mut rounds = status.remote_auth.iter().rev();
    let granted = rounds.find_map(|used| used.eap.as_ref()?.authorization.as_ref());
    granted.map_or(&[], |authorization| &authorization.granted)
}

/// The Class attributes in what was granted, for accounting.
pub(crate) fn classes(granted: &[u8]) -> impl Iterator<Item = &[u8]> {
    all(granted).filter(|(kind, _)| *kind == attribute::CLASS).map(|(_, value)| value)
}

/// How often the server wants to hear of the session. A pause below 60 s is not allowed (RFC 2869 §5.16), and does not
/// count.
pub(crate) fn interim(granted: &[u8]) -> Option<Duration> {
    let mut found = all(granted).filter(|(kind, _)| *kind == attribute::ACCT_INTERIM_INTERVAL);
    found.find_map(|(_, value)| seconds(value)).filter(|pause| *pause >= SHORTEST_INTERIM)
}

/// The addresses that the peer gets.
pub(crate) fn addresses(granted: &[u8]) -> impl Iterator<Item = IpAddr> {
    all(granted).filter_map(|(kind, value)| address(kind, value))
}

/// What it is told besides: name servers, a netmask.
pub(crate) fn attributes(granted: &[u8]) -> impl Iterator<Item = Attribute> {
    all(granted).flat_map(|(kind, value)| {
        let plain = match kind {
            attribute::FRAMED_IP_NETMASK => v4(value).map(|ip| Attribute::Ip4Netmask(Some(ip))),
            attribute::DNS_SERVER_IPV6_ADDRESS => {
                let octets = <[u8; 16]>::try_from(value).ok();
                octets.map(|octets| Attribute::Ip6Dns(Some(octets.into())))
            }
            _ => None,
        };
        let own = if kind == attribute::VENDOR_SPECIFIC { value } else { &[] };
        plain.into_iter().chain(of_vendor(own).filter_map(server))
    })
}

fn v4(value: &[u8]) -> Option<std::net::Ipv4Addr> {
    <[u8; 4]>::try_from(value).ok().map(Into::into)
}

fn seconds(value: &[u8]) -> Option<Duration> {
    let octets = <[u8; 4]>::try_from(value).ok()?;
    Some(Duration::from_secs(u32::from_be_bytes(octets).into()))
}

/// The address in Framed-IP-Address or Framed-IPv6-Address, if a host can have it. What leaves the choice to the peer
/// or to this end (RFC 2865 §5.8) is none.
fn address(kind: u8, value: &[u8]) -> Option<IpAddr> {
    let address: IpAddr = match kind {
        attribute::FRAMED_IP_ADDRESS => v4(value).filter(|ip| ip.octets()[0] < 224)?.into(),
        attribute::FRAMED_IPV6_ADDRESS => <[u8; 16]>::try_from(value).ok()?.into(),
        _ => return None,
    };
    let usable = !(address.is_unspecified() || address.is_loopback() || address.is_multicast());
    usable.then_some(address)
}

/// True for the rest of what is kept.
fn is_for_all(kind: u8, value: &[u8]) -> bool {
    match kind {
        attribute::FRAMED_IP_NETMASK | attribute::ACCT_INTERIM_INTERVAL => value.len() == 4,
        attribute::DNS_SERVER_IPV6_ADDRESS => value.len() == 16,
        _ => false,
    }
}

/// The name server in an attribute of a vendor's.
fn server((vendor, kind, value): (u32, u8, &[u8])) -> Option<Attribute> {
    let ip = Some(v4(value)?);
    match (vendor, kind) {
        // MS-Primary-DNS-Server, MS-Secondary-DNS-Server; the same of NetBIOS (RFC 2548 §2.7).
        (MICROSOFT, 28 | 29) | (ALTIGA, 5 | 6) => Some(Attribute::Ip4Dns(ip)),
        (MICROSOFT, 30 | 31) | (ALTIGA, 7 | 8) => Some(Attribute::Ip4Nbns(ip)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
