//! Routes that policies need (Linux).
//!
//! Packets of this host find a tunnel only if a route leads them there. They have the right source address only if
//! the route names it. So every remote traffic selector of a policy becomes routes in a table of their own, with a
//! preferred source inside the local selectors if this host has such an address. One rule per address family sends
//! everything but marked packets to that table; sockets that carry IKE or ESP set the mark. [`Via`] is the target
//! of a route: a TUN device, or the way to the peer, where the kernel's own policies take the packets.
//!
//! Shunts of a userspace data plane become unreachable (or black-hole) routes, with a metric that lets every other
//! route to the same prefix come first. They do not need the device. So they still keep traffic from leaving in
//! clear when the device is gone with a crashed daemon.
//!
//! Routes and rules bear a protocol number of their own (`proto 122` in `ip route`), which identifies those of an
//! earlier run. These are removed at the start unless they are to be kept.
//!
//! A thread of its own speaks netlink. So [`Routes::install`] can be called from anywhere, and returns when the
//! kernel has answered. The thread also receives changes of addresses, routes and rules: the way to a peer may change,
//! the kernel drops routes whose preferred source is gone, and other programs take away what is not theirs. After each
//! such change, and once a minute, `picture.rs` compares what is to be there with what is there, and what is missing is
//! put back. What other programs take away all the time is put back once in 10 s ([`Patience`]).

#![deny(missing_docs)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::Duration;

#[cfg(doc)]
use ipsec_types::dataplane::patience::Patience;
use ipsec_types::dataplane::{DataPlaneError, PolicyId, TrafficSelector};
use tokio::sync::mpsc;

use prefix::{Prefix, cover};
use route::Route;

pub mod address;
mod holders;
mod hop;
mod kept;
mod kernel;
mod left;
mod mended;
mod message;
mod near;
mod picture;
mod prefix;
mod route;
mod serve;
pub mod sim;
mod table;
mod watch;

pub use ipsec_types::dataplane::{DEFAULT_MARK, RouteOptions};
pub use kept::KeptAddresses;
pub use mended::put_back;
pub use near::{Near, NearWatch, networks};
pub use route::Via;
pub use watch::HostWatch;

/// What becomes of routes of an earlier run that ended without removing them, and of ours at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leftovers {
    /// They are removed, and so are ours.
    #[default]
    Remove,
    /// They stay until [`Routes::forget_leftovers`], and so do ours.
    Keep,
    /// They stay for [`SETTLE`], and longer where a policy of this run has the same route; ours stay. A restart is not
    /// to let packets out in clear before the policies of the new run are there.
    Settle,
}

/// How long routes of an earlier run wait for the policies of this run.
pub const SETTLE: Duration = Duration::from_secs(10);

/// Removes all routes and rules that runs of this program have left in the network namespace, whatever their options
/// were. Returns how many. Blocks until the kernel has answered; not for a thread of an asynchronous runtime.
///
/// # Errors
/// The kernel does not let this process change routes, which takes CAP_NET_ADMIN.
pub fn remove_all() -> io::Result<usize> {
    wait(left::remove_all())
}

/// How many routes of this program there are in the network namespace. Blocks as [`remove_all`] does.
///
/// # Errors
/// The kernel does not tell.
pub fn count_left() -> io::Result<usize> {
    wait(left::count())
}

fn wait<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The routes of all policies of one data plane. Dropping it removes them unless they are to be kept.
#[derive(Debug)]
pub struct Routes {
    keeper: Box<dyn Ask + Send>,
    blocked: Vec<TrafficSelector>,
}

/// What sees to the routes.
trait Ask: std::fmt::Debug {
    /// Returns when it is done.
    fn ask(&self, change: Change) -> Result<(), DataPlaneError>;
}

