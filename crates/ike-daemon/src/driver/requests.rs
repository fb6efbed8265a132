//! Requests to a driver.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::dataplane::{SaId, Usage};
use ike_proto::{Answer, IkeSaId, IkeStatus, Input, Network, RequestId, Ticket, Transport};
use tokio::sync::oneshot;

use super::census::{ShardState, Tally};
use super::target::Target;
use super::{Driver, IkeView, Outcome, PolicyView, now, usage};
use crate::net::source::source;

/// What a driver is asked to do.
pub(crate) enum Request {
    /// Feed the engine a command and answer with what became of it.
    Command(ike_proto::Command, oneshot::Sender<Outcome>),
    /// Describe one.
    View(IkeSaId, oneshot::Sender<Option<IkeView>>),
    /// Say what this shard has, in brief.
    State(oneshot::Sender<ShardState>),
    /// Count these SAs.
    Census(Vec<IkeSaId>, oneshot::Sender<Tally>),
    /// The counters of these ESP SAs.
    Usage(Vec<SaId>, oneshot::Sender<Vec<Usage>>),
    /// Answer, if this shard and the data plane are alive.
    Pulse(oneshot::Sender<()>),
    /// The numbers of all, in no order.
    Ids(oneshot::Sender<Vec<IkeSaId>>),
    /// The number of all, and of those that are not established.
    Count(oneshot::Sender<(usize, usize)>),
    /// Describe these, as far as they are there.
    Views(Vec<IkeSaId>, oneshot::Sender<Vec<IkeView>>),
    /// Traps and the daemon's own policies.
    Policies(oneshot::Sender<Vec<PolicyView>>),
    /// The answer to a question of this shard's engine.
    Answer(Ticket, Answer),
    /// Whether this child is up or being made.
    Carries(String, String, oneshot::Sender<bool>),
    /// How long until this child is started again; `None` if it is not wanted.
    StartsIn(String, Option<String>, oneshot::Sender<Option<Duration>>),
    /// Whether there is an IKE SA of this connection with this peer.
    Serves(String, IpAddr, oneshot::Sender<bool>),
    /// This host's addresses are these.
    Network(Arc<[IpAddr]>, oneshot::Sender<()>),
    /// Let the traffic of children that are not up go again; the number of them.
    Lift(Target, oneshot::Sender<usize>),
    /// Delete every SA at the peers, then stop.
    Shutdown(oneshot::Sender<()>),
    /// Stop now, and empty the data plane.
    Stop,
    /// Stop without a word to the peers, and leave the data plane as it is.
    Leave(oneshot::Sender<()>),
}

impl Driver {
    pub(super) async fn request(&mut self, request: Request) {
        match request {
            Request::Command(mut command, answer) => {
                if let ike_proto::Command::Reload(config) = &mut command {
                    // As it was at the start, whatever the file says by now.
                    config.accepts_tcp = self.sockets.tcp_port().is_some();
                    self.shunts.lock().await.reload(config, &self.plane).await;
                    self.observer.reloading(config);
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
                let _ = answer.send(self.endpoint.ike_ids());
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
            Request::Stop => self.stopped = true,
            Request::Leave(answer) => {
                self.leaving = Some(answer);
                self.stopped = true;
            }
            Request::Shutdown(answer) => {
                let id = self.next_request();
                self.stopping = Some((id, answer));
                self.endpoint.handle(now(), Input::Command(id, ike_proto::Command::Shutdown));
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
                tracing::debug!(%peer, %error, "no way");
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
        usage::views(sas, self.plane.handle().clone(), now().mono)
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }
}
