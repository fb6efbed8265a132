//! EAP (RFC 7296 §2.16): rounds and passwords, and what answers the engine's questions about EAP packets.

#[cfg(feature = "eap")]
mod conversation;
#[cfg(all(feature = "eap", not(feature = "radius")))]
mod no_radius;
#[cfg(feature = "radius")]
mod radius;
mod seat;
#[cfg(feature = "eap")]
mod tls;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ::pki::{Credential, ExtendedKeyUsagePolicy};
use ike_config::{EapId, EapSecret, TlsOptions, Way};
use ike_proto::crypto::Prf;
use ike_proto::{EapAnswer, PeerCertificate, PeerCredentials, UsedAuth};
use ike_tokio::Work;
#[cfg(all(feature = "eap", not(feature = "radius")))]
use no_radius as radius;
use pq_kem::prf::HMAC_SHA2_256;
use zeroize::Zeroizing;

use crate::radius::RadiusClient;
pub(crate) use seat::Seat;

/// A round of authentication by EAP, of this end or of the peer.
#[derive(Debug, Clone)]
pub struct EapRound {
    /// One method, any safe method, or a RADIUS server.
    pub way: Way,
    /// The EAP identity. Without one it is the IKE identity.
    pub eap_id: Option<EapId>,
    /// The identity that the certificate of the EAP server must have. Without one it is the responder's IKE identity.
    pub aaa_id: Option<EapId>,
    /// Certificates and keys of this end for EAP-TLS and EAP-TTLS.
    pub credentials: Vec<Credential>,
    /// The peer must be in one of these groups, if there are any. Only a RADIUS server puts peers into groups.
    pub groups: Vec<String>,
    /// The name of the round whose CAs are trusted in TLS. The [`Answerer`](::pki::Answerer) knows them by connection and round.
    pub judged_by: String,
}

impl EapRound {
    /// A round by `way`: without certificates of this end, without groups, and with the IKE identity as EAP identity.
    pub fn new(way: Way) -> Self {
        Self {
            way,
            eap_id: None,
            aaa_id: None,
            credentials: Vec::new(),
            groups: Vec::new(),
            judged_by: String::new(),
        }
    }
}

/// Passwords by EAP identity. `Debug` shows only their number.
#[derive(Default)]
pub struct EapSecrets(pub Vec<EapSecret>);

impl EapSecrets {
    /// The password of `identity`. With `or_any`, a password without identities fits every identity.
    pub fn find(&self, identity: &[u8], or_any: bool) -> Option<Zeroizing<Vec<u8>>> {
        let mut all = self.0.iter();
        let found = all.find(|secret| secret.ids.iter().any(|id| id == identity));
        let any = || self.0.iter().find(|secret| or_any && secret.ids.is_empty());
        found.or_else(any).map(|secret| secret.password.clone())
    }

    /// A number for the password of `identity`, the same at all gateways that have it: an
    /// [`EapSuccess::password`](ike_proto::EapSuccess::password).
    pub fn print(&self, identity: &[u8]) -> Option<NonZeroU64> {
        let password = self.find(identity, false)?;
        let hash = HMAC_SHA2_256.prf(&password, &[PRINT, identity]);
        let print = hash.expose().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        Some(NonZeroU64::new(print).unwrap_or(NonZeroU64::MIN))
    }

    /// Compares the password by which a peer has authenticated in the round `used` with the one here. Passwords that a RADIUS
    /// server has are not known here.
    pub fn compared(&self, used: &UsedAuth) -> PasswordNow {
        let Some(eap) = &used.eap else { return PasswordNow::Same };
        let (Some(id), Some(then)) = (&eap.id, eap.password) else { return PasswordNow::Same };
        match self.print(&id.data) {
            None => PasswordNow::Removed,
            Some(now) if now == then => PasswordNow::Same,
            Some(_) => PasswordNow::Replaced,
        }
    }
}

/// Whether the password by which a peer has authenticated is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PasswordNow {
    /// It is, or there was none.
    Same,
    /// There is another one for the same EAP identity.
    Replaced,
    /// There is none for the EAP identity.
    Removed,
}

