//! A thread that makes handshakes from a few sockets of its own.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ike_proto::{Input, Path, Transport};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

use super::initiator::{Initiator, Step, Template};
use super::phase::{Next, Outcomes, Phase};

/// Octets of non-ESP marker (RFC 3948 §2.2).
const MARKER: [u8; 4] = [0; 4];
/// The kernel is asked for so much room for datagrams that wait.
const RECEIVE: usize = 8 << 20;
/// So long handshakes and deletes that are under way may go on after a stop.
const GRACE: Duration = Duration::from_secs(1);
/// No wait is longer, so that a stop is heard.
const NAP: Duration = Duration::from_millis(50);

/// How a worker does it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Handshakes at a time.
    pub concurrency: usize,
    /// After so long one has failed.
    pub give_up: Duration,
    /// Delete SAs once they are established.
    pub tear_down: bool,
}

/// Its sockets, connected to the responder.
#[derive(Debug)]
pub struct Sockets {
    remote: SocketAddr,
    all: Vec<UdpSocket>,
    transport: Transport,
}

impl Sockets {
    /// `count` of them. Port 500 means IKE without the non-ESP marker.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(remote: SocketAddr, count: usize) -> io::Result<Self> {
        let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(any)?;
            socket.connect(remote)?;
            socket.set_nonblocking(true)?;
            // As much as the system allows; what is lost is sent again, and shows.
            let _ = SockRef::from(&socket).set_recv_buffer_size(RECEIVE);
            Ok(socket)
        };
        let all = (0..count.max(1)).map(|_| open()).collect::<io::Result<_>>()?;
        let transport = if remote.port() == 500 { Transport::Udp } else { Transport::UdpEncap };
        Ok(Self { remote, all, transport })
    }

    /// Their own addresses.
    ///
    /// # Errors
    /// As the system says.
    pub fn local(&self) -> io::Result<Vec<SocketAddr>> {
        self.all.iter().map(UdpSocket::local_addr).collect()
    }
}

struct Slot {
    initiator: Initiator,
    /// When it has failed, whatever the engine thinks.
    give_up: Instant,
    /// When the engine wants to be called, as it is in the timers.
    armed: Option<Instant>,
    /// True once it is established and its SAs are on their way out.
    deleting: bool,
}

/// Makes handshakes as `phase` wants them.
pub struct Worker<'a> {
    sockets: &'a Sockets,
    local: Vec<SocketAddr>,
    templates: &'a [Vec<Template>],
    limits: Limits,
    phase: &'a Phase,
    slots: HashMap<u64, Slot>,
    by_spi: HashMap<u64, u64>,
    timers: BTreeSet<(Instant, u64)>,
    begun: u64,
    outcomes: Outcomes,
    buffer: Vec<u8>,
}

