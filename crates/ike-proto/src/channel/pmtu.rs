//! The size of datagrams: what is known of paths, and what IKE SAs find out about them (RFC 7383 §2.5). Sizes are
//! octets of an IP packet.
//!
//! The size is `fragment_size` if that is set. Otherwise it is the path MTU that the driver has reported, or 1280
//! without a report. It is smaller once packets of that size seem to be lost: 1280, and over IPv4 finally 576.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::event::{Path, Transport};

/// The largest size that is tried: only paths of a single link are known to carry more.
pub(super) const LARGEST: u16 = 1500;
/// The size for an unknown path. Every link of IPv6 carries it, and nearly every link of IPv4.
const USUAL: u16 = 1280;
/// RFC 7383 §2.5.1: every host on IPv4 accepts this size, and hardly any path carries less.
const LEAST_V4: u16 = 576;
/// The smallest `fragment_size` with room for headers, IV, padding and integrity check value.
const LEAST_FRAGMENT: u16 = 160;
/// The longest IKE message over TCP: a 16-bit length includes itself and the non-ESP marker (RFC 9329 §3.1).
const MAX_TCP_MESSAGE: usize = 0xffff - 2 - 4;
/// How often a message is sent in one size without an answer, the first time included, before a smaller size is
/// tried.
const SENDS: u32 = 3;
/// As [`SENDS`], for a size that has got through before: it is more likely that the peer is away.
const SENDS_PROVEN: u32 = 5;
/// Acknowledgements of only the last of several fragments before a smaller size is tried.
const SMALL_ALONE: u32 = 2;
/// No size is given up sooner, because a peer may work for a while, and a short round trip makes short timers.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a request is repeated after its answer, and for how long, before the answer is made smaller. Usually
/// the initiator finds the size. This is for an initiator that does not.
const ASKED_AGAIN: u32 = 2;
const KEEPS_ASKING: Duration = Duration::from_secs(5);
/// RFC 1191 §6.3: a larger size is not tried again sooner.
const MEMORY: Duration = Duration::from_secs(600);
/// Addresses for which the driver's report is kept, and addresses for which a discovered size is kept.
const TOLD: usize = 4096;
const FOUND: usize = 1024;

/// What is known of the paths to other hosts, for all IKE SAs of an endpoint.
pub(crate) struct PathMtus {
    configured: Option<u16>,
    told: Recent,
    found: Recent,
}

impl PathMtus {
    /// No path is known yet. `configured` is `fragment_size`.
    pub(crate) fn new(configured: Option<u16>) -> Self {
        Self { configured, told: Recent::new(TOLD), found: Recent::new(FOUND) }
    }

    /// Changes `fragment_size`.
    pub(crate) fn reconfigure(&mut self, configured: Option<u16>) {
        self.configured = configured;
    }

    /// Records the driver's path MTU. True if it is smaller than the size in use.
    pub(crate) fn tell(&mut self, now: Instant, remote: IpAddr, octets: u32) -> bool {
        let before = self.size(now, remote);
        let octets = u16::try_from(octets).unwrap_or(u16::MAX);
        self.told.put(now, remote.to_canonical(), octets);
        self.size(now, remote) < before
    }

    /// Records that packets above `size` do not get to `remote`, and packets of `size` do.
    fn find(&mut self, now: Instant, remote: IpAddr, size: u16) {
        self.found.put(now, remote.to_canonical(), size);
    }

    /// The size of packets to `remote`.
    pub(crate) fn size(&self, now: Instant, remote: IpAddr) -> u16 {
        let remote = remote.to_canonical();
        if let Some(size) = self.configured {
            // 0 means the defaults of strongswan.conf(5).
            return if size == 0 { least(remote) } else { size.max(LEAST_FRAGMENT) };
        }
        let told = self.told.get(&remote).map_or(USUAL, |(_, size)| size);
        let found = self
            .found
            .get(&remote)
            .filter(|(at, _)| now.saturating_duration_since(*at) < MEMORY)
            .map_or(LARGEST, |(_, size)| size);
        bounded(told.min(found), remote)
    }

    /// The size that the driver has reported last, at most [`LARGEST`].
    pub(crate) fn told(&self, remote: IpAddr) -> Option<u16> {
        self.told.get(&remote.to_canonical()).map(|(_, size)| bounded(size, remote))
    }

    fn is_fixed(&self) -> bool {
        self.configured.is_some()
    }
}

