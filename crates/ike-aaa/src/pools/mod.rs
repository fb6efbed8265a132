//! Virtual IP pools: `[pools.<name>]`. All shards share them.
//!
//! An identity gets the address it had before, unless another identity had to take it: a lease outlives its IKE SA
//! as an *offline* lease, and also the daemon if there is a file for it (`file.rs`). New peers get addresses that
//! were never leased. If there are none, they get those that have been offline for the longest time.

mod file;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ike_config::BY_RADIUS;
pub use ike_config::{PoolConfig, Range};
use ike_proto::wire::payload::{Attribute, IdData};
use ike_proto::wire::registry::IdType;
use ike_proto::{Answer, Assignment, Lease, LeaseRequest};

use crate::radius::grants;
use file::LeaseFile;
pub use pool::LeaseView;
use pool::{CLAIMS, Lease as Kept, Leases};

/// A pool as VICI's `get-pools` and `ike-daemon leases` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// Name.
    pub name: String,
    /// The first address.
    pub base: IpAddr,
    /// Addresses in it.
    pub size: u128,
    /// Those that peers have.
    pub online: usize,
    /// Those that peers had.
    pub offline: usize,
    /// The leases, by address, if they were asked for.
    pub leases: Vec<LeaseView>,
}

/// The pools of a daemon; clones are the same ones.
#[derive(Clone, Default)]
pub struct Pools(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    pools: Vec<Pool>,
    /// Leases that peers hold and that are in no pool any more: a reload took the pool away, or made it smaller.
    outside: BTreeMap<IpAddr, Kept>,
    file: Option<LeaseFile>,
    /// Addresses that a RADIUS server has granted, and who has them.
    granted: HashMap<IpAddr, Vec<IdData>>,
}

struct Pool {
    config: PoolConfig,
    leases: Leases,
}

impl Inner {
    /// `peer` had an address that a RADIUS server has granted; false if it had not.
    fn take_back(&mut self, address: IpAddr, peer: &IdData) -> bool {
        let Some(holders) = self.granted.get_mut(&address) else { return false };
        let Some(at) = holders.iter().position(|holder| holder == peer) else { return false };
        holders.swap_remove(at);
        if holders.is_empty() {
            self.granted.remove(&address);
        }
        true
    }

    /// `peer` had an address that was leased here; false if it had not.
    fn leave(&mut self, address: IpAddr, peer: &IdData) -> bool {
        if self.pools.iter_mut().any(|pool| pool.leases.release(address, peer)) {
            return true;
        }
        let Some(lease) = self.outside.get_mut(&address).filter(|lease| lease.is_of(peer)) else {
            return false;
        };
        lease.holders -= 1;
        if lease.holders == 0 {
            self.outside.remove(&address);
        }
        true
    }
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `configs` in force. Leases go on by their addresses, whatever their pool is called now. A lease that is
    /// in no pool any more stays with its holders until they go, and is nobody's then. If a later configuration has
    /// a pool for it again, that pool takes it in.
    pub fn configure(&self, configs: &[PoolConfig]) {
        let mut inner = self.lock();
        let Inner { pools, outside, .. } = &mut *inner;
        let former = std::mem::take(pools);
        pools.extend(configs.iter().map(|config| {
            let same = former.iter().find(|old| old.config.range == config.range);
            let leases = same.map(|old| old.leases.clone()).unwrap_or_else(|| {
                let mut leases = Leases::new(config.range);
                for old in &former {
                    leases.inherit(&old.leases);
                }
                for (address, lease) in &*outside {
                    leases.take_in(*address, lease);
                }
                leases
            });
            Pool { config: config.clone(), leases }
        }));
        outside.extend(former.iter().flat_map(|old| old.leases.held()));
        outside.retain(|address, _| configs.iter().all(|config| !config.range.contains(*address)));
    }

    /// Keeps leases in the file at `path`, and takes in those that are there. Meant for the start, once
    /// the pools are configured.
    pub fn keep_in(&self, path: PathBuf) {
        let kept = file::load(&path);
        let mut inner = self.lock();
        for (address, identity) in kept {
            for pool in &mut inner.pools {
                pool.leases.remember(address, &identity);
            }
        }
        inner.file = Some(LeaseFile::new(path, Arc::downgrade(&self.0)));
    }

