//! How the messages of one IKE SA travel: paths, keys, message window, timers, fragments. It knows no exchange, and no
//! state of the SA.
//!
//! [`Channel::receive`] makes a message of datagrams, and [`Channel::accept`] takes it into the window.
//! [`Channel::request`] and [`Channel::respond`] send one. [`Channel::on_timer`] and [`Channel::finish`] send what is
//! due.

mod answer_path;
mod deadlines;
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
pub(crate) mod probing;
mod proving;
mod reassembly;
mod refragment;
mod roaming;
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
pub(crate) use deadlines::Deadlines;
use fragment_ack::FragmentAcks;
use io::Io;
pub(crate) use link::{Extensions, PpkPlace, Twin};
use link::{Link, NewLink};
use memory::Kept;
pub(crate) use moving::Whereabouts;
pub(crate) use nat::NatStatus;
pub(crate) use open::Received;
use pmtu::Probe;
use proving::Proving;
use reassembly::Reassembly;
use roaming::Roaming;
pub(crate) use route::EspMove;
use route::Route;
use rtt::Rtt;
pub(crate) use send::Unsent;
pub(crate) use session::{Session, SessionKeys};
use timer::{Timer, TimerKey, TimerTable};
use window::{Retransmit, Window};

/// How the messages of an IKE SA travel: paths, keys, message window, timers, fragments. It knows no exchange.
pub(crate) struct Channel {
    /// What it knows of the SA and of the peer.
    link: Link,
    /// Its paths.
    route: Route,
    session: Session,
    window: Window,
    timers: TimerTable,
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

    // ---- its parts, to read ----

    /// The connection. Until the peer is authenticated, the most likely one.
    pub(crate) fn connection(&self) -> &Arc<ConnectionConfig> {
        self.link.connection()
    }

    /// What it knows of the SA and of the peer.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Its paths.
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Its keys and algorithms.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Its requests and responses.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Its soonest deadline.
    pub(crate) fn next_deadline(&self) -> Option<(Instant, TimerKey)> {
        self.timers.next()
    }

    // ---- views, to change ----

    /// For what authentication changes.
    pub(crate) fn proving(&mut self) -> Proving<'_> {
        Proving { link: &mut self.link, route: &mut self.route, session: &mut self.session }
    }

    /// For what the route is told.
    pub(crate) fn roaming(&mut self) -> Roaming<'_> {
        Roaming { link: &self.link, route: &mut self.route }
    }

    /// For its deadlines.
    pub(crate) fn deadlines(&mut self) -> Deadlines<'_> {
        Deadlines::of(&mut self.timers)
    }

    // ---- its window ----

    /// Begins after IKE_SA_INIT, with the round trip times that were measured there.
    pub(crate) fn begin_after_init(&mut self, io: &Io<'_>, measured: Option<Rtt>) {
        self.window = Window::after_init(io.config.retransmission, self.link.is_initiator());
        if let Some(rtt) = measured {
            self.window.inherit(rtt);
        }
    }

    /// Handles that IKE_SA_INIT had two responses.
    pub(crate) fn on_init_answered_twice(&mut self) {
        self.window.on_init_answered_twice();
    }

    /// Has the window know whether the peer acknowledges fragments.
    pub(crate) fn settle_acks(&mut self) {
        self.window.set_fragment_acks(self.link.surely_acknowledged());
    }

    /// Does not wait for the response to the request in flight.
    pub(crate) fn abandon_request(&mut self) {
        self.window.abandon_request();
    }

    /// Takes the last answer out of an SA that is gone.
    pub(crate) fn take_answered(&mut self) -> Option<window::Answered> {
        self.window.take_answered()
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
            Timer::Reopen => self.route.reopen(io),
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
}
