//! The addresses of this host, for IKE SAs with MOBIKE.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Endpoint, Entry, Slot};
use crate::event::{IkeSaId, Network, Now};
use crate::ike_sa::IkeSa;
use crate::ike_sa::state::State;

impl Endpoint {
    /// Addresses of peers for which the caller looks up source addresses, before
    /// [`Input::Network`](crate::Input::Network) reports that this host has `addresses`. They are the peers to
    /// which an IKE SA may have to find another path.
    pub fn mobile_peers(&self, addresses: &[IpAddr]) -> BTreeSet<IpAddr> {
        let mut peers = BTreeSet::new();
        // An SA that is about to have MOBIKE counts as well.
        peers.extend(self.entries.values().filter_map(|slot| match &slot.entry {
            Entry::Attempt(attempt) if attempt.connection.mobike => {
                Some(attempt.path.remote.ip().to_canonical())
            }
            _ => None,
        }));
        for (_, sa) in self.mobile() {
            let here = sa.channel.route().path().local.ip().to_canonical();
            if sa.channel.route().decides() || !addresses.contains(&here) {
                peers.insert(sa.channel.route().path().remote.ip().to_canonical());
                peers.extend(
                    sa.channel.route().mobike().into_iter().flat_map(|mobike| mobike.peer()),
                );
            }
        }
        let traps = self.traps.iter().filter(|trap| trap.names_this_host());
        peers.extend(traps.map(|trap| trap.remote.to_canonical()));
        peers
    }

    /// The established IKE SAs with MOBIKE.
    fn mobile(&self) -> impl Iterator<Item = (IkeSaId, &IkeSa)> {
        self.entries.iter().filter_map(|(id, slot)| match slot {
            Slot { entry: Entry::Sa(sa), .. } if sa.channel.route().mobike().is_some() => {
                matches!(sa.state, State::Established(_)).then_some((*id, &**sa))
            }
            _ => None,
        })
    }

    pub(super) fn on_network(&mut self, now: Now, network: &Network) {
        self.network.clone_from(network);
        let mut mobile: Vec<_> = self.mobile().map(|(id, _)| id).collect();
        mobile.sort();
        for id in mobile {
            self.with_sa(now, id, |sa, ctx| sa.on_network(ctx));
        }
        for trap in self.traps.iter_mut().filter(|trap| trap.names_this_host()) {
            let connection = self.lookup.connection(&trap.connection);
            let fits = |ip: &IpAddr| {
                connection.is_some_and(|it| it.local_addrs.iter().any(|spec| spec.contains(*ip)))
            };
            if let Some(source) = network.source_to(trap.remote).filter(fits) {
                trap.leave_by(now, source);
            }
        }
        self.run_traps(now);
        // Routes may have changed although addresses have not.
        self.start_on_network(now);
    }

    /// The driver reports how large packets to `remote` may be. Larger datagrams in flight are lost.
    pub(super) fn on_path_mtu(&mut self, now: Now, remote: IpAddr, octets: u32) {
        if !self.paths.mtus.tell(now.mono, remote, octets) {
            return;
        }
        for id in self.index.at(remote) {
            let (slot, mut ctx) = self.lend(now, id);
            match slot.map(|slot| &mut slot.entry) {
                Some(Entry::Attempt(attempt)) => attempt.on_path_mtu(&mut ctx),
                Some(Entry::Sa(sa)) => _ = sa.channel.refit_request(&mut ctx.io),
                Some(Entry::Parked(_)) | None => continue,
            }
            self.settle(now, id);
        }
    }
}
