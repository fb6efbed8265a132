//! The control side: commands in, events out.

#[cfg(all(feature = "tun", target_os = "linux"))]
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use ipsec_types::crypto::{CipherProvider, SecureRandom};
use ipsec_types::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Encapsulation, Event, Mode,
    PolicyAction, Probed, Reply, SaId, Usage,
};
#[cfg(all(feature = "tun", target_os = "linux"))]
use ipsec_types::dataplane::{PolicyId, PolicySpec, TrafficSelector};
use tracing::{debug, info};

use crate::events::Events;
use crate::fields::Copied;
use crate::inbound::{Carrier, Inbound};
use crate::outbound::Outbound;
use crate::packet;
use crate::sad::{Path, Sa, Sad, no_such_sa};
use crate::search::BASE;
use crate::sizes::Ends;
use crate::spd::Spd;
use crate::stats::Stats;

/// A userspace ESP data plane without I/O. A clone is another handle to the same plane.
///
/// * Commands: [`DataPlane::apply`]; [`Self::set_time`] before it where the idle time of an SA matters.
/// * Packets: workers from [`Self::outbound`] and [`Self::inbound`], one per thread.
/// * Events: [`DataPlane::poll_event`], when [`Self::has_event`] says so.
#[derive(Clone)]
pub struct Plane {
    shared: Arc<Shared>,
}

/// Packets that a worker accounts for together, at the most.
pub(crate) const RUN: usize = 32;

/// The MTU of the tunnels until [`Plane::set_mtu`] says otherwise, in octets: with any suite it fits into 1500.
pub const TUNNEL_MTU: u16 = 1400;

/// The MTU that every link is assumed to have: no packet of the device needs more outside. If a link has less, the kernel
/// reports that when the first such packet is sent.
const LINK: u16 = 1500;

/// Milliseconds in which packets left: the path is in use. If none came in this time, the path may carry less than it did.
const SILENCE: u64 = 5000;

/// A report that a packet was too big for its path: ICMP of type 3, code 4, or ICMPv6 of type 2.
#[derive(Debug, Clone, Copy)]
pub struct TooBig<'a> {
    /// The destination of the packet; port 0 without UDP.
    pub peer: SocketAddr,
    /// What carried its ESP.
    pub carrier: Carrier,
    /// Octets of the largest packet that passes.
    pub octets: u16,
    /// The part of the packet that the report quotes, from the SPI on.
    pub quoted: &'a [u8],
}

/// State that the workers and the control side share.
pub(crate) struct Shared {
    tables: RwLock<Tables>,
    /// Counts changes of the tables, so that a worker knows when its cached entries are out of date.
    generation: AtomicU64,
    pub(crate) events: Events,
    pub(crate) stats: Arc<Stats>,
    ciphers: &'static dyn CipherProvider,
    epoch: Instant,
    /// The latest time anyone has told, in ms since `epoch`.
    clock: AtomicU64,
    /// Octets of the longest packet that is to be protected.
    mtu: AtomicU16,
    /// An inbound SA needs, or once needed, all fields of the outer header.
    needs_outer_fields: AtomicBool,
    /// The size of some path has changed.
    resized: AtomicBool,
    /// Whether reports that packets were too big are believed.
    believes: AtomicBool,
}

/// A worker's clock: packets of one batch have one time.
#[derive(Default)]
pub(crate) struct Clock {
    last: Option<(Instant, u64)>,
}

impl Clock {
    /// As [`Shared::tick`].
    #[inline]
    pub(crate) fn tick(&mut self, shared: &Shared, now: Instant) -> u64 {
        match self.last {
            Some((then, ms)) if then == now => ms,
            _ => self.last.insert((now, shared.tick(now))).1,
        }
    }
}

/// The rule of a policy for packets that arrive in clear.
#[cfg(all(feature = "tun", target_os = "linux"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClearRule {
    pub(crate) local: TrafficSelector,
    pub(crate) remote: TrafficSelector,
    /// False if it must not be.
    pub(crate) pass: bool,
    /// What arrives may pass all the same.
    pub(crate) leaving_only: bool,
}

/// SAs and policies.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) sad: Sad,
    pub(crate) spd: Spd,
}

#[cfg(all(feature = "tun", target_os = "linux"))]
impl Tables {
    fn narrow_limit(&self, policy: &PolicySpec) -> Option<u16> {
        let PolicyAction::Protect { outbound: Some(id), .. } = policy.action else { return None };
        let fit = self.sad.get(id)?.fit();
        fit.narrow.then_some(fit.limit)
    }
}

