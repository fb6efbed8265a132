//! One log line per event. Identities print escaped, and nothing else of the peer's is printed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use ike_proto::dataplane::TrafficSelector;
use ike_proto::wire::payload::IdData;
use ike_proto::{
    BothSelectors, ChildSaId, Endpoint, Event, Failure, Hint, IkeSaId, Path, PeerRefused,
    Transport, UsedAuth,
};
use tracing::{debug, info, warn};

use super::questions::Peer;

const SECOND: Duration = Duration::from_secs(1);

/// Lines left out are summed up for so long: a lasting flood makes one line per cause each time.
const SUMMARY: Duration = Duration::from_secs(10);

/// Lines a second that somebody without a key can cause.
const LINES: u32 = 20;

/// The same refusal is not logged again for so long.
const SAME_AGAIN: Duration = Duration::from_secs(10);

/// What a line is about that somebody without a key can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    ChildRefused,
    NotEstablished,
    InitRefused,
    TokenGiven,
    ConnectionClosed,
    KeyRefused,
    LargeUnanswered,
    NotSent,
    PeerRefused,
    SelectorsTooWide,
    TicketRefused,
}

impl Cause {
    fn text(self) -> &'static str {
        match self {
            Self::ChildRefused => "Child SA refused",
            Self::NotEstablished => "IKE SA not established",
            Self::InitRefused => "IKE_SA_INIT refused",
            Self::TokenGiven => "QCD token given",
            Self::ConnectionClosed => "TCP connection closed",
            Self::KeyRefused => "key refused",
            Self::LargeUnanswered => "large message unanswered",
            Self::NotSent => "not sent",
            Self::PeerRefused => "peer refused",
            Self::SelectorsTooWide => "selectors too wide",
            Self::TicketRefused => "ticket refused",
        }
    }
}

/// Writes the log of a driver.
#[derive(Debug, Default)]
pub(super) struct Log {
    second: Option<Instant>,
    lines: u32,
    /// Lines left out since, by cause.
    suppressed: BTreeMap<Cause, u32>,
    suppressed_since: Option<Instant>,
    /// The peer refused last, and when. The end of its IKE SA needs no line of its own, nor does the
    /// same refusal again: initiators ask twice.
    refused: Option<(Instant, PeerRefused)>,
}

