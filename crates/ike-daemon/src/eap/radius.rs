//! A RADIUS server decides (RFC 3579): EAP packets go through to it and back.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::eap::radius::{Code, MAX_PACKET, Request, Response, Unfit, attribute};
use ::eap::{Code as EapCode, EapType, Packet};
use ike_proto::crypto::Secret;
use ike_proto::{Authorization, EapAnswer, EapState, EapSuccess, Path};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use ike_config::{RadiusOptions, RadiusServer, Way};

use super::grants::Grants;
use super::{Held, Setup, described, random};

/// The servers, and what is remembered of them.
#[derive(Debug, Default)]
pub(crate) struct RadiusConfig {
    /// `[charon.plugins.eap-radius]`.
    pub(crate) options: RadiusOptions,
    /// The server that answered last.
    pub(crate) current: AtomicUsize,
    pub(crate) identifier: AtomicU8,
    /// When it was last told that a server does not answer.
    pub(crate) warned: Mutex<Option<Instant>>,
    /// Those of the whole daemon, once it is in force.
    pub(crate) lines: Mutex<Arc<Lines>>,
}

impl RadiusConfig {
    /// Nothing is known of the servers of `options` yet.
    pub(crate) fn new(options: RadiusOptions) -> Self {
        Self { options, ..Self::default() }
    }
}

/// Where exchanges wait: each has a socket.
#[derive(Debug)]
pub(crate) struct Lines {
    all: Semaphore,
    /// Before that, accounting waits in a line of its own: with a server for it that is dead, logins have
    /// half of the places left.
    accounts: Semaphore,
}

impl Default for Lines {
    fn default() -> Self {
        Self { all: Semaphore::new(EXCHANGES), accounts: Semaphore::new(EXCHANGES / 2) }
    }
}

/// Who wants an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A conversation of EAP, which does not wait longer than [`PATIENCE`] for its turn.
    Login,
    /// Accounting, which waits: a session's end is told, however late.
    Account,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// None came that is fit, and why.
    Server(&'static str),
    /// Nothing could be sent.
    Here(std::io::Error),
    /// Too many others were before it.
    Busy,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(why) => f.write_str(why),
            Self::Here(error) => write!(f, "{error}"),
            Self::Busy => f.write_str("too many others wait for RADIUS servers"),
        }
    }
}

impl RadiusConfig {
    /// True once in a while: every conversation finds a dead server dead.
    pub(crate) fn may_warn(&self) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = warned.is_none_or(|last| last.elapsed() >= BETWEEN_WARNINGS);
        if due {
            *warned = Some(Instant::now());
        }
        due
    }

    /// Has its exchanges wait with those of the configurations before it.
    pub(crate) fn join(&self, lines: &Arc<Lines>) {
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(lines);
    }

    /// Where its exchanges wait.
    pub(crate) fn lines(&self) -> Arc<Lines> {
        Arc::clone(&self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for its turn, then sends `datagram` to `address` until `judge` takes what comes from there, or nobody
    /// answers in time.
    pub(crate) async fn exchange<T>(
        &self,
        asker: Asker,
        address: SocketAddr,
        datagram: &[u8],
        mut judge: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<T, Unanswered> {
        let busy = |_| Unanswered::Busy;
        let lines = self.lines();
        let _turns = match asker {
            Asker::Login => {
                let turn = tokio::time::timeout(PATIENCE, lines.all.acquire()).await;
                (None, turn.map_err(|_| Unanswered::Busy)?.map_err(busy)?)
            }
            Asker::Account => {
                let own = lines.accounts.acquire().await.map_err(busy)?;
                (Some(own), lines.all.acquire().await.map_err(busy)?)
            }
        };
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NetworkUnreachable => Unanswered::Server("there is no route to it"),
            ErrorKind::HostUnreachable => Unanswered::Server("it cannot be reached"),
            _ => Unanswered::Here(error),
        };
        // A port of its own: identifiers need not be shared, and others cannot guess where it waits.
        let socket = UdpSocket::bind(any).await.map_err(failed)?;
        socket.connect(address).await.map_err(failed)?;
        let mut timeout = self.options.retransmit_timeout;
        for _ in 0..=self.options.retransmit_tries {
            // What ICMP says about the one before is no reason not to try.
            let _ = socket.send(datagram).await;
            let end = Instant::now() + timeout;
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                let mut buffer = vec![0; MAX_PACKET + 1];
                let Ok(received) = tokio::time::timeout(left, socket.recv(&mut buffer)).await
                else {
                    break;
                };
                let Ok(len) = received else {
                    tokio::time::sleep_until(end).await;
                    break;
                };
                if let Some(taken) = judge(buffer.get(..len).unwrap_or_default()) {
                    return Ok(taken);
                }
            }
            timeout = timeout.mul_f64(self.options.retransmit_base);
        }
        Err(Unanswered::Server("no answer"))
    }
}

