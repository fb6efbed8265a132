//! Slow key exchanges that are done outside the engine, and the messages and tasks that wait for them.
//!
//! When the answer is there, the message is handled again from the start. So the ordinary rules take everything
//! into account that has happened meanwhile, and a message whose SA is gone needs no answer. Meanwhile the peer's
//! request is in progress for the message window, and no later message of ours is sent.

use std::time::{Duration, Instant};

use super::context::Context;
use super::keeping::no_room;
use super::state::{State, Step, Task};
use super::{IkeSa, Stem};
use crate::channel::Channel;
use crate::channel::memory::Kept;
use crate::event::{Failure, Ticket};
use crate::exchange::Refusal;
use crate::exchange::sent::Sent;
use crate::ike_sa::Queue;
use crate::keys::epoch::Opened;
use crate::question::{Answer, Claim, Exchange, Exchanged, Key, Question};
use crate::wire::decode_inner_payloads;
use crate::wire::registry::{ExchangeType, NotifyType};

/// How long an established IKE SA waits for a secret that it needs: as long as it would wait for a peer.
const PATIENCE: Duration = Duration::from_secs(165);

/// Waiting messages and tasks of an IKE SA. Most SAs have none.
#[derive(Default)]
pub(crate) struct Waits(Option<Box<Pending>>);

/// Waiting messages and tasks, at most one of each end's exchanges.
#[derive(Default)]
pub(crate) struct Pending {
    theirs: Option<Waiting>,
    ours: Option<Waiting>,
    /// Results for a task that could not be sent when they came.
    ready: Vec<Exchanged>,
}

/// A message or a task that waits for a slow key exchange.
pub(crate) struct Waiting {
    ticket: Ticket,
    key: Key,
    _claim: Claim,
    /// When the key exchange counts as failed.
    until: Instant,
    /// Key exchanges that are done already for the same message.
    done: Vec<Exchanged>,
    what: What,
    /// Octets of the message, counted by [`Channel::hold`](super::Channel::hold).
    kept: Kept,
}

/// What waits.
pub(crate) enum What {
    /// The peer's request.
    Request(ExchangeType, Opened),
    /// The peer's response.
    Response(Opened),
    /// Our next IKE_INTERMEDIATE. The state has the steps after it.
    Step(Step),
    /// Our next IKE_FOLLOWUP_KE, with this link. The request in flight has the rest.
    Followup(Vec<u8>),
    /// The first task of the queue.
    Task,
}

impl Pending {
    fn take(&mut self, which: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let theirs = self.theirs.take_if(|waiting| which(waiting));
        theirs.or_else(|| self.ours.take_if(|waiting| which(waiting)))
    }

    /// True while a request of the peer waits.
    pub(super) fn is_answering(&self) -> bool {
        self.theirs.is_some()
    }

    /// True while the first task of the queue waits.
    pub(super) fn is_preparing(&self) -> bool {
        self.ours.as_ref().is_some_and(|waiting| matches!(waiting.what, What::Task))
    }

    fn is_empty(&self) -> bool {
        self.all().next().is_none() && self.ready.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.theirs.iter().chain(&self.ours)
    }
}

impl Waits {
    /// What waits, or was waited for.
    pub(super) fn get(&self) -> Option<&Pending> {
        self.0.as_deref()
    }

    /// The results for `task`, which is sent now.
    pub(super) fn take_ready(&mut self, task: &Task) -> Vec<Exchanged> {
        let pending = self.0.as_deref_mut().filter(|_| task.exchanges_keys());
        let ready = pending.map(|pending| std::mem::take(&mut pending.ready));
        self.0.take_if(|pending| pending.is_empty());
        ready.unwrap_or_default()
    }

    /// What waits for the answer to `ticket`, which is there.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Waiting> {
        self.0.as_mut()?.take(|its| its.ticket == ticket)
    }

    /// True if the SA waits for the answer to `ticket`.
    pub(crate) fn awaits(&self, ticket: Ticket) -> bool {
        self.get().is_some_and(|pending| pending.all().any(|its| its.ticket == ticket))
    }

    /// Gives up everything that waits, because the SA ends.
    pub(super) fn give_up(&mut self, ctx: &mut Context<'_>) {
        for waiting in self.0.take().iter().flat_map(|pending| pending.all()) {
            ctx.ids.asked.remove(&waiting.ticket);
        }
    }

    /// Sets when the first of them is given up.
    fn arm(&self, channel: &mut Channel) {
        let all = self.0.iter().flat_map(|pending| pending.all());
        let first = all.map(|waiting| waiting.until).min();
        channel.deadlines().limit_exchange(first);
    }

    /// Keeps results that the first task has not used, because the window is not free.
    fn keep_ready(&mut self, queue: &Queue, left: Vec<Exchanged>) {
        if !left.is_empty() && queue.tasks().any(Task::exchanges_keys) {
            self.0.get_or_insert_default().ready = left;
        }
    }
}

impl IkeSa {
    /// True while this SA waits for a signature, a verdict or a key exchange.
    pub(crate) fn is_waiting_here(&self) -> bool {
        let asked = |pending: &Pending| pending.all().next().is_some();
        self.pending.0.as_deref().is_some_and(asked) || self.state.ticket().is_some()
    }

