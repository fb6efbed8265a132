//! Conversations of EAP, by the methods of [`::eap`] or by a RADIUS server.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use ::eap::{
    Authenticator, AuthenticatorConfig, Conversation, EapType, Fill, Method, Offer, Peer,
    PeerConfig, Secrets, Step, Success, TlsClient, TlsLimits, TlsServer,
};
use ::pki::{Answerer, Certificate, Credential, ExtendedKeyUsagePolicy, Revocation};
use ike_config::{EapId, EapMethod, Way};
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::CertEncoding;
use ike_proto::{EapAnswer, EapMessage, EapState, EapSuccess, OwnedCert, PeerCredentials};
use zeroize::Zeroizing;

use super::{EapConfig, EapRound, EapSecrets, InTls, Seen, TlsPeer, Turn, lock, radius, tls};

impl Secrets for EapSecrets {
    fn password(&self, identity: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let account = identity.rsplit(|octet| *octet == b'\\').next();
        self.find(identity, false).or_else(|| self.find(account?, false))
    }

    /// Without the domain, unless the secret is of that domain's account alone.
    fn canonical(&self, identity: &[u8]) -> Vec<u8> {
        let account = identity.rsplit(|octet| *octet == b'\\').next().unwrap_or(identity);
        let whole = self.find(identity, false).is_some() || self.find(account, false).is_none();
        if whole { identity } else { account }.to_vec()
    }
}

/// A conversation between two questions.
pub(super) enum Held {
    /// By the methods here.
    Local(Here),
    /// By a server.
    #[cfg(feature = "radius")]
    Radius(Box<radius::Session>),
}

impl EapConfig {
    /// What is to be done about `message`. The error says why nothing can be.
    pub(crate) fn turn(
        &self,
        message: EapMessage,
        answerer: &Arc<Answerer>,
    ) -> Result<Turn, String> {
        let EapMessage {
            connection,
            round,
            initiator,
            alone,
            local_id,
            remote_id,
            path,
            packet,
            others,
            state,
        } = message;
        if let Some(held) = state.take::<Held>() {
            return Ok(match *held {
                Held::Local(held) => here(held, packet),
                #[cfg(feature = "radius")]
                Held::Radius(session) => Turn::There(Box::pin(session.turn(packet))),
            });
        }
        // A reload may have taken it away.
        let found = self.rounds.get(&(connection.clone(), round));
        let found = found.ok_or("the round is not configured any more")?;
        let signs_elsewhere = found.credentials.iter().any(|own| own.key().is_elsewhere());
        let seen: Seen = Arc::new(Mutex::new(InTls { signs_elsewhere, ..InTls::default() }));
        let setup = Setup {
            book: self,
            round: found,
            answerer,
            seen: Arc::clone(&seen),
            alone,
            connection,
            local_id,
            remote_id,
        };
        if initiator {
            let peer = Peer::new(setup.peer()?);
            let conversation = Box::new(Mutex::new(Box::new(peer) as Box<dyn Conversation>));
            return Ok(here(Here { conversation, seen, secrets: None }, packet));
        }
        if found.way == Way::Radius {
            let config = self.radius.as_ref().ok_or(radius::NONE)?;
            return Ok(radius::begin(Arc::clone(config), &setup, (path, others), packet));
        }
        let authenticator = Authenticator::new(setup.authenticator()?);
        let conversation = Box::new(Mutex::new(Box::new(authenticator) as Box<dyn Conversation>));
        let secrets = Some(Arc::clone(&self.secrets));
        Ok(here(Here { conversation, seen, secrets }, packet))
    }
}

/// A conversation by the methods here.
pub(super) struct Here {
    conversation: Box<Mutex<Box<dyn Conversation>>>,
    seen: Seen,
    /// On a responder: the passwords by which the peer is judged, whatever is configured by the end.
    secrets: Option<Arc<EapSecrets>>,
}

fn here(held: Here, packet: Option<Vec<u8>>) -> Turn {
    let left = Arc::clone(&held.seen);
    Turn::Here(Box::new(move || work(held, packet.as_deref())), left)
}