/// A conversation with a server.
pub(crate) struct Session {
    config: Arc<RadiusConfig>,
    /// Which server; conversations do not change it once it has answered.
    server: Option<usize>,
    connection: String,
    path: Path,
    /// What the peer calls itself in EAP; empty until it has.
    identity: Vec<u8>,
    known: Option<Vec<u8>>,
    /// What the server wants to see again.
    state: Vec<Vec<u8>>,
    alone: bool,
    /// The method that the server asked for last.
    method: Option<EapType>,
    /// The connections that the peer may turn out to be, and the groups of which it must be in one, if there are any.
    candidates: Vec<(String, Vec<String>)>,
}

impl Session {
    /// With other connections that the peer may turn out to be, and their rounds.
    pub(super) fn new(
        config: Arc<RadiusConfig>,
        setup: &Setup<'_>,
        path: Path,
        others: Vec<(String, String)>,
    ) -> Self {
        let own = (setup.connection.clone(), setup.round.groups.clone());
        let others = others.into_iter().filter_map(|other| {
            let round = setup.book.rounds.get(&other)?;
            // It would have been asked the same.
            let same = round.way == Way::Radius && round.eap_id == setup.round.eap_id;
            same.then(|| (other.0, round.groups.clone()))
        });
        let candidates = std::iter::once(own).chain(others).collect();
        Self {
            config,
            server: None,
            connection: setup.connection.clone(),
            path,
            identity: Vec::new(),
            known: setup.known_identity(),
            state: Vec::new(),
            alone: setup.alone,
            method: None,
            candidates,
        }
    }

    /// What comes of the peer's packet, or of none at the beginning.
    pub(crate) async fn turn(mut self: Box<Self>, packet: Option<Vec<u8>>) -> EapAnswer {
        let mut packet = match (packet, self.known.take()) {
            (None, None) => {
                let request = Packet::request(0, EapType::IDENTITY, &[]).encode();
                return EapAnswer::Send(request, EapState::new(Held::Radius(self)));
            }
            // The server hears it as if it had been asked.
            (None, Some(known)) => Packet::response(0, EapType::IDENTITY, &known).encode(),
            (Some(packet), _) => packet,
        };
        let fail = |why: &str| EapAnswer::Failure { packet: None, why: why.to_owned() };
        let body = match Packet::parse(&packet) {
            Ok(Packet { code: EapCode::Response, body: Some(body), .. }) => body,
            _ => return fail("EAP packet out of place"),
        };
        match body {
            (EapType::IDENTITY, identity) if self.identity.is_empty() => {
                if identity.is_empty() || identity.len() > MAX_IDENTITY {
                    return fail("no identity, or one that is too long");
                }
                self.identity = identity.to_vec();
            }
            _ if !self.identity.is_empty() => {}
            _ => return fail("EAP packet out of place"),
        }
        // What stands behind the packet is no part of it.
        let length = 5 + body.1.len();
        packet.truncate(length);
        match self.ask(&packet).await {
            Ok(outcome) => self.outcome(outcome),
            Err(why) => fail(&why),
        }
    }