impl<'a> Worker<'a> {
    /// A worker that has not begun.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(
        sockets: &'a Sockets,
        templates: &'a [Vec<Template>],
        limits: Limits,
        phase: &'a Phase,
    ) -> io::Result<Self> {
        Ok(Self {
            local: sockets.local()?,
            sockets,
            templates,
            limits,
            phase,
            slots: HashMap::new(),
            by_spi: HashMap::new(),
            timers: BTreeSet::new(),
            begun: 0,
            outcomes: Outcomes::default(),
            buffer: Vec::new(),
        })
    }

    /// Works until the phase is over and every handshake has ended.
    ///
    /// # Errors
    /// The sockets do not work, or nobody listens at the other end.
    pub fn run(mut self) -> Result<Outcomes, String> {
        let mut octets = vec![0; 65_536];
        let mut last = None;
        loop {
            let now = Instant::now();
            let next = self.begin_due(now)?;
            if self.phase.stopped() && *last.get_or_insert(now + GRACE) <= now {
                break;
            }
            self.timers_due(now)?;
            if next == Next::Over && self.slots.is_empty() {
                break;
            }
            let timer = self.timers.first().map(|(at, _)| *at);
            let begin = match next {
                Next::Wait(at) => Some(at),
                Next::Begin(_) | Next::Over => None,
            };
            let wake = timer.into_iter().chain(begin).min();
            let nap = wake.map_or(NAP, |at| at.saturating_duration_since(now).min(NAP));
            self.wait(nap, &mut octets)?;
        }
        let left = self.slots.values().filter(|slot| !slot.deleting).count();
        self.outcomes.unfinished += left as u64;
        self.outcomes.undeleted += (self.slots.len() - left) as u64;
        Ok(self.outcomes)
    }

    /// Begins what is due; `Next::Begin` if there was no room for more.
    fn begin_due(&mut self, now: Instant) -> Result<Next, String> {
        while self.slots.len() < self.limits.concurrency {
            let due = match self.phase.next(now) {
                Next::Begin(due) => due,
                other => return Ok(other),
            };
            let socket = (self.begun % self.sockets.all.len() as u64) as usize;
            // All of a socket's initiators in turn.
            let round = self.begun / self.sockets.all.len() as u64;
            self.begun += 1;
            let initiators = self.templates.get(socket).map_or(&[][..], Vec::as_slice);
            let index = round.checked_rem(initiators.len() as u64).unwrap_or_default();
            let Some(template) = initiators.get(index as usize) else {
                return Err("the bundle has no initiator".to_owned());
            };
            let (initiator, step) = Initiator::begin(template, due, socket);
            let id = self.begun;
            let give_up = now + self.limits.give_up;
            self.timers.insert((give_up, id));
            self.slots.insert(id, Slot { initiator, give_up, armed: None, deleting: false });
            self.follow(id, step)?;
        }
        Ok(Next::Begin(now))
    }

    fn timers_due(&mut self, now: Instant) -> Result<(), String> {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if at >= slot.give_up {
                let why = format!("no end after {} s", self.limits.give_up.as_secs_f64());
                self.ended(id, Err(why))?;
            } else if slot.armed.take_if(|armed| *armed == at).is_some() {
                let step = slot.initiator.handle(Input::Timeout);
                self.follow(id, step)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, nap: Duration, octets: &mut [u8]) -> Result<(), String> {
        let sockets = self.sockets;
        let mut fds: Vec<PollFd<'_>> =
            sockets.all.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        // Rounded up: a timer that is not yet due would be looked at again and again.
        let ms = u16::try_from(nap.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        match poll(&mut fds, PollTimeout::from(ms)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.to_string()),
        }
        for (index, socket) in sockets.all.iter().enumerate() {
            let ready = fds.get(index).and_then(PollFd::any).unwrap_or_default();
            if !ready {
                continue;
            }
            loop {
                match socket.recv(octets) {
                    Ok(length) => {
                        let received = octets.get(..length).unwrap_or_default();
                        self.datagram(index, received)?;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        self.unreachable(&error)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// An ICMP message says that nobody is there. One that comes later may be of a full queue.
    fn unreachable(&self, error: &io::Error) -> Result<(), String> {
        let never = self.phase.answers.load(Ordering::Relaxed) == 0;
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            _ if never => Err(format!("{}: {error}", self.sockets.remote)),
            _ => Ok(()),
        }
    }

    fn datagram(&mut self, socket: usize, received: &[u8]) -> Result<(), String> {
        let transport = self.sockets.transport;
        let octets = match transport {
            Transport::UdpEncap => received.strip_prefix(&MARKER),
            _ => Some(received),
        };
        let Some(octets) = octets else { return Ok(()) };
        let Some(spi) = octets.first_chunk() else { return Ok(()) };
        self.phase.answers.fetch_add(1, Ordering::Relaxed);
        let Some(&id) = self.by_spi.get(&u64::from_be_bytes(*spi)) else { return Ok(()) };
        let Some(slot) = self.slots.get_mut(&id) else { return Ok(()) };
        let Some(&local) = self.local.get(socket) else { return Ok(()) };
        let path = Path { local, remote: self.sockets.remote, transport };
        let step = slot.initiator.handle(Input::Datagram(path, octets));
        self.follow(id, step)
    }

    /// Sends what is to be sent and notes what has ended.
    fn follow(&mut self, id: u64, step: Step) -> Result<(), String> {
        let Some(slot) = self.slots.get_mut(&id) else { return Ok(()) };
        let deadline = slot.initiator.deadline();
        if slot.armed != deadline {
            slot.armed.map(|at| self.timers.remove(&(at, id)));
            self.timers.extend(deadline.map(|at| (at, id)));
            slot.armed = deadline;
        }
        for spi in slot.initiator.spis() {
            self.by_spi.insert(*spi, id);
        }
        let socket = self.sockets.all.get(slot.initiator.socket);
        for (path, octets, again) in step.transmits {
            self.outcomes.retransmissions += u64::from(again);
            self.buffer.clear();
            if path.transport == Transport::UdpEncap {
                self.buffer.extend_from_slice(&MARKER);
            }
            self.buffer.extend_from_slice(&octets);
            // What a full queue does not take is lost, as on a network.
            if let Some(Err(error)) = socket.map(|socket| socket.send(&self.buffer))
                && error.kind() != ErrorKind::WouldBlock
            {
                self.unreachable(&error)?;
            }
        }
        match step.ended {
            Some(outcome) => self.ended(id, outcome),
            None => Ok(()),
        }
    }

    fn ended(&mut self, id: u64, outcome: Result<(), String>) -> Result<(), String> {
        let Some(slot) = self.slots.get_mut(&id) else { return Ok(()) };
        if slot.deleting {
            self.outcomes.undeleted += u64::from(outcome.is_err());
        } else {
            match outcome {
                Ok(()) => {
                    self.outcomes.latencies.push(slot.initiator.due.elapsed().as_secs_f64());
                    self.phase.established.fetch_add(1, Ordering::Relaxed);
                    if self.limits.tear_down
                        && let Some(step) = slot.initiator.delete()
                    {
                        slot.deleting = true;
                        return self.follow(id, step);
                    }
                }
                Err(why) => {
                    *self.outcomes.failures.entry(why).or_default() += 1;
                    self.phase.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        // What is kept is kept by the responder; nothing more is to be done for it here.
        if let Some(slot) = self.slots.remove(&id) {
            self.timers.remove(&(slot.give_up, id));
            slot.armed.map(|at| self.timers.remove(&(at, id)));
            for spi in slot.initiator.spis() {
                self.by_spi.remove(spi);
            }
        }
        Ok(())
    }
}
