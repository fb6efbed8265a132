//! Answers of the data plane to an established IKE SA.

use std::time::Duration;

use super::context::Context;
use super::state::{Established, Task};
use crate::channel::Channel;
use crate::channel::timer::{ChildTimer, Timer, TimerKey};
use crate::child::Phase;
use crate::dataplane::{Command, DataPlaneError, Flow, Reply, Usage};
use crate::event::{ChildSaId, Failure, RequestId, Ticket};
use crate::exchange::create_child::child_failed;
use crate::ike_sa::Stem;
use crate::ike_sa::queue::MOST_PAIRS;

/// Why the counters of children were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Query {
    /// Traffic proves a living peer as well as a message does (RFC 7296 §2.4).
    Liveness,
    /// `inactivity` of this child.
    Inactivity(ChildSaId),
    /// There are too many children like this one, which is the newest.
    Room(ChildSaId),
}

impl Established {
    pub(super) fn on_data_plane(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        ticket: Ticket,
        result: Result<Vec<Reply>, DataPlaneError>,
    ) {
        if let Some(waiting) = self.answering.take_waiting(ticket) {
            return self.on_responding_completed(stem, ctx, waiting, result.map(|_| ()));
        }
        if let Some(installed) = self.children.take_installing(ticket) {
            let (child, request) = (installed.child, installed.request);
            return self.on_own_install(stem.channel, ctx, child, request, result.map(|_| ()));
        }
        if let Some(index) = self.queries.iter().position(|(t, _)| *t == ticket) {
            let (_, query) = self.queries.swap_remove(index);
            match (query, result) {
                (_, Ok(usage)) => self.on_usage(stem.channel, ctx, query, &usage),
                (Query::Liveness, Err(_)) => self.on_usage(stem.channel, ctx, query, &[]),
                // It is not known whether a child is in use, and none ends.
                (Query::Inactivity(child), Err(_)) => {
                    self.on_inactivity(ctx, child, Some(Duration::ZERO));
                }
                (Query::Room(_), Err(error)) => {
                    tracing::debug!(
                        ?error,
                        "children: none ends to make room, because the data plane gave no counters"
                    );
                }
            }
        }
    }

    fn on_own_install(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        request: Option<RequestId>,
        result: Result<(), DataPlaneError>,
    ) {
        match result {
            Ok(()) => {
                self.child_installed(channel, ctx, child);
                ctx.done(request, Ok(()));
            }
            Err(error) => {
                let failed = self.children.get(child);
                let replaces = failed.and_then(|failed| failed.replaces);
                // The peer has the child already: delete it there too.
                let spi = failed.map(|failed| failed.spi_in);
                if let Some(spi) = spi {
                    self.queue.push(Task::DeleteSpi(spi));
                }
                let name = self.remove_failed(ctx, child);
                let failure = Failure::DataPlane(error.0);
                ctx.done(request, Err(failure.clone()));
                child_failed(ctx, channel, &name, failure);
                if let Some(old) = replaces {
                    self.children.rearm_rekey(&mut self.life, ctx, old);
                }
            }
        }
    }

    pub(super) fn query(&mut self, ctx: &mut Context<'_>, query: Query) {
        let batch: Vec<_> = self
            .children
            .iter()
            .filter(|child| match query {
                Query::Liveness => true,
                Query::Inactivity(id) => child.id == id,
                Query::Room(_) => child.phase == Phase::Installed,
            })
            .flat_map(|child| {
                // An SA that is not there would make an error of the whole answer.
                let both = query != Query::Liveness && child.has_outbound();
                [Some(child.inbound()), both.then(|| child.outbound())]
            })
            .flatten()
            .map(Command::QueryUsage)
            .collect();
        let ticket = ctx.data_plane(batch);
        self.queries.push((ticket, query));
    }

    fn on_usage(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        query: Query,
        replies: &[Reply],
    ) {
        let idle = replies
            .iter()
            .filter_map(|reply| match reply {
                Reply::Usage(_, Usage { idle, .. }) => *idle,
                Reply::Done => None,
            })
            .min();
        match query {
            Query::Liveness => {
                let delay = channel.connection().dpd_delay;
                // Packets may come by SAs that a crashed peer has left in its kernel. The exchange of the peer for
                // which requests of this end wait does not go on by them.
                let held =
                    self.queue.is_held() || self.may_be_lost_behind_nat(channel, ctx.io.now.mono);
                let quiet = held || idle.is_none_or(|idle| idle >= delay);
                let left = if quiet { delay } else { delay - idle.unwrap_or_default() };
                self.life.set(TimerKey::Ike(Timer::Dpd), ctx.io.now.mono + left);
                if quiet {
                    self.queue.push(Task::Liveness);
                }
            }
            Query::Inactivity(child) => self.on_inactivity(ctx, child, idle),
            Query::Room(newest) => {
                let (now, work) = (ctx.io.now.mono, self.work());
                let ends = |id| work.reason_to_delete(id).is_some();
                if let Some(child) = self.children.gives_way(newest, replies, now, ends) {
                    let (connection, name) = (&channel.connection().name, &child.config.name);
                    if child.id == newest {
                        tracing::warn!(%connection, child = %name, "the peer grants many narrow children, and all are in use: the newest one ends, and is asked for again after 60 s");
                        let of_local = |&local| {
                            child.remote_ts.iter().map(move |&remote| Flow { local, remote })
                        };
                        for pair in child.local_ts.iter().flat_map(of_local).take(MOST_PAIRS) {
                            self.queue.remember_refused(now, name, pair);
                        }
                    } else {
                        tracing::warn!(%connection, child = %name, "the peer grants many narrow children: the one that is idle for longest ends");
                    }
                    let (child, reason) = (child.id, Failure::Inactive);
                    self.queue.push(Task::DeleteChild { child, reason, request: None });
                }
            }
        }
    }

    fn on_inactivity(&mut self, ctx: &mut Context<'_>, id: ChildSaId, idle: Option<Duration>) {
        let Some(child) = self.children.get(id) else {
            return tracing::debug!(child = ?id, "inactivity: the child has ended meanwhile");
        };
        let limit = child.config.inactivity;
        let idle =
            idle.unwrap_or_else(|| ctx.io.now.mono.saturating_duration_since(child.installed));
        if idle >= limit {
            let reason = Failure::Inactive;
            self.queue.push(Task::DeleteChild { child: id, reason, request: None });
        } else {
            let at = ctx.io.now.mono + (limit - idle);
            self.life.set(TimerKey::Child(id, ChildTimer::Inactivity), at);
        }
    }
}