    /// Handles the answer for which `waiting` waits.
    pub(crate) fn on_exchanged(&mut self, ctx: &mut Context<'_>, waiting: Waiting, answer: Answer) {
        let done = match answer {
            Answer::Exchanged(done) if done.is_of(&waiting.key) => done,
            _ => Exchanged::failed(waiting.key.clone()),
        };
        self.resume(ctx, waiting, done);
    }

    /// Gives up the key exchanges whose time has passed.
    pub(super) fn on_exchange_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.io.now.mono;
        while !self.is_closed()
            && let Some(pending) = &mut self.pending.0
            && let Some(waiting) = pending.take(|its| its.until <= now)
        {
            ctx.ids.asked.remove(&waiting.ticket);
            let failed = Exchanged::failed(waiting.key.clone());
            self.resume(ctx, waiting, failed);
        }
    }

    fn resume(&mut self, ctx: &mut Context<'_>, waiting: Waiting, last: Exchanged) {
        self.pending.0.take_if(|pending| pending.is_empty());
        self.pending.arm(&mut self.channel);
        let Waiting { mut done, what, kept, .. } = waiting;
        self.channel.let_go(&mut ctx.io, kept);
        done.push(last);
        ctx.ids.exchanged = done;
        match what {
            What::Request(exchange, message) => {
                // The message was decoded once already.
                match decode_inner_payloads(message.first, &message.octets) {
                    Ok(payloads) => self.on_request(ctx, exchange, &payloads, &message),
                    Err(error) => self.stem().refuse(ctx, Refusal::from(error)),
                }
            }
            What::Response(message) => {
                match decode_inner_payloads(message.first, &message.octets) {
                    Ok(payloads) => self.on_response(ctx, &payloads, &message),
                    Err(error) => self.ending.end(Refusal::from(error).into()),
                }
            }
            What::Step(step) => {
                self.change(|state, stem| match state {
                    State::ExpectIntermediateResponse(next) => next.take_step(stem, ctx, step),
                    state => {
                        debug_assert!(false, "a step of IKE_INTERMEDIATE in another state");
                        stem.ending.end(Failure::Crypto);
                        state
                    }
                });
            }
            What::Followup(link) => {
                self.when_established(|established, stem| {
                    let sent = &mut established.sent;
                    if let Some(Sent::Followup(followup)) =
                        sent.take_if(|ours| matches!(ours, Sent::Followup(_)))
                    {
                        established.send_followup(stem, ctx, *followup, &link);
                    }
                });
            }
            What::Task => {
                self.when_established(|established, stem| {
                    established.pump(stem, ctx);
                    let left = std::mem::take(&mut ctx.ids.exchanged);
                    stem.pending.keep_ready(&established.queue, left);
                });
            }
        }
        ctx.ids.exchanged.clear();
    }

    /// Answers the waiting request of the peer as if its key exchange had failed.
    pub(super) fn refuse_waiting(&mut self, ctx: &mut Context<'_>) {
        let waiting = self.pending.0.as_mut().and_then(|pending| pending.theirs.take());
        if let Some(waiting) = waiting {
            ctx.ids.asked.remove(&waiting.ticket);
            let failed = Exchanged::failed(waiting.key.clone());
            self.resume(ctx, waiting, failed);
        }
    }
}

impl Stem<'_> {
    /// Asks for `exchange`. `what` is repeated afterwards.
    pub(crate) fn put_off(&mut self, ctx: &mut Context<'_>, mut exchange: Exchange, what: What) {
        let before = self.channel.kept();
        let room = match &what {
            What::Request(_, message) => self.channel.hold(&mut ctx.io, message),
            What::Response(message) if self.channel.link().is_stranger() => {
                self.channel.hold(&mut ctx.io, message)
            }
            _ => true,
        };
        if !room {
            // An unauthenticated peer is told nothing.
            if self.channel.link().is_stranger() {
                return self.ending.end(no_room());
            }
            let refusal = Refusal::new(NotifyType::TEMPORARY_FAILURE);
            return self.refuse_because(ctx, &refusal, no_room());
        }
        let (kept, done) =
            (self.channel.kept().since(before), std::mem::take(&mut ctx.ids.exchanged));
        let patience = match what {
            // Without this secret an established SA would end. No peer waits for a task or a step of this end.
            What::Response(_) | What::Followup(_) if !self.channel.link().is_stranger() => PATIENCE,
            _ => ctx.io.config.half_open_timeout,
        };
        let (key, until) = (exchange.key(), ctx.io.now.mono + patience);
        let theirs = matches!(what, What::Request(..));
        let claim = exchange.claim(theirs && self.channel.link().is_stranger());
        let ticket = ctx.ask(Question::Exchange(exchange));
        let waiting = Waiting { ticket, key, _claim: claim, until, done, what, kept };
        let pending = self.pending.0.get_or_insert_default();
        let place = if theirs { &mut pending.theirs } else { &mut pending.ours };
        *place = Some(waiting);
        self.pending.arm(self.channel);
    }
}
