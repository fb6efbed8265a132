//! How large a datagram may be: what is known of paths, and what their IKE SAs find out
//! (RFC 7383 §2.5). Sizes are octets of an IP packet.
//!
//! A size is `fragment_size` if that is set. Else it is the path MTU that the driver has told, 1280 if it
//! has not, and less once packets of that size were seen to vanish: 1280, and over IPv4 576 at last.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::event::{Path, Transport};

/// What is tried at the most: no path beyond a single link is known to carry more.
const LARGEST: u16 = 1500;
/// Of a path of which nothing is known. Every link of IPv6 carries it, and nearly every one of IPv4.
const USUAL: u16 = 1280;
/// RFC 7383 §2.5.1: what every host on IPv4 takes, and hardly any path is too narrow for.
const LEAST_V4: u16 = 576;
/// The least `fragment_size` there is room in for headers, IV, padding and integrity check value.
const LEAST_FRAGMENT: u16 = 160;
/// The longest IKE message in TCP: 16 bits count it, themselves and the non-ESP marker (RFC 9329 §3.1).
const MAX_TCP_MESSAGE: usize = 0xffff - 2 - 4;
/// Sends of one size, the first among them, of which nothing comes back before a smaller one is tried.
const SENDS: u32 = 3;
/// As [`SENDS`], of a size that has got through before: likelier it is the peer that is away.
const SENDS_PROVEN: u32 = 5;
/// Acknowledgements of the last fragment alone, of several, before a smaller size is tried.
const SMALL_ALONE: u32 = 2;
/// No size is given up sooner: a peer may think for a while, and a short round trip makes short timers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Times a request comes again after the answer, and how long it goes on coming, before the answer is made
/// smaller. The initiator is the one who probes: this is for one that does not.
const ASKED_AGAIN: u32 = 2;
const KEEPS_ASKING: Duration = Duration::from_secs(5);
/// RFC 1191 §6.3: a path is not asked sooner whether it has become wider.
const MEMORY: Duration = Duration::from_secs(600);
/// Addresses of which is known what the driver told, and what was found out.
const TOLD: usize = 4096;
const FOUND: usize = 1024;

/// What is known of the ways to other hosts, for all IKE SAs of an endpoint.
pub(crate) struct PathMtus {
    configured: Option<u16>,
    told: Recent,
    found: Recent,
}

impl PathMtus {
    /// Nothing is known yet; `configured` is `fragment_size`.
    pub(crate) fn new(configured: Option<u16>) -> Self {
        Self { configured, told: Recent::new(TOLD), found: Recent::new(FOUND) }
    }

    /// Takes another `fragment_size`.
    pub(crate) fn reconfigure(&mut self, configured: Option<u16>) {
        self.configured = configured;
    }

    /// The driver knows the path MTU. True if it is less than what was taken for it.
    pub(crate) fn tell(&mut self, now: Instant, remote: IpAddr, octets: u32) -> bool {
        let before = self.size(now, remote);
        let octets = u16::try_from(octets).unwrap_or(u16::MAX);
        self.told.put(now, remote.to_canonical(), octets);
        self.size(now, remote) < before
    }

    /// Packets above `size` do not get to `remote`, and those of `size` do.
    fn find(&mut self, now: Instant, remote: IpAddr, size: u16) {
        self.found.put(now, remote.to_canonical(), size);
    }