impl Plane {
    /// The capabilities of the plane.
    pub const CAPABILITIES: Capabilities = Capabilities {
        transport_mode: true,
        esn: true,
        plain_esp: true,
        udp_costs_less: false,
        tcp_esp: true,
        iptfs: false,
        per_cpu: false,
        cpus: 0,
        processing: false,
        header_fields: true,
    };

    /// An empty plane; its clock starts at `now`.
    pub fn new(now: Instant, ciphers: &'static dyn CipherProvider) -> Self {
        Self {
            shared: Arc::new(Shared {
                tables: RwLock::new(Tables { sad: Sad::with_mtu(TUNNEL_MTU), ..Tables::default() }),
                generation: AtomicU64::new(1),
                events: Events::default(),
                stats: Arc::default(),
                ciphers,
                epoch: now,
                clock: AtomicU64::new(0),
                mtu: AtomicU16::new(TUNNEL_MTU),
                needs_outer_fields: AtomicBool::new(false),
                resized: AtomicBool::new(false),
                believes: AtomicBool::new(true),
            }),
        }
    }

    /// A worker that protects packets; it draws CBC's IVs from `rng`.
    pub fn outbound(&self, rng: Box<dyn SecureRandom>) -> Outbound {
        Outbound::new(Arc::clone(&self.shared), rng)
    }

    /// A worker that opens ESP packets.
    pub fn inbound(&self) -> Inbound {
        Inbound::new(Arc::clone(&self.shared))
    }

    /// Tells the time. Workers do it with every packet.
    pub fn set_time(&self, now: Instant) {
        self.shared.tick(now);
    }

    /// Sets the MTU of the tunnels, in octets: no packet is padded beyond it, and with `tfc_padding = mtu` all are
    /// padded to it.
    pub fn set_mtu(&self, mtu: u16) {
        self.shared.mtu.store(mtu, Ordering::Relaxed);
        self.shared.change(|tables| tables.sad.set_mtu(mtu));
    }

    /// Sets the MTU of the link from `local` to `peer` to `octets`. Inner packets that do not fit are divided, or their
    /// senders are told ([`Fate::TooBig`](crate::Fate::TooBig)). Without this call all packets go out as they are.
    pub fn set_link(&self, local: IpAddr, peer: SocketAddr, octets: u16) {
        let resized = self.shared.amend(|tables| tables.sad.link(Ends { peer, local }, octets));
        self.shared.note(resized);
    }

    /// Sets whether [`Self::too_big`] believes reports (RFC 4301 §6.1.1); by default it does. If not, the paths of SAs that
    /// are installed later have an MTU of 1,280 octets, or what probes find.
    pub fn believe_icmp(&self, believe: bool) {
        self.shared.believes.store(believe, Ordering::Relaxed);
    }

    /// Turns on probes of paths (RFC 8899): [`Event::ProbePath`] asks for a probe, and [`Command::PathProbed`] brings its
    /// result. To be called before the first SA is installed. Until there is a result, ESP packets of more than 1,280 octets
    /// are sent without Don't Fragment.
    pub fn enable_probes(&self) {
        self.shared.amend(|tables| tables.sad.enable_probes());
    }

    /// The MTU that every link is assumed to have.
    #[cfg(feature = "tun")]
    pub(crate) fn usual_link(&self) -> u16 {
        let probes = self.shared.tables().sad.is_probing();
        if probes { LINK } else { self.shared.unproven() }
    }

    /// Takes the result of a probe on the path of the SA `id`, and asks for the next one.
    fn path_probed(&self, id: SaId, probed: Probed) {
        let now = self.shared.clock.load(Ordering::Relaxed);
        let ends = self.shared.tables().sad.get(id).map(|sa| sa.ends());
        // The SA was replaced meanwhile. The next large packet asks for a probe again.
        let Some(ends) = ends else {
            return debug!(?id, ?probed, "probe: result ignored, because the SA was replaced");
        };
        let unproven = self.shared.unproven();
        let (resized, next) = self.shared.amend(|tables| {
            let resized = tables.sad.take(now, ends, probed, unproven);
            (resized, tables.sad.ask(now, ends))
        });
        if self.shared.note(resized) {
            let octets = self.shared.tables().sad.path_mtu(ends);
            info!(peer = %ends.peer, octets, "a probe has shown what the path of ESP packets carries");
        }
        if let Some(octets) = next {
            self.shared.events.push(Event::ProbePath { sa: id, octets });
        }
    }