/// Works on a packet; may take as long as a signature.
fn work(here: Here, packet: Option<&[u8]>) -> EapAnswer {
    let (step, room) = {
        let mut held = here.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        (held.handle(packet), held.room())
    };
    match step {
        Step::Send(packet) => EapAnswer::Send(packet, EapState::of_size(Held::Local(here), room)),
        Step::Success(Success { packet, msk, method, identity }) => {
            let (identity, password) = match method {
                Some(EapType::TLS) => (certified(identity), None),
                _ => {
                    let password = here.secrets.and_then(|secrets| secrets.print(&identity));
                    (identity, password)
                }
            };
            EapAnswer::Success(EapSuccess {
                packet,
                msk: msk.map(|msk| Secret::copy_from(msk.expose())),
                method: described(method, &identity),
                identity: Some(identity),
                password,
                authorization: None,
                certificate: lock(&here.seen).shown.clone(),
            })
        }
        Step::Failure(packet, why) => EapAnswer::Failure { packet, why },
    }
}

/// The one spelling of an identity that a certificate has been found to have, whatever the peer wrote.
fn certified(identity: Vec<u8>) -> Vec<u8> {
    let parsed = std::str::from_utf8(&identity).ok().and_then(|text| IdData::parse(text).ok());
    parsed.map_or(identity, |id| id.to_string().to_ascii_lowercase().into_bytes())
}

/// Method and identity, safe in a log line.
pub(super) fn described(method: Option<EapType>, identity: &[u8]) -> String {
    let who: String =
        String::from_utf8_lossy(identity).chars().take(253).flat_map(char::escape_debug).collect();
    match method {
        Some(method) => format!("EAP-{} ({who:?})", method.to_string().to_uppercase()),
        None => format!("EAP ({who:?})"),
    }
}

/// Random octets of the system.
pub(super) fn random() -> Fill {
    Arc::new(|octets| {
        use ike_proto::crypto::SecureRandom;
        pq_kem::os_random().fill(octets);
    })
}

/// The number of a method.
fn eap_type(method: EapMethod) -> EapType {
    match method {
        EapMethod::Md5 => EapType::MD5,
        EapMethod::Gtc => EapType::GTC,
        EapMethod::Tls => EapType::TLS,
        EapMethod::Ttls => EapType::TTLS,
        EapMethod::Mschapv2 => EapType::MSCHAPV2,
    }
}

/// Limits as the methods take them.
fn limits(limits: ike_config::TlsLimits) -> TlsLimits {
    let ike_config::TlsLimits { fragment_size, max_messages } = limits;
    TlsLimits { fragment_size, max_messages }
}

/// What a conversation is made by.
pub(super) struct Setup<'a> {
    pub(super) book: &'a EapConfig,
    pub(super) round: &'a Arc<EapRound>,
    answerer: &'a Arc<Answerer>,
    seen: Seen,
    pub(super) alone: bool,
    pub(super) connection: String,
    local_id: IdData,
    remote_id: IdData,
}

