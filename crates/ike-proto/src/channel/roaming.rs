//! What the SA may tell the route of its channel: what the peer has said of the addresses (MOBIKE), and what has become
//! of the TCP connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::io::Io;
use super::link::Link;
use super::mobike::{Heard, Mobike};
use super::nat::NatStatus;
use super::route::{EspMove, Route};
use super::stream::Stream;
use crate::event::Path;

/// The route of a channel, for the time of one call. What is said of MOBIKE has no effect without it.
pub(crate) struct Roaming<'a> {
    pub(super) link: &'a Link,
    pub(super) route: &'a mut Route,
}

impl Roaming<'_> {
    // ---- requests of this end ----

    /// Begins MOBIKE, which both ends support. The peer has announced the addresses `peer`, and this end those in
    /// `told`.
    pub(crate) fn begin_mobike(&mut self, peer: Vec<IpAddr>, told: Vec<IpAddr>) {
        let mobike = Mobike::new(self.link.is_initiator(), peer, told);
        self.route.mobike = Some(Box::new(mobike));
    }

    /// Records that both ends prefer ESP in UDP.
    pub(crate) fn agree_on_udp(&mut self) {
        self.route.prefers_udp = true;
    }

    /// Records that these addresses of this end were announced.
    pub(crate) fn note_told(&mut self, addresses: Vec<IpAddr>) {
        self.tell(|mobike| mobike.note_told(addresses));
    }

    /// Records that a request is sent by one path. Returns the number of the move that it reports.
    pub(crate) fn begin_request(&mut self) -> Option<u32> {
        self.ask(Mobike::begin_request)
    }

    /// Records that the request in flight is sent by several paths.
    pub(crate) fn probed(&mut self) {
        self.tell(Mobike::probed);
    }

    // ---- the peer's responses ----

    /// Handles a response.
    pub(crate) fn heard(&mut self) -> Option<Heard> {
        self.ask(Mobike::heard)
    }

    /// Handles that the peer has taken a list of addresses.
    pub(crate) fn taken(&mut self) {
        self.tell(Mobike::taken);
    }

    /// Handles that the peer has refused an update or a list. False if it has done so too often.
    pub(crate) fn refused(&mut self) -> bool {
        self.ask(Mobike::refused) == Some(true)
    }

    /// Handles that the peer has confirmed the last move.
    pub(crate) fn confirmed(&mut self) {
        self.tell(Mobike::confirmed);
    }

    /// Records where NATs are, and this end's address and port as the peer sees them.
    pub(crate) fn note_nat(&mut self, nat: NatStatus, seen: Option<[u8; 20]>) {
        self.tell(|mobike| mobike.note_seen(seen));
        self.route.nat = nat;
    }

    /// The same for the answer to a liveness check. True if the mapping of a NAT is another one than before, which
    /// counts as a move.
    pub(crate) fn sees_another(&mut self, seen: [u8; 20]) -> bool {
        let behind_nat = self.route.nat.local;
        self.ask(|mobike| mobike.sees_another(seen, behind_nat)) == Some(true)
    }

    // ---- moves ----

    /// Records the peer's list of addresses, which came from the address `from`.
    pub(crate) fn peer_has(&mut self, addresses: &[IpAddr], from: IpAddr) {
        self.tell(|mobike| mobike.peer_has(addresses, from));
    }

    /// Handles an update of the peer, to another address if `elsewhere`. Returns whether the children wait for a
    /// `check`, of this address or the one before.
    pub(crate) fn updated(&mut self, elsewhere: bool, check: bool) -> bool {
        self.ask(|mobike| mobike.updated(elsewhere, check)) == Some(true)
    }

    /// Leaves the children on the former path until the peer has proven its address.
    pub(crate) fn hold(&mut self) {
        self.tell(Mobike::hold);
    }

    /// Handles that the address of the peer is proven. True if the children were waiting for that.
    pub(crate) fn release(&mut self) -> bool {
        self.ask(Mobike::release) == Some(true)
    }

    /// Responder: its own address is gone.
    pub(crate) fn lost(&mut self) {
        self.tell(Mobike::lost);
    }

    /// Counts a move that the peer may have made already.
    pub(crate) fn renumber(&mut self) {
        self.tell(Mobike::renumber);
    }

    /// Handles an authentic ESP packet from `remote`.
    pub(crate) fn note_esp(&mut self, remote: SocketAddr) -> EspMove {
        self.route.note_esp(self.link, remote)
    }

    // ---- the TCP connection ----

    /// For a new SA: its connection, and the path of ESP if that is another one.
    pub(crate) fn begin_stream(&mut self, stream: Option<Stream>, separate: Option<Path>) {
        (self.route.stream, self.route.separate) = (stream.map(Box::new), separate.map(Box::new));
    }

    /// Handles that the connection is open, at this end's address `local`. False if the SA has none.
    pub(crate) fn on_stream_opened(&mut self, io: &Io<'_>, local: SocketAddr) -> bool {
        let stream = self.route.stream.as_mut();
        stream.map(|stream| stream.on_opened(io.now.mono, local)).is_some()
    }

    /// For a candidate: if it has a connection, `stream`, which its attempt opens as `path`, takes the place of that.
    pub(crate) fn change_stream(&mut self, path: Path, stream: &Stream) {
        if let Some(place) = &mut self.route.stream {
            self.route.path = path;
            **place = stream.clone();
        }
    }

    /// For a candidate: the connection is gone, and the attempt opens another one.
    pub(crate) fn lose_stream(&mut self, path: Path, now: Instant) {
        let here = self.route.path;
        if let Some(stream) = self.route.stream.as_mut().filter(|_| here == path) {
            stream.on_closed(now);
        }
    }

    fn ask<T>(&mut self, of: impl FnOnce(&mut Mobike) -> T) -> Option<T> {
        self.route.mobike.as_deref_mut().map(of)
    }

    fn tell(&mut self, what: impl FnOnce(&mut Mobike)) {
        _ = self.ask(what);
    }
}
