//! Dynamic authorization (RFC 5176): a RADIUS server ends sessions, or changes their lifetime. A request that is
//! not signed by the secret gets no answer and leaves no state. Requests are handled one after the other.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::eap::accounting::attribute as accounting;
use ::eap::dynamic::{DynamicRequest, ErrorCause, Wish};
use ::eap::radius::{MAX_PACKET, Unfit, attribute};
use tokio::net::UdpSocket;
use tokio::time::Instant;

use ike_config::DaeConfig;

use crate::accounting::Accounting;
use crate::radius::RadiusClient;

/// The UDP socket for requests of RADIUS servers about sessions (RFC 5176).
#[derive(Debug)]
pub struct DaeSocket(UdpSocket);

/// How much a request's Event-Timestamp may differ from this end's clock (RFC 5176 §6.3).
const WINDOW: Duration = Duration::from_secs(300);
/// How long a request without one is known again.
const RETRANSMITTED: Duration = Duration::from_secs(30);
/// How often the log has what is dropped: anybody can cause that.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);
/// Requests that are known again. Of more than that within the window none is taken: one that is forgotten could be
/// used again.
const REMEMBERED: usize = 1 << 16;

impl DaeSocket {
    /// Makes the socket. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the address is in use, or is not one of this host.
    pub fn bind(listen: SocketAddr) -> io::Result<Self> {
        let bind = || {
            let socket = StdSocket::bind(listen)?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("eap-radius.dae at {listen}: {error}"))
        };
        bind().map(Self).map_err(explain)
    }

    /// Its own address.
    ///
    /// # Errors
    /// If the system cannot tell the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Receives and answers requests, forever. `radius` returns the configuration in force, which says who may send
    /// requests; without a configuration they are dropped.
    pub async fn serve(self, radius: impl Fn() -> Option<Arc<RadiusClient>>, sessions: Accounting) {
        let mut answered = Answered::default();
        let mut buffer = vec![0; MAX_PACKET + 1];
        loop {
            let (len, from) = match self.0.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => {
                    // What ICMP says of an answer, for one.
                    tracing::debug!(%error, "RADIUS DAE");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let Some(radius) = radius() else { continue };
            let datagram = buffer.get(..len).unwrap_or_default();
            let answer = answer(datagram, from, &radius, &sessions, &mut answered).await;
            if let Some(answer) = answer
                && let Err(error) = self.0.send_to(&answer, from).await
            {
                tracing::info!(%from, %error, "RADIUS DAE: the answer is not sent");
            }
        }
    }
}

