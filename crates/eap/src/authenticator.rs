//! The end that asks.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::conversation::{Conversation, Fill, MAX_ROUNDS, Secrets, Step, Success, shown};
use crate::method::tls::TlsLimits;
use crate::method::{ServerMethod, ServerStep, gtc, md5, mschapv2, tls, ttls};
use crate::packet::{Code, EapType, Packet};

/// How a TLS method of the authenticator is set up.
#[derive(Clone)]
pub struct TlsServer {
    /// Makes the configuration for a peer of this identity: verifiers, certificates, versions. Resumption and
    /// tickets must be off. The error says why there is none.
    #[expect(clippy::type_complexity, reason = "a function, named by its field")]
    pub config: Arc<dyn Fn(&[u8]) -> Result<Arc<ServerConfig>, String> + Send + Sync>,
    /// Limits.
    pub limits: TlsLimits,
}

/// A method that the authenticator asks for.
#[derive(Clone)]
pub enum Method {
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// MD5-Challenge, which authenticates the peer alone and makes no key.
    Md5,
    /// Generic Token Card: the peer sends its password.
    Gtc,
    /// EAP-TLS: the peer's certificate must be verified by the configuration.
    Tls(TlsServer),
    /// EAP-TTLS, and what is asked for in the tunnel, the best first.
    Ttls(TlsServer, Vec<Method>),
}

impl Method {
    /// Its type.
    pub fn kind(&self) -> EapType {
        match self {
            Self::MsChapV2 => EapType::MSCHAPV2,
            Self::Md5 => EapType::MD5,
            Self::Gtc => EapType::GTC,
            Self::Tls(_) => EapType::TLS,
            Self::Ttls(..) => EapType::TTLS,
        }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Method({})", self.kind())
    }
}

/// What an [`Authenticator`] is.
#[derive(Clone)]
pub struct AuthenticatorConfig {
    /// Its name in methods that have one.
    pub name: Vec<u8>,
    /// The peer's identity, if it is known; it is asked for otherwise.
    pub identity: Option<Vec<u8>>,
    /// Methods, the best first; a peer that says Nak gets one of those it names.
    pub methods: Vec<Method>,
    /// Passwords.
    pub secrets: Arc<dyn Secrets>,
    /// Random octets.
    pub random: Fill,
}

impl fmt::Debug for AuthenticatorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticatorConfig")
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

/// The end that asks.
pub struct Authenticator {
    config: AuthenticatorConfig,
    identity: Vec<u8>,
    method: Option<Box<dyn ServerMethod>>,
    identifier: u8,
    rounds: u32,
    /// The peer said Nak once; a second one is the end.
    refused: bool,
}

impl Authenticator {
    /// Before its first request.
    pub fn new(config: AuthenticatorConfig) -> Self {
        let mut identifier = [0];
        (config.random)(&mut identifier);
        Self {
            config,
            identity: Vec::new(),
            method: None,
            identifier: identifier[0],
            rounds: 0,
            refused: false,
        }
    }

    /// As [`new`](Self::new), for a peer that has told its identity already.
    pub(crate) fn after_identity(config: AuthenticatorConfig, identifier: u8) -> Self {
        Self { identifier, ..Self::new(config) }
    }

    fn request(&mut self, kind: EapType, data: &[u8]) -> Step {
        Step::Send(Packet::request(self.identifier, kind, data).encode())
    }

    fn fail(&self, why: impl fmt::Display) -> Step {
        let packet = Packet { code: Code::Failure, identifier: self.identifier, body: None };
        Step::Failure(Some(packet.encode()), why.to_string())
    }

