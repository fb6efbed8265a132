//! Pools and their leases, as JSON and for people, with the names of VICI's get-pools.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// A pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// The first address.
    pub base: String,
    /// Addresses in it; a text, for JSON's numbers end before IPv6 does.
    pub size: String,
    /// Addresses that peers have.
    pub online: usize,
    /// Addresses that peers had.
    pub offline: usize,
    /// Both, by address.
    pub leases: Vec<Lease>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub address: String,
    /// Whose it is, or was; none for a peer with NULL authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// `online` or `offline`.
    pub status: String,
}

/// The text of `leases`, laid out as `swanctl --list-pools --leases` does.
pub fn render_pools(pools: &[Pool]) -> String {
    let mut out = String::new();
    for pool in pools {
        let Pool { name, base, size, online, offline, leases } = pool;
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:<20} {base:<30} {online:>5} / {offline:>5} / {size}");
        for Lease { address, identity, status } in leases {
            let identity = identity.as_deref().unwrap_or("%any");
            let _ = writeln!(out, "  {address:<30} {status:<8} '{identity}'");
        }
    }
    out
}
