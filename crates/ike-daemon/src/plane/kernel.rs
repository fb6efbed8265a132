//! ESP in the kernel: XFRM, and the routes that lead there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, Mode, Outer, PolicyAction, PolicySpec,
    Reply, TrafficSelector,
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
use xfrm::plane::{Remains, WithLinks, XfrmNetlink};
use xfrm::policy::{Action, Policy, PolicyDirection};
use xfrm::probe::Features;

use super::bypass::is_all;
use super::sole::sole;
use super::{Earlier, adopt};
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
    let sole = sole()?;
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
    let plane = KernelPlane { xfrm, routes, stale_routes: keep, deadline, _sole: sole };
    let control = Box::new(Tracer::new(plane));
    Ok(Plane { bell, host: true, adopted, blocked, ..Plane::of(control) })
}

/// What policies of an earlier run take, and drop once its states are gone.
fn blocked(xfrm: &mut Xfrm) -> io::Result<Vec<(TrafficSelector, TrafficSelector)>> {
    let left = Remains::find(xfrm.kernel_mut()).map_err(unread)?;
    let passes = |policy: &Policy| matches!(&policy.action, Action::Allow(to) if to.is_empty());
    let policies = left.policies.iter().map(|info| &info.policy);
    let ids = policies.filter(|policy| !passes(policy)).map(|policy| policy.id);
    let outward = ids.filter(|id| id.direction == PolicyDirection::Out);
    Ok(outward.map(|id| adopt::selectors(&id.selector)).collect())
}

/// Removes the states and policies that earlier runs have left. Returns how many.
pub(super) fn remove_all() -> io::Result<usize> {
    let Some((mut kernel, Remains { states, policies })) = left()? else { return Ok(0) };
    let _sole = sole()?;
    for state in &states {
        kernel.delete_state(&state.id).map_err(unread)?;
    }
    for info in &policies {
        kernel.delete_policy(&info.policy.id).map_err(unread)?;
    }
    Ok(states.len() + policies.len())
}

/// How many policies earlier runs have left.
pub(super) fn count_left() -> io::Result<usize> {
    Ok(left()?.map_or(0, |(_, left)| left.policies.len()))
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
    /// When the bell is to be rung although there is no event.
    deadline: watch::Sender<Option<Instant>>,
    /// Held as long as the plane lasts.
    _sole: Option<UnixListener>,
}

impl KernelPlane {
    fn install(&mut self, spec: PolicySpec) -> Result<Reply, DataPlaneError> {
        let (id, via) = (spec.id, via(&spec));
        let held = matches!(spec.action, PolicyAction::Hold { .. });
        let (local, remote) = (spec.local_ts.clone(), spec.remote_ts.clone());
        // The policy before its route, so that no packet gets there without it.
        self.xfrm.apply(Command::InstallPolicy(Box::new(spec)))?;
        let Some(routes) = &self.routes else { return Ok(Reply::Done) };
        let routed = match via {
            Some(via) if held => routes.hold(id, &local, &remote, via),
            Some(via) => routes.install(id, &local, &remote, via),
            None => routes.remove(id),
        };
        if let Err(error) = routed {
            // The policy holds all the same, and the route is tried again when the system's routes change.
            tracing::warn!(%error, "no route to what is protected");
        }
        Ok(Reply::Done)
    }

    /// What any call may have changed.
    fn after(&mut self) {
        if self.stale_routes && !self.xfrm.has_orphans() {
            self.stale_routes = false;
            self.unroute(Routes::forget_leftovers);
        }
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
                self.xfrm.apply(Command::RemovePolicy(id))
            }
            Command::Flush => {
                self.unroute(|routes| routes.flush().and(routes.at_the_end(Leftovers::Remove)));
                self.xfrm.apply(Command::Flush)
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
        self.after();
        event
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
        // them only while there is a route that says so: without one they would leave by the default route.
        PolicyAction::Shunt { silent: false } => return Some(Via::Unreachable),
        PolicyAction::Shunt { silent: true } => return Some(Via::BlackHole),
        // The policy has the packets from all addresses.
        PolicyAction::Hold { anywhere: true } => return None,
        // By the way to the peer they have such an address, and the policy takes them. An unreachable route would make
        // rp_filter drop what the peer sends.
        PolicyAction::Hold { anywhere: false } => match policy.outer {
            Some(outer) => outer,
            None if policy.remote_ts.iter().any(is_all) => return None,
            None => return Some(Via::Unreachable),
        },
    };
    let Outer { mode, local, remote } = outer;
    match mode {
        // The ends are reached as ever, also where a shunt of this child blocks what the system routes.
        Mode::Transport => Some(Via::Elsewhere),
        _ => (!remote.is_unspecified()).then_some(Via::Peer { local, remote }),
    }
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
        tcp_esp: false,
        iptfs,
        per_cpu,
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        processing: true,
        header_fields: true,
    })
}

const EPERM: i32 = 1;
const EPROTONOSUPPORT: i32 = 93;