impl Setup<'_> {
    /// The methods by password.
    const BY_PASSWORD: [EapType; 3] = [EapType::MSCHAPV2, EapType::MD5, EapType::GTC];

    fn kinds(&self) -> Vec<EapType> {
        let tls = !self.round.credentials.is_empty();
        match self.round.way {
            Way::One(method) => vec![eap_type(method)],
            // Neither MD5 nor a password in clear unless they are asked for by name.
            _ => {
                let all = [EapType::TLS, EapType::TTLS, EapType::MSCHAPV2];
                all.into_iter()
                    .filter(|kind| tls || *kind == EapType::MSCHAPV2 || self.is_client(*kind))
                    .filter(|kind| !self.alone || kind.is_safe_alone())
                    .collect()
            }
        }
    }

    /// True if a peer may do `kind` without a certificate of its own.
    fn is_client(&self, kind: EapType) -> bool {
        self.round.way == Way::Any && kind == EapType::TTLS
    }

    fn check_alone(&self, kinds: &[EapType]) -> Result<(), String> {
        if self.alone && !kinds.iter().all(|kind| kind.is_safe_alone()) {
            return Err(
                "only eap-tls and eap-ttls may be all that authenticates both ends".to_owned()
            );
        }
        Ok(())
    }

    fn peer(&self) -> Result<PeerConfig, String> {
        let kinds = self.kinds();
        self.check_alone(&kinds)?;
        let identity = match &self.round.eap_id {
            Some(EapId::Exact(id)) => id.clone().into_bytes(),
            _ => octets(&self.local_id),
        };
        let password = self.book.secrets.find(&identity, true);
        let needed = || {
            let who = String::from_utf8_lossy(&identity).escape_debug().to_string();
            password.clone().ok_or(format!("no [secrets.eap-<suffix>] for \"{who}\""))
        };
        let mut offers = Vec::new();
        for kind in &kinds {
            let offer = match *kind {
                EapType::MSCHAPV2 => needed().map(Offer::MsChapV2),
                EapType::MD5 => needed().map(Offer::Md5),
                EapType::GTC => needed().map(Offer::Gtc),
                EapType::TLS => self.tls_client(true).map(Offer::Tls),
                EapType::TTLS => self.tls_client(false).and_then(|tls| {
                    let password = needed()?;
                    let inner = vec![
                        Offer::MsChapV2(password.clone()),
                        Offer::Md5(password.clone()),
                        Offer::Gtc(password),
                    ];
                    Ok(Offer::Ttls(tls, inner))
                }),
                other => Err(format!("EAP method {other} is not supported")),
            };
            match offer {
                Ok(offer) => offers.push(offer),
                // Of several, what there is no secret for is not offered.
                Err(why) if kinds.len() == 1 => return Err(why),
                Err(_) => {}
            }
        }
        Ok(PeerConfig { identity, offers, random: random() })
    }

    fn tls_client(&self, shows: bool) -> Result<TlsClient, String> {
        let own: &[Credential] = if shows { &self.round.credentials } else { &[] };
        let whom = match &self.round.aaa_id {
            None => Some(self.remote_id.clone()),
            Some(EapId::Any) => None,
            Some(EapId::Exact(id)) => {
                let parsed = IdData::parse(id).map_err(|_| "aaa_id is no identity".to_owned())?;
                Some(parsed)
            }
        };
        let limits = limits(if shows { self.book.options.tls } else { self.book.options.ttls });
        let judge = self.judges(ExtendedKeyUsagePolicy::EapServer)(whom);
        let own = if own.is_empty() { None } else { Some(tls::own_key(own, &self.seen)?) };
        tls::client(own, judge, self.book.options, limits)
    }

    fn authenticator(&self) -> Result<AuthenticatorConfig, String> {
        let kinds = self.kinds();
        self.check_alone(&kinds)?;
        let mut methods = Vec::new();
        for kind in kinds {
            methods.push(match kind {
                EapType::MSCHAPV2 => Method::MsChapV2,
                EapType::MD5 => Method::Md5,
                EapType::GTC => Method::Gtc,
                EapType::TLS => Method::Tls(self.tls_server(true)?),
                EapType::TTLS => {
                    let first = self.book.options.phase2.map_or(EapType::MSCHAPV2, eap_type);
                    let inner = std::iter::once(first)
                        .chain(Self::BY_PASSWORD.into_iter().filter(|other| *other != first));
                    let inner = inner.filter_map(|kind| match kind {
                        EapType::MSCHAPV2 => Some(Method::MsChapV2),
                        EapType::MD5 => Some(Method::Md5),
                        EapType::GTC => Some(Method::Gtc),
                        _ => None,
                    });
                    Method::Ttls(self.tls_server(false)?, inner.collect())
                }
                other => return Err(format!("EAP method {other} is not supported")),
            });
        }
        if methods.is_empty() {
            return Err("no EAP method is left to ask for".to_owned());
        }
        Ok(AuthenticatorConfig {
            name: octets(&self.local_id),
            identity: self.known_identity(),
            methods,
            secrets: Arc::clone(&self.book.secrets) as Arc<dyn Secrets>,
            random: random(),
        })
    }

    /// The peer's EAP identity, unless it is asked for.
    pub(super) fn known_identity(&self) -> Option<Vec<u8>> {
        match &self.round.eap_id {
            Some(EapId::Any) => None,
            Some(EapId::Exact(id)) => Some(id.clone().into_bytes()),
            None => Some(octets(&self.remote_id)),
        }
    }

    fn tls_server(&self, wants: bool) -> Result<TlsServer, String> {
        let own = tls::own_key(&self.round.credentials, &self.seen)?;
        let limits = limits(if wants { self.book.options.tls } else { self.book.options.ttls });
        let judges = self.judges(ExtendedKeyUsagePolicy::EapPeer);
        let (options, remote_id) = (self.book.options, self.remote_id.clone());
        let asked = self.round.eap_id == Some(EapId::Any);
        let config = move |identity: &[u8]| {
            // What the peer told as text is an identity as in the file; else it is that of IKE.
            let id = match (asked, std::str::from_utf8(identity)) {
                (false, _) if octets(&remote_id) == identity => remote_id.clone(),
                (_, Ok(text)) => {
                    IdData::parse(text).map_err(|_| "the EAP identity is none".to_owned())?
                }
                (_, Err(_)) => return Err("the EAP identity is no text".to_owned()),
            };
            tls::server(&own, wants.then(|| judges(Some(id))), options)
        };
        Ok(TlsServer { config: Arc::new(config), limits })
    }

    /// What judges the other end's certificates: they must name the identity and be for `usage` (RFC 5216 §5.3).
    fn judges(
        &self,
        usage: ExtendedKeyUsagePolicy,
    ) -> impl Fn(Option<IdData>) -> tls::Judge + Send + Sync + use<> {
        let (answerer, connection) = (Arc::clone(self.answerer), self.connection.clone());
        let round = self.round.judged_by.clone();
        let seen = Arc::clone(&self.seen);
        move |id| {
            let (answerer, connection) = (Arc::clone(&answerer), connection.clone());
            let (round, seen) = (round.clone(), Arc::clone(&seen));
            tls::Judge::new(move |certs: &[&[u8]]| {
                let peer = judge(&answerer, (&connection, &round), (id.clone(), usage), certs)?;
                let mut seen = lock(&seen);
                let seat = Weak::clone(&seen.seat);
                *seen = InTls { signs_elsewhere: seen.signs_elsewhere, seat, ..peer };
                Ok(())
            })
        }
    }
}

