//! Quick crash detection (RFC 6290) for a whole endpoint. `qcd` of a connection turns it on or off for its peers.

use std::sync::Arc;
use std::time::Duration;

use crate::crypto::Secret;

/// The settings of a token maker. An endpoint without a secret makes no tokens, but accepts those of its peers.
#[derive(Debug, Clone, Default)]
pub struct QcdConfig {
    /// The secrets of tokens (QCD_SECRET, 32 random octets), the newest first. New tokens are made from the first
    /// one. Peers that are answered after a crash get the tokens of the first four. The secrets must be the same
    /// after a restart.
    ///
    /// Hosts may share them only if at most one of them has IKE SAs at any time, as an active gateway and its
    /// standby. If hosts share load, an attacker could make one host send the tokens of another host's IKE SAs
    /// (RFC 6290 §9.2). The shards of one host share them.
    pub secrets: Arc<[Secret]>,
    /// For this time after its first input the endpoint sends no tokens. Meanwhile SAs that this end brings up
    /// itself replace those that an earlier run has left in the data plane, without a gap.
    pub quiet: Duration,
}
