//! ESP in the kernel: XFRM, and the routes that lead there.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, Mode, Outer, PolicyAction, PolicyId,
    PolicySpec, Processing, Reply, TrafficSelector,
};
use ike_tokio::{Adopted, Plane, Ports};
use routes::{Leftovers, Routes, Via};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};
use xfrm::Tracer;
use xfrm::event::Events;
use xfrm::kernel::Kernel;
use xfrm::netlink::Socket;
use xfrm::offload::{Devices, Offloader};
use xfrm::plane::{Remains, WithLinks, XfrmNetlink, is_hold};
use xfrm::policy::{Action, Policy, PolicyDirection};
use xfrm::probe::Features;

use super::instance_lock::{InstanceLock, lock_instance};
use super::second_line::{self, SecondLine};
use super::{Earlier, Removal, adopt, is_all};
use crate::config::PlaneOptions;

/// The kernel with its events.
type Xfrm = XfrmNetlink<Socket, WithLinks<Events>>;

/// How long policies of an earlier run wait for those of this run: without them packets would leave in clear.
const SETTLE: Duration = Duration::from_secs(10);

/// How long until the plane looks at the kernel although nothing has called for that.
const REGULAR: Duration = Duration::from_secs(60);

/// What the kernel can do; the error says what it lacks.
pub(super) fn probe() -> io::Result<Features> {
    let mut kernel = Kernel::open().map_err(|error| match error.raw_os_error() {
        Some(EPROTONOSUPPORT) => unsupported("it has no XFRM (CONFIG_XFRM_USER)"),
        _ => explain("netlink", &error),
    })?;
    let features = kernel.features().map_err(|error| match error.errno {
        EPERM => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it lets nobody set up IPsec without root or CAP_NET_ADMIN",
        ),
        _ => io::Error::other(error.to_string()),
    })?;
    if !features.esp4 && !features.esp6 {
        return Err(unsupported(
            "it has no ESP (CONFIG_INET_ESP, CONFIG_INET6_ESP), or no AES-GCM",
        ));
    }
    Ok(features)
}

/// Starts the plane over a kernel with `features`. Must be called in a tokio runtime.
pub(super) fn start(
    features: Features,
    options: PlaneOptions,
    ports: Ports,
    earlier: Earlier<'_>,
) -> io::Result<Plane> {
    let lock = lock_instance()?;
    let keep = matches!(earlier, Earlier::Keep(_));
    let mut kernel = Kernel::open().map_err(|error| explain("netlink", &error))?;
    let events = Events::open_all().and_then(WithLinks::new);
    let events = events.map_err(|error| explain("events", &error))?;
    let offloader = offloader(&mut kernel, ports, keep)?;
    let mut xfrm = XfrmNetlink::new(kernel, events, capabilities(features)?);
    xfrm = xfrm.with_installer(offloader);
    let leftovers = if keep { Leftovers::Keep } else { Leftovers::Settle };
    let routes = match options.install_routes {
        true => Some(Routes::start(options.routes, leftovers).map_err(|e| explain("routes", &e))?),
        false => None,
    };
    let blocked = blocked(&mut xfrm)?;
    let adopted = take_over(&mut xfrm, earlier)?;
    let bell = Arc::new(Notify::new());
    let (deadline, deadlines) = watch::channel(xfrm.deadline());
    ring(xfrm.as_fd().try_clone_to_owned()?, Arc::clone(&bell), deadlines)?;
    xfrm.refuse_overlaps(!options.overlap);
    xfrm.follow_leaving();
    let mut plane = KernelPlane {
        xfrm,
        routes,
        stale_routes: keep,
        stand_ins: BTreeSet::new(),
        link_passes: LinkPasses::default(),
        second_line: SecondLine::start(options.routes.mark, ports, SETTLE),
        deadline,
        _lock: lock,
    };
    // What this run has taken over of an earlier one.
    plane.after();
    let control = Box::new(Tracer::new(plane));
    Ok(Plane { bell, host: true, adopted, blocked, ..Plane::of(control) })
}

