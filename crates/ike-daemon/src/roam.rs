//! Where this host is in the network, for MOBIKE: heard by netlink, told to the engines.

use std::sync::Arc;

use ike_tokio::Handle;
use routes::HostWatch;

/// Tells the engines of this host's addresses, now and whenever they, links or routes change. `table` is
/// the daemon's own routing table.
pub(crate) async fn watch(handle: Handle, table: u32) {
    let mut host = match HostWatch::open(table) {
        Ok(host) => host,
        Err(error) => return tracing::warn!(%error, "changes of addresses are not heard of"),
    };
    loop {
        match host.addresses().await {
            Ok(addresses) => {
                tracing::debug!(?addresses, "addresses");
                if handle.network(Arc::from(addresses)).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "addresses"),
        }
        if !host.changed().await {
            return;
        }
    }
}