impl Log {
    /// Logs an event of the engine.
    pub(super) fn event(&mut self, now: Instant, event: &Event, endpoint: &Endpoint) {
        match event {
            Event::Done(request, Ok(())) => debug!(request = request.0, "command done"),
            // A command may ask only whether there is something to end, as `down` does for tickets.
            Event::Done(request, Err(Failure::NotFound)) => {
                debug!(request = request.0, "command names no existing connection, child or SA");
            }
            Event::Done(request, Err(why)) => info!(request = request.0, %why, "command failed"),
            Event::IkeUp(ike) => ike_up(*ike, endpoint),
            // The module that assigns or installs addresses logs them.
            Event::Assigned(_) | Event::Unassigned(_) => {}
            Event::WithoutPpk(ike) => {
                warn!(
                    ike = ike.0,
                    "IKE SA is without the configured PPK; configure the PPK at the peer, or set ppk_required = true \
                     to refuse such IKE SAs"
                );
            }
            Event::IkeDown { ike, connection, established: true, reason } => {
                info!(ike = ike.0, %connection, %reason, "IKE SA down");
            }
            Event::PeerRefused(refused) => self.peer_refused(now, refused),
            Event::InitRefused { path, why } => {
                if self.allowed(now, Cause::InitRefused) {
                    warn!(remote = %path.remote, local = %path.local, why, "IKE_SA_INIT refused");
                }
            }
            Event::TicketRefused { path, client: true, why } => {
                let why = why.to_string();
                info!(remote = %path.remote, why, "ticket not taken; going on with IKE_SA_INIT");
            }
            Event::TicketRefused { path, client: false, why } => {
                if self.allowed(now, Cause::TicketRefused) {
                    let why = why.to_string();
                    info!(remote = %path.remote, local = %path.local, why, "ticket refused");
                }
            }
            Event::ChildRefused { ike, remote_id, why } => {
                if self.allowed(now, Cause::ChildRefused) {
                    warn!(ike = ike.0, remote_id = %name(remote_id), why, "Child SA refused");
                }
            }
            Event::Hint(hint) => self.hint(now, hint),
            Event::IkeDown { ike, connection, established: false, reason } => {
                if !self.was_refused(*ike) && self.allowed(now, Cause::NotEstablished) {
                    info!(ike = ike.0, %connection, %reason, "IKE SA not established");
                }
            }
            Event::IkeRekeyed { old, new } => info!(old = old.0, new = new.0, "IKE SA rekeyed"),
            Event::ChildUp { ike, child } => child_up(*ike, *child, endpoint),
            Event::ChildRekeyed { ike, old, new } => {
                info!(ike = ike.0, old = old.0, new = new.0, "Child SA rekeyed");
            }
            Event::ChildDown { ike, child, name, reason } => {
                info!(ike = ike.0, child = child.0, %name, %reason, "Child SA down");
            }
            Event::ChildFailed { ike, name, reason } => {
                warn!(ike = ike.0, %name, %reason, "Child SA failed");
            }
            Event::Acquire { connection, child, packet } => {
                let (local, remote) = (packet.local, packet.remote);
                debug!(%connection, %child, %local, %remote, "packet matches a trap");
            }
            Event::PathChanged { ike, path } => {
                info!(
                    ike = ike.0,
                    local = %local(path),
                    remote = %path.remote,
                    transport = path.transport.protocol(),
                    "path of the IKE SA changed"
                );
            }
            Event::TransportChanged { connection, path } => match path.transport {
                Transport::Tcp => {
                    info!(%connection, remote = %path.remote, "no answer over UDP, trying TCP");
                }
                Transport::Udp | Transport::UdpEncap => {
                    info!(%connection, remote = %path.remote, "no connection over TCP, trying UDP");
                }
            },
            Event::Unique { ike, local, remote } => {
                debug!(ike = ike.0, %local, %remote, "IKE SA is the only one of its peer");
            }
            Event::Notice(ike, notice) => debug!(ike = ike.0, ?notice, "notice for another shard"),
            Event::Restart { connection, child, .. } => {
                debug!(%connection, %child, "child is to be started again");
            }
            Event::StartsAgain { connection, child, after, careful, reason } => {
                let what = what(connection, child.as_deref());
                if *careful {
                    let seconds = after.as_secs().max(1);
                    warn!(
                        "{what} is started again in {seconds} s: {reason}; a server that counts refused passwords \
                         may lock the account: correct the password and run ike-daemon up, or set keyingtries = 1"
                    );
                } else if after.is_zero() {
                    info!("{what} is started again now: {reason}");
                } else {
                    info!("{what} is started again in {} s: {reason}", after.as_secs().max(1));
                }
            }
            Event::GivenUp { connection, child, reason } => {
                let what = what(connection, child.as_deref());
                warn!("{what} is not started again: {reason}; {}", remedy(reason));
            }
            Event::Trap { connection, child, .. } => {
                debug!(%connection, %child, "trap is to be installed")
            }
            Event::TokenGiven { path } => {
                if self.allowed(now, Cause::TokenGiven) {
                    info!(remote = %path.remote, "the peer is told that its IKE SA is gone (QCD)");
                }
            }
            Event::Dropped { path, why } => {
                debug!(remote = %path.remote, why = why.text(), "message dropped")
            }
        }
    }

    /// Logs a hint for the operator, though nothing has failed.
    fn hint(&mut self, now: Instant, hint: &Hint) {
        match hint {
            Hint::SelectorsTooWide { ike, child, answered, used } => {
                if self.allowed(now, Cause::SelectorsTooWide) {
                    warn!(
                        ike = ike.0,
                        %child,
                        answered = %both(answered),
                        used = %both(used),
                        "the peer's traffic selectors are wider than the request; the child has their intersection; \
                         check the configuration of both ends"
                    );
                }
            }
            Hint::LargeUnanswered { ike, remote, exchange, octets } => {
                if self.allowed(now, Cause::LargeUnanswered) {
                    warn!(
                        ike = ike.0,
                        %remote,
                        %exchange,
                        octets,
                        "a large message got no answer, though a small one did; raise the peer's limit (strongSwan: \
                         charon.max_packet, 10000 by default), or look for a firewall that drops fragments"
                    );
                }
            }
        }
    }

    /// Logs that a datagram could not be sent. A retransmission makes up for it.
    pub(super) fn not_sent(&mut self, now: Instant, path: &Path, error: &io::Error) {
        if self.allowed(now, Cause::NotSent) {
            warn!(local = %path.local, remote = %path.remote, %error, "message not sent");
        }
    }

    /// Logs that a TCP connection could not be opened, or has ended, against the engine's will.
    pub(super) fn stream_closed(&mut self, now: Instant, path: &Path, why: &str) {
        if self.allowed(now, Cause::ConnectionClosed) {
            info!(remote = %path.remote, why, "TCP connection closed");
        }
    }

    /// Logs why a peer was refused. The peer learns only that it was refused.
    fn peer_refused(&mut self, now: Instant, refused: &PeerRefused) {
        let known = self.refused.replace((now, refused.clone())).is_some_and(|(at, other)| {
            now.saturating_duration_since(at) < SAME_AGAIN && same(&other, refused)
        });
        let PeerRefused { ike, path, connection, local_id, remote_id, why, .. } = refused;
        if !known && self.allowed(now, Cause::PeerRefused) {
            warn!(
                ike = ike.0,
                remote = %path.remote,
                remote_id = %name(remote_id),
                local_id = %name(local_id),
                %connection,
                why = why.to_string(),
                "peer refused"
            );
        }
    }

