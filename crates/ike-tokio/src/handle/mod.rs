//! The handle by which a program talks to its drivers.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::dataplane::{SaId, Usage};
use ike_proto::{Answer, ChildSaId, Command, Event, Failure, IkeSaId, Ticket};
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::net::outside::OutsideTunnels;
use crate::net::socket::SocketOptions;
use crate::net::source::source;
use crate::plane::Busy;
use crate::report::{AT_A_TIME, Counters, IkeView, PolicyView, ShardState, Tally};
use crate::shards::{home, part};
use crate::target::Target;

mod request;

pub(crate) use request::Request;

/// The result of a command.
pub type Outcome = Result<(), Failure>;

/// The number of IKE SAs that a driver describes at a time.
pub const PAGE: usize = 64;

/// The drivers have stopped, or have stopped taking requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the IKE service is stopping")
    }
}

impl std::error::Error for Stopped {}

/// A handle to the drivers of all shards. Clones are handles to the same drivers.
#[derive(Clone)]
pub struct Handle {
    shards: Arc<[mpsc::Sender<Request>]>,
    events: broadcast::Sender<Event>,
    counters: Arc<Counters>,
    options: SocketOptions,
    busy: Arc<Busy>,
}

impl Handle {
    /// A handle to drivers whose sockets have `options`.
    pub(crate) fn new(
        shards: Arc<[mpsc::Sender<Request>]>,
        events: broadcast::Sender<Event>,
        counters: Arc<Counters>,
        options: SocketOptions,
    ) -> Self {
        Self { shards, events, counters, options, busy: Arc::default() }
    }

    /// The address of this host from which the kernel would send IKE messages to `remote`, outside all tunnels. Sends
    /// nothing.
    ///
    /// # Errors
    /// The kernel's: there is no route, for one.
    pub fn source(&self, remote: IpAddr) -> io::Result<IpAddr> {
        source(remote, self.options)
    }

    /// Makes sockets whose packets leave outside all tunnels, as IKE messages do.
    pub fn outside_tunnels(&self) -> OutsideTunnels {
        OutsideTunnels(self.options)
    }

    /// The counters, for the drivers to count by.
    pub(crate) fn shared_counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// What tells how long the data plane is at its present command.
    pub(crate) fn shared_busy(&self) -> Arc<Busy> {
        Arc::clone(&self.busy)
    }

    /// How long the data plane has been at its present command. Drivers wait for that, and answer nothing meanwhile.
    pub fn plane_busy(&self) -> Option<Duration> {
        self.busy.time()
    }

    /// The counters of messages and rekeys.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Feeds the engine a command and waits for its end.
    pub async fn command(&self, command: Command) -> Result<Outcome, Stopped> {
        let index = match &command {
            Command::Initiate { connection, remote, .. }
            | Command::Ensure { connection, remote, .. } => {
                self.shard_with(connection, *remote).await?
            }
            Command::InstallTrap { connection, .. }
            | Command::UninstallTrap { connection, .. }
            | Command::BlockTrap { connection, .. }
            | Command::Want { connection, .. } => home(self.count(), connection),
            Command::Unwant { connection, child } => return self.unwant(connection, child).await,
            Command::TerminateIke(IkeSaId(number))
            | Command::ForgetIke(IkeSaId(number))
            | Command::Exclude(IkeSaId(number))
            | Command::RekeyIke(IkeSaId(number))
            | Command::Redirect(IkeSaId(number), _)
            | Command::LimitAuthentication(IkeSaId(number), _)
            | Command::Reauthenticate(IkeSaId(number))
            | Command::TerminateChild(ChildSaId(number))
            | Command::RekeyChild(ChildSaId(number)) => Shard::of_number(self.count(), *number),
            Command::ForgetTickets(connection) => return self.forget_tickets(connection).await,
            Command::Reload(config) => return self.reload(config).await,
            Command::Shutdown => return self.shutdown().await.map(Ok),
        };
        self.ask(index, |answer| Request::Command(command, answer)).await
    }