    fn begin(&mut self, which: Option<&[u8]>) -> Step {
        let method = self
            .config
            .methods
            .iter()
            .find(|method| which.is_none_or(|wanted| wanted.contains(&method.kind().0)));
        let Some(method) = method.cloned() else {
            return self.fail("the peer does none of the methods that are configured");
        };
        let config = &self.config;
        let secret = |identity: &[u8]| config.secrets.password(identity);
        let started: Result<Box<dyn ServerMethod>, String> = match &method {
            Method::MsChapV2 => Ok(Box::new(mschapv2::MsChapV2Server::new(
                config.name.clone(),
                self.identity.clone(),
                secret(&self.identity),
                Arc::clone(&config.random),
            ))),
            Method::Md5 => Ok(Box::new(md5::Md5Server::new(
                config.name.clone(),
                secret(&self.identity),
                &config.random,
            ))),
            Method::Gtc => Ok(Box::new(gtc::GtcServer::new(secret(&self.identity)))),
            Method::Tls(setup) => (setup.config)(&self.identity).and_then(|tls| {
                let server = tls::TlsServerMethod::new(EapType::TLS, tls, setup.limits, None)?;
                Ok(Box::new(server) as Box<dyn ServerMethod>)
            }),
            Method::Ttls(setup, inner) => (setup.config)(&self.identity).and_then(|tls| {
                let inner = AuthenticatorConfig {
                    methods: inner.clone(),
                    identity: None,
                    ..config.clone()
                };
                let inner = ttls::TtlsServer::new(inner, config.identity.clone());
                let server =
                    tls::TlsServerMethod::new(EapType::TTLS, tls, setup.limits, Some(inner))?;
                Ok(Box::new(server) as Box<dyn ServerMethod>)
            }),
        };
        match started {
            Err(why) => self.fail(why),
            Ok(mut begun) => {
                let data = begun.start(self.identifier);
                self.method = Some(begun);
                self.request(method.kind(), &data)
            }
        }
    }

    fn response(&mut self, kind: EapType, data: &[u8]) -> Step {
        let Some(method) = &mut self.method else {
            if kind != EapType::IDENTITY {
                return self.fail("the peer does not say who it is");
            }
            if data.is_empty() || data.len() > MAX_IDENTITY {
                return self.fail("no identity, or one that is too long");
            }
            self.identity = data.to_vec();
            self.next();
            return self.begin(None);
        };
        if kind == EapType::NAK && !self.refused && !method.has_begun() {
            self.refused = true;
            self.next();
            return self.begin(Some(data));
        }
        let asked = method.kind();
        if kind != asked {
            return self.fail(format_args!("{kind} in answer to {asked}"));
        }
        let next = self.identifier.wrapping_add(1);
        match method.process(next, data) {
            ServerStep::Request(data) => {
                let kind = method.kind();
                self.next();
                self.request(kind, &data)
            }
            ServerStep::Success(msk) => {
                let code = Code::Success;
                let packet = Packet { code, identifier: self.identifier, body: None }.encode();
                let by_password = [EapType::MSCHAPV2, EapType::MD5, EapType::GTC];
                let identity = match method.identity() {
                    Some(identity) => identity,
                    None if by_password.contains(&method.kind()) => {
                        self.config.secrets.canonical(&self.identity)
                    }
                    None => self.identity.clone(),
                };
                let method = Some(method.kind());
                Step::Success(Success { packet: Some(packet), msk, method, identity })
            }
            ServerStep::Fail(why) => {
                let who = shown(&self.identity);
                self.fail(format_args!("EAP identity \"{who}\": {why}"))
            }
        }
    }

    fn next(&mut self) {
        self.identifier = self.identifier.wrapping_add(1);
    }
}

impl Conversation for Authenticator {
    fn room(&self) -> usize {
        let by_tls = |method: &Method| matches!(method, Method::Tls(_) | Method::Ttls(..));
        if self.config.methods.iter().any(by_tls) { tls::MAX_STRANGERS_FLIGHT } else { 1024 }
    }

    fn handle(&mut self, packet: Option<&[u8]>) -> Step {
        let Some(packet) = packet else {
            return match self.config.identity.clone() {
                None => self.request(EapType::IDENTITY, &[]),
                Some(identity) => {
                    self.identity = identity;
                    self.begin(None)
                }
            };
        };
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return self.fail("the peer goes on for ever");
        }
        match Packet::parse(packet) {
            Ok(Packet { code: Code::Response, identifier, body: Some((kind, data)) })
                if identifier == self.identifier =>
            {
                self.response(kind, data)
            }
            Ok(_) => self.fail("EAP packet out of place"),
            Err(malformed) => self.fail(malformed),
        }
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}

/// Octets of an identity (RFC 7542 allows 253 in RADIUS).
const MAX_IDENTITY: usize = 253;
