//! Answers the engine's questions: signs with this end's keys and verifies the peer's certificates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::config::CertRequest;
use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::wire::payload::{Cert, CertReq, IdData, TrafficSelector};
use ike_proto::wire::registry::CertEncoding;
use ike_proto::{
    AcceptedScheme, Answer, OwnedCert, PeerCredentials, PeerKey, Question, SignRequest, Signed,
};

use crate::address_blocks::Addresses;
use crate::certificate::Certificate;
use crate::credential::{Credential, certificate_request, in_order};
use crate::error::{LoadError, PkiError};
use crate::hash_and_url;
use crate::path::ExtendedKeyUsagePolicy;
use crate::record::Examples;
use crate::revocation::{Crl, FetchRequest, OwnStatus};
use crate::trust::TrustStore;
use crate::verify::{PeerPolicy, Revocation, Terms, TrustedPeer, verify_peer_by};

/// Keys, certificates and policies of every connection, by the names of the connection and of the round.
///
/// The answerer fetches nothing. A caller that can fetch proceeds as follows for a [`Question::Revocation`]. It
/// asks [`fetches`](Self::fetches) and hands the results to [`deliver`](Self::deliver), until there is nothing to
/// fetch. Then it calls [`answer`](Self::answer).
#[derive(Debug, Default, Clone)]
pub struct Answerer {
    trust: TrustStore,
    pub(crate) local: Rounds<Vec<Credential>>,
    pub(crate) remote: Rounds<PeerPolicy>,
    /// Connections that send OCSP responses to peers that ask for them; true if the responses are fetched ahead.
    pub(crate) replies: HashMap<String, bool>,
    pub(crate) own_status: OwnStatus,
    pub(crate) examples: Examples,
    /// `revocation_live`, by connection.
    pub(crate) ends_live: HashMap<String, bool>,
}

/// By the names of the connection and of the round.
type Rounds<T> = HashMap<String, HashMap<String, T>>;

impl Answerer {
    /// An answerer that trusts `trust` and has no keys.
    pub fn new(trust: TrustStore) -> Self {
        Self { trust, ..Self::default() }
    }

    /// Adds a credential for a round of this end. The first credential that fits is used.
    pub fn add_credential(&mut self, connection: &str, round: &str, credential: Credential) {
        let rounds = self.local.entry(connection.to_owned()).or_default();
        rounds.entry(round.to_owned()).or_default().push(credential);
    }

    /// Sets the policy for a round of the peer. Without a policy, no peer is trusted in that round.
    pub fn set_policy(&mut self, connection: &str, round: &str, policy: PeerPolicy) {
        let rounds = self.remote.entry(connection.to_owned()).or_default();
        rounds.insert(round.to_owned(), policy);
    }

    /// The trust store.
    pub fn trust(&self) -> &TrustStore {
        &self.trust
    }

    /// The trust store, mutable.
    pub fn trust_mut(&mut self) -> &mut TrustStore {
        &mut self.trust
    }

    /// The identity of this end's first credential in a round. It is `configured` if the credential has that
    /// identity.
    ///
    /// # Errors
    /// Those of [`Credential::identity`]; [`LoadError::Nothing`] without a credential.
    pub fn identity(
        &self,
        connection: &str,
        round: &str,
        configured: Option<&IdData>,
    ) -> Result<IdData, LoadError> {
        let credentials = self.credentials(connection, round);
        let first = credentials.first().ok_or(LoadError::Nothing("private key"))?;
        first.identity(configured)
    }

    /// The CERTREQ payloads for a round of the peer: [`RemoteAuth::certreqs`](ike_proto::config::RemoteAuth).
    ///
    /// They name the CAs of its policy, or all trusted CAs if the policy has none. If the policy has raw public
    /// keys, they ask for these, and name CAs only if it has `certs` as well. A CA whose key is of a scheme that the
    /// policy does not name is left out; if none is left, the list is empty, so that a refusal can tell the scheme. If the CAs do not fit into a
    /// response to IKE_SA_INIT, the list is empty, which stands for any CA (RFC 4945 §3.2.7.2). An OCSP request
    /// (RFC 4806) names the responders that are trusted for every CA; there may be none.
    pub fn certreqs(&self, connection: &str, round: &str) -> Vec<CertRequest> {
        let none = PeerPolicy::default();
        let policy = self.policy(connection, round).unwrap_or(&none);
        let cas = match policy.cacerts.as_slice() {
            [] => self.trust.cas(),
            cas => cas,
        };
        // What a CA signs by a scheme of the program is refused where the scheme is not named.
        let schemes = self.trust.verified().schemes();
        let is_named = |ca: &&Arc<Certificate>| {
            let scheme = schemes.of_key(ca.spki()).cloned().map(SignatureScheme::Outside);
            scheme.is_none_or(|scheme| policy.chain.allows(&scheme))
        };
        let named: Vec<_> = cas.iter().filter(is_named).collect();
        let mut requests = Vec::new();
        let by_ca = policy.pubkeys.is_empty() && !cas.is_empty();
        if by_ca || !policy.certs.is_empty() {
            let authorities =
                if named.len() > MAX_NAMED { Vec::new() } else { certificate_request(named) };
            requests.push(CertRequest { encoding: CertEncoding::X509_SIGNATURE, authorities });
            if policy.ocsp {
                //= https://www.rfc-editor.org/rfc/rfc4806#section-3.1
                //# The presence of OCSP Content in
                //# a CERTREQ message will identify one or more OCSP responders trusted
                //# by the sender in case of (b).
                let mut responders = self.trust.revocation.trusted_responders();
                responders = responders.get(..MAX_NAMED).unwrap_or(responders);
                let (encoding, authorities) = (CertEncoding::OCSP, certificate_request(responders));
                requests.push(CertRequest { encoding, authorities });
            }
        }
        if !policy.pubkeys.is_empty() {
            let encoding = CertEncoding::RAW_PUBLIC_KEY;
            requests.push(CertRequest { encoding, authorities: Vec::new() });
        }
        requests
    }