/// What policies of an earlier run take, and drop once its states are gone; and what its second line drops, which holds also if
/// another program has removed these policies.
fn blocked(xfrm: &mut Xfrm) -> io::Result<Vec<(TrafficSelector, TrafficSelector)>> {
    let left = Remains::find(xfrm.kernel_mut()).map_err(unread)?;
    let passes = |policy: &Policy| matches!(&policy.action, Action::Allow(to) if to.is_empty());
    // A hold of an earlier run is for a child that was never up. This run makes its own holds.
    let is_block = |policy: &&Policy| !passes(policy) && !is_hold(policy);
    let policies = left.policies.iter().map(|info| &info.policy);
    let ids = policies.filter(is_block).map(|policy| policy.id);
    let outward = ids.filter(|id| id.direction == PolicyDirection::Out);
    let mut all: Vec<_> = outward.map(|id| adopt::selectors(&id.selector)).collect();
    all.extend(second_line::left());
    let mut seen = HashSet::new();
    all.retain(|pair| seen.insert(*pair));
    Ok(all)
}

/// Removes the states and policies that earlier runs have left, and their second line.
///
/// # Errors
/// Another daemon has the kernel's data plane.
pub(super) fn remove_all(removal: &mut Removal) -> io::Result<()> {
    let left = left();
    // Without XFRM there is no other daemon with this data plane.
    let _lock = if matches!(left, Ok(None)) { None } else { lock_instance()? };
    match left {
        Ok(Some((mut kernel, Remains { states, policies }))) => {
            for state in &states {
                removal.note(kernel.delete_state(&state.id).map(|_| 1).map_err(unread));
            }
            for info in &policies {
                removal.note(kernel.delete_policy(&info.policy.id).map(|_| 1).map_err(unread));
            }
        }
        Ok(None) => {}
        Err(error) => removal.note(Err(error)),
    }
    // The last, so that source NAT takes nothing out of a tunnel meanwhile.
    removal.note(remove_second_line());
    Ok(())
}

/// Removes the second line of an earlier run. Returns how many there were.
fn remove_second_line() -> io::Result<usize> {
    second_line::remove_left().map(usize::from)
}

/// Removes the second line that an earlier run over this plane has left, before another plane begins: it drops what has no SA of
/// the kernel, in front of a TUN device as well.
///
/// # Errors
/// The kernel refuses: no child would carry anything.
pub(super) fn make_way() -> io::Result<()> {
    match second_line::is_left() {
        Ok(false) => return Ok(()),
        Ok(true) => {}
        Err(error) => {
            tracing::warn!(%error, "not known whether an earlier run has left the table ike-xfrm, which drops what the children protect: see `nft list tables`");
            return Ok(());
        }
    }
    match lock_instance() {
        Ok(_lock) => {
            remove_second_line()?;
            tracing::info!("nf_tables: removed the table ike-xfrm of an earlier run");
        }
        // It is no earlier run's.
        Err(error) => {
            tracing::warn!(%error, "nf_tables: the table ike-xfrm stays, and drops what the children of that daemon protect");
        }
    }
    Ok(())
}

/// How many policies earlier runs have left, and with their second line.
pub(super) fn count_left() -> io::Result<usize> {
    Ok(left()?.map_or(0, |(_, left)| left.policies.len()) + usize::from(second_line::is_left()?))
}

/// What earlier runs have left. None without XFRM in the kernel.
fn left() -> io::Result<Option<(Kernel<Socket>, Remains)>> {
    let mut kernel = match Kernel::open() {
        Err(error) if error.raw_os_error() == Some(EPROTONOSUPPORT) => return Ok(None),
        kernel => kernel.map_err(|error| explain("netlink", &error))?,
    };
    let left = Remains::find(&mut kernel).map_err(unread)?;
    Ok(Some((kernel, left)))
}

fn unread(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("XFRM policies and states: {error}"))
}

