//! The results of authentication so far, in the rounds of RFC 4739. Usually there is one round.
//!
//! ```text
//!    HDR, SK {IDi, [CERT+], [CERTREQ+], [IDr], AUTH,
//!      [SAi2, TSi, TSr], N(ANOTHER_AUTH_FOLLOWS)}  -->
//!                               <--  HDR, SK {IDr, [CERT+], AUTH, [N(ANOTHER_AUTH_FOLLOWS)]}
//!    HDR, SK {[IDi, [CERT+], AUTH]}  -->
//!                               <--  HDR, SK {[IDr, [CERT+], AUTH], [SAr2, TSi, TSr]}
//! ```

use std::time::Duration;

use super::eap::NO_AUTH;
use crate::config::ConnectionConfig;
use crate::crypto::Secret;
use crate::event::UsedAuth;
use crate::exchange::config::OwnedConfig;
use crate::exchange::qcd::OwnToken;
use crate::exchange::resume::former::Resumed;
use crate::exchange::{OwnedNotifies, payloads_of};
use crate::keys::signed_octets::PeerAuthenticated;
use crate::question::OwnedCert;
use crate::wire::payload::{Auth, IdData, Payload};
use crate::wire::registry::AuthMethod;

/// The progress of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Rounds of this end whose AUTH was sent.
    pub(crate) local: Vec<UsedAuth>,
    remote: Vec<(UsedAuth, PeerAuthenticated)>,
    resumed: Option<Box<Resumed>>,
    /// A number for the pre-shared keys by which the peer is authenticated: those that did it, whatever is configured by now.
    secrets: u64,
}

/// How both ends of an established IKE SA authenticated, round by round.
#[derive(Debug)]
pub(crate) struct Authenticated {
    pub(crate) local: Box<[UsedAuth]>,
    pub(crate) remote: Box<[UsedAuth]>,
    /// They did so in an earlier IKE SA (RFC 5723), or this SA is the successor of such an SA.
    pub(crate) resumed: Option<Box<Resumed>>,
    /// A number for the pre-shared keys that have done it, to be compared with what is configured
    /// ([`InForce::secrets`](crate::exchange::resume::fits::InForce::secrets)).
    pub(crate) secrets: u64,
}

impl Authenticated {
    /// The identity of an end by the first of its rounds, of which there is at least one.
    //= https://www.rfc-editor.org/rfc/rfc7619#section-2.2
    //# The content of the Identification
    //# payload MUST NOT be used for any trust and policy checking in
    //# IKE_AUTH exchange when NULL authentication is employed
    pub(crate) fn id(rounds: &[UsedAuth], is_peer: bool) -> IdData {
        match rounds.first() {
            Some(used) if !(is_peer && used.method == AuthMethod::NULL) => used.id.clone(),
            _ => super::null_id(),
        }
    }

    /// How long the authentication is valid, by the peer's account.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        let granted =
            self.remote.iter().filter_map(|used| used.eap.as_ref()?.authorization.as_ref());
        granted.filter_map(|authorization| authorization.lifetime).min()
    }
}

impl Rounds {
    /// The number of rounds in which the peer is authenticated.
    pub(crate) fn proven(&self) -> usize {
        self.remote.len()
    }

    /// Records that the peer is authenticated in one more round.
    pub(crate) fn prove(&mut self, used: UsedAuth, evidence: PeerAuthenticated) {
        self.remote.push((used, evidence));
    }

    /// Records a pre-shared key by which the peer is authenticated, by its [`print`](crate::table::HashSeed::print), or the sum of several.
    pub(crate) fn note_secret(&mut self, print: u64) {
        self.secrets = self.secrets.wrapping_add(print);
    }

    /// Records that the peer has proven again to be the peer of all earlier rounds.
    pub(crate) fn resume(
        &mut self,
        local: Vec<UsedAuth>,
        remote: Vec<UsedAuth>,
        evidence: PeerAuthenticated,
        resumed: Resumed,
    ) {
        self.local = local;
        self.remote = remote.into_iter().map(|used| (used, evidence.clone())).collect();
        self.resumed = Some(Box::new(resumed));
    }

    /// The SPIs of the IKE SA that is resumed, if one is.
    pub(crate) fn resumes(&self) -> Option<(u64, u64)> {
        self.resumed.as_ref().map(|resumed| resumed.spis)
    }

    /// The identity that the peer claimed in its first round.
    pub(crate) fn remote_id(&self) -> Option<&IdData> {
        self.remote.first().map(|(used, _)| &used.id)
    }

