//! The questions of IKE_AUTH to the holder of keys and certificates, and what follows from the answers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::blame::Blame;
use super::rounds::{OwnAuth, used};
use super::signature;
use crate::channel::Channel;
use crate::config::lookup::Psk;
use crate::config::{AuthConfig, ConnectionConfig, IdMatch, LocalAuth, SendCert};
use crate::crypto::{SchemeRegister, Secret, SignatureScheme};
use crate::event::{Failure, Ticket, UsedAuth};
use crate::exchange::auth::announce::Announcements;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::State;
use crate::ike_sa::{IkeSa, Stem};
use crate::keys::signed_octets::{PeerAuthenticated, SignedOctets, auth_by, padded};
use crate::question::{
    AcceptedScheme, Answer, OwnedCert, PeerCredentials, PeerKey, Question, SignRequest, Signed,
};
use crate::wire::payload::{IdData, Payload};
use crate::wire::registry::{AuthMethod, CertEncoding, NotifyType};

/// A round of this end that is being signed.
#[derive(Debug)]
pub(crate) struct SigningRound {
    id: IdData,
    accepted: Vec<AcceptedScheme>,
    /// Number of requested signatures.
    count: usize,
}

/// A round of the peer that is being judged.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    /// The connections that the peer may belong to. The first one is being tried.
    pub(crate) candidates: VecDeque<Arc<ConnectionConfig>>,
    /// The reason if nothing fits. The answer does not matter then: an unknown identity takes the same path as a
    /// known one (bug class 43).
    pub(crate) decoy: Option<Blame>,
    /// True if the Authentication Data is that of NO_PPK_AUTH.
    pub(crate) without_ppk: bool,
    /// Set when the signature is valid and only revocation is open.
    pub(crate) proven: Option<(PeerKey, UsedAuth, PeerAuthenticated)>,
}

/// The octets that an AUTH payload of this end covers, and the SK_p in them.
pub(crate) struct Covered {
    pub(crate) octets: SignedOctets,
    pub(crate) sk_p: Secret,
}

/// This end's part of a round.
pub(super) enum OwnTurn {
    Ready(OwnAuth),
    /// Signatures are needed.
    Sign(SigningRound, SignRequest),
}

impl OwnTurn {
    /// Makes this end's AUTH of `round`, or says what must be signed for it. NO_PPK_AUTH covers `unmixed`. `claimed`
    /// is the identity that the peer has claimed already.
    pub(super) fn begin(
        channel: &Channel,
        round: &LocalAuth,
        id: IdData,
        psk: Option<Arc<Psk>>,
        (known, announced): (&SchemeRegister, &Announcements),
        (covered, unmixed): (Covered, Option<Covered>),
        claimed: Option<&IdData>,
    ) -> Result<Self, Failure> {
        let prf = channel.session().prf;
        let mac = |method, key: &dyn Fn(&Covered) -> Secret| {
            let data = auth_by(prf, &key(&covered), &covered.octets);
            let no_ppk = unmixed.as_ref();
            let no_ppk = no_ppk.map(|c| auth_by(prf, &key(c), &c.octets));
            let used = used(id.clone(), method);
            Self::Ready(OwnAuth { used, certs: Vec::new(), data: Some(data), no_ppk, named: false })
        };
        match &round.auth {
            AuthConfig::Psk => {
                let psk = psk.ok_or_else(|| {
                    let peer = peer_name(channel.connection(), claimed);
                    Failure::Config(format!("no pre-shared key for {id} and {peer}"))
                })?;
                Ok(mac(AuthMethod::PSK, &|_| psk.padded(prf)))
            }
            //= https://www.rfc-editor.org/rfc/rfc7619#section-2.1
            //# The value of SK_pi for the
            //# initiator and SK_pr for the responder is used as the shared secret
            //# for the content of the AUTH payload.
            AuthConfig::Null => Ok(mac(AuthMethod::NULL, &|c| padded(prf, &c.sk_p))),
            // The AUTH comes after EAP.
            AuthConfig::Eap => Ok(Self::Ready(OwnAuth::before_eap(id))),
            AuthConfig::Pubkey(pubkey) => {
                let (accepted, announced_them) = signature::accepted(known, announced, &pubkey.ike);
                if accepted.is_empty() {
                    let text = "the peer takes no signature scheme that `auth` allows";
                    return Err(Failure::Credentials(text.to_owned()));
                }
                let octets: Vec<_> =
                    std::iter::once(covered).chain(unmixed).map(|c| c.octets).collect();
                let signing = SigningRound {
                    id: id.clone(),
                    accepted: accepted.clone(),
                    count: octets.len(),
                };
                let request = SignRequest {
                    connection: channel.connection().name.clone(),
                    round: round.name.clone(),
                    id,
                    requests: announced.requests.clone(),
                    hash_and_url: announced.http_cert_lookup,
                    schemes: accepted,
                    announced: announced_them,
                    octets,
                };
                Ok(Self::Sign(signing, request))
            }
        }
    }
}

/// The identity that the peer claims, or is to have.
fn peer_name(connection: &ConnectionConfig, claimed: Option<&IdData>) -> String {
    match (claimed, connection.remote_id()) {
        (Some(id), _) | (None, IdMatch::Exact(id)) => id.to_string(),
        (None, _) => "any peer".to_owned(),
    }
}

impl IkeSa {
    /// Handles the answer to the open question.
    pub(crate) fn on_answered(&mut self, ctx: &mut Context<'_>, ticket: Ticket, answer: Answer) {
        if let Some(waiting) = self.pending.take(ticket) {
            return self.on_exchanged(ctx, waiting, answer);
        }
        if self.state.ticket() != Some(ticket) {
            return;
        }
        if self.channel.link().is_initiator() {
            self.channel.deadlines().limit_half_open(None);
        }
        self.change(|state, stem| state.on_answer(stem, ctx, answer));
    }
}