    /// The MTU of the path from `local` to `peer`, as far as it is known.
    pub fn path_mtu(&self, local: IpAddr, peer: SocketAddr) -> Option<u16> {
        self.shared.tables().sad.path_mtu(Ends { peer, local })
    }

    /// Takes a report that an ESP packet was too big for its path. The report is believed only if it quotes the SPI and a
    /// recent sequence number of an SA whose packets go to that address and port; strangers see neither. At most one
    /// report a second is believed for each peer. Returns the SA whose path has a smaller MTU now.
    pub fn too_big(&self, now: Instant, report: &TooBig<'_>) -> Option<SaId> {
        let TooBig { peer, carrier, octets, quoted } = *report;
        if !self.shared.believes.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.shared.tick(now);
        let Some((spi, low)) = packet::header(quoted) else {
            if carrier == Carrier::Udp && peer.is_ipv4() {
                self.divide(now, peer);
            }
            return None;
        };
        let id = SaId { spi, dst: peer.ip() };
        let ends = {
            let tables = self.shared.tables();
            let sa = tables.sad.get(id).filter(|sa| sa.direction == Direction::Out)?;
            let of = match sa.path.encap {
                None => Carrier::Ip,
                Some(Encapsulation::Udp(_)) => Carrier::Udp,
                Some(Encapsulation::Tcp(_)) => return None,
            };
            let ends = sa.ends();
            ((carrier, peer) == (of, ends.peer) && sa.sent_lately(low, now)).then_some(ends)?
        };
        let lowered = self.shared.amend(|tables| tables.sad.lower(now, ends, octets));
        self.shared.note(lowered).then_some(id)
    }

    /// Has packets to `peer` be fragmented on the way for a while. For a router that quotes no more than RFC 792 asks for, a
    /// UDP header: what it says may be anybody's guess, so the size stays as it is.
    fn divide(&self, now: u64, peer: SocketAddr) {
        let paths = self.shared.tables().sad.undivided(peer);
        if paths.is_empty() {
            return;
        }
        self.shared.amend(|tables| paths.iter().for_each(|ends| tables.sad.divide(now, *ends)));
        info!(%peer, "ICMP says that an ESP packet was too big, but not which: for a minute the path may fragment ESP");
    }

    /// Tries larger sizes on paths whose MTU was lowered ten minutes ago: by a probe, or by setting the MTU of the link
    /// again. Also asks for probes that confirm the MTU of paths in use. To be called every ten seconds.
    pub fn try_larger(&self, now: Instant) {
        let now = self.shared.tick(now);
        if self.shared.tables().sad.is_due(now) {
            self.shared.amend(|tables| tables.sad.try_larger(now));
            self.shared.note(true);
        }
        if self.shared.tables().sad.is_probing() {
            self.ask_for_probes(now);
        }
    }

    /// Asks for the probes that are due at `now` (ms). The SAs are looked through while the workers go on.
    fn ask_for_probes(&self, now: u64) {
        let due = self.shared.tables().sad.unconfirmed(now, now.saturating_sub(SILENCE));
        if !due.is_empty() {
            self.shared.amend(|tables| {
                due.iter().for_each(|(ends, silent)| tables.sad.doubt(now, *ends, *silent));
            });
        }
        let unasked = self.shared.tables().sad.unasked(now);
        if unasked.is_empty() {
            return;
        }
        let questions: Vec<_> = self.shared.amend(|tables| {
            let ask = |(sa, ends)| Some((sa, tables.sad.ask(now, ends)?));
            unasked.into_iter().filter_map(ask).collect()
        });
        for (sa, octets) in questions {
            self.shared.events.push(Event::ProbePath { sa, octets });
        }
    }

    /// As [`Self::too_big`], reported by the kernel of this host: the link to the peer has an MTU of `octets`.
    #[cfg(feature = "tun")]
    pub(crate) fn link_too_small(&self, now: Instant, peer: IpAddr, octets: u16) -> bool {
        let now = self.shared.tick(now);
        let paths = self.shared.tables().sad.paths_to(peer);
        let lower = |ends| self.shared.amend(|tables| tables.sad.lower(now, ends, octets));
        let lowered = paths.into_iter().map(lower).fold(false, |news, lowered| news | lowered);
        self.shared.note(lowered)
    }

    /// True if all of [`Outer::fields`](crate::Outer::fields) have to be right, because an inbound SA hands them up: in
    /// transport mode, or with `copy_dscp = in`. Once true, it stays true.
    pub fn needs_outer_fields(&self) -> bool {
        self.shared.needs_outer_fields.load(Ordering::Relaxed)
    }

