//! What an IKE SA knows of the addresses of both ends (RFC 4555), and which of its moves the peer has confirmed.

use std::net::{IpAddr, SocketAddr};

/// Consecutive updates that the peer may refuse.
const MOST_RETRIES: u8 = 5;

/// MOBIKE's data of an IKE SA whose ends both support it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mobike {
    /// True if this end chooses the paths: it is the initiator of the first IKE SA, whichever end has rekeyed it
    /// since (RFC 4555 §1.3).
    decides: bool,
    /// Addresses of the peer besides the one in use.
    peer: Vec<IpAddr>,
    /// Addresses of this end that were announced to the peer.
    told: Vec<IpAddr>,
    /// NAT_DETECTION_DESTINATION_IP of the peer's last answer: this end's address and port as the peer sees them.
    seen: Option<[u8; 20]>,
    /// The source of the peer's ESP behind a NAT, if it differs from that of IKE (RFC 4555 §3.8).
    esp_remote: Option<Box<SocketAddr>>,
    /// Number of moves, and the last one that the peer has confirmed.
    moves: u32,
    confirmed: u32,
    /// True if the children are still on the former path, because the peer has not proven its new address.
    held: bool,
    /// True if the request in flight was sent by several paths.
    probing: bool,
    /// Responder: its own address is gone, and no message of the peer has come since.
    astray: bool,
    /// True if IKE was over TCP before, together with ESP.
    had_tcp: bool,
    /// Consecutive updates that the peer has refused.
    retries: u8,
}

/// What this end was doing when a response came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    probing: bool,
    astray: bool,
}

impl Heard {
    /// True if the request was sent by several paths.
    pub(crate) fn was_probing(self) -> bool {
        self.probing
    }

    /// True if this end was without the address that the peer knows.
    pub(crate) fn was_astray(self) -> bool {
        self.astray
    }
}

impl Mobike {
    /// For an end that `decides`, whose peer has announced these addresses, and that has announced those in `told`.
    pub(super) fn new(decides: bool, peer: Vec<IpAddr>, told: Vec<IpAddr>) -> Self {
        Self { decides, peer, told, ..Self::default() }
    }

    /// That of the SA which replaces this one by a rekey. The peer's hash covers the SPIs, and no request of the new SA
    /// is in flight.
    pub(super) fn inherited(&self) -> Self {
        Self { seen: None, probing: false, ..self.clone() }
    }

    // ---- questions ----

    /// True if this end chooses the paths.
    pub(crate) fn decides(&self) -> bool {
        self.decides
    }

    /// True if the children are not on the path of the IKE SA.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// True if exactly these addresses of this end were announced.
    pub(crate) fn has_told(&self, addresses: &[IpAddr]) -> bool {
        self.told == addresses
    }

    /// Addresses of the peer besides the one in use.
    pub(crate) fn peer(&self) -> impl Iterator<Item = IpAddr> {
        self.peer.iter().copied()
    }

    /// The source of the peer's ESP behind a NAT, if it differs from that of IKE.
    pub(crate) fn esp_remote(&self) -> Option<SocketAddr> {
        self.esp_remote.as_deref().copied()
    }

    /// True if requests without an answer go by all paths.
    pub(crate) fn searches(&self) -> bool {
        self.decides || self.astray
    }

    /// The number of the last move.
    pub(crate) fn moves(&self) -> u32 {
        self.moves
    }