/// Takes over what an earlier run left, or removes it.
fn take_over(xfrm: &mut Xfrm, earlier: Earlier<'_>) -> io::Result<Vec<Adopted>> {
    let mut adopted = Vec::new();
    let config = match earlier {
        Earlier::Remove => None,
        Earlier::Keep(config) => Some(config),
    };
    let taken = xfrm.take_over(SETTLE, |orphan| {
        let found = config.and_then(|config| adopt::find(config, orphan));
        let reqid = orphan.reqid;
        let Some((child, life)) = found else {
            tracing::info!(reqid, "removed what an earlier run left");
            return None;
        };
        let (connection, name) = (&child.connection, &child.child);
        tracing::info!(%connection, child = %name, reqid, "goes on as an earlier run left it");
        adopted.push(child);
        Some(life)
    });
    taken.map_err(|error| io::Error::other(format!("what an earlier run left: {error}")))?;
    Ok(adopted)
}

/// What offloads SAs, and lets IKE on `ports` pass the devices it offloads to.
fn offloader(
    kernel: &mut Kernel<Socket>,
    ports: Ports,
    keep: bool,
) -> io::Result<Offloader<Devices>> {
    let devices = Devices::open().map_err(|error| explain("devices", &error))?;
    let mut offloader = Offloader::new(devices, vec![ports.ike, ports.nat_t]);
    if !keep && let Err(error) = offloader.remove_leftovers(kernel) {
        tracing::warn!(%error, "policies of an earlier run that let IKE pass are still there");
    }
    Ok(offloader)
}

/// XFRM with its routes.
struct KernelPlane {
    xfrm: Xfrm,
    routes: Option<Routes>,
    /// Routes of an earlier run may be there.
    stale_routes: bool,
    /// Policies of children that are down.
    stand_ins: BTreeSet<PolicyId>,
    link_passes: LinkPasses,
    second_line: SecondLine,
    /// When the bell is to be rung although there is no event.
    deadline: watch::Sender<Option<Instant>>,
    /// Held as long as the plane exists.
    _lock: Option<InstanceLock>,
}

impl KernelPlane {
    fn install(&mut self, spec: PolicySpec) -> Result<Reply, DataPlaneError> {
        let (id, via, fallback) = (spec.id, via(&spec), fallback(&spec.action));
        let (local, remote) = (spec.local_ts.clone(), spec.remote_ts.clone());
        match fallback {
            Some(_) => _ = self.stand_ins.insert(id),
            None => _ = self.stand_ins.remove(&id),
        }
        self.pass_link();
        // The policy before its route, so that no packet gets there without it.
        self.xfrm.apply(Command::InstallPolicy(Box::new(spec)))?;
        let Some(routes) = &self.routes else { return Ok(Reply::Done) };
        let routed = match via {
            Some(via) => match fallback {
                Some(fallback) => routes.hold(id, &local, &remote, [via, fallback]),
                None => routes.install(id, &local, &remote, via),
            },
            None => routes.remove(id),
        };
        if let Err(error) = routed {
            // The policy holds all the same, and the route is tried again when the system's routes change.
            tracing::warn!(%error, "no route to what is protected");
        }
        Ok(Reply::Done)
    }

    /// Lets pass what a link needs, as long as a child is blocked or held.
    fn pass_link(&mut self) {
        let Self { xfrm, stand_ins, link_passes, .. } = self;
        link_passes.set(!stand_ins.is_empty(), |command| xfrm.apply(command));
    }

    /// What any call may have changed.
    fn after(&mut self) {
        if self.stale_routes && !self.xfrm.has_orphans() {
            self.stale_routes = false;
            self.unroute(Routes::forget_leftovers);
        }
        // After the policies: a packet never meets the second line before the first.
        self.second_line.follow(self.xfrm.leaving_changes());
        self.deadline.send_replace(self.xfrm.deadline());
    }

    fn unroute(&self, what: impl Fn(&Routes) -> Result<(), DataPlaneError>) {
        if let Some(Err(error)) = self.routes.as_ref().map(what) {
            tracing::warn!(%error, "routes not removed");
        }
    }
}

