//! `[charon.redirect]`: the peers that a gateway redirects to other gateways (RFC 5685).

use std::net::IpAddr;

use ike_proto::config::RedirectPolicy;

use super::charon::set;
use crate::diagnostic::Report;
use crate::tree::{Section, join};

const ADDRESS: &str = "an IP address of another gateway";

/// Reads the section.
pub(crate) fn read(mut s: Section<'_>, report: &mut Report) -> RedirectPolicy {
    let mut policy = RedirectPolicy::default();
    for item in s.list("to", ADDRESS, report).unwrap_or_default() {
        match item.text.parse::<IpAddr>() {
            Ok(address) if !address.is_unspecified() && !address.is_multicast() => {
                policy.to.push(address.to_canonical());
            }
            _ => {
                let message = format!("`{}` cannot be {:?}", join(&s.path, "to"), item.text);
                report.expected(item.offset, message, ADDRESS);
            }
        }
    }
    policy.half_open_above = s.number("half_open_above", 0, u32::MAX, report);
    policy.sas_above = s.number("sas_above", 0, u32::MAX, report);
    set(&mut policy.in_auth, s.switch("in_auth", report));
    if policy.to.is_empty() {
        s.missing("to", ADDRESS, report);
    }
    s.finish(&[], report);
    policy
}