    fn was_refused(&self, ike: IkeSaId) -> bool {
        self.refused.as_ref().is_some_and(|(_, refused)| refused.ike == ike)
    }

    /// Logs why one connection's question about a certificate or key was answered with no. Once no
    /// connection takes it, the peer is refused with a line of its own.
    pub(super) fn refused(&mut self, now: Instant, peer: &Peer, why: &str) {
        if self.allowed(now, Cause::KeyRefused) {
            let Peer { connection, id } = peer;
            debug!(%connection, remote_id = %id, why, "key refused");
        }
    }

    /// True if one more line may be written whose cause can be a spoofed datagram.
    fn allowed(&mut self, now: Instant, cause: Cause) -> bool {
        if self.second.is_none_or(|second| now.saturating_duration_since(second) >= SECOND) {
            (self.second, self.lines) = (Some(now), 0);
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines > LINES {
            let count = self.suppressed.entry(cause).or_default();
            *count = count.saturating_add(1);
            self.suppressed_since.get_or_insert(now);
            return false;
        }
        true
    }

    /// When the summary of suppressed lines is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.suppressed_since.map(|since| since + SUMMARY)
    }

    /// Logs the number of suppressed lines by cause, if that is due. Returns their total.
    pub(super) fn summarise(&mut self, now: Instant) -> u32 {
        if self.next().is_none_or(|due| now < due) {
            return 0;
        }
        self.suppressed_since = None;
        let mut all = 0_u32;
        for (cause, count) in std::mem::take(&mut self.suppressed) {
            info!(cause = cause.text(), "{count} more suppressed");
            all = all.saturating_add(count);
        }
        all
    }
}

fn same(a: &PeerRefused, b: &PeerRefused) -> bool {
    let ids = |refused: &PeerRefused| (refused.local_id.clone(), refused.remote_id.clone());
    a.path.remote == b.path.remote
        && a.connection == b.connection
        && a.why == b.why
        && ids(a) == ids(b)
}

fn name(id: &Option<IdData>) -> String {
    id.as_ref().map_or_else(|| "unknown".to_owned(), IdData::to_string)
}

/// Traffic selectors as they are written elsewhere.
fn both((local, remote): &BothSelectors) -> String {
    let side = |ts: &[TrafficSelector]| {
        let texts: Vec<_> = ts.iter().map(TrafficSelector::to_string).collect();
        texts.join(" ")
    };
    format!("{} === {}", side(local), side(remote))
}

fn ike_up(id: IkeSaId, endpoint: &Endpoint) {
    // Nothing is gathered for a line that is not written.
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let Some(ike) = endpoint.ike_sa(id) else { return };
    info!(
        ike = id.0,
        connection = %ike.connection,
        local = %local(&ike.path),
        local_id = %name(&ike.local_id),
        remote = %ike.path.remote,
        remote_id = %name(&ike.remote_id),
        remote_auth = %Rounds(&ike.remote_auth),
        transport = ike.path.transport.protocol(),
        resumed = ike.resumed,
        ms = ike.setup_time.map_or(0, |time| time.as_millis() as u64),
        "IKE SA established"
    );
}

/// This end of `path`. What the engine calls a TCP connection that it opened has no port of this end.
fn local(path: &Path) -> String {
    match path.transport {
        Transport::Tcp => path.local.ip().to_string(),
        Transport::Udp | Transport::UdpEncap => path.local.to_string(),
    }
}

/// By what, and with which certificate, each round was done.
struct Rounds<'a>(&'a [UsedAuth]);

impl fmt::Display for Rounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, used) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            match (used.scheme.clone(), used.eap.as_ref().map(|eap| &eap.method)) {
                (Some(scheme), _) => write!(f, "{scheme}")?,
                (None, Some(eap)) => f.write_str(eap)?,
                (None, None) => write!(f, "{}", used.method)?,
            }
            if let Some(certificate) = &used.certificate
                && !certificate.subject.is_empty()
            {
                write!(f, " ({:?})", certificate.subject)?;
            }
        }
        Ok(())
    }
}

fn child_up(ike: IkeSaId, child: ChildSaId, endpoint: &Endpoint) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let Some(status) = endpoint.ike_sa(ike) else { return };
    let Some(c) = status.children.iter().find(|c| c.id == child) else { return };
    info!(
        ike = ike.0,
        child = child.0,
        name = %c.name,
        spi_in = format_args!("{:08x}", c.inbound.spi),
        spi_out = format_args!("{:08x}", c.outbound.spi),
        local_ts = ?c.local_ts,
        remote_ts = ?c.remote_ts,
        "Child SA up"
    );
}