impl DataPlane for KernelPlane {
    fn capabilities(&self) -> Capabilities {
        self.xfrm.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let reply = match command {
            Command::InstallPolicy(spec) => self.install(*spec),
            Command::RemovePolicy(id) => {
                self.unroute(|routes| routes.remove(id));
                let reply = self.xfrm.apply(Command::RemovePolicy(id));
                self.stand_ins.remove(&id);
                self.pass_link();
                reply
            }
            Command::Flush => {
                self.unroute(|routes| routes.flush().and(routes.at_the_end(Leftovers::Remove)));
                self.stand_ins.clear();
                self.link_passes = LinkPasses::default();
                let reply = self.xfrm.apply(Command::Flush);
                both(reply, self.second_line.remove())
            }
            Command::RemoveSas => {
                self.unroute(|routes| routes.at_the_end(Leftovers::Keep));
                self.xfrm.apply(Command::RemoveSas)
            }
            other => self.xfrm.apply(other),
        };
        self.after();
        reply
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.xfrm.poll_event();
        self.pass_link();
        self.after();
        event
    }
}

/// The reply if neither has failed, and each error.
fn both(
    reply: Result<Reply, DataPlaneError>,
    removed: Result<(), DataPlaneError>,
) -> Result<Reply, DataPlaneError> {
    match (reply, removed) {
        (reply, Ok(())) => reply,
        (Ok(_), Err(error)) => Err(error),
        (Err(one), Err(other)) => Err(DataPlaneError(format!("{}; {}", one.0, other.0))),
    }
}

/// Where packets of this host that `policy` is about are to go; `None` leaves it to the system. Packets that
/// an XFRM interface takes are routed to it by whoever made it, and routes do not know protocols.
fn via(policy: &PolicySpec) -> Option<Via> {
    let whole =
        |ts: &TrafficSelector| ts.protocol == 0 && ts.start_port == 0 && ts.end_port == u16::MAX;
    let processing = &policy.processing;
    let selective = !policy.local_ts.iter().chain(&policy.remote_ts).all(whole);
    if selective || processing.if_id_out != 0 || !processing.policies {
        return None;
    }
    let outer = match policy.action {
        PolicyAction::Protect { mode, local, remote, .. } => Outer { mode, local, remote },
        PolicyAction::Trap => policy.outer?,
        PolicyAction::Pass => return Some(Via::Elsewhere),
        PolicyAction::Drop => return None,
        // The policy has the packets of the networks themselves. Those of this host have an address out of
        // them only while there is a route that says so: without one they would leave by the default route. A route towards
        // the peer does not do once this host has lost that address, or another program has removed the policy.
        PolicyAction::Shunt { .. } => return fallback(&policy.action),
        // The policy has the packets from all addresses.
        PolicyAction::Hold { anywhere: true } => return None,
        // On the route towards the peer they have such an address, and the policy takes them. An unreachable route would
        // make rp_filter drop what the peer sends.
        PolicyAction::Hold { anywhere: false } => {
            policy.outer.or_else(|| toward_selectors(policy))?
        }
    };
    let Outer { mode, local, remote } = outer;
    match mode {
        // The ends are reached as ever, also where a shunt of this child blocks what the system routes.
        Mode::Transport => Some(Via::Elsewhere),
        _ => (!remote.is_unspecified()).then_some(Via::Peer { local, remote }),
    }
}

/// The route for packets of a child that is down if the first route is gone.
fn fallback(action: &PolicyAction) -> Option<Via> {
    match action {
        PolicyAction::Hold { .. } => Some(Via::Prohibited),
        PolicyAction::Shunt { silent: false } => Some(Via::Unreachable),
        PolicyAction::Shunt { silent: true } => Some(Via::BlackHole),
        PolicyAction::Protect { .. }
        | PolicyAction::Trap
        | PolicyAction::Pass
        | PolicyAction::Drop => None,
    }
}

/// Which of [`link_policies`] are installed.
#[derive(Debug, Default)]
struct LinkPasses {
    there: BTreeSet<PolicyId>,
    /// The last call of [`set`](Self::set) failed.
    failed: bool,
}