    /// Answers any question at `now`, without fetching. Pending revocation information counts as unavailable, so
    /// the policy's `revocation` decides.
    pub fn answer(&self, question: &Question, now: SystemTime) -> Answer {
        match question {
            Question::Sign(request) => match self.sign(request, now) {
                Ok(signed) => Answer::Signed(signed),
                Err(why) => Answer::Failed(why),
            },
            Question::Exchange(exchange) => exchange.perform(&mut pq_kem::os_random()),
            Question::Ends { .. } => Answer::Failed("addresses are not known here".to_owned()),
            Question::Eap(_) => Answer::Failed("EAP is not done here".to_owned()),
            Question::Judge(peer) => {
                let verdict = self.judge(peer, false, &self.trust, now);
                // Once the peer has proven that it has the key, it is said that its status is not known.
                let unchecked = verdict.as_ref().is_ok_and(|peer| !peer.unchecked.is_empty());
                match key(verdict) {
                    Answer::Key(mut key) => {
                        key.revocation_pending |= unchecked;
                        Answer::Key(key)
                    }
                    other => other,
                }
            }
            Question::Lease(_) => Answer::Failed("there are no addresses".to_owned()),
            Question::Revocation(peer) => self.answer_about(peer, now).0,
            Question::Resume(claim) => self.resume(claim, now),
        }
    }

    /// The answer to a [`Question::Revocation`], and the certificates of the peer's path whose status is not known,
    /// although URLs were asked.
    pub fn answer_about(
        &self,
        peer: &PeerCredentials,
        now: SystemTime,
    ) -> (Answer, Vec<Arc<Certificate>>) {
        let verdict = self.settle(peer, None, now);
        let unchecked = verdict.as_ref().map(|peer| peer.unchecked.clone()).unwrap_or_default();
        (key(verdict), unchecked)
    }

    /// The verdict on a peer of EAP-TLS or EAP-TTLS, whose certificates are for `usage`. It fetches nothing, like
    /// [`answer`](Self::answer) to a [`Question::Revocation`].
    ///
    /// # Errors
    /// [`PkiError`] says what is wrong.
    pub fn judge_in_tls(
        &self,
        peer: &PeerCredentials,
        usage: ExtendedKeyUsagePolicy,
        now: SystemTime,
    ) -> Result<TrustedPeer, PkiError> {
        self.settle(peer, Some(usage), now)
    }

    /// The verdict on such a peer before revocation is settled: what is to be fetched is in
    /// [`TrustedPeer::revocation`]. [`judge_in_tls`](Self::judge_in_tls) must follow.
    ///
    /// # Errors
    /// [`PkiError`] says what is wrong.
    pub fn judge_unsettled(
        &self,
        peer: &PeerCredentials,
        usage: ExtendedKeyUsagePolicy,
        now: SystemTime,
    ) -> Result<TrustedPeer, PkiError> {
        self.judge_by(peer, (true, Some(usage)), &self.trust, now)
    }

    fn settle(
        &self,
        peer: &PeerCredentials,
        usage: Option<ExtendedKeyUsagePolicy>,
        now: SystemTime,
    ) -> Result<TrustedPeer, PkiError> {
        let mut trust = self.trust.clone();
        loop {
            match self.judge_by(peer, (true, usage), &trust, now) {
                Ok(TrustedPeer { revocation: Revocation::Pending(fetches), .. }) => {
                    for fetch in &fetches {
                        // The fetch counts as failed.
                        let _ = trust.revocation.deliver(fetch, None, now);
                    }
                }
                settled => return settled,
            }
        }
    }

