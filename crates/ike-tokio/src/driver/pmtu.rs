//! Reports path MTUs to the engine: once when a path is first used for large messages, and again soon after a
//! large message has left. By then a router on the path may have reported a smaller MTU.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ike_proto::wire::Header;
use ike_proto::wire::registry::{ExchangeType, PayloadType};
use ike_proto::{Path, Transmit, TransmitKind, Transport};

use crate::net::path_mtu::path_mtu;
use crate::net::socket::SocketOptions;

/// Paths remembered; beyond them the older half is forgotten.
const PATHS: usize = 4096;
/// What was asked is not asked again sooner, without a reason.
const FRESH: Duration = Duration::from_secs(60);
/// After something large has left: several round trips of most paths to a narrow link.
const AFTERWARDS: Duration = Duration::from_millis(100);
/// Octets of message that every path carries.
const SMALL: usize = 500;

/// A path, without its ports.
type Ends = (IpAddr, IpAddr);

/// The paths that the engine was told of.
pub(super) struct PathMtus {
    options: SocketOptions,
    known: HashMap<Ends, Known>,
    /// Paths to be asked about again, the soonest first.
    checks: VecDeque<(Instant, Path)>,
}

struct Known {
    octets: u32,
    asked: Instant,
    /// It is in `checks`.
    waits: bool,
}

impl PathMtus {
    /// Nothing is known; `options` are those of the sockets that send.
    pub(super) fn new(options: SocketOptions) -> Self {
        Self { options, known: HashMap::new(), checks: VecDeque::new() }
    }

    /// Something is about to leave. Answers what the engine should know of its path, if that is news.
    pub(super) fn on_transmit(&mut self, now: Instant, transmit: &Transmit) -> Option<u32> {
        let Transmit { path, kind, octets, .. } = transmit;
        if path.transport == Transport::Tcp || *kind == TransmitKind::KeepAlive {
            return None;
        }
        let ends = ends(path);
        let large = octets.len() > SMALL;
        let stale = |known: &Known| now.saturating_duration_since(known.asked) >= FRESH;
        let known = self.known.get(&ends);
        // Strangers that get no SA are not worth the question.
        let mut news = None;
        if known.is_none_or(stale) && is_of_sa(transmit) {
            // What is no news to this end may have been forgotten by the engine, which has its own limit.
            let again = |known: &Known| Some(known.octets).filter(|octets| *octets > 0);
            news = self.ask(now, path).or_else(|| self.known.get(&ends).and_then(again));
        }
        if large && let Some(known) = self.known.get_mut(&ends).filter(|known| !known.waits) {
            known.waits = true;
            self.checks.push_back((now + AFTERWARDS, *path));
        }
        news
    }

    /// When a check is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.checks.front().map(|(at, _)| *at)
    }

    /// Asks again about the paths that are due; answers those that have changed.
    pub(super) fn check(&mut self, now: Instant) -> Vec<(Path, u32)> {
        let mut news = Vec::new();
        while self.next().is_some_and(|at| at <= now)
            && let Some((_, path)) = self.checks.pop_front()
        {
            if let Some(known) = self.known.get_mut(&ends(&path)) {
                known.waits = false;
            }
            news.extend(self.ask(now, &path).map(|octets| (path, octets)));
        }
        news
    }

    /// The kernel refused a datagram as too large for its path: answers what is news by that.
    pub(super) fn on_too_large(&mut self, now: Instant, path: &Path) -> Option<u32> {
        self.ask(now, path)
    }

    fn ask(&mut self, now: Instant, path: &Path) -> Option<u32> {
        let octets = path_mtu(path.local.ip(), path.remote, self.options)
            .inspect_err(|error| tracing::debug!(remote = %path.remote, %error, "path MTU unknown"))
            .ok();
        let ends = ends(path);
        if self.known.len() >= PATHS && !self.known.contains_key(&ends) {
            let mut ages: Vec<_> = self.known.values().map(|known| known.asked).collect();
            ages.sort_unstable();
            let middle = ages.get(ages.len() / 2).copied().unwrap_or(now);
            self.known.retain(|_, known| known.asked > middle);
        }
        let before = self.known.get(&ends);
        let waits = before.is_some_and(|known| known.waits);
        let said = before.map(|known| known.octets);
        // A path of which nothing could be found out is not asked about with each datagram either.
        let octets = octets.or(said).unwrap_or_default();
        self.known.insert(ends, Known { octets, asked: now, waits });
        (octets > 0 && said != Some(octets)).then_some(octets)
    }
}