    fn outcome(mut self: Box<Self>, answer: Outcome) -> EapAnswer {
        match (answer.code, answer.eap) {
            (Code::Challenge, Some(packet)) => {
                if let Ok(Packet { body: Some((kind, _)), .. }) = Packet::parse(&packet)
                    && kind != EapType::IDENTITY
                    && kind != EapType::NOTIFICATION
                {
                    self.method = Some(kind);
                }
                self.state = answer.state;
                EapAnswer::Send(packet, EapState::new(Held::Radius(self)))
            }
            (Code::Accept, packet) => {
                let safe = self.method.is_some_and(EapType::is_safe_alone);
                if self.alone && !safe {
                    let why = "the method may not stand alone (RFC 5998)".to_owned();
                    return EapAnswer::Failure { packet: None, why };
                }
                // Both ends of such a method have a key. A server that keeps it back leaves open whether the peer of
                // this conversation is the one that it has let in.
                if answer.msk.is_none()
                    && let Some(method) = self.method.filter(|method| method.makes_key())
                {
                    let who = described(Some(method), &self.identity);
                    let why = format!(
                        "the RADIUS server accepts {who} without the key of the method: configure the server to send \
                         MS-MPPE-Send-Key and MS-MPPE-Recv-Key"
                    );
                    return EapAnswer::Failure { packet: None, why };
                }
                let mut candidates = self.candidates.iter();
                let fitting = candidates.position(|(_, groups)| answer.grants.fit(groups));
                let Some(fitting) = fitting else {
                    let who = described(self.method, &self.identity);
                    let why = format!("{who} is in none of the `groups` of {}", self.wanted_by());
                    return EapAnswer::Failure { packet: None, why };
                };
                let connection = (fitting > 0).then(|| self.candidates.swap_remove(fitting).0);
                // What the peer called itself before is proven by a password alone; in the tunnel of another
                // method it may have been anybody.
                let bound = self.method.is_some_and(|method| BINDING.contains(&method));
                let identity = answer.user.or_else(|| bound.then(|| self.identity.clone()));
                let method = match &identity {
                    Some(identity) => described(self.method, identity),
                    None => format!("{}, unproven", described(self.method, &self.identity)),
                };
                let packet = packet.filter(|packet| packet.first() == Some(&3));
                EapAnswer::Success(EapSuccess {
                    packet: Some(packet.unwrap_or_else(|| vec![3, 0, 0, 4])),
                    msk: answer.msk,
                    method,
                    identity,
                    authorization: Some(Box::new(Authorization {
                        connection,
                        lifetime: answer.grants.lifetime,
                        granted: answer.grants.kept,
                    })),
                })
            }
            (Code::Reject, packet) => {
                let packet = packet.filter(|packet| packet.first() == Some(&4));
                let who = described(self.method, &self.identity);
                let why = match answer.said {
                    Some(said) => format!("the RADIUS server refuses {who}: {said}"),
                    None => format!("the RADIUS server refuses {who}"),
                };
                EapAnswer::Failure { packet: Some(packet.unwrap_or_else(|| vec![4, 0, 0, 4])), why }
            }
            _ => EapAnswer::Failure {
                packet: None,
                why: "the RADIUS server challenges without EAP".to_owned(),
            },
        }
    }

    /// The connections that were asked for.
    fn wanted_by(&self) -> String {
        let names: Vec<_> = self.candidates.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }

    /// Asks the server of this conversation, or at its beginning one after the other.
    async fn ask(&mut self, packet: &[u8]) -> Result<Outcome, String> {
        let config = Arc::clone(&self.config);
        let count = config.options.servers.len();
        let first = config.current.load(Ordering::Relaxed);
        let candidates: Vec<usize> = match self.server {
            Some(server) => vec![server],
            None => (0..count).map(|n| (first + n) % count.max(1)).collect(),
        };
        let mut last = "no RADIUS server is configured".to_owned();
        for index in candidates {
            let Some(server) = config.options.servers.get(index) else { continue };
            match self.exchange(server, packet).await {
                Ok(outcome) => {
                    self.server = Some(index);
                    if config.current.swap(index, Ordering::Relaxed) != index {
                        tracing::info!(server = %server.name, "RADIUS server in use");
                    }
                    return Ok(outcome);
                }
                Err(why @ Unanswered::Busy) => return Err(why.to_string()),
                Err(why) => {
                    if config.may_warn() {
                        tracing::warn!(server = %server.name, %why, "RADIUS server does not answer");
                    }
                    last = format!("RADIUS server {}: {why}", server.name);
                }
            }
        }
        Err(last)
    }