    /// Describes all IKE SAs in the order of their numbers. A driver describes [`PAGE`] at a time, so that it is never
    /// busy for long.
    pub async fn list(&self) -> Result<Vec<IkeView>, Stopped> {
        let mut all = Vec::new();
        for page in self.ids().await?.chunks(PAGE) {
            all.extend(self.views(page).await?);
        }
        Ok(all)
    }

    /// Counts all SAs, a few at a time, and returns the state of each shard.
    pub async fn census(&self) -> Result<(Tally, Vec<ShardState>), Stopped> {
        let mut shards = self.all(Request::State).await?;
        let mut tally = Tally::default();
        for (index, shard) in (0..).zip(&mut shards) {
            for few in std::mem::take(&mut shard.ids).chunks(AT_A_TIME) {
                let counted = self.ask(index, |answer| Request::Census(few.to_vec(), answer));
                tally.add(counted.await?);
            }
        }
        Ok((tally, shards))
    }

    /// The counters of these ESP SAs, in the order of `ids`; zero for an SA that does not exist.
    pub async fn usage(&self, ids: Vec<SaId>) -> Result<Vec<Usage>, Stopped> {
        self.ask(0, |answer| Request::Usage(ids, answer)).await
    }

    /// Checks that every shard and the data plane are alive. Returns when each shard, and then the data plane, has
    /// taken this request from its queue.
    pub async fn pulse(&self) -> Result<(), Stopped> {
        self.all(Request::Pulse).await.map(drop)
    }

    /// Describes one IKE SA, if it is there.
    pub async fn view(&self, id: IkeSaId) -> Result<Option<IkeView>, Stopped> {
        self.ask(Shard::of_number(self.count(), id.0), |answer| Request::View(id, answer)).await
    }

    /// The numbers of all IKE SAs, in order. A caller with many SAs passes them to [`views`](Self::views) in pages of
    /// [`PAGE`], so that a driver is never busy for long.
    pub async fn ids(&self) -> Result<Vec<IkeSaId>, Stopped> {
        let mut ids: Vec<_> = self.all(Request::Ids).await?.into_iter().flatten().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The number of IKE SAs, and the number of those that are not established yet.
    pub async fn sa_counts(&self) -> Result<(usize, usize), Stopped> {
        let counts = self.all(Request::Count).await?;
        Ok(counts.into_iter().fold((0, 0), |(all, open), (a, o)| (all + a, open + o)))
    }

    /// Describes the IKE SAs of `ids` that still exist, in the order of their numbers.
    pub async fn views(&self, ids: &[IkeSaId]) -> Result<Vec<IkeView>, Stopped> {
        let mut views = Vec::with_capacity(ids.len());
        for shard in 0..self.count() {
            let of = |id: &&IkeSaId| Shard::of_number(self.count(), id.0) == shard;
            let ids: Vec<_> = ids.iter().filter(of).copied().collect();
            if !ids.is_empty() {
                views.extend(self.ask(shard, |answer| Request::Views(ids, answer)).await?);
            }
        }
        views.sort_by_key(|view: &IkeView| view.status.id);
        Ok(views)
    }

    /// The policies that belong to no Child SA: traps and shunts.
    pub async fn policies(&self) -> Result<Vec<PolicyView>, Stopped> {
        Ok(self.all(Request::Policies).await?.into_iter().flatten().collect())
    }

    /// Removes the failure shunts of the children that `target` names, so that the system routes their traffic again.
    /// Returns the number of removed shunts.
    pub async fn lift(&self, target: Target) -> Result<usize, Stopped> {
        self.ask(0, |answer| Request::Lift(target, answer)).await
    }

    /// Tells all shards the current addresses of this host. MOBIKE (RFC 4555) moves SAs after such a call.
    pub async fn network(&self, addresses: Arc<[IpAddr]>) -> Result<(), Stopped> {
        self.all(|answer| Request::Network(Arc::clone(&addresses), answer)).await.map(drop)
    }

    /// How long the slowest handshake of all IKE SAs that are up took. `None` if there is none. The data plane is not
    /// asked.
    pub async fn slowest_handshake(&self) -> Result<Option<Duration>, Stopped> {
        Ok(self.all(Request::SlowestHandshake).await?.into_iter().flatten().max())
    }

    /// Deletes every SA at the peers, waits until they have confirmed it or given up, and stops. The drivers then empty
    /// the data plane: [`Drivers::ended`](crate::Drivers::ended) waits for that.
    pub async fn shutdown(&self) -> Result<(), Stopped> {
        self.all(Request::Shutdown).await.map(drop)
    }

    /// Asks the drivers to stop without waiting for the peers any longer, and to empty the data plane. Returns at once
    /// and without an error; [`Drivers::ended`](crate::Drivers::ended) waits for the end.
    pub async fn stop(&self) -> Result<(), Stopped> {
        for shard in self.shards.iter() {
            // One that has stopped already is none the worse.
            let _ = shard.send(Request::Stop).await;
        }
        Ok(())
    }

    /// Stops without a word to the peers, and leaves the data plane as it is.
    pub async fn leave(&self) -> Result<(), Stopped> {
        self.all(Request::Leave).await.map(drop)
    }

    /// As [`Self::leave`], and the data plane is not even dropped: its policies and routes stay as a crash would leave
    /// them. For a process that is about to end because a part of it is lost. Shards that have ended are passed over.
    pub async fn abandon(&self) {
        // One that has ended has nothing to stop.
        let _ = self.all(Request::Abandon).await;
    }

    /// Subscribes to the events of all shards. A receiver that is more than 4096 events behind misses the oldest, and
    /// gets [`RecvError::Lagged`](broadcast::error::RecvError::Lagged). The channel stays open as long as a handle
    /// exists, even after the drivers have ended.
    ///
    /// [`Event::Notice`], [`Event::Trap`] and [`Event::Restart`] are not sent here: the drivers process them. The same
    /// holds for [`Event::Dropped`], [`Event::InitRefused`] and [`Event::TokenGiven`], because there may be floods of
    /// these. An [`Observer`](crate::Observer) gets every event.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn count(&self) -> u8 {
        u8::try_from(self.shards.len()).unwrap_or(u8::MAX)
    }

