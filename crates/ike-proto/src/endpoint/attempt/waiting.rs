//! Slow key exchanges of IKE_SA_INIT that are done outside the engine: the public value of a request, and the
//! secret of a response. There may be several, because responses are not authenticated.

use std::sync::Arc;
use std::time::Instant;

use super::Attempt;
use crate::event::{Path, Ticket};
use crate::ike_sa::context::Context;
use crate::question::{Answer, Claim, Exchange, Exchanged, Key, Question};
use crate::wire::Message;
use crate::wire::registry::KeMethodId;

/// A message that waits for a slow key exchange.
pub(super) struct Waiting {
    ticket: Ticket,
    key: Key,
    _claim: Claim,
    /// When the key exchange counts as failed.
    until: Instant,
    what: What,
}

/// What waits.
pub(super) enum What {
    /// The request with this method.
    Request(KeMethodId),
    Response(Response),
}

/// A response that could be genuine.
pub(super) struct Response {
    pub(super) path: Path,
    pub(super) octets: Arc<[u8]>,
    pub(super) heard: Instant,
    /// The request that it answers. Another request may be sent before the secret is there.
    pub(super) request: Arc<[u8]>,
}

impl Attempt {
    pub(super) fn put_off(&mut self, ctx: &mut Context<'_>, mut exchange: Exchange, what: What) {
        let (key, until) = (exchange.key(), ctx.io.now.mono + ctx.io.config.half_open_timeout);
        let claim = exchange.claim(false);
        let ticket = ctx.ask(Question::Exchange(exchange));
        self.put_off.push(Waiting { ticket, key, _claim: claim, until, what });
    }

    /// True while the public value of `method` is being made.
    pub(super) fn is_making(&self, method: KeMethodId) -> bool {
        let its = |what: &What| matches!(what, What::Request(made) if *made == method);
        self.put_off.iter().any(|waiting| its(&waiting.what))
    }

    /// Responses that wait.
    pub(super) fn responses(&self) -> impl Iterator<Item = &Response> {
        self.put_off.iter().filter_map(|waiting| match &waiting.what {
            What::Response(response) => Some(response),
            What::Request(_) => None,
        })
    }

    /// Handles the answer to a question of the attempt itself. Returns the answer if the question was not the
    /// attempt's.
    pub(super) fn on_exchanged(
        &mut self,
        ctx: &mut Context<'_>,
        ticket: Ticket,
        answer: Answer,
    ) -> Option<Answer> {
        let index = self.put_off.iter().position(|waiting| waiting.ticket == ticket);
        let Some(index) = index else { return Some(answer) };
        let Waiting { key, what, .. } = self.put_off.swap_remove(index);
        let done = match answer {
            Answer::Exchanged(done) if done.is_of(&key) => done,
            _ => Exchanged::failed(key),
        };
        self.resume(ctx, what, done);
        None
    }

    /// Gives up the key exchanges whose time has passed.
    pub(super) fn on_exchange_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.io.now.mono;
        let late = |waiting: &Waiting| waiting.until <= now;
        while let Some(index) = self.put_off.iter().position(late) {
            let Waiting { ticket, key, what, .. } = self.put_off.swap_remove(index);
            ctx.ids.asked.remove(&ticket);
            self.resume(ctx, what, Exchanged::failed(key));
        }
    }

    fn resume(&mut self, ctx: &mut Context<'_>, what: What, done: Exchanged) {
        ctx.ids.exchanged = vec![done];
        match what {
            What::Request(method) => {
                if let Err(failure) = self.send(ctx, method) {
                    match self.sent.is_empty() {
                        true => self.give_up(ctx, failure),
                        // The earlier request may still be answered.
                        false => self.failure = Some(failure),
                    }
                }
            }
            What::Response(response) => {
                // The message was decoded once already.
                if let Ok(message) = Message::decode(&response.octets) {
                    let Response { path, octets, heard, request } = &response;
                    self.add_candidate(ctx, *path, octets, &message, *heard, Some(request));
                }
            }
        }
        ctx.ids.exchanged.clear();
    }

    /// When the first of them counts as failed.
    pub(super) fn exchange_deadline(&self) -> Option<Instant> {
        self.put_off.iter().map(|waiting| waiting.until).min()
    }

    /// Gives up all key exchanges.
    pub(super) fn give_up_exchanges(&mut self, ctx: &mut Context<'_>) {
        for waiting in self.put_off.drain(..) {
            ctx.ids.asked.remove(&waiting.ticket);
        }
    }
}