/// The newest values by address, up to a number.
struct Recent {
    most: usize,
    values: BTreeMap<IpAddr, (Instant, u16)>,
}

impl Recent {
    fn new(most: usize) -> Self {
        Self { most, values: BTreeMap::new() }
    }

    fn get(&self, address: &IpAddr) -> Option<(Instant, u16)> {
        self.values.get(address).copied()
    }

    fn put(&mut self, now: Instant, address: IpAddr, value: u16) {
        if self.values.len() >= self.most && !self.values.contains_key(&address) {
            // Half of them at once, so that this search is rare.
            let mut ages: Vec<_> = self.values.values().map(|(at, _)| *at).collect();
            ages.sort_unstable();
            let middle = ages.get(ages.len() / 2).copied().unwrap_or(now);
            self.values.retain(|_, (at, _)| *at > middle);
        }
        self.values.insert(address, (now, value));
    }
}

/// What one IKE SA has found out about its path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Probe {
    /// Packets above this size are lost.
    ceiling: Option<u16>,
    /// True if no message has got through since the ceiling was found.
    doubtful: bool,
    /// The size of a packet that has got through.
    proven: u16,
    /// The size of the peer's fragments, a hint about the path back. Otherwise a peer that had to find its size
    /// out would wait until this end has found it, too.
    theirs: Option<u16>,
    /// When the outstanding request was first sent in its present size, or when a part of it in that size was
    /// acknowledged.
    since: Option<Instant>,
    /// How often the request had been sent again by then.
    again: u32,
    /// How often the peer has reported that it has only the last fragment, which may be a small one.
    small_alone: u32,
    /// Total Fragments of the peer's latest request.
    total: u16,
    /// How often that request was repeated after its answer, and since when.
    repeats: u32,
    asked_again: Option<Instant>,
}

impl Probe {
    /// The size of the packets of a message.
    pub(crate) fn size(&self, known: &PathMtus, now: Instant, remote: IpAddr) -> u16 {
        let size = known.size(now, remote);
        if known.is_fixed() {
            return size;
        }
        let size = size.min(self.ceiling.unwrap_or(size));
        //= https://www.rfc-editor.org/rfc/rfc7383#section-2.5.1
        //# The responder in the exchange may use the maximum size of the
        //# received IKE Fragment message IP datagrams as a threshold when
        //# constructing a fragmented response.
        self.theirs.map_or(size, |hint| size.min(bounded(hint, remote)))
    }

    /// Octets of an IKE message that fit a datagram on `path`.
    pub(crate) fn room(&self, known: &PathMtus, now: Instant, path: Path) -> usize {
        max_message(self.size(known, now, path.remote.ip()), path)
    }

    /// Gives up the size in use. False if there is no smaller one.
    pub(crate) fn step_down(&mut self, known: &PathMtus, now: Instant, remote: IpAddr) -> bool {
        if known.is_fixed() {
            return false;
        }
        let size = self.size(known, now, remote);
        let next = [USUAL, least(remote)].into_iter().find(|next| *next < size);
        if next.is_some() {
            (self.ceiling, self.doubtful) = (next, true);
        }
        next.is_some()
    }

    /// Handles that the peer has received a message of this end. If the packets had to be smaller for that, the
    /// next IKE SA with `remote` need not find it out again.
    pub(crate) fn on_heard(&mut self, known: &mut PathMtus, now: Instant, remote: IpAddr) {
        if let (true, Some(size)) = (std::mem::take(&mut self.doubtful), self.ceiling) {
            known.find(now, remote, size);
        }
    }

    /// Handles that a request is sent, or is sent in another size.
    pub(crate) fn on_request_sent(&mut self, now: Instant) {
        (self.since, self.again, self.small_alone) = (Some(now), 0, 0);
    }

    /// Handles an acknowledgement of the outstanding request: the peer has its `number` fragments except those in
    /// `missing`. The request had been sent again `again` times, and its largest packet has `octets`.
    pub(crate) fn on_request_acknowledged(
        &mut self,
        now: Instant,
        (number, missing): (u16, &[(u16, u16)]),
        again: u32,
        octets: usize,
    ) {
        if is_small_alone(number, missing) {
            // If there are only two, the first one is easily lost.
            self.small_alone = self.small_alone.saturating_add(u32::from(number > 2));
        } else {
            (self.since, self.again, self.small_alone) = (Some(now), again, 0);
            self.proven = self.proven.max(u16::try_from(octets).unwrap_or(u16::MAX));
        }
    }