impl State {
    /// Handles the answer to the open question, which [`ticket`](Self::ticket) names.
    fn on_answer(self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, answer: Answer) -> Self {
        match self {
            Self::AwaitRequestSignature(asked) => asked.on_answer(stem, ctx, answer),
            Self::AwaitResponseSignature(asked) => asked.on_answer(stem, ctx, answer),
            Self::AwaitResponderVerdict(asked) => asked.on_answer(stem, ctx, answer),
            Self::AwaitInitiatorVerdict(asked) => asked.on_answer(stem, ctx, answer),
            Self::AwaitLease(asked) => asked.on_answer(stem, ctx, answer),
            Self::AwaitAuthenticatorPacket(asked) => asked.on_answer(stem, ctx, answer),
            Self::AwaitPeerPacket(asked) => asked.on_answer(stem, ctx, answer),
            asked_nothing @ (Self::ExpectIntermediateRequest(_)
            | Self::ExpectIntermediateResponse(_)
            | Self::ExpectAuthRequest(_)
            | Self::ExpectAuthResponse(_)
            | Self::Established(_)
            | Self::Closed(_)) => {
                debug_assert!(false, "an answer, and no question was open");
                asked_nothing
            }
        }
    }
}

/// Asks a question, and limits the time for the answer.
pub(super) fn ask(ctx: &mut Context<'_>, channel: &mut Channel, question: Question) -> Ticket {
    if channel.link().is_initiator() {
        let at = ctx.io.now.mono + ctx.io.config.half_open_timeout;
        channel.deadlines().limit_half_open(Some(at));
    }
    ctx.ask(question)
}

/// The peer's credentials to be judged, by the rules of `connection`. `None` if `connection` accepts no public
/// key in this round.
pub(super) fn peer_credentials(
    connection: &ConnectionConfig,
    round: usize,
    id: IdData,
    payloads: &[Payload<'_>],
) -> Option<PeerCredentials> {
    let round = connection.remote.get(round)?;
    let AuthConfig::Pubkey(pubkey) = &round.auth else { return None };
    let certs = payloads.iter().filter_map(|payload| match payload {
        Payload::Cert(cert) => Some(OwnedCert::from(*cert)),
        _ => None,
    });
    Some(PeerCredentials {
        connection: connection.name.clone(),
        round: round.name.clone(),
        id,
        certs: certs.collect(),
        chain: pubkey.chain.clone(),
    })
}

impl SigningRound {
    /// Makes this end's AUTH from the answer.
    pub(super) fn finish(
        self,
        answer: Answer,
        announced: &Announcements,
        send_cert: SendCert,
    ) -> Result<OwnAuth, Failure> {
        let wrong = |what: &str| Failure::Credentials(what.to_owned());
        let Signed { mut certs, scheme, signatures } = match answer {
            Answer::Signed(signed) => signed,
            Answer::Failed(why) => return Err(Failure::Credentials(why)),
            Answer::Key(_)
            | Answer::Resumable
            | Answer::Untrusted(..)
            | Answer::Exchanged(_)
            | Answer::Leased(..)
            | Answer::Eap(_)
            | Answer::Ends { .. } => {
                return Err(wrong("an answer to another question"));
            }
        };
        if !self.accepted.iter().any(|accepted| accepted.scheme == scheme) {
            return Err(wrong("signed by a scheme that was not asked for"));
        }
        if signatures.len() != self.count {
            return Err(wrong("not as many signatures as were asked for"));
        }
        let mut data = Vec::new();
        let mut method = AuthMethod::DIGITAL_SIGNATURE;
        for signature in &signatures {
            let encoded = signature::encode(announced, &scheme, signature);
            let (by, octets) = encoded.ok_or_else(|| wrong("malformed signature"))?;
            method = by;
            data.push(Secret::new(octets));
        }
        // An OCSP request (RFC 4806) requests no certificate, and its answer is none.
        let ocsp = |encoding| encoding == CertEncoding::OCSP;
        let asked = announced.requests.iter().any(|request| !ocsp(request.encoding));
        if send_cert == SendCert::Never || send_cert == SendCert::IfAsked && !asked {
            certs.retain(|cert| ocsp(cert.encoding));
        }
        let mut data = data.into_iter();
        let first = data.next().ok_or_else(|| wrong("no signature"))?;
        let used = UsedAuth { scheme: Some(scheme), ..used(self.id, method) };
        Ok(OwnAuth { used, certs, data: Some(first), no_ppk: data.next(), named: false })
    }
}

impl Judging {
    /// The peer's Authentication Data in its message.
    pub(super) fn auth_data<'a>(
        &self,
        payloads: &super::Payloads<'a, '_>,
    ) -> Option<(AuthMethod, &'a [u8])> {
        let auth = payloads.auth().ok()??;
        if self.without_ppk {
            let without = payloads.notify(NotifyType::NO_PPK_AUTH)?;
            return Some((auth.method, without.data));
        }
        Some((auth.method, auth.data))
    }
}

/// The record of a valid signature.
pub(super) fn signed_by(
    id: IdData,
    method: AuthMethod,
    scheme: SignatureScheme,
    key: &PeerKey,
) -> UsedAuth {
    let (certificate, addresses) = (key.certificate.clone(), key.addresses.clone());
    UsedAuth { id, method, scheme: Some(scheme), certificate, eap: None, addresses }
}