    /// True if sizes of paths may have changed since [`Self::narrowed`] was called last.
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub(crate) fn is_resized(&self) -> bool {
        self.shared.resized.load(Ordering::Relaxed)
    }

    /// The policies whose SAs take less than the device brings, with the octets of the largest packet inside.
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub(crate) fn narrowed(&self) -> BTreeMap<PolicyId, (Arc<PolicySpec>, u16)> {
        self.shared.resized.store(false, Ordering::Release);
        let tables = self.shared.tables();
        let narrow = |policy: &Arc<PolicySpec>| {
            let limit = tables.narrow_limit(policy)?;
            Some((policy.id, (Arc::clone(policy), limit)))
        };
        tables.spd.policies().filter_map(narrow).collect()
    }

    /// As [`Self::narrowed`], for one policy.
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub(crate) fn narrow_limit(&self, policy: &PolicySpec) -> Option<u16> {
        self.shared.tables().narrow_limit(policy)
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// True if [`DataPlane::poll_event`] has something; takes no lock.
    pub fn has_event(&self) -> bool {
        self.shared.events.pending()
    }

    /// True if the SA `id` is installed.
    pub fn has_sa(&self, id: SaId) -> bool {
        self.shared.tables().sad.get(id).is_some()
    }

    /// True if packets with `spi` to `dst` have an SA.
    #[cfg(feature = "tun")]
    pub(crate) fn receives(&self, spi: u32, dst: IpAddr) -> bool {
        self.shared.tables().sad.inbound(spi, dst).is_some()
    }

    /// See [`Sad::retire`].
    #[cfg(feature = "tun")]
    pub(crate) fn retire(&self, id: SaId) -> Option<Arc<Sa>> {
        self.shared.change(|tables| tables.sad.retire(id))
    }

    /// See [`Sad::forget`].
    #[cfg(feature = "tun")]
    pub(crate) fn forget(&self, retired: &Arc<Sa>) {
        self.shared.change(|tables| tables.sad.forget(retired));
    }

    /// Number of SAs installed.
    pub fn sa_count(&self) -> usize {
        self.shared.tables().sad.len()
    }

    /// Sets whether a protecting policy is refused if another owner's policy protects some of the same traffic;
    /// see [`spd`](crate::spd).
    pub fn refuse_overlaps(&self, refuse: bool) {
        self.shared.change(|tables| tables.spd.refuse_overlaps(refuse));
    }

    /// Traffic that must not arrive in clear, and traffic that may, in the order in which the rules apply.
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub(crate) fn clear_rules(&self) -> Vec<ClearRule> {
        let rule =
            |(local, remote, action): (&TrafficSelector, &TrafficSelector, &PolicyAction)| {
                ClearRule {
                    local: *local,
                    remote: *remote,
                    pass: *action == PolicyAction::Pass,
                    leaving_only: *action == PolicyAction::Hold { anywhere: true },
                }
            };
        self.shared.tables().spd.pairs().map(rule).collect()
    }

    /// Refuses commands with options that the plane would have to ignore.
    fn check(&self, command: &Command) -> Result<(), DataPlaneError> {
        let lacking = match command {
            Command::InstallSa(spec) => self.capabilities().lacks(spec.mode, &spec.processing),
            Command::InstallPolicy(spec) => {
                let mode = match spec.action {
                    PolicyAction::Protect { mode, .. } => mode,
                    _ => Mode::Tunnel,
                };
                self.capabilities().lacks(mode, &spec.processing)
            }
            _ => None,
        };
        let refused = |option| DataPlaneError(format!("ESP in user space has no {option}"));
        lacking.map_or(Ok(()), |option| Err(refused(option)))
    }

    fn usage(&self, id: SaId) -> Result<Usage, DataPlaneError> {
        let now = self.shared.clock.load(Ordering::Relaxed);
        let tables = self.shared.tables();
        let sa = tables.sad.get(id).ok_or_else(|| no_such_sa(id))?;
        let (bytes, packets, last) = sa.usage();
        let idle = last.map(|last| Duration::from_millis(now.saturating_sub(last)));
        let path_mtu = match sa.direction {
            Direction::Out => tables.sad.path_mtu(sa.ends()),
            Direction::In => None,
        };
        Ok(Usage { bytes, packets, idle, path_mtu, ..Usage::default() })
    }
}

impl DataPlane for Plane {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        if let Command::QueryUsage(id) = command {
            return self.usage(id).map(|usage| Reply::Usage(id, usage));
        }
        if let Command::PathProbed(id, probed) = command {
            self.path_probed(id, probed);
            return Ok(Reply::Done);
        }
        self.check(&command)?;
        if let Command::InstallSa(spec) = &command
            && spec.direction == Direction::In
            && (spec.mode == Mode::Transport
                || Copied::from(&*spec.processing).needs_outer_fields())
        {
            self.shared.needs_outer_fields.store(true, Ordering::Relaxed);
        }
        let ciphers = self.shared.ciphers;
        let change = |Tables { sad, spd }: &mut Tables| match command {
            Command::InstallSa(spec) => sad.install(*spec, ciphers),
            Command::RemoveSa(id) => {
                sad.remove(id);
                Ok(())
            }
            Command::InstallPolicy(spec) => spd.install(*spec),
            Command::RemovePolicy(id) => {
                spd.remove(id);
                Ok(())
            }
            Command::UpdateSa { id, src, dst, encap } => {
                sad.update(id, Path { src: src.ip(), dst: dst.ip(), encap })
            }
            Command::RemoveSas => {
                sad.clear();
                Ok(())
            }
            Command::Flush => {
                sad.clear();
                spd.clear();
                Ok(())
            }
            Command::QueryUsage(_) | Command::PathProbed(..) => Ok(()),
        };
        self.shared.change(change).map(|()| Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop()
    }
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane").field("sas", &self.sa_count()).finish_non_exhaustive()
    }
}