    /// The shard that has an IKE SA of `connection` with the peer at `remote`; else the one where it is
    /// begun.
    async fn shard_with(&self, connection: &str, remote: IpAddr) -> Result<u8, Stopped> {
        let home = home(self.count(), connection);
        if self.count() == 1 {
            return Ok(home);
        }
        let serve = self.all(|answer| Request::Serves(connection.to_owned(), remote, answer));
        let serving: Vec<_> =
            (0..).zip(serve.await?).filter_map(|(index, serves)| serves.then_some(index)).collect();
        let first = serving.first().copied();
        Ok(if serving.contains(&home) { home } else { first.unwrap_or(home) })
    }

    /// Any shard may want it.
    async fn unwant(&self, connection: &str, child: &Option<String>) -> Result<Outcome, Stopped> {
        let outcomes = self.all(|answer| {
            let (connection, child) = (connection.to_owned(), child.clone());
            Request::Command(Command::Unwant { connection, child }, answer)
        });
        let outcomes = outcomes.await?;
        Ok(outcomes.into_iter().reduce(|one, other| one.or(other)).unwrap_or(Ok(())))
    }

    /// For [`Wanted::Restart`](crate::Wanted::Restart): each shard that has the child up, or is making it, restarts the
    /// child from now on. False if there is no such shard.
    pub async fn want_where_carried(&self, connection: &str, child: &str) -> Result<bool, Stopped> {
        let carries =
            self.all(|answer| Request::Carries(connection.to_owned(), child.to_owned(), answer));
        let shards: Vec<_> = (0..)
            .zip(carries.await?)
            .filter_map(|(index, carries)| carries.then_some(index))
            .collect();
        for index in &shards {
            let (connection, child) = (connection.to_owned(), child.to_owned());
            let want = Command::Want { connection, child };
            // It fails if a reload has taken the child away: then nobody wants it.
            let _ = self.ask(*index, |answer| Request::Command(want, answer)).await?;
        }
        Ok(!shards.is_empty())
    }