/// What the operator can do about a child that is not started again (docs/lifecycle.md).
fn remedy(reason: &Failure) -> &'static str {
    match reason {
        Failure::DeletedByPeer => "set close_action = start to start it again",
        Failure::Inactive => "raise inactivity to keep it up",
        _ => "set keyingtries = 0 to start it again",
    }
}

/// A connection, or a child of it, as sentences name it.
fn what(connection: &str, child: Option<&str>) -> String {
    match child {
        Some(child) => format!("connection {connection}: child {child}"),
        None => format!("connection {connection}"),
    }
}

#[cfg(test)]
mod tests {
    use ike_proto::{Disbelief, DropReason};

    use super::*;

    /// `keyingtries` does not bring back what the peer deletes; docs/lifecycle.md has the table.
    ///
    /// Fault: in `remedy`, answer as for any other reason.
    #[test]
    fn a_child_that_stays_down_is_blamed_on_the_option_that_decides() {
        assert!(remedy(&Failure::DeletedByPeer).contains("close_action"));
        assert!(remedy(&Failure::Inactive).contains("inactivity"));
        for reason in [Failure::Timeout, Failure::Authentication] {
            assert!(remedy(&reason).contains("keyingtries"), "{reason}");
        }
    }

    #[test]
    fn a_refusal_is_told_once() {
        let start = crate::clock::now().mono;
        let remote = "192.0.2.1:500".parse().unwrap();
        let local = "192.0.2.2:500".parse().unwrap();
        let path = Path { local, remote, transport: Transport::Udp };
        let refused = |ike, why: Disbelief| PeerRefused {
            ike: IkeSaId(ike),
            path,
            connection: "site".to_owned(),
            local_id: None,
            remote_id: None,
            distrust: None,
            why,
        };
        let mut log = Log::default();
        let mut lines = |ike, why: Disbelief, ms| {
            log.peer_refused(start + Duration::from_millis(ms), &refused(ike, why));
            assert!(log.was_refused(IkeSaId(ike)));
            log.lines
        };
        assert_eq!(lines(1, Disbelief::WrongPsk, 0), 1);
        assert_eq!(lines(2, Disbelief::WrongPsk, 10), 1, "asked twice");
        assert_eq!(lines(3, Disbelief::NoConnection, 20), 2);
    }

    #[test]
    fn lines_that_are_not_written_are_not_formatted() {
        use ike_tests::{Pair, heap};

        assert!(heap::begin());
        let pair = Pair::established(1);
        let responder = pair.b();
        let (ike, path) = (responder.ike().id, responder.ike().path);
        let mut events = responder.events(|event| Some(event.clone()));
        events.extend([
            Event::Dropped { path, why: DropReason::Malformed },
            Event::PathChanged { ike, path },
            Event::IkeRekeyed { old: ike, new: ike },
        ]);
        for wanted in ["IkeUp", "ChildUp", "Dropped"] {
            assert!(
                events.iter().any(|event| format!("{event:?}").starts_with(wanted)),
                "{wanted}"
            );
        }
        let allocated = |level: tracing::Level| {
            let subscriber = tracing_subscriber::fmt().with_max_level(level);
            let subscriber = subscriber.with_writer(io::sink).finish();
            tracing::subscriber::with_default(subscriber, || {
                let (mut log, now) = (Log::default(), crate::clock::now().mono);
                let mut all = || {
                    let before = heap::allocations();
                    events.iter().for_each(|event| log.event(now, event, &responder.endpoint));
                    heap::allocations() - before
                };
                // The first time the lines make themselves known to the subscriber.
                all();
                all()
            })
        };
        assert_eq!(allocated(tracing::Level::ERROR), 0);
        assert!(allocated(tracing::Level::INFO) > 0, "what is written is");
    }

    #[test]
    fn a_flood_writes_few_lines() {
        let start = crate::clock::now().mono;
        let mut log = Log::default();
        let at = |ms| start + Duration::from_millis(ms);
        let allowed = |log: &mut Log, ms: u64| log.allowed(at(ms), Cause::PeerRefused);
        assert_eq!((0..1000).filter(|_| allowed(&mut log, 5)).count(), LINES as usize);
        assert!(!allowed(&mut log, 999));
        assert!(allowed(&mut log, 1005));
        // What was left out is told once, ten seconds later.
        assert_eq!(log.next(), Some(at(10_005)));
        assert_eq!(log.summarise(at(10_004)), 0);
        assert_eq!(log.summarise(at(10_005)), 1000 - LINES + 1);
        assert_eq!((log.next(), log.summarise(at(30_000))), (None, 0));
    }
}