/// What is answered to a datagram, if anything.
async fn answer(
    datagram: &[u8],
    from: SocketAddr,
    radius: &RadiusClient,
    sessions: &Accounting,
    answered: &mut Answered,
) -> Option<Vec<u8>> {
    let dae = radius.options.dae.as_ref()?;
    // Before anything is computed for it.
    if !is_known(radius, dae, from.ip()) {
        if answered.may_warn() {
            let hint = "add the address to `clients` if the sender may send requests";
            tracing::warn!(%from, hint, "RADIUS DAE: datagram dropped, because no server or client has this address");
        }
        return None;
    }
    let secret = dae.secret.expose();
    let request = match DynamicRequest::parse(datagram, secret, dae.demanded) {
        Ok(request) => request,
        Err(why) => {
            let why = match why {
                Unfit::Other => "not a request",
                Unfit::Authenticator => "it is signed by another secret",
                Unfit::MessageAuthenticator => "no Message-Authenticator, or a wrong one",
            };
            if answered.may_warn() {
                tracing::warn!(%from, %why, "RADIUS DAE: a datagram is dropped");
            }
            return None;
        }
    };
    if let Some(again) = answered.find(&request.authenticator) {
        return Some(again);
    }
    // RFC 5176 §6.3: what is not current is dropped without a word.
    let stamp = request.all().find(|(kind, _)| *kind == attribute::EVENT_TIMESTAMP);
    let stamp = stamp.and_then(|(_, value)| <[u8; 4]>::try_from(value).ok());
    if let Some(stamp) = stamp
        && !is_current(u32::from_be_bytes(stamp), SystemTime::now())
    {
        if answered.may_warn() {
            tracing::warn!(%from, "RADIUS DAE: a request is not of this time: compare the clocks");
        }
        return None;
    }
    // SHOULD be configurable (RFC 5176 §6.3): what has none can be recorded, and used again.
    if dae.stamped && stamp.is_none() {
        if answered.may_warn() {
            tracing::warn!(%from, "RADIUS DAE: a request without Event-Timestamp is dropped");
        }
        return None;
    }
    // RFC 5176 §6.3: duplicates are known as long as a time stamp is good, or requests are dropped.
    if !answered.has_room() {
        if answered.may_warn() {
            tracing::warn!(%from, "RADIUS DAE: too many requests lately; one is dropped");
        }
        return None;
    }
    let outcome = match Wanted::of(&request, radius, sessions) {
        Ok(wanted) => wanted.carry_out(sessions).await,
        Err(cause) => Err(cause),
    };
    let (wish, error_cause) = (request.wish, outcome.as_ref().err());
    tracing::info!(%from, ?wish, ended_or_changed = outcome.as_ref().ok(), ?error_cause, "RADIUS DAE");
    let answer = request.answer(outcome.map(drop), secret)?;
    // A request may come again as long as its time stamp is good, and is not to be carried out again.
    let keep = if stamp.is_some() { WINDOW * 2 } else { RETRANSMITTED };
    answered.remember(request.authenticator, answer.clone(), keep);
    Some(answer)
}

/// True if the address is that of a server, or of another client that may ask.
fn is_known(radius: &RadiusClient, dae: &DaeConfig, from: IpAddr) -> bool {
    let servers = radius.options.servers.iter();
    let servers = servers.flat_map(|server| [server.address.ip(), server.accounting.ip()]);
    let mut known = servers.chain(dae.clients.iter().copied());
    known.any(|address| address.to_canonical() == from.to_canonical())
}

fn is_current(stamp: u32, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    now.abs_diff(stamp.into()) <= WINDOW.as_secs()
}

/// What a request wants.
#[derive(Debug)]
struct Wanted<'a> {
    wish: Wish,
    /// What sessions must have, all of it.
    of: Vec<(u8, &'a [u8])>,
    /// Session-Timeout.
    lifetime: Option<Duration>,
}