    /// The children that are started again until they are up, and those that are up and would be. Each entry is a
    /// connection and a child of it; `None` is the IKE SA alone.
    pub async fn wanted(&self) -> Result<Vec<(String, Option<String>)>, Stopped> {
        Ok(self.all(Request::Wanted).await?.into_iter().flatten().collect())
    }

    /// How long until the child is started again; `None` if it is not wanted.
    pub async fn starts_in(
        &self,
        connection: &str,
        child: Option<&str>,
    ) -> Result<Option<Duration>, Stopped> {
        let all = self.all(|answer| {
            Request::StartsIn(connection.to_owned(), child.map(str::to_owned), answer)
        });
        Ok(all.await?.into_iter().flatten().min())
    }

    /// Gives the engine of a shard the answer to its question, for [`Wanted::Ends`](crate::Wanted::Ends). A shard that
    /// has ended needs no answer.
    pub async fn answer(&self, shard: u8, ticket: Ticket, answer: Answer) {
        if let Some(line) = self.shards.get(usize::from(shard)) {
            // One that has ended needs none.
            let _ = line.send(Request::Answer(ticket, answer)).await;
        }
    }

    /// Any shard may have some.
    async fn forget_tickets(&self, connection: &str) -> Result<Outcome, Stopped> {
        let outcomes = self
            .all(|answer| Request::Command(Command::ForgetTickets(connection.to_owned()), answer));
        let outcomes = outcomes.await?;
        Ok(outcomes.into_iter().reduce(|one, other| one.or(other)).unwrap_or(Ok(())))
    }

    async fn reload(&self, config: &EndpointConfig) -> Result<Outcome, Stopped> {
        let outcomes = self.each(|shard, answer| {
            let command = Command::Reload(Box::new(part(config, shard)));
            Request::Command(command, answer)
        });
        Ok(outcomes.await?.into_iter().collect())
    }

    /// Asks every shard; the answers in their order.
    async fn all<T: Send + 'static>(
        &self,
        request: impl Fn(oneshot::Sender<T>) -> Request,
    ) -> Result<Vec<T>, Stopped> {
        self.each(|_, answer| request(answer)).await
    }

    async fn each<T: Send + 'static>(
        &self,
        request: impl Fn(Shard, oneshot::Sender<T>) -> Request,
    ) -> Result<Vec<T>, Stopped> {
        let mut waiting = Vec::new();
        for (shard, line) in Shard::all(self.count()).zip(self.shards.iter()) {
            let (sender, receiver) = oneshot::channel();
            // One that has ended does not answer; the others hear of it all the same.
            let _ = line.send(request(shard, sender)).await;
            waiting.push(receiver);
        }
        let mut answers = Vec::new();
        for receiver in waiting {
            answers.push(receiver.await.map_err(|_| Stopped));
        }
        answers.into_iter().collect()
    }

    async fn ask<T>(
        &self,
        index: u8,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stopped> {
        let (sender, receiver) = oneshot::channel();
        let line = self.shards.get(usize::from(index)).ok_or(Stopped)?;
        line.send(request(sender)).await.map_err(|_| Stopped)?;
        receiver.await.map_err(|_| Stopped)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shard_that_has_ended_keeps_nothing_from_the_others() {
        let (lines, mut ends): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel(1)).unzip();
        let handle = Handle::new(
            lines.into(),
            broadcast::channel(1).0,
            Arc::default(),
            SocketOptions::default(),
        );
        drop(ends.remove(0));
        let asked = tokio::spawn(async move { handle.shutdown().await });
        for end in &mut ends {
            let Some(Request::Shutdown(answer)) = end.recv().await else { panic!("not asked") };
            assert!(!asked.is_finished(), "the last one is waited for");
            let _ = answer.send(());
        }
        assert_eq!(asked.await.ok(), Some(Err(Stopped)), "not all have confirmed");
    }
}
