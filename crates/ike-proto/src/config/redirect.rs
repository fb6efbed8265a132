//! When a gateway redirects clients (RFC 5685), and to which gateway.

use std::net::IpAddr;

/// `charon.redirect`, this project's own section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedirectPolicy {
    /// `to`: the other gateways. Clients are spread over them by their addresses. If it is empty, only commands
    /// redirect clients.
    pub to: Vec<IpAddr>,
    /// `half_open_above`: only while there are more half-open SAs than this.
    pub half_open_above: Option<u32>,
    /// `sas_above`: only while there are more IKE SAs than this, half-open ones included. Without either, always.
    pub sas_above: Option<u32>,
    /// `in_auth`: only after the client is authenticated.
    pub in_auth: bool,
}

/// IKE SAs of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    pub(crate) half_open: usize,
    pub(crate) sas: usize,
}

impl RedirectPolicy {
    /// The gateway to which a client at `client` is redirected, if any; none of `avoid`. `shards` share the
    /// limits.
    pub(crate) fn target(
        &self,
        load: Load,
        shards: u8,
        client: IpAddr,
        avoid: &[Option<IpAddr>],
    ) -> Option<IpAddr> {
        let above = |limit: Option<u32>, count: usize| {
            limit.is_some_and(|limit| count > limit as usize / usize::from(shards.max(1)))
        };
        let always = self.half_open_above.is_none() && self.sas_above.is_none();
        if !always
            && !above(self.half_open_above, load.half_open)
            && !above(self.sas_above, load.sas)
        {
            return None;
        }
        let client = client.to_canonical();
        let others = self.to.iter().copied().filter(|to| {
            to.is_ipv4() == client.is_ipv4() && !avoid.contains(&Some(to.to_canonical()))
        });
        let others: Vec<_> = others.collect();
        let octets = match client {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ ip.to_bits() as u64,
        };
        // Neighbouring addresses go to different gateways.
        let index = usize::try_from(octets % others.len().max(1) as u64).unwrap_or_default();
        others.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn limits_and_targets() {
        let to = vec![ip("192.0.2.8"), ip("192.0.2.9"), ip("2001:db8::9")];
        let mut policy = RedirectPolicy { to, ..RedirectPolicy::default() };
        let (few, many) = (Load { half_open: 3, sas: 9 }, Load { half_open: 4, sas: 11 });
        let (one, other) = (ip("198.51.100.1"), ip("198.51.100.2"));
        let goes = |policy: &RedirectPolicy, load, client| policy.target(load, 1, client, &[None]);
        assert!(goes(&policy, few, one).is_some());
        assert_ne!(goes(&policy, few, one), goes(&policy, few, other));
        assert_eq!(goes(&policy, few, ip("2001:db8::1")), Some(ip("2001:db8::9")));
        policy.sas_above = Some(10);
        assert_eq!(goes(&policy, few, one), None);
        assert!(goes(&policy, many, one).is_some());
        assert!(policy.target(Load { half_open: 0, sas: 6 }, 2, one, &[]).is_some());
        policy.sas_above = None;
        policy.half_open_above = Some(3);
        assert_eq!(goes(&policy, few, one), None);
        assert!(goes(&policy, many, one).is_some());
        let avoid = [Some(ip("192.0.2.8")), Some(ip("192.0.2.9"))];
        assert_eq!(policy.target(many, 1, one, &avoid), None, "nobody is sent back");
    }
}