impl fmt::Display for PasswordNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "the EAP password of its peer is as before",
            Self::Replaced => "the EAP password of its peer was replaced",
            Self::Removed => "the EAP password of its peer was removed",
        })
    }
}

impl fmt::Debug for EapSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EapSecrets({})", self.0.len())
    }
}

/// What makes a hash with a password one for this purpose only.
const PRINT: &[u8] = b"IKEv2 ticket, EAP password";

/// The configuration of EAP: rounds, passwords and RADIUS servers.
#[derive(Clone, Default)]
pub struct EapConfig {
    /// The rounds, by the name of their connection and their own
    /// ([`LocalAuth::name`](ike_proto::config::LocalAuth::name), or that of `RemoteAuth` for a peer).
    pub rounds: HashMap<(String, String), Arc<EapRound>>,
    /// The passwords of peers, and of this end.
    pub secrets: Arc<EapSecrets>,
    /// Options of EAP-TLS and EAP-TTLS.
    pub options: TlsOptions,
    /// The servers for rounds with [`Way::Radius`], for accounting, and for their requests about sessions.
    pub radius: Option<Arc<RadiusClient>>,
}

impl fmt::Debug for EapConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EapConfig").field("rounds", &self.rounds.len()).finish_non_exhaustive()
    }
}

/// A peer of EAP-TLS or EAP-TTLS whose certificates are good. Whether one is revoked is not known yet.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "eap"), allow(dead_code, reason = "there is no TLS"))]
pub(crate) struct TlsPeer {
    pub(crate) peer: PeerCredentials,
    /// What its certificates are for.
    pub(crate) usage: ExtendedKeyUsagePolicy,
}

/// What the verifier of TLS has seen.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "eap"), allow(dead_code, reason = "there is no TLS"))]
pub(crate) struct InTls {
    /// A peer whose revocation is to be settled before the next packet leaves.
    pub(crate) unsettled: Option<TlsPeer>,
    /// The certificate of the other end.
    pub(crate) shown: Option<Arc<PeerCertificate>>,
    /// True if a key of this end is in a token or another process, so that a signature may take long.
    pub(crate) signs_elsewhere: bool,
    /// The place of the thread that works on a packet, if `signs_elsewhere`.
    pub(crate) seat: Weak<Seat>,
}

/// Where the verifier of TLS leaves that.
pub(crate) type Seen = Arc<Mutex<InTls>>;

pub(crate) fn lock(seen: &Seen) -> MutexGuard<'_, InTls> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a packet leads to.
#[cfg_attr(not(feature = "radius"), expect(dead_code, reason = "there is nobody to ask"))]
pub(crate) enum Turn {
    /// Work that may take as long as a signature, and where it leaves a peer of TLS whose revocation is to be settled
    /// before the answer counts.
    Here(Box<dyn FnOnce() -> EapAnswer + Send>, Seen),
    /// A server is asked.
    There(Work<'static, EapAnswer>),
}

impl EapConfig {
    /// The [groups](EapRound::groups) of a round; none if the round is not by EAP.
    pub fn groups(&self, connection: &str, round: &str) -> &[String] {
        let round = self.rounds.get(&(connection.to_owned(), round.to_owned()));
        round.map_or(&[], |round| &round.groups)
    }

    /// The address for [`DaeSocket::bind`](crate::DaeSocket::bind), if RADIUS servers may send requests about sessions.
    pub fn listens_for_dae(&self) -> Option<SocketAddr> {
        self.radius.as_ref()?.listens_for_dae()
    }
}

/// A build without EAP has no conversations.
#[cfg(not(feature = "eap"))]
impl EapConfig {
    pub(crate) fn turn(
        &self,
        _: ike_proto::EapMessage,
        _: &Arc<::pki::Answerer>,
    ) -> Result<Turn, String> {
        Err("ike-aaa was built without EAP (feature `eap`)".to_owned())
    }
}