impl<'a> Wanted<'a> {
    /// Reads a request. All attributes are mandatory: nothing is done if one is not understood (RFC 5176 §3).
    fn of(
        request: &DynamicRequest<'a>,
        radius: &RadiusClient,
        sessions: &Accounting,
    ) -> Result<Self, ErrorCause> {
        let mut this = Self { wish: request.wish, of: Vec::new(), lifetime: None };
        let (disconnect, mut named) = (request.wish == Wish::Disconnect, false);
        for (kind, value) in request.all() {
            match kind {
                attribute::MESSAGE_AUTHENTICATOR | attribute::PROXY_STATE => {}
                attribute::EVENT_TIMESTAMP if value.len() == 4 => {}
                attribute::EVENT_TIMESTAMP => return Err(ErrorCause::InvalidAttributeValue),
                attribute::NAS_IDENTIFIER => {
                    let own = |name: &str| name.as_bytes() == value;
                    if !radius.options.servers.iter().any(|server| own(&server.nas_identifier)) {
                        return Err(ErrorCause::NasIdentificationMismatch);
                    }
                }
                attribute::NAS_IP_ADDRESS | attribute::NAS_IPV6_ADDRESS => {
                    let own = address(kind, value).ok_or(ErrorCause::InvalidAttributeValue)?;
                    if !sessions.any_with((kind, value)) && !is_own(own) {
                        return Err(ErrorCause::NasIdentificationMismatch);
                    }
                }
                attribute::USER_NAME
                | attribute::NAS_PORT
                | attribute::FRAMED_IP_ADDRESS
                | attribute::CALLED_STATION_ID
                | attribute::CALLING_STATION_ID
                | accounting::SESSION_ID
                | attribute::NAS_PORT_ID
                | attribute::FRAMED_IPV6_ADDRESS => {
                    this.of.push((kind, value));
                    named = true;
                }
                // It is the same of all.
                attribute::NAS_PORT_TYPE => this.of.push((kind, value)),
                attribute::SERVICE_TYPE => return Err(ErrorCause::UnsupportedService),
                attribute::REPLY_MESSAGE if disconnect => {
                    let text = String::from_utf8_lossy(value).escape_debug().to_string();
                    tracing::info!(%text, "RADIUS DAE: Reply-Message");
                }
                // They are about accounting; the end says what there is to say.
                attribute::CLASS | accounting::TERMINATE_CAUSE if disconnect => {}
                // It is the server's own, and goes back to it (RFC 5176 §3.3).
                attribute::STATE if !disconnect => {}
                attribute::SESSION_TIMEOUT if !disconnect => {
                    let seconds = <[u8; 4]>::try_from(value);
                    let seconds = seconds.map_err(|_| ErrorCause::InvalidAttributeValue)?;
                    let lifetime = Duration::from_secs(u32::from_be_bytes(seconds).into());
                    // In Access-Accept it means no limit, and a limit cannot be taken away.
                    if lifetime.is_zero() {
                        return Err(ErrorCause::InvalidAttributeValue);
                    }
                    if this.lifetime.replace(lifetime).is_some() {
                        return Err(ErrorCause::InvalidRequest);
                    }
                }
                _ => return Err(ErrorCause::UnsupportedAttribute),
            }
        }
        if !named || (this.lifetime.is_none() && !disconnect) {
            return Err(ErrorCause::MissingAttribute);
        }
        Ok(this)
    }

    /// Does it; the number of sessions.
    async fn carry_out(self, sessions: &Accounting) -> Result<usize, ErrorCause> {
        let found = sessions.matching(&self.of);
        let mut count = 0;
        for session in found {
            match (self.wish, self.lifetime) {
                (Wish::Disconnect, _) => sessions.disconnect(session),
                (Wish::Change, Some(lifetime)) if sessions.limit(&session, lifetime).await => {}
                (Wish::Change, _) => continue,
            }
            count += 1;
        }
        if count == 0 { Err(ErrorCause::SessionContextNotFound) } else { Ok(count) }
    }
}

fn address(kind: u8, value: &[u8]) -> Option<IpAddr> {
    if kind == attribute::NAS_IP_ADDRESS {
        return <[u8; 4]>::try_from(value).ok().map(Into::into);
    }
    <[u8; 16]>::try_from(value).ok().map(Into::into)
}

/// True if this host has the address.
fn is_own(address: IpAddr) -> bool {
    !address.is_unspecified() && StdSocket::bind((address, 0)).is_ok()
}

/// Requests that were dealt with, and their answers.
#[derive(Debug, Default)]
struct Answered {
    /// By their authenticators, and until when.
    known: HashMap<[u8; 16], (Instant, Vec<u8>)>,
    /// When it was last told that something is dropped.
    warned: Option<Instant>,
}

impl Answered {
    /// The answer, if the request has come before.
    fn find(&self, authenticator: &[u8; 16]) -> Option<Vec<u8>> {
        let (until, answer) = self.known.get(authenticator)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    fn may_warn(&mut self) -> bool {
        let due = self.warned.is_none_or(|last| last.elapsed() >= BETWEEN_WARNINGS);
        if due {
            self.warned = Some(Instant::now());
        }
        due
    }

    /// True if one more can be remembered.
    fn has_room(&mut self) -> bool {
        if self.known.len() >= REMEMBERED {
            let now = Instant::now();
            self.known.retain(|_, (until, _)| *until > now);
        }
        self.known.len() < REMEMBERED
    }

    fn remember(&mut self, authenticator: [u8; 16], answer: Vec<u8>, keep: Duration) {
        self.known.insert(authenticator, (Instant::now() + keep, answer));
    }
}

#[cfg(test)]
mod tests;