impl LinkPasses {
    /// Installs all of them, or removes all. What fails is tried again at the next call.
    fn set(
        &mut self,
        wanted: bool,
        mut apply: impl FnMut(Command) -> Result<Reply, DataPlaneError>,
    ) {
        if self.there.len() == if wanted { LINK_NEEDS } else { 0 } {
            return;
        }
        let mut failure = None;
        for policy in link_policies() {
            let id = policy.id;
            if self.there.contains(&id) == wanted {
                continue;
            }
            let command = match wanted {
                true => Command::InstallPolicy(Box::new(policy)),
                false => Command::RemovePolicy(id),
            };
            match apply(command) {
                Ok(_) if wanted => _ = self.there.insert(id),
                Ok(_) => _ = self.there.remove(&id),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure.as_ref().filter(|_| !self.failed) {
            let verb = if wanted { "install" } else { "remove" };
            tracing::warn!(%error, "cannot {verb} the policies for neighbor discovery and DHCP: it is tried again");
        }
        self.failed = failure.is_some();
    }
}

/// Policies that let neighbor discovery (RFC 4861) and DHCP of this host as a client pass: without both there is no link to
/// reach the peer by. Every policy that protects has precedence over those for DHCP, unless it is as wide.
fn link_policies() -> [PolicySpec; LINK_NEEDS] {
    let any = [TrafficSelector::any_v4(), TrafficSelector::any_v6()];
    let ports = |any: TrafficSelector, protocol, start_port, end_port| TrafficSelector {
        protocol,
        start_port,
        end_port,
        ..any
    };
    let discovery = ports(any[1], ICMPV6, 133 << 8, 137 << 8 | 0xff);
    let dhcp =
        |any, client, server| (ports(any, UDP, client, client), ports(any, UDP, server, server));
    let all = [(discovery, discovery), dhcp(any[0], 68, 67), dhcp(any[1], 546, 547)];
    let mut id = LINK_POLICIES;
    all.map(|(local, remote)| {
        id += 1;
        PolicySpec {
            id: PolicyId(id),
            child: LINK.into(),
            owner: LINK.into(),
            local_ts: vec![local],
            remote_ts: vec![remote],
            action: PolicyAction::Pass,
            // Neighbor discovery has precedence over a trap for one host, too.
            priority: u32::from(local.protocol == ICMPV6),
            processing: Arc::<Processing>::default(),
            // With transport mode, packets that this host forwards do not pass.
            outer: Some(Outer { mode: Mode::Transport, local: local.start, remote: remote.start }),
            standby: false,
        }
    })
}

/// While the peer has no address: the route that the system has to the `remote_ts` of `policy`, so that name servers there
/// can answer. `None` for all addresses.
fn toward_selectors(policy: &PolicySpec) -> Option<Outer> {
    let remote = policy.remote_ts.iter().find(|ts| !ts.start.is_unspecified())?.start;
    let local = match remote {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let all = policy.remote_ts.iter().any(is_all);
    (!all).then_some(Outer { mode: Mode::Tunnel, local, remote })
}

/// Rings `bell` when `events` is readable or a deadline has come, until the plane is gone.
fn ring(
    events: OwnedFd,
    bell: Arc<Notify>,
    mut deadlines: watch::Receiver<Option<Instant>>,
) -> io::Result<()> {
    #[expect(deprecated, reason = "its successor is unsafe, and an OwnedFd is what it asks for")]
    let events = AsyncFd::with_interest(events, Interest::READABLE)?;
    tokio::spawn(async move {
        let mut rung = None;
        loop {
            let due = deadlines.borrow_and_update().filter(|due| Some(*due) != rung);
            tokio::select! {
                // What others have changed without an event is found then.
                () = tokio::time::sleep(REGULAR) => bell.notify_one(),
                changed = deadlines.changed() => if changed.is_err() { return },
                ready = events.readable() => match ready {
                    Ok(mut ready) => {
                        // The plane reads until there is nothing left; what comes then is news again.
                        ready.clear_ready();
                        bell.notify_one();
                    }
                    Err(error) => return tracing::error!(%error, "events of the kernel"),
                },
                () = sleep_until(due) => {
                    rung = due;
                    bell.notify_one();
                }
            }
        }
    });
    Ok(())
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn explain(what: &str, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => " (the kernel data plane needs root, or CAP_NET_ADMIN)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what}: {error}{hint}"))
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// What a kernel with these can do.
pub(super) fn capabilities(features: Features) -> io::Result<Capabilities> {
    let Features { esn, iptfs, per_cpu, .. } = features;
    let cpus = std::thread::available_parallelism()?.get();
    Ok(Capabilities {
        transport_mode: true,
        esn,
        plain_esp: true,
        udp_costs_less: false,
        tcp_esp: false,
        iptfs,
        per_cpu,
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        processing: true,
        header_fields: true,
    })
}

const LINK: &str = "link";
/// The numbers of these policies follow this one. Numbers of other policies do not reach it.
const LINK_POLICIES: u64 = u64::MAX - 8;
/// How many [`link_policies`] there are.
const LINK_NEEDS: usize = 3;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const EPERM: i32 = 1;
const EPROTONOSUPPORT: i32 = 93;

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(action: PolicyAction, remote: &str, peer: Option<&str>) -> PolicySpec {
        let peer: Option<IpAddr> = peer.map(|peer| peer.parse().unwrap());
        let any = Ipv4Addr::UNSPECIFIED.into();
        PolicySpec {
            id: PolicyId(1),
            child: "net".into(),
            owner: "site".into(),
            local_ts: vec!["10.1.0.0/16".parse().unwrap()],
            remote_ts: vec![remote.parse().unwrap()],
            action,
            priority: 0,
            processing: Arc::default(),
            outer: peer.map(|remote| Outer { mode: Mode::Tunnel, local: any, remote }),
            standby: false,
        }
    }

    /// rp_filter drops what comes from an address to which the routes lead nowhere: the peer's packets, and while the peer
    /// has no address, the answers of name servers.
    ///
    /// Faults: in `via`, return `Via::Unreachable` for a hold; leave `toward_selectors` out.
    #[test]
    fn no_hold_of_a_child_is_a_route_that_leads_nowhere() {
        let peer = |text: &str| {
            let local = Ipv4Addr::UNSPECIFIED.into();
            Some(Via::Peer { local, remote: text.parse().unwrap() })
        };
        let hold = || PolicyAction::Hold { anywhere: false };
        assert_eq!(via(&policy(hold(), "10.2.0.0/16", Some("192.0.2.7"))), peer("192.0.2.7"));
        assert_eq!(via(&policy(hold(), "10.2.0.0/16", None)), peer("10.2.0.0"));
        assert_eq!(via(&policy(hold(), "0.0.0.0/0", Some("192.0.2.7"))), peer("192.0.2.7"));
        assert_eq!(via(&policy(hold(), "0.0.0.0/0", None)), None);
        let anywhere = PolicyAction::Hold { anywhere: true };
        assert_eq!(via(&policy(anywhere, "10.2.0.0/16", Some("192.0.2.7"))), None);
    }

    /// The route that blocks a child that was up stops more than its policy does: packets of this host from a new address
    /// after a move, packets without the virtual IP, and all packets after another program has removed the policies.
    ///
    /// Fault: in `via`, treat a shunt as a hold.
    #[test]
    fn the_block_of_a_child_that_was_up_is_a_route_that_leads_nowhere() {
        let shunt =
            |silent, remote, peer| via(&policy(PolicyAction::Shunt { silent }, remote, peer));
        for remote in ["10.2.0.0/16", "0.0.0.0/0", "::/0"] {
            for peer in [None, Some("192.0.2.7")] {
                assert_eq!(shunt(false, remote, peer), Some(Via::Unreachable));
                assert_eq!(shunt(true, remote, peer), Some(Via::BlackHole));
            }
        }
    }

    /// Fault: in `both`, return the first error alone.
    #[test]
    fn an_end_tells_all_that_stays() {
        let error = |text: &str| DataPlaneError(text.to_owned());
        let told = both(Err(error("a policy stays")), Err(error("the table stays"))).unwrap_err();
        assert_eq!(told.0, "a policy stays; the table stays");
        assert_eq!(both(Ok(Reply::Done), Err(error("the table"))).unwrap_err().0, "the table");
        both(Ok(Reply::Done), Ok(())).unwrap();
    }

    /// Faults: in `LinkPasses::set`, count a policy as there that has failed; try no second time.
    #[test]
    fn what_a_link_needs_is_tried_again_until_all_of_it_passes() {
        let (mut passes, mut there, mut fails) = (LinkPasses::default(), BTreeSet::new(), true);
        let mut set = |passes: &mut LinkPasses, wanted, fails: bool| {
            passes.set(wanted, |command| match command {
                Command::InstallPolicy(spec) if fails && spec.id.0 == LINK_POLICIES + 2 => {
                    Err(DataPlaneError("no memory".into()))
                }
                Command::InstallPolicy(spec) => Ok(there.insert(spec.id)).map(|_| Reply::Done),
                Command::RemovePolicy(id) => Ok(there.remove(&id)).map(|_| Reply::Done),
                _ => panic!("another command"),
            });
            there.len()
        };
        assert_eq!(set(&mut passes, true, fails), 2);
        assert!(passes.failed);
        fails = false;
        assert_eq!(set(&mut passes, true, fails), 3);
        assert!(!passes.failed);
        assert_eq!(set(&mut passes, false, fails), 0);
    }

    /// A trap of two hosts is as narrow as can be.
    ///
    /// Fault: in `link_policies`, leave out neighbor discovery, let it end with type 136, or have no priority.
    #[test]
    fn what_a_link_needs_passes_every_hold() {
        let kernel = xfrm::SimKernel::new();
        let capabilities = Plane::USERSPACE;
        let mut plane = XfrmNetlink::new(Kernel::new(kernel.clone()), kernel.clone(), capabilities);
        let mut install = |spec| plane.apply(Command::InstallPolicy(Box::new(spec))).unwrap();
        for (id, family) in [(1, "0.0.0.0/0"), (2, "::/0")] {
            let hold = policy(PolicyAction::Hold { anywhere: true }, family, None);
            let all = vec![family.parse().unwrap()];
            install(PolicySpec { id: PolicyId(id), local_ts: all, ..hold });
        }
        let trap = policy(PolicyAction::Trap, "2001:db8::2/128", None);
        let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|end| end.parse().unwrap());
        let outer = Some(Outer { mode: Mode::Transport, local, remote });
        let local_ts = vec!["2001:db8::1/128".parse().unwrap()];
        install(PolicySpec { id: PolicyId(3), local_ts, outer, ..trap });
        let sent = |family: usize, protocol, src_port, dst_port| {
            let (src, dst) = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")][family];
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            let packet = xfrm::Packet { src, dst, protocol, src_port, dst_port, mark: 0, if_id: 0 };
            kernel.send(&packet)
        };
        let needed = || {
            let discovery = (133..=137).map(|kind| (1, ICMPV6, kind, 0));
            discovery.chain([(0, UDP, 68, 67), (1, UDP, 546, 547)])
        };
        let verdicts = || needed().map(|(f, p, from, to)| sent(f, p, from, to)).collect::<Vec<_>>();
        assert!(!verdicts().contains(&xfrm::Verdict::Clear));
        link_policies().into_iter().for_each(|spec| _ = install(spec));
        // The trap is narrower than DHCP.
        assert_eq!(verdicts()[..6], [xfrm::Verdict::Clear; 6]);
        for (family, protocol, from, to) in
            [(1, ICMPV6, 128, 0), (1, ICMPV6, 132, 0), (1, ICMPV6, 138, 0), (0, UDP, 67, 68)]
        {
            assert_ne!(sent(family, protocol, from, to), xfrm::Verdict::Clear);
        }
    }
}