    /// The same for the response.
    pub(crate) fn on_response_acknowledged(&mut self, number: u16, missing: &[(u16, u16)]) {
        if !is_small_alone(number, missing) {
            (self.repeats, self.asked_again) = (0, None);
        }
    }

    /// Handles the answer to a request whose largest packet had `octets`.
    pub(crate) fn on_answered(&mut self, octets: usize) {
        self.since = None;
        self.proven = self.proven.max(u16::try_from(octets).unwrap_or(u16::MAX));
    }

    /// True if a request that was sent `sends` times, with a largest packet of `octets`, has had no sign of life
    /// for so long that its size may be the reason.
    pub(crate) fn is_black_hole(&self, now: Instant, sends: u32, octets: usize) -> bool {
        let proven = octets <= usize::from(self.proven);
        let patient =
            self.since.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE);
        let sends = sends.saturating_sub(self.again);
        self.small_alone >= SMALL_ALONE
            || patient && sends >= if proven { SENDS_PROVEN } else { SENDS }
    }

    /// Handles the first fragment of a new request, in a packet of `octets`. 1 of 1 is a whole message.
    pub(crate) fn on_new_request(&mut self, octets: usize, total: u16) {
        if total > 1 {
            self.theirs = Some(u16::try_from(octets).unwrap_or(u16::MAX));
        }
        (self.total, self.repeats, self.asked_again) = (total, 0, None);
    }

    /// Handles a repeated request that was answered. Returns what that may mean for the size of the answer.
    pub(crate) fn on_request_again(&mut self, now: Instant, octets: usize, total: u16) -> Doubt {
        if total > self.total {
            self.on_new_request(octets, total);
            return Doubt::PeerSteppedDown;
        }
        self.repeats = self.repeats.saturating_add(1);
        let since = *self.asked_again.get_or_insert(now);
        let long = now.saturating_duration_since(since) >= KEEPS_ASKING;
        if !long || self.repeats < ASKED_AGAIN {
            return Doubt::None;
        }
        (self.repeats, self.asked_again) = (0, None);
        Doubt::Unheard
    }

    /// The knowledge with which a successor on the same path starts.
    pub(crate) fn inherited(&self) -> Self {
        Self {
            ceiling: self.ceiling,
            doubtful: self.doubtful,
            proven: self.proven,
            theirs: self.theirs,
            ..Self::default()
        }
    }

    /// The knowledge that remains when the peer is at another address.
    pub(crate) fn moved(&self) -> Self {
        Self { ceiling: None, doubtful: false, proven: 0, theirs: None, ..*self }
    }
}

/// What a repeated request says about the size of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nothing.
    None,
    /// The peer sends smaller fragments than before.
    PeerSteppedDown,
    /// The answer was sent several times.
    Unheard,
}

/// True if perhaps only the last of `number` fragments got through.
fn is_small_alone(number: u16, missing: &[(u16, u16)]) -> bool {
    missing == [(1, number.saturating_sub(1))]
}

/// The smallest size that is tried.
pub(crate) fn least(remote: IpAddr) -> u16 {
    if remote.to_canonical().is_ipv4() { LEAST_V4 } else { USUAL }
}

/// Limits a size, so that no peer can make this end send less than `least`, or more than [`LARGEST`].
fn bounded(size: u16, remote: IpAddr) -> u16 {
    size.clamp(least(remote), LARGEST)
}

/// Octets of IP and UDP headers, and of a marker, in front of an IKE message.
pub(crate) fn headers(path: Path) -> usize {
    let ip = if path.remote.is_ipv4() { 20 } else { 40 };
    let marker = if path.transport == Transport::UdpEncap { 4 } else { 0 };
    ip + 8 + marker
}

/// The most octets of an IKE message in an IP packet of `size` octets. Over TCP, the limit of its length field.
pub(crate) fn max_message(size: u16, path: Path) -> usize {
    //= https://www.rfc-editor.org/rfc/rfc9329#section-7.5
    //# Even if fragmentation is negotiated, an
    //# implementation SHOULD NOT send fragments when going over a TCP
    //# connection
    if path.transport == Transport::Tcp {
        return MAX_TCP_MESSAGE;
    }
    usize::from(size).saturating_sub(headers(path))
}

#[cfg(test)]
mod tests;
