//! Effects of SAs on the rest of this host: virtual IPs on an interface, name servers, and `updown` programs. Only
//! the adding of an address makes an engine wait, because routes need the address.

mod encdns;
mod environment;
mod hooks;
mod resolv;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ike_proto::config::EndpointConfig;
use ike_proto::{Assignment, ChildSaId, ChildStatus, Endpoint, Event, IkeStatus};
use routes::KeptAddresses;
use routes::address::{self, AddressError, Installed, On};

use crate::config::{RemoteAccess, Resolve};
use environment::Environment;
use hooks::{Job, Lanes};
use resolv::NameServers;

/// How long the kernel may take for an address.
const PATIENCE: Duration = Duration::from_secs(2);

/// The host; clones are the same one.
#[derive(Clone)]
pub struct System(Arc<Inner>);

struct Inner {
    access: RemoteAccess,
    /// Whether addresses and name servers are changed: not by a daemon that carries no traffic of this host.
    host: bool,
    /// Whether any child has an `updown`.
    hooked: AtomicBool,
    addresses: tokio::sync::Mutex<HashMap<IpAddr, (Installed, usize)>>,
    /// Begun with the first address.
    kept: OnceLock<Option<KeptAddresses>>,
    servers: Mutex<NameServers>,
    /// What the programs of children that are up were told.
    up: Mutex<HashMap<ChildSaId, Up>>,
    lanes: Lanes,
}

/// A child whose program was run.
struct Up {
    program: Arc<str>,
    lane: u64,
    /// The IKE SA that it came up with.
    owner: u64,
    environments: Vec<Environment>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl System {
    /// A host that is changed as `access` says; `host` is false if its addresses and name servers are to be
    /// let alone.
    pub fn new(access: RemoteAccess, host: bool) -> Self {
        Self(Arc::new(Inner {
            access,
            host,
            hooked: AtomicBool::new(false),
            addresses: tokio::sync::Mutex::default(),
            kept: OnceLock::new(),
            servers: Mutex::default(),
            up: Mutex::default(),
            lanes: Lanes::default(),
        }))
    }

    /// Removes what a run that crashed has left.
    pub(crate) async fn forget_leftovers(&self) {
        if !self.0.host || !self.0.access.install_virtual_ip {
            return;
        }
        match address::forget_leftovers().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "virtual IPs of an earlier run removed"),
            // Nothing else needs the right to do so, perhaps.
            Err(error) => tracing::debug!(%error, "virtual IPs of an earlier run"),
        }
        if let Some(Resolve::File(path)) = &self.0.access.resolve {
            self.0.lanes.put_anyway(0, None, Job::ResolvConf(path.clone(), Vec::new()));
        }
    }

    /// Takes a new configuration.
    pub(crate) fn reload(&self, config: &EndpointConfig) {
        let mut children = config.connections.iter().flat_map(|connection| &connection.children);
        // Children that are up with one keep it.
        let any = children.any(|child| child.updown.is_some()) || !lock(&self.0.up).is_empty();
        self.0.hooked.store(any, Ordering::Relaxed);
    }

    /// True if [`Self::event`] has something to do.
    pub(crate) fn concerns(event: &Event) -> bool {
        matches!(event, Event::Assigned(given) | Event::Unassigned(given) if given.ours)
    }

    /// Changes addresses and name servers as an event calls for.
    pub(crate) async fn event(&self, event: &Event) {
        match event {
            Event::Assigned(assignment) if assignment.ours => self.assigned(assignment).await,
            Event::Unassigned(assignment) if assignment.ours => self.unassigned(assignment).await,
            _ => {}
        }
    }

    /// Has programs run as an event of `endpoint` calls for.
    pub(crate) fn run_hooks(&self, event: &Event, endpoint: &Endpoint) {
        match event {
            _ if !self.0.hooked.load(Ordering::Relaxed) => {}
            Event::ChildUp { ike, child } => {
                let Some(status) = endpoint.ike_sa(*ike) else { return };
                if let Some(child) = status.children.iter().find(|one| one.id == *child) {
                    self.child_up(&status, child);
                }
            }
            Event::ChildRekeyed { old, new, .. } => {
                let mut up = lock(&self.0.up);
                if let Some(known) = up.remove(old) {
                    up.insert(*new, known);
                }
            }
            Event::ChildDown { child, .. } => {
                let Some(up) = lock(&self.0.up).remove(child) else { return };
                self.down(up);
            }
            _ => {}
        }
    }

    fn child_up(&self, ike: &IkeStatus, child: &ChildStatus) {
        let Some(program) = child.config.updown.as_deref() else { return };
        let (program, lane, owner): (Arc<str>, _, _) = (program.into(), child.policy.0, ike.id.0);
        let mut environments = Environment::of(ike, child);
        // What is not told that the child has come up is not told that it has gone.
        environments.retain(|environment| {
            let (program, environment) = (Arc::clone(&program), environment.clone());
            self.0.lanes.put(lane, Some(owner), Job::Hook { program, environment, up: true })
        });
        lock(&self.0.up).insert(child.id, Up { program, lane, owner, environments });
    }

    fn down(&self, up: Up) {
        let Up { program, lane, owner, environments } = up;
        for environment in environments {
            let job = Job::Hook { program: Arc::clone(&program), environment, up: false };
            self.0.lanes.put_anyway(lane, Some(owner), job);
        }
    }

    async fn assigned(&self, assignment: &Assignment) {
        let inner = &*self.0;
        for address in &assignment.addresses {
            tracing::info!(connection = assignment.connection, virtual_ip = %address, "virtual IP");
            if !inner.host || !inner.access.install_virtual_ip {
                continue;
            }
            let mut addresses = inner.addresses.lock().await;
            if let Some((_, holders)) = addresses.get_mut(address) {
                *holders += 1;
                continue;
            }
            let on = match &inner.access.install_virtual_ip_on {
                Some(name) => On::Interface(name),
                None => On::Holder(assignment.path.local.ip().to_canonical()),
            };
            let added = tokio::time::timeout(PATIENCE, address::add(*address, on)).await;
            match added.unwrap_or(Err(AddressError::Unanswered)) {
                Ok(installed) => {
                    let interface = &installed.interface;
                    tracing::info!(virtual_ip = %address, interface, "virtual IP installed");
                    if let Some(kept) = self.kept() {
                        kept.keep(installed.clone());
                    }
                    addresses.insert(*address, (installed, 1));
                }
                Err(error) => {
                    tracing::error!(virtual_ip = %address, %error, "virtual IP not installed");
                }
            }
        }
        self.name_servers(assignment, true);
    }

    async fn unassigned(&self, assignment: &Assignment) {
        self.name_servers(assignment, false);
        let mut addresses = self.0.addresses.lock().await;
        for address in &assignment.addresses {
            let Some((_, holders)) = addresses.get_mut(address) else { continue };
            *holders -= 1;
            if *holders > 0 {
                continue;
            }
            if let Some((installed, _)) = addresses.remove(address) {
                self.remove(&installed).await;
            }
        }
    }

    fn name_servers(&self, assignment: &Assignment, up: bool) {
        let Some(resolve) = self.0.access.resolve.as_ref().filter(|_| self.0.host) else { return };
        let given = assignment.attributes.iter().filter_map(|attribute| attribute.dns());
        let jobs = lock(&self.0.servers).change(given, up, resolve);
        for job in jobs {
            // A removal is never left out: the server cannot be reached any more.
            match up {
                true => self.0.lanes.put(0, None, job),
                false => self.0.lanes.put_anyway(0, None, job),
            };
        }
    }

    /// Puts the host's own name servers back, because those of peers cannot be reached any more.
    pub(crate) fn put_name_servers_back(&self) {
        if let Some(resolve) = &self.0.access.resolve {
            for job in lock(&self.0.servers).forget_all(resolve) {
                self.0.lanes.put_anyway(0, None, job);
            }
        }
    }

    /// Takes everything back at the end, and waits for programs until `hurry` is ready.
    pub(crate) async fn end(&self, hurry: impl Future<Output = ()>) {
        self.put_name_servers_back();
        let ups: Vec<_> = lock(&self.0.up).drain().collect();
        for (_, up) in ups {
            self.down(up);
        }
        let left: Vec<_> = self.0.addresses.lock().await.drain().collect();
        for (_, (installed, _)) in left {
            self.remove(&installed).await;
        }
        self.0.lanes.finish(hurry).await;
    }

    /// What sets addresses again that other programs remove.
    fn kept(&self) -> Option<&KeptAddresses> {
        let start = || {
            let started = KeptAddresses::start();
            started.inspect_err(|error| tracing::warn!(%error, "virtual IPs are not watched")).ok()
        };
        self.0.kept.get_or_init(start).as_ref()
    }

    async fn remove(&self, installed: &Installed) {
        let watch = self.0.kept.get().and_then(Option::as_ref);
        let kept = watch.and_then(|watch| watch.release(installed.address));
        remove(kept.as_ref().unwrap_or(installed)).await;
    }
}

