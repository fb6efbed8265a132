//! The client of RADIUS servers (RFC 2865): which server is asked, how many exchanges run at a time, and what an
//! Access-Accept grants ([`grants`]).

pub(crate) mod grants;

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::eap::radius::MAX_PACKET;
use ike_config::RadiusOptions;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::coverage::Coverage;

/// The RADIUS servers of one configuration, and what this end remembers of them: the server in use, and the identifier
/// of the next request.
#[derive(Debug, Default)]
pub struct RadiusClient {
    /// `[charon.plugins.eap-radius]`.
    pub(crate) options: RadiusOptions,
    /// The server that answered last.
    pub(crate) current: AtomicUsize,
    pub(crate) identifier: AtomicU8,
    /// When the log last had a server that does not answer.
    pub(crate) warned: Mutex<Option<Instant>>,
    /// Shared with the configurations before this one, once it is in force.
    pub(crate) limits: Mutex<Arc<ExchangeLimits>>,
}

impl RadiusClient {
    /// A client of the servers in `options`. The first server is asked first.
    pub fn new(options: RadiusOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The address at which servers may ask about sessions.
    pub(crate) fn listens_for_dae(&self) -> Option<SocketAddr> {
        Some(self.options.dae.as_ref()?.listen)
    }
}

/// How many exchanges run at a time: each has a socket. The others wait in order.
#[derive(Debug)]
pub(crate) struct ExchangeLimits {
    all: Semaphore,
    /// Accounting has a limit of its own: if its server is dead, half of the exchanges are left to logins.
    accounts: Semaphore,
    coverage: Arc<Coverage>,
}

impl ExchangeLimits {
    /// With the children of `coverage`, which may hold packets to the servers.
    pub(crate) fn new(coverage: Arc<Coverage>) -> Self {
        let (all, accounts) = (Semaphore::new(EXCHANGES), Semaphore::new(EXCHANGES / 2));
        Self { all, accounts, coverage }
    }
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
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

impl RadiusClient {
    /// True once in a while, because every conversation finds the same server dead. Notes the time.
    pub(crate) fn may_warn(&self) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = warned.is_none_or(|last| last.elapsed() >= BETWEEN_WARNINGS);
        if due {
            *warned = Some(Instant::now());
        }
        due
    }

    /// Its exchanges count for `limits`, with those of the configurations before it.
    pub(crate) fn join(&self, limits: &Arc<ExchangeLimits>) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(limits);
    }

    /// The limits for its exchanges.
    pub(crate) fn limits(&self) -> Arc<ExchangeLimits> {
        Arc::clone(&self.limits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for its turn, then sends `datagram` to `address` until `judge` takes what comes from there, or nobody
    /// answers in time.
    pub(crate) async fn exchange<T>(
        &self,
        purpose: Purpose,
        address: SocketAddr,
        datagram: &[u8],
        mut judge: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<T, Unanswered> {
        let busy = |_| Unanswered::Busy;
        let limits = self.limits();
        let _turns = match purpose {
            Purpose::Login => {
                let turn = tokio::time::timeout(PATIENCE, limits.all.acquire()).await;
                (None, turn.map_err(|_| Unanswered::Busy)?.map_err(busy)?)
            }
            Purpose::Account => {
                let own = limits.accounts.acquire().await.map_err(busy)?;
                (Some(own), limits.all.acquire().await.map_err(busy)?)
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
        let mut why = "no answer";
        for _ in 0..=self.options.retransmit_tries {
            // An ICMP error about the packet before would be reported here. What is left are errors of this host's own.
            _ = socket.take_error();
            let sent = socket.send(datagram).await;
            let end = Instant::now() + timeout;
            if sent.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
                why = REJECTED;
                tokio::time::sleep(SHORTLY).await;
                continue;
            }
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                let mut buffer = vec![0; MAX_PACKET + 1];
                let Ok(received) = tokio::time::timeout(left, socket.recv(&mut buffer)).await
                else {
                    break;
                };
                let len = match received {
                    Ok(len) => len,
                    // The data plane in user space says so by ICMP.
                    Err(error) if is_refusal(&error) && limits.coverage.holds(address.ip()) => {
                        why = REJECTED;
                        tokio::time::sleep(SHORTLY).await;
                        break;
                    }
                    Err(_) => {
                        // A server that restarts is unreachable for a moment, and anybody can forge this message: the
                        // answer may still come.
                        tokio::time::sleep(SHORTLY.min(left)).await;
                        continue;
                    }
                };
                if let Some(taken) = judge(buffer.get(..len).unwrap_or_default()) {
                    return Ok(taken);
                }
            }
            timeout = timeout.mul_f64(self.options.retransmit_base);
        }
        Err(Unanswered::Server(why))
    }
}

fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::PermissionDenied)
}

const REJECTED: &str = "packets to the server are rejected: a tunnel that covers it may be down";
/// How long until the next try if this host rejects packets.
const SHORTLY: Duration = Duration::from_millis(50);

/// Exchanges with RADIUS servers at a time.
pub(crate) const EXCHANGES: usize = 256;
/// How long a login waits for its turn: the peer waits meanwhile, and this end keeps its half-open SA.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the log has a server that does not answer.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(crate) mod fake;