/// The thread. Dropping it waits for its end.
#[derive(Debug)]
struct Thread {
    requests: Option<mpsc::UnboundedSender<Request>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the thread is asked for.
#[derive(Debug)]
enum Change {
    Install(PolicyId, BTreeSet<Route>, Vec<TrafficSelector>),
    Remove(PolicyId),
    Flush,
    ForgetLeftovers,
    Leftovers(Leftovers),
    Block,
}

#[derive(Debug)]
struct Request {
    change: Change,
    reply: std_mpsc::SyncSender<Result<(), String>>,
}

impl Routes {
    /// Sets the rules up. Needs CAP_NET_ADMIN.
    pub fn start(options: RouteOptions, leftovers: Leftovers) -> io::Result<Self> {
        let (requests, inbox) = mpsc::unbounded_channel();
        let (ready, started) = std_mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("ike-routes".into())
            .spawn(move || serve::run(options, leftovers, inbox, &ready))?;
        let died = || io::Error::other("the route thread died");
        let blocked = started.recv().map_err(|_| died())?.map_err(io::Error::other)?;
        let blocked = blocked.iter().map(Prefix::selector).collect();
        let keeper = Thread { requests: Some(requests), thread: Some(thread) };
        Ok(Self { keeper: Box::new(keeper), blocked })
    }

    /// The destinations that an earlier run blocked, and that are blocked still.
    pub fn blocked(&self) -> &[TrafficSelector] {
        &self.blocked
    }

    /// Adds routes to what `remote` selects for packets from what `local` selects, in the place of those
    /// that `policy` had.
    ///
    /// Where `remote` takes in all of a network of `local` and more, as a full tunnel does, that network gets
    /// a route of its own that leads nowhere: packets for this host's own side, decrypted ones among them,
    /// do not follow the route to the peer, and leave only by a route to the very network.
    pub fn install(
        &self,
        policy: PolicyId,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        via: Via,
    ) -> Result<(), DataPlaneError> {
        self.set(policy, local, remote, &[via])
    }

    /// As [`Self::install`], with two routes to each prefix: one to `front`, and `fallback`, which leads nowhere. So packets do
    /// not leave in clear when the route to `front` is gone, or is not known yet.
    ///
    /// The kernel drops what arrives from an address to which its routes lead nowhere (`rp_filter`). So the route to
    /// `front` is the one that counts.
    pub fn hold(
        &self,
        policy: PolicyId,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        [front, fallback]: [Via; 2],
    ) -> Result<(), DataPlaneError> {
        self.set(policy, local, remote, &[front, fallback])
    }

    fn set(
        &self,
        policy: PolicyId,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        vias: &[Via],
    ) -> Result<(), DataPlaneError> {
        let prefixes: Vec<_> = remote.iter().flat_map(|ts| cover(ts.start, ts.end)).collect();
        let mut routes = BTreeSet::new();
        for &via in vias {
            let walls = walls(local, &prefixes, via).map(|prefix| Route { prefix, via: Via::Wall });
            routes.extend(prefixes.iter().map(|&prefix| Route { prefix, via }).chain(walls));
        }
        self.ask(Change::Install(policy, routes, local.to_vec()))
    }

    /// Removes the routes of a policy.
    pub fn remove(&self, policy: PolicyId) -> Result<(), DataPlaneError> {
        self.ask(Change::Remove(policy))
    }

    /// Removes the routes of all policies.
    pub fn flush(&self) -> Result<(), DataPlaneError> {
        self.ask(Change::Flush)
    }

    /// Removes what an earlier run left behind and no policy has by now.
    pub fn forget_leftovers(&self) -> Result<(), DataPlaneError> {
        self.ask(Change::ForgetLeftovers)
    }

    /// Blocks what routes lead into a device, beneath these routes: they go with the device.
    pub fn block(&self) -> Result<(), DataPlaneError> {
        self.ask(Change::Block)
    }

    /// Whether the routes stay at the end.
    pub fn at_the_end(&self, leftovers: Leftovers) -> Result<(), DataPlaneError> {
        self.ask(Change::Leftovers(leftovers))
    }

    fn ask(&self, change: Change) -> Result<(), DataPlaneError> {
        self.keeper.ask(change)
    }
}

impl Ask for Thread {
    fn ask(&self, change: Change) -> Result<(), DataPlaneError> {
        let (reply, answer) = std_mpsc::sync_channel(1);
        let gone = || DataPlaneError("the route thread died".into());
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(Request { change, reply }).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?.map_err(DataPlaneError)
    }
}

/// The networks of this host's side that the routes of a policy to `remote` would take in.
fn walls(local: &[TrafficSelector], remote: &[Prefix], via: Via) -> impl Iterator<Item = Prefix> {
    let own = local.iter().filter(move |_| via != Via::Elsewhere);
    own.flat_map(|ts| cover(ts.start, ts.end)).filter(|own| {
        remote.iter().any(|prefix| prefix.len < own.len && prefix.contains(own.address))
    })
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}