    /// True if [`answer`](Self::answer) takes a millisecond at most on a machine some years old, so that another
    /// thread would gain little for `question`. Questions that may lead to fetches are not quick.
    pub fn is_quick(&self, question: &Question) -> bool {
        match question {
            Question::Sign(request) => {
                let credentials = self.credentials(&request.connection, &request.round);
                request.octets.len() == 1
                    && credentials.len() <= QUICK_CREDENTIALS
                    && credentials.iter().all(|credential| signs_quickly(&**credential.key()))
            }
            Question::Judge(peer) => {
                // OCSP responses are examined later.
                let certs = || peer.certs.iter().filter(|cert| cert.encoding != CertEncoding::OCSP);
                let octets: usize = certs().map(|cert| cert.data.len()).sum();
                // Nobody knows how long a scheme of the program takes.
                let is_outside = |one: &SignatureScheme| matches!(one, SignatureScheme::Outside(_));
                certs().count() <= QUICK_CHAIN
                    && octets <= QUICK_CERTS
                    && !peer.chain.schemes.iter().any(is_outside)
            }
            // The engine itself answers the quick ones.
            Question::Revocation(_)
            | Question::Exchange(_)
            | Question::Eap(_)
            | Question::Ends { .. } => false,
            Question::Lease(_) => true,
            Question::Resume(_) => self.trust.revocation.is_empty(),
        }
    }

    /// The fetches that are needed before `peer` can be trusted. It is empty if none is needed, or if the peer
    /// cannot be trusted anyway. Ask only for a [`Question::Revocation`].
    pub fn fetches(&self, peer: &PeerCredentials, now: SystemTime) -> Vec<FetchRequest> {
        match self.judge(peer, true, &self.trust, now) {
            Ok(TrustedPeer { revocation: Revocation::Pending(fetches), .. }) => fetches,
            _ => Vec::new(),
        }
    }

    /// The certificates that lead to the key of `peer`, its own first. It is empty if the peer cannot be trusted,
    /// or has a raw public key. Revocation may still be unknown.
    pub fn path(&self, peer: &PeerCredentials, now: SystemTime) -> Vec<Arc<Certificate>> {
        self.judge(peer, false, &self.trust, now).map(|peer| peer.path).unwrap_or_default()
    }

    /// Takes the result of a fetch; see [`RevocationStore::deliver`](crate::RevocationStore::deliver).
    ///
    /// # Errors
    /// Says why the body is of no use.
    pub fn deliver(
        &mut self,
        fetch: &FetchRequest,
        body: Option<&[u8]>,
        now: SystemTime,
    ) -> Result<(), LoadError> {
        self.trust.revocation.deliver(fetch, body, now)
    }

    /// Takes a list that was fetched; see [`RevocationStore::deliver_list`](crate::RevocationStore::deliver_list).
    ///
    /// # Errors
    /// Says why the list cannot tell that the certificate is good.
    pub fn deliver_list(
        &mut self,
        fetch: &FetchRequest,
        list: Result<Crl, LoadError>,
        now: SystemTime,
    ) -> Result<(), LoadError> {
        self.trust.revocation.deliver_list(fetch, list, now)
    }