    /// True if the peer has confirmed the last move.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed == self.moves
    }

    /// Consecutive updates that the peer has refused.
    pub(crate) fn retries(&self) -> usize {
        usize::from(self.retries)
    }

    // ---- moves ----

    /// Handles a move to another path, of which nothing is known.
    pub(super) fn moved(&mut self) {
        self.renumber();
        (self.seen, self.esp_remote) = (None, None);
    }

    /// Counts a move that the peer may have made already.
    pub(super) fn renumber(&mut self) {
        self.moves = self.moves.wrapping_add(1);
    }

    /// Leaves the children on the former path until the peer has proven its address.
    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    /// Handles an update of the peer, to another address if `elsewhere`. Returns whether the children wait for a
    /// `check`, of this address or the one before.
    pub(super) fn updated(&mut self, elsewhere: bool, check: bool) -> bool {
        self.held = check || self.held && !elsewhere;
        self.held
    }

    /// Handles that the address of the peer is proven. True if the children were waiting for that.
    pub(super) fn release(&mut self) -> bool {
        std::mem::take(&mut self.held)
    }

    /// Responder: its own address is gone.
    pub(super) fn lost(&mut self) {
        self.astray = true;
    }

    /// Takes over all that an SA before this one knows, whose moves are newer.
    pub(super) fn continue_from(&mut self, before: Self) {
        *self = Self { seen: None, ..before };
    }

    /// Records the source of the peer's ESP, if it is another one than that of IKE.
    pub(super) fn note_esp_remote(&mut self, remote: Option<SocketAddr>) {
        self.esp_remote = remote.map(Box::new);
    }

    /// Handles a move from TCP, together with ESP, if `had_tcp`. True if there was such a move at any time.
    pub(super) fn note_tcp(&mut self, had_tcp: bool) -> bool {
        self.had_tcp |= had_tcp;
        self.had_tcp
    }

    // ---- messages ----

    /// Records the addresses of this end that a message announces.
    pub(super) fn note_told(&mut self, addresses: Vec<IpAddr>) {
        self.told = addresses;
    }

    /// Records that a request is sent by one path. Returns the number of the move that it reports.
    pub(super) fn begin_request(&mut self) -> u32 {
        self.probing = false;
        self.moves
    }

    /// Records that the request in flight is sent by several paths.
    pub(super) fn probed(&mut self) {
        self.probing = true;
    }

    /// Handles a response.
    pub(super) fn heard(&mut self) -> Heard {
        let Self { probing, astray, .. } = self;
        Heard { probing: std::mem::take(probing), astray: std::mem::take(astray) }
    }

    /// Records the peer's list of addresses, which came from the address `from`.
    pub(super) fn peer_has(&mut self, addresses: &[IpAddr], from: IpAddr) {
        self.peer = addresses.to_vec();
        if !self.peer.contains(&from) {
            self.peer.insert(0, from);
        }
    }

    /// Handles that the peer has refused an update or a list. False if it has done so too often.
    pub(super) fn refused(&mut self) -> bool {
        self.retries = self.retries.saturating_add(1);
        self.retries <= MOST_RETRIES
    }

    /// Handles that the peer has taken a list of addresses.
    pub(super) fn taken(&mut self) {
        self.retries = 0;
    }

    /// Handles that the peer has confirmed the last move.
    pub(super) fn confirmed(&mut self) {
        self.taken();
        self.confirmed = self.moves;
    }

    /// Records this end's address and port as the peer sees them.
    pub(super) fn note_seen(&mut self, seen: Option<[u8; 20]>) {
        self.seen = seen;
    }

    /// The same for the answer to a liveness check. True if the mapping of a NAT is another one than before, which
    /// counts as a move. Without a value from before, that may be so `behind_nat`.
    pub(super) fn sees_another(&mut self, seen: [u8; 20], behind_nat: bool) -> bool {
        let before = self.seen.replace(seen);
        let moved = before.map_or(behind_nat, |before| before != seen);
        if moved {
            self.renumber();
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `moved`, leave `seen` as it is.
    #[test]
    fn a_move_is_not_confirmed_and_nothing_is_known_of_its_path() {
        let mut mobike = Mobike::new(true, Vec::new(), Vec::new());
        mobike.note_seen(Some([1; 20]));
        mobike.note_esp_remote(Some(([192, 0, 2, 1], 4500).into()));
        mobike.confirmed();
        assert!(mobike.is_confirmed());
        mobike.moved();
        assert!(!mobike.is_confirmed());
        assert_eq!(mobike.esp_remote(), None);
        // The first value of a path is another mapping only behind a NAT.
        assert!(!mobike.sees_another([2; 20], false));
        assert!(mobike.sees_another([3; 20], false));
    }

    /// Fault: in `updated`, leave out the address.
    #[test]
    fn children_wait_for_the_address_in_use_alone() {
        let mut mobike = Mobike::new(false, Vec::new(), Vec::new());
        assert!(mobike.updated(true, true));
        assert!(mobike.updated(false, false), "the same address, not proven yet");
        assert!(!mobike.updated(true, false), "an address that needs no proof");
        assert!(!mobike.release());
    }
}
