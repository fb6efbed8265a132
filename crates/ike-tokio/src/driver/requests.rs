//! Requests to a driver.

use std::net::IpAddr;

use super::Driver;
use crate::clock::now;
use crate::handle::Request;
use crate::net::source::source;
use crate::report::{self, IkeView, PolicyView, ShardState, Tally};
use ike_proto::{Command, IkeStatus, Input, Network, RequestId, Transport};

impl Driver {
    pub(super) async fn request(&mut self, request: Request) {
        match request {
            Request::Command(mut command, answer) => {
                if let Command::Reload(config) = &mut command {
                    // As it was at the start, whatever the file says by now.
                    config.accepts_tcp = self.sockets.tcp_port().is_some();
                    self.shunts.lock().await.reload(config, &self.plane).await;
                    self.observer.reloading(config);
                }
                match &command {
                    Command::InstallTrap { connection, child, local, remote } => {
                        let name = (connection.clone(), child.clone());
                        let mut shunts = self.shunts.lock().await;
                        shunts.trap(name, (*local, *remote), &self.plane).await;
                    }
                    Command::UninstallTrap { connection, child } => {
                        let name = (connection.clone(), child.clone());
                        self.shunts.lock().await.untrap(name, &self.plane).await;
                    }
                    _ => {}
                }
                let id = self.next_request();
                self.pending.insert(id, answer);
                self.endpoint.handle(now(), Input::Command(id, command));
            }
            Request::View(id, answer) => {
                let views = self.views(self.endpoint.ike_sa(id).into_iter().collect());
                tokio::spawn(async move {
                    let _ = answer.send(views.await.pop());
                });
            }
            Request::State(answer) => _ = answer.send(ShardState::of(&self.endpoint)),
            Request::Census(ids, answer) => _ = answer.send(Tally::of(&self.endpoint, &ids)),
            Request::Usage(ids, answer) => {
                let plane = self.plane.handle().clone();
                tokio::spawn(async move { _ = answer.send(plane.usage(&ids).await) });
            }
            Request::Pulse(answer) => {
                let plane = self.plane.handle().clone();
                tokio::spawn(async move {
                    if plane.pulse().await {
                        let _ = answer.send(());
                    }
                });
            }
            Request::Ids(answer) => {
                let _ = answer.send(self.endpoint.ids());
            }
            Request::Count(answer) => {
                let _ = answer.send(self.endpoint.counts());
            }
            Request::Views(ids, answer) => {
                let there = ids.into_iter().filter_map(|id| self.endpoint.ike_sa(id));
                let views = self.views(there.collect());
                tokio::spawn(async move {
                    let _ = answer.send(views.await);
                });
            }
            Request::Policies(answer) => {
                let mut policies: Vec<_> =
                    self.endpoint.traps().into_iter().map(PolicyView::Trap).collect();
                // The first shard has them for all.
                if self.endpoint.config().shard.index == 0 {
                    policies.extend(self.shunts.lock().await.all().map(PolicyView::Shunt));
                }
                let _ = answer.send(policies);
            }
            Request::Answer(ticket, answer) => {
                self.endpoint.handle(now(), Input::Answered(ticket, answer));
            }
            Request::Carries(connection, child, answer) => {
                let _ = answer.send(self.endpoint.carries(&connection, Some(&child)));
            }
            Request::Wanted(answer) => {
                let _ = answer.send(self.endpoint.wanted());
            }
            Request::StartsIn(connection, child, answer) => {
                let wait = self.endpoint.starts_in(&connection, child.as_deref(), now());
                let _ = answer.send(wait);
            }
            Request::Serves(connection, remote, answer) => {
                let _ = answer.send(self.endpoint.serves(&connection, remote));
            }
            Request::Lift(target, answer) => {
                let lifted = self.shunts.lock().await.lift(&target, &self.plane).await;
                let _ = answer.send(lifted);
            }
            Request::Network(addresses, answer) => {
                self.network(&addresses);
                let _ = answer.send(());
            }
            Request::SlowestHandshake(answer) => {
                let sas = self.endpoint.ids().into_iter();
                let times = sas.filter_map(|id| self.endpoint.ike_sa(id)?.setup_time);
                let _ = answer.send(times.max());
            }
            Request::Stop => self.stopped = true,
            Request::Leave(answer) => {
                self.leaving = Some(answer);
                self.stopped = true;
            }
            Request::Abandon(answer) => {
                self.plane.abandon();
                self.leaving = Some(answer);
                self.stopped = true;
            }
            Request::Shutdown(answer) => {
                let id = self.next_request();
                self.stopping = Some((id, answer));
                self.endpoint.handle(now(), Input::Command(id, Command::Shutdown));
            }
        }
    }

    /// Tells the engine where this host is, as far as the sockets can send from there.
    pub(super) fn network(&mut self, addresses: &[IpAddr]) {
        let own = addresses.iter().copied().filter(|ip| self.sockets.sends_from(*ip));
        let addresses: Vec<_> = own.collect();
        let options = self.sockets.options();
        let peers = self.endpoint.mobile_peers(&addresses);
        let sources = peers.into_iter().filter_map(|peer| {
            let own = source(peer, options).inspect_err(|error| {
                tracing::debug!(%peer, %error, "no route to the peer");
            });
            Some((peer, own.ok()?))
        });
        let network = Network { sources: sources.collect(), addresses };
        self.endpoint.handle(now(), Input::Network(&network));
    }

    /// `sas` with their counters.
    pub(super) fn views(
        &self,
        mut sas: Vec<IkeStatus>,
    ) -> impl Future<Output = Vec<IkeView>> + use<> {
        for status in &mut sas {
            // The engine's name of a connection has no port of this end; nor has one that is not open.
            let path = &mut status.path;
            let accepted = self.sockets.tcp_port() == Some(path.local.port());
            match self.sockets.streams().local(path) {
                _ if path.transport != Transport::Tcp => {}
                Some(local) => path.local = local,
                None if accepted => {}
                None => path.local.set_port(0),
            }
        }
        report::views(sas, self.plane.handle().clone(), now().mono)
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }
}