    /// Addresses for a peer and what goes along, or why there are none.
    pub fn answer(&self, request: &LeaseRequest) -> Answer {
        let mut inner = self.lock();
        let Inner { pools, file, granted: held, outside: _ } = &mut *inner;
        let mut lease = Lease::default();
        let mut givers: Vec<usize> = Vec::new();
        let mut served: Vec<IpAddr> = Vec::new();
        let remote = request.path.remote.ip().to_canonical();
        let granted = |lease: &Lease, wanted: &IpAddr| {
            // What the peer asks for, or else the next of that family.
            let by_server = request.pools.iter().any(|name| name == BY_RADIUS);
            let left = || {
                let all = grants::addresses(&request.granted).filter(|_| by_server);
                all.filter(|ip| ip.is_ipv4() == wanted.is_ipv4() && !lease.addresses.contains(ip))
                    .filter(|ip| !(request.resumed && others_have(held, ip, request)))
            };
            left().find(|ip| ip == wanted).or_else(|| left().next())
        };
        for wanted in &request.addresses {
            if let Some(address) = granted(&lease, wanted) {
                tracing::info!(
                    connection = request.connection,
                    peer = %request.identity,
                    virtual_ip = %address,
                    "virtual IP assigned by the RADIUS server"
                );
                lease.addresses.push(address);
                served.push(address);
                continue;
            }
            let found = CLAIMS.iter().find_map(|claim| {
                request.pools.iter().find_map(|name| {
                    let at = pools.iter().position(|pool| pool.config.name == *name)?;
                    let leases = &mut pools.get_mut(at)?.leases;
                    Some((
                        at,
                        leases.acquire(
                            *claim,
                            &request.identity,
                            *wanted,
                            (remote, request.sole, request.own),
                            &lease.addresses,
                        )?,
                    ))
                })
            });
            let Some((giver, address)) = found else {
                tracing::warn!(
                    connection = request.connection,
                    peer = %request.identity,
                    pools = request.pools.join(", "),
                    %wanted,
                    "no virtual IP left"
                );
                continue;
            };
            tracing::info!(
                connection = request.connection,
                peer = %request.identity,
                virtual_ip = %address,
                "virtual IP assigned"
            );
            lease.addresses.push(address);
            if !givers.contains(&giver) {
                givers.push(giver);
            }
        }
        if lease.addresses.is_empty() {
            return Answer::Failed(format!("no address is left in {}", request.pools.join(", ")));
        }
        for pool in givers.into_iter().filter_map(|at| pools.get(at)) {
            for attribute in &pool.config.attributes {
                if is_welcome(attribute, request) && !lease.attributes.contains(attribute) {
                    lease.attributes.push(attribute.clone());
                }
            }
        }
        // Whatever pool the address is from, as with strongSwan.
        for attribute in grants::attributes(&request.granted) {
            if !lease.attributes.contains(&attribute) {
                lease.attributes.push(attribute);
            }
        }
        for address in served {
            held.entry(address).or_default().push(request.identity.clone());
        }
        if let Some(file) = file {
            file.changed();
        }
        Answer::Leased(request.clone(), lease)
    }

    /// The peer that an assignment was for has gone.
    pub fn release(&self, assignment: &Assignment) {
        let mut inner = self.lock();
        for address in &assignment.addresses {
            let known = inner.take_back(*address, &assignment.peer)
                || inner.leave(*address, &assignment.peer);
            tracing::info!(
                connection = assignment.connection,
                peer = %assignment.peer,
                virtual_ip = %address,
                known,
                "virtual IP released"
            );
        }
    }

    /// Describes the pools, or the one called `name`; with their leases if `leases` is true.
    pub fn list(&self, name: Option<&str>, leases: bool) -> Vec<PoolView> {
        let inner = self.lock();
        let chosen =
            inner.pools.iter().filter(|pool| name.is_none_or(|name| name == pool.config.name));
        let views = chosen.map(|Pool { config, leases: kept }| PoolView {
            name: config.name.clone(),
            base: kept.range().base(),
            size: kept.range().size(),
            online: kept.online(),
            offline: kept.offline(),
            leases: if leases { kept.views().collect() } else { Vec::new() },
        });
        views.collect()
    }
}

/// True if somebody else has an address that was granted to who makes `request`: the server has given it away since.
fn others_have(held: &HashMap<IpAddr, Vec<IdData>>, ip: &IpAddr, request: &LeaseRequest) -> bool {
    // Who has shown nothing may be anybody.
    let nobody = request.identity.kind == IdType::NULL;
    let others = |holders: &Vec<IdData>| nobody || holders.iter().any(|id| *id != request.identity);
    !request.own && held.get(ip).is_some_and(others)
}

/// True for what a peer is told unasked, as strongSwan does, and for what it has asked for.
//= https://www.rfc-editor.org/rfc/rfc9464#section-4
//# Initiators first indicate support for encrypted DNS by including
//# ENCDNS_IP* attributes in their CFG_REQUEST payloads.
fn is_welcome(attribute: &Attribute, request: &LeaseRequest) -> bool {
    let unasked = !matches!(
        attribute,
        Attribute::DnsDomain(_)
            | Attribute::DnssecTa(_)
            | Attribute::EncDns(..)
            | Attribute::EncDigest(_)
    );
    unasked || request.asked.iter().any(|asked| asked.kind() == attribute.kind())
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list(None, false)).finish()
    }
}
