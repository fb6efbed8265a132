//! Quick crash detection (RFC 6290) as a whole endpoint has it; `qcd` of a connection says with whom.

use std::sync::Arc;
use std::time::Duration;

use crate::crypto::Secret;

/// The token maker's part. An endpoint without a secret makes no tokens, and takes those of its peers all
/// the same.
#[derive(Debug, Clone, Default)]
pub struct QcdConfig {
    /// What tokens are made from (QCD_SECRET, 32 random octets), the newest first: new tokens are made from
    /// that, and peers that are answered after a crash get those of the first four. They must be the same after
    /// a restart.
    ///
    /// Hosts may share them only if one of them alone has IKE SAs at any time, as an active gateway and its
    /// standby: of those that share load, one could be made to give away the tokens of another's IKE SAs
    /// (RFC 6290 §9.2). The shards of one host share them.
    pub secrets: Arc<[Secret]>,
    /// For so long after its first input the endpoint gives no tokens away: of what an earlier run left in the
    /// data plane, all that this end brings up by itself is replaced without a gap meanwhile.
    pub quiet: Duration,
}