    /// How large a packet to `remote` may be.
    pub(crate) fn size(&self, now: Instant, remote: IpAddr) -> u16 {
        let remote = remote.to_canonical();
        if let Some(size) = self.configured {
            // The defaults of strongswan.conf(5) for 0.
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

    fn is_fixed(&self) -> bool {
        self.configured.is_some()
    }
}

/// The newest so many values by address.
struct Recent {
    most: usize,
    values: HashMap<IpAddr, (Instant, u16)>,
}

impl Recent {
    fn new(most: usize) -> Self {
        Self { most, values: HashMap::new() }
    }

    fn get(&self, address: &IpAddr) -> Option<(Instant, u16)> {
        self.values.get(address).copied()
    }

    fn put(&mut self, now: Instant, address: IpAddr, value: u16) {
        if self.values.len() >= self.most && !self.values.contains_key(&address) {
            // Half at once, so that the search is not made for each.
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
    /// Packets above this vanish.
    ceiling: Option<u16>,
    /// No message has got through since that was found.
    doubtful: bool,
    /// A packet of this size has got through.
    proven: u16,
    /// The size of the peer's fragments, a hint for what the way back carries. A peer that had to find it
    /// out would otherwise wait until this end has, too.
    theirs: Option<u16>,
    /// When the request that is outstanding was first sent at its present size, or a part of it in that size
    /// was acknowledged.
    since: Option<Instant>,
    /// How often it had been sent again by then.
    again: u32,
    /// How often the peer said that it has nothing of it but the last fragment, which may be a small one.
    small_alone: u32,
    /// Total Fragments of the peer's latest request.
    total: u16,
    /// How often that request came again after it was answered, and since when.
    repeats: u32,
    asked_again: Option<Instant>,
}

impl Probe {
    /// How large the packets of a message may be.
    pub(crate) fn size(&self, known: &PathMtus, now: Instant, remote: IpAddr) -> u16 {
        let size = known.size(now, remote);
        if known.is_fixed() {
            return size;
        }
        let size = size.min(self.ceiling.unwrap_or(size));
        //= RFC 7383 §2.5.1
        //# The responder in the exchange may use the maximum size of the
        //# received IKE Fragment message IP datagrams as a threshold when
        //# constructing a fragmented response.
        self.theirs.map_or(size, |hint| size.min(bounded(hint, remote)))
    }

    /// Gives up the size in use; false if there is none below it.
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

    /// The peer has had a message of this end. If packets had to be smaller for that, the next IKE SA with
    /// `remote` need not find it out once more.
    pub(crate) fn on_heard(&mut self, known: &mut PathMtus, now: Instant, remote: IpAddr) {
        if let (true, Some(size)) = (std::mem::take(&mut self.doubtful), self.ceiling) {
            known.find(now, remote, size);
        }
    }

    /// A request leaves, or leaves at another size.
    pub(crate) fn on_request_sent(&mut self, now: Instant) {
        (self.since, self.again, self.small_alone) = (Some(now), 0, 0);
    }

    /// The peer has `number` fragments of the outstanding request but those of `missing`; it had been sent
    /// again so many times, and its largest packet has `octets`.
    pub(crate) fn on_request_acknowledged(
        &mut self,
        now: Instant,
        (number, missing): (u16, &[(u16, u16)]),
        again: u32,
        octets: usize,
    ) {
        if is_small_alone(number, missing) {
            // Of two, the first one is easily lost.
            self.small_alone = self.small_alone.saturating_add(u32::from(number > 2));
        } else {
            (self.since, self.again, self.small_alone) = (Some(now), again, 0);
            self.proven = self.proven.max(u16::try_from(octets).unwrap_or(u16::MAX));
        }
    }

    /// The same of the response.
    pub(crate) fn on_response_acknowledged(&mut self, number: u16, missing: &[(u16, u16)]) {
        if !is_small_alone(number, missing) {
            (self.repeats, self.asked_again) = (0, None);
        }
    }

    /// A request whose largest packet had `octets` has been answered.
    pub(crate) fn on_answered(&mut self, octets: usize) {
        self.since = None;
        self.proven = self.proven.max(u16::try_from(octets).unwrap_or(u16::MAX));
    }

    /// True if a request that was sent `sends` times, the largest packet `octets` long, has been without
    /// a sign of life for so long that its size may be why.
    pub(crate) fn is_black_hole(&self, now: Instant, sends: u32, octets: usize) -> bool {
        let proven = octets <= usize::from(self.proven);
        let patient =
            self.since.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE);
        let sends = sends.saturating_sub(self.again);
        self.small_alone >= SMALL_ALONE
            || patient && sends >= if proven { SENDS_PROVEN } else { SENDS }
    }

    /// The first fragment of a new request came in a packet of `octets`; 1 of 1 is a whole message.
    pub(crate) fn on_new_request(&mut self, octets: usize, total: u16) {
        if total > 1 {
            self.theirs = Some(u16::try_from(octets).unwrap_or(u16::MAX));
        }
        (self.total, self.repeats, self.asked_again) = (total, 0, None);
    }

    /// A request that was answered came again: says what that may mean for the size of the answer.
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

    /// What a successor on the same path starts with.
    pub(crate) fn inherited(&self) -> Self {
        Self {
            ceiling: self.ceiling,
            doubtful: self.doubtful,
            proven: self.proven,
            theirs: self.theirs,
            ..Self::default()
        }
    }

    /// What is left of it when the peer is at another address.
    pub(crate) fn moved(&self) -> Self {
        Self { ceiling: None, doubtful: false, proven: 0, theirs: None, ..*self }
    }
}

/// What a request that comes again says about the size of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nothing.
    None,
    /// The peer sends smaller fragments than before.
    PeerSteppedDown,
    /// The answer was sent several times.
    Unheard,
}

/// True if the last of `number` fragments may be all that got through.
fn is_small_alone(number: u16, missing: &[(u16, u16)]) -> bool {
    missing == [(1, number.saturating_sub(1))]
}

/// The smallest size that is tried.
pub(crate) fn least(remote: IpAddr) -> u16 {
    if remote.to_canonical().is_ipv4() { LEAST_V4 } else { USUAL }
}

/// Nobody outside can make this end send less than `least`, or more than [`LARGEST`].
fn bounded(size: u16, remote: IpAddr) -> u16 {
    size.clamp(least(remote), LARGEST)
}

/// Octets of IP and UDP headers, and of a marker, in front of an IKE message.
pub(crate) fn headers(path: Path) -> usize {
    let ip = if path.remote.is_ipv4() { 20 } else { 40 };
    let marker = if path.transport == Transport::UdpEncap { 4 } else { 0 };
    ip + 8 + marker
}

/// The most octets of IKE message in an IP packet of `size` octets; in TCP what its length field can say.
pub(crate) fn max_message(size: u16, path: Path) -> usize {
    //= RFC 9329 §7.5
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
