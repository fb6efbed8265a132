//! How the messages of one IKE SA travel: paths, keys, message window, timers, fragments. It knows no exchange, and no
//! state of the SA.
//!
//! [`Channel::receive`] makes a message of datagrams, and [`Channel::accept`] takes it into the window.
//! [`Channel::request`] and [`Channel::respond`] send one. [`Channel::on_timer`] and [`Channel::finish`] send what is
//! due.

mod answer_path;
pub(crate) mod flight;
mod fragment_ack;
pub(crate) mod io;
mod keeping;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod mobike;
mod moving;
pub(crate) mod nat;
mod open;
pub(crate) mod pmtu;
mod reassembly;
mod refragment;
mod route;
pub(crate) mod rtt;
mod send;
mod session;
pub(crate) mod stream;
pub(crate) mod timer;
pub(crate) mod window;

use std::sync::Arc;
use std::time::Instant;

use crate::config::ConnectionConfig;
use crate::event::{Event, Hint, IkeSaId, Output, Path, Transmit, TransmitKind};
use crate::keys::Spis;
use fragment_ack::FragmentAcks;
use io::Io;
pub(crate) use link::{Extensions, PpkPlace, Twin};
use link::{Link, NewLink};
use memory::Kept;
pub(crate) use moving::Whereabouts;
pub(crate) use nat::NatStatus;
pub(crate) use open::Received;
use pmtu::Probe;
use reassembly::Reassembly;
pub(crate) use route::EspMove;
use route::Route;
pub(crate) use send::Unsent;
pub(crate) use session::{Session, SessionKeys};
use timer::{Timer, TimerKey, TimerTable};
use window::{Retransmit, Window};

/// How the messages of an IKE SA travel: paths, keys, message window, timers, fragments. It knows no exchange.
pub(crate) struct Channel {
    /// What it knows of the SA and of the peer.
    pub(crate) link: Link,
    /// Its paths.
    pub(crate) route: Route,
    pub(crate) session: Session,
    pub(crate) window: Window,
    pub(crate) timers: TimerTable,
    /// When the last authentic message of the peer came.
    last_heard: Instant,
    /// What the SA has found out about the size of datagrams.
    probe: Probe,
    requests: Reassembly,
    responses: Reassembly,
    acks: FragmentAcks,
    /// Digest of the request in progress, or of its first fragment.
    request_digest: u64,
    /// Octets of the peer's messages that are kept until there is a verdict. They are taken from the budget.
    kept: Kept,
}

/// The data from which the channel of a new IKE SA is made.
pub(crate) struct NewChannel {
    pub(crate) id: IkeSaId,
    pub(crate) initiator: bool,
    pub(crate) spis: Spis,
    pub(crate) path: Path,
    pub(crate) nat: NatStatus,
    pub(crate) extensions: Extensions,
    pub(crate) connection: Arc<ConnectionConfig>,
    pub(crate) session: Session,
    pub(crate) started: Instant,
}

/// What the channel leaves to the SA when a request has no response.
pub(crate) enum Stalled {
    /// The request was sent again.
    Repeated,
    /// The time for the response is over.
    Unanswered,
}

impl Channel {
    /// The channel of a new SA.
    pub(crate) fn new(io: &Io<'_>, new: NewChannel) -> Self {
        let NewChannel { id, initiator, spis, path, nat, extensions, connection, session, started } =
            new;
        Self {
            link: Link::new(NewLink { id, initiator, spis, connection, extensions, started }),
            route: Route::new(path, nat),
            session,
            window: Window::new(io.config.retransmission),
            timers: TimerTable::default(),
            last_heard: io.now.mono,
            probe: Probe::default(),
            requests: Reassembly::new(io.config.max_packet),
            responses: Reassembly::new(io.config.max_packet),
            acks: FragmentAcks::default(),
            request_digest: 0,
            kept: Kept::default(),
        }
    }

    /// When the last authentic message of the peer came.
    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Handles that `timer` is due, which is one of the channel.
    pub(crate) fn on_timer(&mut self, io: &mut Io<'_>, timer: Timer) -> Option<Stalled> {
        match timer {
            Timer::Pace => self.pace(io),
            Timer::Retransmit => return self.on_retransmit(io),
            Timer::Reassembly => {
                self.requests.release(io.budget);
                self.responses.release(io.budget);
            }
            Timer::Acknowledge => self.acknowledge(io),
            Timer::KeepAlive => {
                let octets = Arc::from([0xff].as_slice());
                let (kind, path) = (TransmitKind::KeepAlive, self.route.esp_path());
                let dscp = self.link.connection().dscp;
                io.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
                self.arm_keepalive(io);
            }
            Timer::Reopen => self.reopen(io),
            Timer::Forget => {
                self.window.forget_answer();
                self.acks.forget();
                self.timers.trim();
            }
            _ => debug_assert!(false, "a timer that is not the channel's: {timer:?}"),
        }
        None
    }

    fn on_retransmit(&mut self, io: &mut Io<'_>) -> Option<Stalled> {
        if self.try_smaller(io) {
            return None;
        }
        match self.window.retransmit(io.now.mono, io.rng) {
            // The schedule continues without sending, and ends when it would over UDP.
            Retransmit::Again if self.route.path.transport.is_reliable() => {
                self.window.hold_request();
                if self.route.stream.as_ref().is_some_and(|stream| stream.asks_again(io.now.mono)) {
                    self.send_again(io);
                }
                None
            }
            Retransmit::Again => {
                self.pace(io);
                if let Some((exchange, octets)) = self.window.large_unanswered() {
                    let (ike, remote) = (self.link.id(), self.route.path.remote);
                    let hint = Hint::LargeUnanswered { ike, remote, exchange, octets };
                    io.event(Event::Hint(Box::new(hint)));
                }
                Some(Stalled::Repeated)
            }
            Retransmit::GiveUp => Some(Stalled::Unanswered),
            Retransmit::Nothing => None,
        }
    }

    /// Ends an input: sends what is due, and sets the timers of what is still to be sent.
    pub(crate) fn finish(&mut self, io: &mut Io<'_>) {
        self.pace(io);
        let due = self.window.next_retransmit();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Retransmit), due);
        let due = self.window.next_departure(io.now.mono);
        self.timers.set_or_clear(TimerKey::Ike(Timer::Pace), due);
        let acknowledges = self.link.acknowledges().is_some();
        let due = acknowledges.then(|| self.acks.due(self.window.rtt())).flatten();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Acknowledge), due);
    }

    /// Sends the rest of what was paced, and gives back what it keeps of the peer.
    pub(crate) fn close(&mut self, io: &mut Io<'_>) {
        self.let_go(io, self.kept);
        self.requests.release(io.budget);
        self.responses.release(io.budget);
        while let Some((to, departure)) = self.window.take_rest() {
            self.depart(io, to, departure);
        }
        self.timers.clear_all();
    }

    /// Has the SA end at `at` if it is still half-open. `None` if it is not, or waits for this end.
    pub(crate) fn limit_half_open(&mut self, at: Option<Instant>) {
        self.timers.set_or_clear(TimerKey::Ike(Timer::HalfOpen), at);
    }

    /// Has the SA end at `at`, or sooner, if it is still half-open.
    pub(crate) fn hasten_half_open(&mut self, at: Instant) {
        let key = TimerKey::Ike(Timer::HalfOpen);
        self.timers.set(key, self.timers.get(key).map_or(at, |before| before.min(at)));
    }
}
