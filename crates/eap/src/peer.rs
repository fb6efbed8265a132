//! The end that is authenticated.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use crate::conversation::{Conversation, Fill, MAX_ROUNDS, Step, Success};
use crate::method::tls::TlsLimits;
use crate::method::{PeerMethod, PeerStep, gtc, md5, mschapv2, tls, ttls};
use crate::packet::{Code, EapType, Packet};

/// How a TLS method of the peer is set up.
#[derive(Clone)]
pub struct TlsClient {
    /// Verifiers, certificates, versions. Resumption must be off.
    pub config: Arc<ClientConfig>,
    /// The name to ask for; what the certificate must have is the verifier's business.
    pub name: ServerName<'static>,
    /// Limits.
    pub limits: TlsLimits,
}

/// A method that the peer is willing to do.
#[derive(Clone)]
pub enum Offer {
    /// EAP-MSCHAPv2 with this password.
    MsChapV2(Zeroizing<Vec<u8>>),
    /// MD5-Challenge with this password. It neither authenticates the authenticator nor makes a key.
    Md5(Zeroizing<Vec<u8>>),
    /// Generic Token Card with this password, which is sent in clear.
    Gtc(Zeroizing<Vec<u8>>),
    /// EAP-TLS.
    Tls(TlsClient),
    /// EAP-TTLS, and what is done in the tunnel: one of the methods by password, with the password.
    Ttls(TlsClient, Vec<Offer>),
}

impl Offer {
    /// Its type.
    pub fn kind(&self) -> EapType {
        match self {
            Self::MsChapV2(_) => EapType::MSCHAPV2,
            Self::Md5(_) => EapType::MD5,
            Self::Gtc(_) => EapType::GTC,
            Self::Tls(_) => EapType::TLS,
            Self::Ttls(..) => EapType::TTLS,
        }
    }

    fn start(&self, config: &PeerConfig) -> Box<dyn PeerMethod> {
        match self {
            Self::MsChapV2(password) => Box::new(mschapv2::MsChapV2Peer::new(
                config.identity.clone(),
                password.clone(),
                Arc::clone(&config.random),
            )),
            Self::Md5(password) => {
                Box::new(md5::Md5Peer::new(config.identity.clone(), password.clone()))
            }
            Self::Gtc(password) => Box::new(gtc::GtcPeer::new(password.clone())),
            Self::Tls(setup) => Box::new(tls::TlsPeer::new(EapType::TLS, setup.clone(), None)),
            Self::Ttls(setup, inner) => {
                let inner = PeerConfig {
                    identity: config.identity.clone(),
                    offers: inner.clone(),
                    random: Arc::clone(&config.random),
                };
                let inner = ttls::TtlsPeer::new(inner);
                Box::new(tls::TlsPeer::new(EapType::TTLS, setup.clone(), Some(inner)))
            }
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({})", self.kind())
    }
}

/// What a [`Peer`] is.
#[derive(Clone)]
pub struct PeerConfig {
    /// What it answers to the question for its identity, and its name in methods that have one.
    pub identity: Vec<u8>,
    /// Methods, the best first.
    pub offers: Vec<Offer>,
    /// Random octets.
    pub random: Fill,
}

impl fmt::Debug for PeerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerConfig").field("offers", &self.offers).finish_non_exhaustive()
    }
}

/// The end that is authenticated.
pub struct Peer {
    config: PeerConfig,
    method: Option<Box<dyn PeerMethod>>,
    rounds: u32,
}

impl Peer {
    /// Before the first request.
    pub fn new(config: PeerConfig) -> Self {
        Self { config, method: None, rounds: 0 }
    }

    fn request(&mut self, identifier: u8, kind: EapType, data: &[u8]) -> Step {
        let respond =
            |kind, data: &[u8]| Step::Send(Packet::response(identifier, kind, data).encode());
        match kind {
            EapType::IDENTITY if self.method.is_none() => {
                return respond(EapType::IDENTITY, &self.config.identity);
            }
            EapType::NOTIFICATION => return respond(EapType::NOTIFICATION, &[]),
            EapType::IDENTITY | EapType::NAK => return Step::fail("request out of place"),
            _ => {}
        }
        if self.method.is_none() {
            match self.config.offers.iter().find(|offer| offer.kind() == kind) {
                Some(offer) => self.method = Some(offer.start(&self.config)),
                None => {
                    //= https://www.rfc-editor.org/rfc/rfc3748#section-5.3.1
                    //# The Response contains one or more authentication Types desired by
                    //# the Peer.
                    let kinds: Vec<u8> =
                        self.config.offers.iter().map(|offer| offer.kind().0).collect();
                    let kinds = if kinds.is_empty() { vec![0] } else { kinds };
                    return respond(EapType::NAK, &kinds);
                }
            }
        }
        match &mut self.method {
            Some(method) if method.kind() == kind => match method.process(identifier, data) {
                PeerStep::Respond(data) => respond(kind, &data),
                PeerStep::Fail(why) => Step::fail(why),
            },
            // Once a method has begun there is no other (RFC 3748 §2.1).
            _ => Step::fail(format_args!("{kind} was asked for in the middle of another method")),
        }
    }
}

impl Conversation for Peer {
    fn handle(&mut self, packet: Option<&[u8]>) -> Step {
        let Some(Ok(packet)) = packet.map(Packet::parse) else {
            return Step::fail("malformed EAP packet");
        };
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Step::fail("the authenticator goes on for ever");
        }
        match (packet.code, packet.body) {
            (Code::Request, Some((kind, data))) => self.request(packet.identifier, kind, data),
            (Code::Success, _) => {
                let Some(method) = &mut self.method else {
                    return Step::fail("EAP-Success without a method");
                };
                match method.finish() {
                    // The method has not authenticated anybody yet (RFC 3748 §4.2).
                    None => Step::fail("EAP-Success before the method was through"),
                    Some(msk) => Step::Success(Success {
                        packet: None,
                        msk,
                        method: Some(method.kind()),
                        identity: self.config.identity.clone(),
                    }),
                }
            }
            (Code::Failure, _) => {
                let why = self.method.as_ref().and_then(|method| method.complaint());
                Step::fail(why.unwrap_or_else(|| "the authenticator says EAP-Failure".to_owned()))
            }
            _ => Step::fail("EAP packet out of place"),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}