    /// The identity to which addresses are leased.
    pub(crate) fn lease_identity(&self) -> IdData {
        if let Some(id) =
            self.remote.iter().rev().find_map(|(used, _)| used.eap.as_ref()?.id.clone())
        {
            return id;
        }
        match self.remote.first() {
            Some((used, _)) if used.method != AuthMethod::NULL => used.id.clone(),
            // An anonymous peer's name is not proven.
            _ => super::null_id(),
        }
    }

    /// What the peer was granted in EAP, in the answering side's format.
    pub(crate) fn granted(&self) -> Box<[u8]> {
        let mut granted = self.remote.iter().rev();
        let last = granted.find_map(|(used, _)| used.eap.as_ref()?.authorization.as_ref());
        last.map(|authorization| authorization.granted.clone()).unwrap_or_default()
    }

    /// The identity that the peer claimed in its last round.
    pub(crate) fn last_remote_id(&self) -> Option<&IdData> {
        self.remote.last().map(|(used, _)| &used.id)
    }

    /// True if both ends have completed everything that `connection` requires, and at least one round.
    pub(crate) fn are_complete(&self, connection: &ConnectionConfig) -> bool {
        let both = !self.local.is_empty() && !self.remote.is_empty();
        both && self.local.len() == connection.local.len()
            && self.remote.len() == connection.remote.len()
    }

    /// Ends the authentication, if they [`are_complete`](Self::are_complete). Otherwise they stay as they are.
    pub(crate) fn finish(&mut self, connection: &ConnectionConfig) -> Option<Authenticated> {
        if !self.are_complete(connection) {
            return None;
        }
        let Self { local, remote, resumed, secrets } = std::mem::take(self);
        let remote = remote.into_iter().map(|(used, _)| used).collect();
        Some(Authenticated { local: local.into(), remote, resumed, secrets })
    }
}

/// This end's identity and AUTH in one round.
#[derive(Debug)]
pub(crate) struct OwnAuth {
    pub(crate) used: UsedAuth,
    pub(crate) certs: Vec<OwnedCert>,
    /// Authentication Data, unless it comes after EAP.
    pub(crate) data: Option<Secret>,
    /// Notification Data of NO_PPK_AUTH (RFC 8784 §3).
    pub(crate) no_ppk: Option<Secret>,
    /// The peer knows the identity already.
    pub(crate) named: bool,
}

impl OwnAuth {
    /// The identity alone; its AUTH comes after EAP.
    pub(crate) fn before_eap(id: IdData) -> Self {
        let used = used(id, NO_AUTH);
        Self { used, certs: Vec::new(), data: None, no_ppk: None, named: false }
    }

    /// True if there is an AUTH payload.
    pub(crate) fn has_auth(&self) -> bool {
        self.data.is_some()
    }

    /// The CERT payloads.
    pub(crate) fn certs(&self) -> impl Iterator<Item = Payload<'_>> {
        self.certs.iter().map(|cert| Payload::Cert(cert.as_cert()))
    }

    /// The AUTH payload, if there is one.
    pub(crate) fn auth(&self) -> Option<Payload<'_>> {
        let data = self.data.as_ref()?.expose();
        Some(Payload::Auth(Auth { method: self.used.method, data }))
    }
}

/// The parts of an IKE_AUTH response other than its Child SA.
#[derive(Debug)]
pub(crate) struct AuthReply {
    /// `None` if this end has completed its rounds before.
    pub(crate) own: Option<OwnAuth>,
    /// QCD_TOKEN, in the last response.
    pub(crate) token: Option<OwnToken>,
    /// CP(CFG_REPLY).
    pub(crate) config: Option<OwnedConfig>,
    /// Further notifies of the last response.
    pub(crate) notifies: OwnedNotifies,
}

impl AuthReply {
    /// IDr, CERT, AUTH, the token and CP, and the notifies.
    pub(crate) fn payloads(&self) -> Vec<Payload<'_>> {
        // Enough for most answers.
        let mut payloads = Vec::with_capacity(8);
        if let Some(own) = &self.own {
            if !own.named {
                payloads.push(Payload::IdR(own.used.id.as_id()));
            }
            payloads.extend(own.certs());
            payloads.extend(own.auth());
        }
        payloads.extend(self.token.as_ref().map(OwnToken::payload));
        payloads.extend(self.config.as_ref().map(OwnedConfig::payload));
        payloads.extend(payloads_of(&self.notifies));
        payloads
    }
}

/// A round by `method`, which is not a signature.
pub(crate) fn used(id: IdData, method: AuthMethod) -> UsedAuth {
    UsedAuth { id, method, scheme: None, certificate: None, eap: None, addresses: None }
}