/// Whether `certs` are those of `id`, or of anybody, by the rules of a round. Nothing is fetched in the middle of a TLS
/// handshake. If revocation is to be settled before the next packet leaves, the result has the peer.
fn judge(
    answerer: &Answerer,
    (connection, round): (&str, &str),
    (id, usage): (Option<IdData>, ExtendedKeyUsagePolicy),
    certs: &[&[u8]],
) -> Result<InTls, String> {
    let id = match id {
        Some(id) => id,
        None => {
            let first = certs.first().ok_or("no certificate")?;
            let certificate = Certificate::from_der(first)?;
            certificate.identities().into_iter().next().ok_or("a certificate without a name")?
        }
    };
    let encoding = CertEncoding::X509_SIGNATURE;
    let certs = certs.iter().map(|cert| OwnedCert { encoding, data: cert.to_vec() }).collect();
    let peer = PeerCredentials {
        connection: connection.to_owned(),
        round: round.to_owned(),
        id,
        certs,
        chain: Default::default(),
    };
    let verdict = answerer.judge_unsettled(&peer, usage, SystemTime::now());
    let judged = verdict.map_err(|why| why.to_string())?;
    let shown = Some(judged.shown());
    if let Some(certificate) = judged.certificate.filter(|_| judged.addresses.is_some()) {
        let subject = certificate.subject_text();
        tracing::warn!(
            connection,
            subject,
            "the EAP certificate has address blocks (RFC 3779), which EAP does not enforce: limit `remote_ts`"
        );
    }
    // A status that is not known and that no URL tells needs no settling: the policy has decided.
    let pending = matches!(judged.revocation, Revocation::Pending(_));
    let unsettled = pending.then_some(TlsPeer { peer, usage });
    Ok(InTls { unsettled, shown, ..InTls::default() })
}

/// An identity of IKE as EAP has it: text as it is, an address as text.
fn octets(id: &IdData) -> Vec<u8> {
    use ike_proto::wire::registry::IdType;
    match id.kind {
        IdType::IPV4_ADDR | IdType::IPV6_ADDR | IdType::DER_ASN1_DN => id.to_string().into_bytes(),
        _ => id.data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use ike_config::EapSecret;

    use super::*;

    #[test]
    fn one_account_has_one_name() {
        let of = |id: &str| EapSecret {
            ids: vec![id.as_bytes().to_vec()],
            password: Zeroizing::new(b"Ar3etTnp".to_vec()),
        };
        let secrets = EapSecrets(vec![of("carol"), of("LAB\\dave")]);
        for (told, name) in [
            ("carol", "carol"),
            ("LAB\\carol", "carol"),
            ("a\\b\\carol", "carol"),
            ("LAB\\dave", "LAB\\dave"),
        ] {
            assert!(secrets.password(told.as_bytes()).is_some(), "{told}");
            assert_eq!(secrets.canonical(told.as_bytes()), name.as_bytes());
        }
        // Nobody's password: whatever it is, it stays.
        assert_eq!(secrets.canonical(b"x\\dave"), b"x\\dave");
    }

    #[test]
    fn one_certificate_has_one_name() {
        let forms =
            ["carol@x", " carol@x", "Carol@X", "rfc822:carol@x", "email:carol@x", "@@carol@x"];
        for told in forms {
            assert_eq!(certified(told.as_bytes().to_vec()), b"carol@x", "{told}");
        }
        let names = ["CN=Carol, O=x", "cn=carol,o=x"].map(|told| certified(told.into()));
        assert_eq!(names[0], names[1]);
        assert_eq!(certified(vec![0xff, 1]), [0xff, 1]);
    }
}