    fn request(&self, server: &RadiusServer, packet: &[u8]) -> Option<(u8, Vec<u8>, [u8; 16])> {
        let mut authenticator = [0; 16];
        random()(&mut authenticator);
        let identifier = self.config.identifier.fetch_add(1, Ordering::Relaxed);
        let mut request = Request::new(identifier, authenticator);
        let user = [self.config.options.id_prefix.as_bytes(), &self.identity].concat();
        request.add(attribute::USER_NAME, &user);
        request.add(attribute::NAS_IDENTIFIER, server.nas_identifier.as_bytes());
        // Virtual, Framed.
        request.add(attribute::NAS_PORT_TYPE, &5_u32.to_be_bytes());
        request.add(attribute::SERVICE_TYPE, &2_u32.to_be_bytes());
        request.add(attribute::NAS_PORT_ID, self.connection.as_bytes());
        match self.path.local.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => request.add(attribute::NAS_IP_ADDRESS, &ip.octets()),
            std::net::IpAddr::V6(ip) => request.add(attribute::NAS_IPV6_ADDRESS, &ip.octets()),
        }
        let station =
            |address: SocketAddr| format!("{}[{}]", address.ip().to_canonical(), address.port());
        request.add(attribute::CALLED_STATION_ID, station(self.path.local).as_bytes());
        request.add(attribute::CALLING_STATION_ID, station(self.path.remote).as_bytes());
        for state in &self.state {
            request.add(attribute::STATE, state);
        }
        request.add(attribute::EAP_MESSAGE, packet);
        let (datagram, authenticator) = request.finish(server.secret.expose())?;
        Some((identifier, datagram, authenticator))
    }

    async fn exchange(&self, server: &RadiusServer, packet: &[u8]) -> Result<Outcome, Unanswered> {
        let (identifier, datagram, authenticator) = self
            .request(server, packet)
            .ok_or(Unanswered::Server("the EAP packet is too long for RADIUS"))?;
        let secret = server.secret.expose();
        let mut unfit = None;
        let judge =
            |answer: &[u8]| match Response::parse(answer, identifier, &authenticator, secret) {
                Ok(response) => {
                    let mut outcome = Outcome::of(&response, &authenticator, secret);
                    if outcome.code == Code::Accept {
                        outcome.grants = Grants::of(&response, self.config.options.groups);
                    }
                    Some(outcome)
                }
                Err(why) => {
                    unfit = Some(why);
                    None
                }
            };
        let asked = self.config.exchange(Asker::Login, server.address, &datagram, judge).await;
        asked.map_err(|why| match unfit {
            Some(Unfit::Authenticator) => {
                Unanswered::Server("answers are signed by another secret")
            }
            Some(Unfit::MessageAuthenticator) => {
                Unanswered::Server("answers have no Message-Authenticator, or a wrong one")
            }
            Some(Unfit::Other) | None => why,
        })
    }
}

/// A server's answer.
struct Outcome {
    code: Code,
    eap: Option<Vec<u8>>,
    state: Vec<Vec<u8>>,
    msk: Option<Secret>,
    /// User-Name: what the peer is called from now on.
    user: Option<Vec<u8>>,
    /// Reply-Message, safe in a log line.
    said: Option<String>,
    grants: Grants,
}

impl Outcome {
    fn of(response: &Response<'_>, authenticator: &[u8; 16], secret: &[u8]) -> Self {
        let msk = response.msk(authenticator, secret);
        let said = response
            .values(attribute::REPLY_MESSAGE)
            .next()
            .map(|text| String::from_utf8_lossy(text).escape_debug().to_string());
        Self {
            code: response.code,
            eap: response.eap(),
            state: response.values(attribute::STATE).map(<[u8]>::to_vec).collect(),
            msk: msk.map(|msk| Secret::copy_from(msk.expose())),
            user: response.values(attribute::USER_NAME).next().map(<[u8]>::to_vec),
            said,
            grants: Grants::default(),
        }
    }
}

/// Exchanges with RADIUS servers at a time.
pub(crate) const EXCHANGES: usize = 256;
/// How long a login waits for its turn: the peer waits meanwhile, and this end keeps its half-open SA.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the log has a server that does not answer.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);
/// The methods whose password is that of the identity which was told before.
const BINDING: [EapType; 3] = [EapType::MD5, EapType::MSCHAPV2, EapType::GTC];
/// Octets of an identity that User-Name has room for.
const MAX_IDENTITY: usize = 253;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