fn ends(path: &Path) -> Ends {
    (path.local.ip(), path.remote.ip())
}

/// True for a message of an IKE SA, or of one that begins with it. Unprotected answers are sent to whoever
/// asks from whatever address, as are copies of IKE_SA_INIT responses.
fn is_of_sa(transmit: &Transmit) -> bool {
    let Some(header) = Header::peek(&transmit.octets) else { return false };
    match header.exchange {
        ExchangeType::IKE_SA_INIT if header.flags.response => {
            let answers = header.spi_r != 0 && header.next_payload == PayloadType::SA;
            answers && transmit.kind == TransmitKind::Ike
        }
        ExchangeType::IKE_SA_INIT => true,
        _ => matches!(header.next_payload, PayloadType::SK | PayloadType::SKF),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;

    fn transmit(remote: SocketAddr, octets: usize) -> Transmit {
        let mut message = vec![0; octets];
        message[7] = 1;
        message[15] = 1;
        message[16] = 46;
        message[17] = 0x20;
        message[18] = 35;
        message[24..28].copy_from_slice(&u32::try_from(octets).unwrap().to_be_bytes());
        let local = "127.0.0.1:500".parse().unwrap();
        let path = Path { local, remote, transport: Transport::Udp };
        Transmit { path, kind: TransmitKind::Ike, dscp: 0, octets: Arc::from(message) }
    }

    #[test]
    fn a_path_is_asked_about_once_and_again_after_something_large() {
        let now = Instant::now();
        let mut mtus = PathMtus::new(SocketOptions::default());
        let there: SocketAddr = "127.0.0.2:500".parse().unwrap();
        let told = mtus.on_transmit(now, &transmit(there, 100));
        // The MTU of lo, which not every kernel lets be more than a packet's length can say.
        assert!(told.is_some_and(|octets| octets >= 65_535), "{told:?}");
        assert_eq!(mtus.on_transmit(now, &transmit(there, 100)), None, "no news");
        assert_eq!(mtus.next(), None);
        for _ in 0..9 {
            mtus.on_transmit(now, &transmit(there, 1200));
        }
        assert_eq!(mtus.next(), Some(now + AFTERWARDS));
        assert_eq!(mtus.checks.len(), 1);
        assert_eq!(mtus.check(now + AFTERWARDS), []);
        assert_eq!(mtus.next(), None);
        let later = now + AFTERWARDS + FRESH;
        assert_eq!(mtus.on_transmit(later, &transmit(there, 100)), told, "once more");
        assert_eq!(mtus.on_transmit(later, &transmit(there, 100)), None);
    }

    #[test]
    fn strangers_and_keepalives_ask_nothing_and_memory_is_bounded() {
        let now = Instant::now();
        let mut mtus = PathMtus::new(SocketOptions::default());
        let there: SocketAddr = "127.0.0.2:500".parse().unwrap();
        let mut stranger = transmit(there, 100);
        let mut octets = stranger.octets.to_vec();
        octets[15] = 0;
        octets[18] = 34;
        octets[19] = 0x20;
        stranger.octets = Arc::from(octets);
        assert_eq!(mtus.on_transmit(now, &stranger), None);
        // INVALID_IKE_SPI, and an IKE_SA_INIT response that is sent again, to wherever the request came from.
        let octet = |place: usize, value: u8, kind: TransmitKind| {
            let mut octets = transmit(there, 100).octets.to_vec();
            (octets[16], octets[19], octets[place]) = (33, 0x20, value);
            Transmit { octets: Arc::from(octets), kind, ..transmit(there, 100) }
        };
        let unprotected = octet(16, 41, TransmitKind::Ike);
        assert_eq!(mtus.on_transmit(now, &unprotected), None);
        let again = octet(18, 34, TransmitKind::Retransmission);
        assert_eq!(mtus.on_transmit(now, &again), None);
        let keepalive = Transmit { kind: TransmitKind::KeepAlive, ..transmit(there, 100) };
        assert_eq!(mtus.on_transmit(now, &keepalive), None);
        assert_eq!(mtus.known.len(), 0);
        for n in 0..5000u32 {
            let [_, a, b, c] = n.to_be_bytes();
            let there = SocketAddr::new([127, a, b, c].into(), 500);
            mtus.on_transmit(now + Duration::from_micros(n.into()), &transmit(there, 100));
        }
        assert!(mtus.known.len() <= PATHS);
    }
}