    /// The credentials of a round of this end, in their order.
    pub fn credentials(&self, connection: &str, round: &str) -> &[Credential] {
        let rounds = self.local.get(connection);
        rounds.and_then(|rounds| rounds.get(round)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The policies for all rounds of the peer.
    pub(crate) fn policies(&self, connection: &str) -> Vec<&PeerPolicy> {
        self.remote.get(connection).into_iter().flat_map(|rounds| rounds.values()).collect()
    }

    pub(crate) fn policy(&self, connection: &str, round: &str) -> Option<&PeerPolicy> {
        self.remote.get(connection)?.get(round)
    }

    /// The credential and the scheme to sign with.
    pub(crate) fn chosen(&self, request: &SignRequest) -> Option<(&Credential, SignatureScheme)> {
        let credentials = self.credentials(&request.connection, &request.round);
        let requests: Vec<CertReq<'_>> = request.requests.iter().map(CertRequest::as_req).collect();
        let is_accepted = |accepted: &AcceptedScheme, credential: &Credential| {
            let mut authorities = accepted.authorities.iter();
            credential.key().schemes().contains(&accepted.scheme)
                && (accepted.authorities.is_empty()
                    || authorities.any(|ca| credential.is_issued_under(ca, &self.trust)))
        };
        let [asked_for, others] = in_order(credentials, &requests, &self.trust);
        [asked_for, others].into_iter().find_map(|credentials| {
            let mut credentials =
                credentials.into_iter().filter(|credential| credential.has_identity(&request.id));
            let schemes = &request.schemes;
            if request.announced {
                // The order of the peer counts more than that of the credentials.
                let credentials: Vec<&Credential> = credentials.collect();
                return schemes.iter().find_map(|accepted| {
                    let credential = credentials.iter().find(|one| is_accepted(accepted, one))?;
                    Some((*credential, accepted.scheme.clone()))
                });
            }
            credentials.find_map(|credential| {
                let own = credential.key().schemes();
                let usable = own.iter().find(|scheme| {
                    let mut accepted = schemes.iter();
                    accepted.any(|one| one.scheme == **scheme && is_accepted(one, credential))
                });
                Some((credential, usable?.clone()))
            })
        })
    }

    fn sign(&self, request: &SignRequest, now: SystemTime) -> Result<Signed, String> {
        if self.credentials(&request.connection, &request.round).is_empty() {
            return Err("no private key".to_owned());
        }
        let (credential, scheme) = self.chosen(request).ok_or_else(|| {
            format!("no private key of {} for a scheme that the peer accepts", request.id)
        })?;
        let signatures: Result<Vec<_>, _> = request
            .octets
            .iter()
            .map(|octets| credential.key().sign(&scheme, octets.as_bytes()))
            .collect();
        let signatures = signatures.map_err(|why| format!("signing by {scheme}: {why}"))?;
        let mut certs = match request.hash_and_url {
            true => hash_and_url::payloads(credential, &self.trust),
            false => credential.payloads().into_iter().map(OwnedCert::from).collect(),
        };
        certs.extend(self.status_payloads(request, credential, now));
        Ok(Signed { certs, scheme, signatures })
    }

    fn judge(
        &self,
        peer: &PeerCredentials,
        proven: bool,
        trust: &TrustStore,
        now: SystemTime,
    ) -> Result<TrustedPeer, PkiError> {
        self.judge_by(peer, (proven, None), trust, now)
    }

    fn judge_by(
        &self,
        peer: &PeerCredentials,
        (proven, usage): (bool, Option<ExtendedKeyUsagePolicy>),
        trust: &TrustStore,
        now: SystemTime,
    ) -> Result<TrustedPeer, PkiError> {
        // The configuration may have changed since the engine asked. A policy that no longer exists must not be
        // replaced by a weaker one.
        let policy = self.policy(&peer.connection, &peer.round).ok_or(PkiError::NoPolicy)?;
        let certs: Vec<Cert<'_>> = peer.certs.iter().map(OwnedCert::as_cert).collect();
        let in_eap = usage.is_some();
        let usage = usage.unwrap_or(policy.extended_key_usage);
        let terms = Terms { policy, chain: &peer.chain, usage, proven };
        let judged =
            verify_peer_by(&peer.id, &certs, terms, trust, now).map_err(|why| match why {
                PkiError::UnnamedScheme { subject, scheme } if in_eap => {
                    PkiError::SchemeInEap { subject, scheme }
                }
                why => why,
            })?;
        self.examples.keep(&judged.path);
        Ok(judged)
    }
}

/// Signing by RSA takes the third power of the modulus' length. Signing by SLH-DSA takes up to a second.
fn signs_quickly(key: &dyn SigningKey) -> bool {
    !key.is_elsewhere()
        && key.schemes().iter().all(|scheme| {
            scheme.signs_quickly() && (!scheme.is_rsa() || key.public_key().len() <= QUICK_RSA)
        })
}

fn key(verdict: Result<TrustedPeer, PkiError>) -> Answer {
    match verdict {
        Ok(peer) => {
            let revocation_pending = matches!(peer.revocation, Revocation::Pending(_));
            let certificate = Some(peer.shown());
            let addresses = peer.addresses.map(|addresses| selectors(&addresses));
            Answer::Key(PeerKey { spki: peer.spki, revocation_pending, certificate, addresses })
        }
        Err(why) => Answer::Untrusted(why.kind(), why.to_string()),
    }
}

fn selectors(addresses: &Addresses) -> Arc<Vec<TrafficSelector>> {
    let ranges = addresses.ranges().iter();
    let selectors = ranges.filter_map(|(first, last)| TrafficSelector::from_range(*first, *last));
    Arc::new(selectors.collect())
}

/// A little more than the octets of an RSA SubjectPublicKeyInfo with 2048 bits.
const QUICK_RSA: usize = 300;
/// Most credentials, which are examined one after the other.
const QUICK_CREDENTIALS: usize = 4;
/// Most certificates. A stranger that sends more could have them all tried as links of the chain.
const QUICK_CHAIN: usize = 3;
/// Most octets of certificates. Those of ML-DSA-87 fit in; a signature of SLH-DSA (7,856 at the least) does not.
const QUICK_CERTS: usize = 7680;
/// Most CAs, or responders, named in a CERTREQ that this end sends: 400 octets.
const MAX_NAMED: usize = 20;