impl Shared {
    /// The MTU of the tunnels.
    #[inline]
    pub(crate) fn mtu(&self) -> usize {
        usize::from(self.mtu.load(Ordering::Relaxed))
    }

    /// The tables to read. Held for a look-up only.
    pub(crate) fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the current state of the tables. Reads after this call see this state or a newer one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Advances the clock and returns it, in ms.
    pub(crate) fn tick(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch);
        let ms = since.as_secs() * 1000 + u64::from(since.subsec_millis());
        // Without the look first, every packet would take the cache line from the other workers.
        if self.clock.load(Ordering::Relaxed) < ms {
            self.clock.fetch_max(ms, Ordering::Relaxed);
        }
        ms
    }

    /// Changes what workers look up, which costs each of them its cache.
    fn change<T>(&self, f: impl FnOnce(&mut Tables) -> T) -> T {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut tables);
        self.generation.fetch_add(1, Ordering::Release);
        result
    }

    /// The MTU of a path on which no probe can be sent.
    fn unproven(&self) -> u16 {
        if self.believes.load(Ordering::Relaxed) { LINK } else { BASE }
    }

    /// Asks for a probe of the path of `sa`, because a packet needs it, unless the result of another probe is to come.
    #[cold]
    pub(crate) fn ask_for_probe(&self, sa: &Sa, now: u64) {
        let ends = sa.ends();
        if self.tables().sad.has_no_question(now, ends) {
            return;
        }
        let (gives_up, octets) =
            self.amend(|tables| (tables.sad.give_up(now, ends), tables.sad.ask(now, ends)));
        if self.note(gives_up) {
            info!(peer = %ends.peer, octets = BASE, "probes of the path of ESP packets have no result: the path counts as one of this size until they have");
        }
        if let Some(octets) = octets {
            self.events.push(Event::ProbePath { sa: sa.id, octets });
        }
    }

    /// Takes note if the size of a path has changed, and returns whether it has.
    fn note(&self, resized: bool) -> bool {
        if resized {
            self.resized.store(true, Ordering::Release);
        }
        resized
    }

    /// Changes what workers find in the SAs they hold.
    fn amend<T>(&self, f: impl FnOnce(&mut Tables) -> T) -> T {
        f(&mut self.tables.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(all(test, feature = "tun"))]
mod tests {
    use super::*;

    /// Fault: in `Plane::set_link` or `link_too_small`, take `change` for `amend`.
    #[test]
    fn a_size_of_one_path_costs_no_worker_its_cache() {
        #[expect(clippy::disallowed_methods, reason = "an Instant to count from")]
        let now = Instant::now();
        let plane = Plane::new(now, &pq_kem::sym::Ciphers);
        let (local, peer) = ([192, 0, 2, 1].into(), SocketAddr::from(([192, 0, 2, 2], 4500)));
        let before = plane.shared.generation();
        plane.set_link(local, peer, 1500);
        assert!(plane.link_too_small(now, peer.ip(), 1400));
        plane.divide(1, peer);
        plane.try_larger(now + Duration::from_secs(600));
        assert_eq!(plane.path_mtu(local, peer), Some(1500));
        assert_eq!(plane.shared.generation(), before);
    }
}
