//! The state of an IKE SA in a ticket (RFC 5723 §5), the same at both ends.

use std::sync::Arc;
use std::time::Instant;

use super::ticket::DIGEST_LEN;
use crate::channel::Channel;
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::config::{ConnectionConfig, PpkId};
use crate::crypto::Secret;
use crate::event::UsedAuth;
use crate::exchange::auth::rounds::Authenticated;
use crate::ike_sa::Peer;
use crate::ike_sa::state::Established;
use crate::wire::payload::{IdData, Proposal, Sa, Spi};
use crate::wire::registry::AuthMethod;

/// The state of an IKE SA in its ticket.
#[derive(Debug)]
pub(crate) struct Former {
    /// Its SPIs, the initiator's first. They identify the tickets of this IKE SA.
    pub(crate) spis: (u64, u64),
    /// Its algorithms, in the form of a negotiated answer.
    pub(crate) proposal: Proposal,
    /// SK_d.
    pub(crate) sk_d: Secret,
    /// How this end and the peer have authenticated.
    pub(crate) local: Vec<UsedAuth>,
    pub(crate) remote: Vec<UsedAuth>,
    /// The PPK on which SK_d depends.
    pub(crate) ppk: Option<PpkId>,
    //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-downgrade-prevention-08#section-7.2
    //# The information of whether an implementation used the new
    //# authentication logic for old SA ought to be saved in the ticket
    pub(crate) full_transcript: bool,
}

impl Former {
    /// The state of an SA; `None` for an SA whose peer has proven no identity. An SA
    /// whose certificate limits the peer's addresses is not resumed, because the certificate has to be checked
    /// again.
    pub(crate) fn of(channel: &Channel, peer: &Peer, established: &Established) -> Option<Self> {
        let Authenticated { local, remote, .. } = established.identity.authenticated();
        let null = |used: &UsedAuth| used.method == AuthMethod::NULL;
        if local.iter().chain(remote).any(null)
            || remote.iter().any(|used| used.addresses.is_some())
        {
            return None;
        }
        Some(Self {
            spis: channel.link().spis().pair(),
            proposal: channel.session().selected.to_wire(Spi::None),
            sk_d: channel.session().keys.d().duplicate(),
            local: local.to_vec(),
            remote: remote.to_vec(),
            ppk: peer.ppk().used().cloned(),
            full_transcript: channel.link().extensions().full_transcript,
        })
    }

    /// The same algorithms, if `connection` still has them.
    pub(crate) fn select(&self, connection: &ConnectionConfig) -> Option<Selected> {
        let sa = Sa { proposals: vec![self.proposal.clone()] };
        let options = SelectOptions { intermediate: true, ..SelectOptions::default() };
        proposal::select(&connection.proposals, &sa, options)
    }

    pub(crate) fn local_id(&self) -> Option<&IdData> {
        self.local.first().map(|used| &used.id)
    }

    pub(crate) fn remote_id(&self) -> Option<&IdData> {
        self.remote.first().map(|used| &used.id)
    }
}

/// What a resumed IKE SA keeps of that.
#[derive(Debug)]
pub(crate) struct Resumed {
    /// The SPIs of the SA that it replaces.
    pub(crate) spis: (u64, u64),
    /// When the peers must authenticate again, if they must.
    pub(crate) reauth_by: Option<Instant>,
    /// At a gateway: when it ends if they have not.
    pub(crate) ends_by: Option<Instant>,
}

/// A client's ticket.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) octets: Box<[u8]>,
    /// Until when it is valid.
    pub(crate) expires: Instant,
    pub(crate) former: Former,
    /// A digest of the pre-shared keys and the PPK with which it was made.
    pub(crate) secrets: [u8; DIGEST_LEN],
    /// The connection at that time.
    pub(crate) connection: Arc<ConnectionConfig>,
    /// The gateway.
    pub(crate) remote: std::net::IpAddr,
    pub(crate) reauth_by: Option<Instant>,
    /// Virtual IPs, to be requested again.
    pub(crate) vips: Vec<std::net::IpAddr>,
}