async fn remove(installed: &Installed) {
    let removed = tokio::time::timeout(PATIENCE, address::remove(installed)).await;
    match removed.unwrap_or(Err(AddressError::Unanswered)) {
        Ok(()) => tracing::info!(virtual_ip = %installed.address, "virtual IP removed"),
        Err(error) => {
            tracing::error!(virtual_ip = %installed.address, %error, "virtual IP not removed");
        }
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "System({:?})", self.0.access)
    }
}

#[cfg(test)]
mod tests {
    use ike_proto::wire::payload::{Attribute, IdData};
    use ike_proto::{IkeSaId, Path, Transport};

    use super::*;

    /// Fault: in `name_servers`, let every job be left out.
    #[tokio::test]
    async fn a_name_server_goes_however_many_programs_wait() {
        let folder = std::env::temp_dir().join(format!("ike-servers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("resolv.conf");
        let resolve = Some(Resolve::File(file.clone()));
        let system = System::new(RemoteAccess { resolve, ..RemoteAccess::default() }, true);
        let given = Assignment {
            ike: IkeSaId(1),
            connection: "c".to_owned(),
            ours: true,
            pools: Vec::new(),
            peer: IdData::fqdn("x"),
            path: Path {
                local: ([192, 0, 2, 1], 4500).into(),
                remote: ([192, 0, 2, 2], 4500).into(),
                transport: Transport::UdpEncap,
            },
            addresses: Vec::new(),
            attributes: vec![Attribute::Ip4Dns(Some([10, 1, 0, 53].into()))],
        };
        let has = |server: bool| {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.contains("10.1.0.53") == server
        };
        let end = std::time::Instant::now() + Duration::from_secs(20);
        system.assigned(&given).await;
        while !has(true) && std::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(has(true));
        // A program that takes long, and behind it as many as may wait.
        let hook = |program: &str| {
            let environment = Environment::with(Vec::new());
            Job::Hook { program: program.into(), environment, up: false }
        };
        system.0.lanes.put_anyway(0, None, hook("exec sleep 5"));
        while system.0.lanes.put(0, None, hook("/nonexistent")) {}
        system.unassigned(&given).await;
        system.0.lanes.finish(std::future::ready(())).await;
        assert!(has(false));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
