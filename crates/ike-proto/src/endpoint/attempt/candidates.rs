//! The candidates of an attempt: a half-made IKE SA for each IKE_SA_INIT response that could be genuine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::waiting::{Response, What};
use super::{Attempt, MAX_CANDIDATES};
use crate::channel::nat::{beside, floated};
use crate::channel::rtt::OVERHEAD;
use crate::channel::{Channel, Session};
use crate::channel::{NewChannel, Twin};
use crate::config::Childless;
use crate::event::{Failure, Path};
use crate::exchange::auth::rounds::Rounds;
use crate::exchange::auth::{local_id_at, signs};
use crate::exchange::config::{any_of, wanted};
use crate::exchange::requested_child::{NoOffer, OfferSpec, RequestedChild};
use crate::exchange::resume;
use crate::exchange::sa_init::{self, Accepted, Sent, Unfit};
use crate::exchange::sent::Retry;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthResponse, State, Steps, Task};
use crate::ike_sa::{IkeSa, Peer};
use crate::keys::Spis;
use crate::reason::DropReason;
use crate::wants::Wanted;
use crate::wire::Message;
use crate::wire::payload::Payload;
use crate::wire::registry::KeMethodId;

impl Attempt {
    /// Handles a response that came at `heard`. It answers the request `answers` if that is known, otherwise the
    /// last one.
    pub(super) fn add_candidate(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
        heard: Instant,
        answers: Option<&Arc<[u8]>>,
    ) {
        if self.responses().any(|waiting| *waiting.octets == *octets) {
            return;
        }
        if self.seen.iter().any(|seen| **seen == *octets) {
            for candidate in &mut self.candidates {
                candidate.channel.on_init_answered_twice();
            }
            return;
        }
        if self.admitted + self.responses().count() >= MAX_CANDIDATES {
            return ctx.io.dropped(path, DropReason::TooManyInitResponses);
        }
        let method = message.payloads.iter().find_map(|payload| match payload {
            Payload::Ke(ke) => Some(ke.method),
            _ => None,
        });
        let method = if self.presented().is_some() { Some(KeMethodId::NONE) } else { method };
        let fits = |sent: &&Sent| {
            Some(sent.method) == method && answers.is_none_or(|its| Arc::ptr_eq(its, &sent.octets))
        };
        let Some(sent) = self.sent.iter().rev().find(fits) else {
            return ctx.io.dropped(path, DropReason::MethodNeverSent);
        };
        let request = self.request(ctx, sent.method, sent.ke.public());
        let accepted = match self.presented() {
            Some(held) => {
                let sent = &sent.octets;
                resume::initiator::accept_response(ctx, &request, held, sent, message, octets)
            }
            None => sa_init::accept_response(ctx, &request, sent, message, octets),
        };
        match accepted {
            Ok(accepted) => {
                self.seen.push(octets.into());
                self.admitted += 1;
                if let Some(accepted) = self.known_keys(accepted)
                    && let Err(failure) = self.start_candidate(ctx, accepted, octets.len(), heard)
                {
                    self.doubt(ctx, failure);
                }
            }
            Err(Unfit::Useless(why)) => ctx.io.dropped(path, why),
            Err(Unfit::Ask(exchange)) => {
                let request = Arc::clone(&sent.octets);
                let response = Response { path, octets: octets.into(), heard, request };
                self.put_off(ctx, exchange, What::Response(response));
            }
            //= https://www.rfc-editor.org/rfc/rfc8784#section-6
            //# it is RECOMMENDED that, if using PPKs is
            //# mandatory for the initiator and the received response doesn't contain
            //# the USE_PPK notification, the initiator not abort the exchange
            //# immediately.
            Err(Unfit::Policy(why)) => self.doubt(ctx, Failure::Policy(why)),
        }
    }

    /// Returns `accepted` if its keys were never used. No two requests may be sealed under one key, because their
    /// IVs would be equal. An attacker could cause that by a copy of the response with the same KE, nonce and SPI
    /// and another change. So such a pair shares a candidate.
    fn known_keys(&mut self, accepted: Accepted) -> Option<Accepted> {
        let Session { selected, keys, .. } = &accepted.session;
        let (suite, key) =
            (selected.suite, keys.ei().expect("an initiator has SK_ei of IKE_SA_INIT"));
        let known = self.used.iter().find(|used| used.0 == suite && used.1.ct_eq(key.expose()));
        let Some((_, _, first)) = known else {
            let response = Arc::clone(&accepted.transcript.response);
            self.used.push((suite, key.duplicate(), response));
            return Some(accepted);
        };
        let made_of_it = self.candidates.iter_mut().find_map(|candidate| {
            let its =
                |waiting: &mut ExpectAuthResponse| Arc::ptr_eq(&waiting.transcript.response, first);
            (candidate.state.with_unproven(its) == Some(true)).then_some(candidate)
        });
        // The IKE_AUTH request that was sent depends on these extensions. With others no peer could use it.
        let made_of_it = made_of_it.filter(|candidate| {
            let (first, second) = (candidate.channel.link().extensions(), accepted.extensions);
            !first.full_transcript
                && !second.full_transcript
                && (first.ppk, first.separate) == (second.ppk, second.separate)
        });
        if let Some(candidate) = made_of_it {
            let Accepted { transcript, extensions, nat, .. } = accepted;
            let twin = Twin { response: transcript.response, extensions, nat };
            candidate.channel.proving().add_twin(twin);
        }
        None
    }

    /// Builds the SA from an IKE_SA_INIT response of `octets`, which came at `heard`, and continues.
    fn start_candidate(
        &mut self,
        ctx: &mut Context<'_>,
        accepted: Accepted,
        octets: usize,
        heard: Instant,
    ) -> Result<(), Failure> {
        let rtt = self.window.rtt_with(heard, octets + OVERHEAD);
        let Accepted { session, transcript, extensions, announced, nat, spi_r } = accepted;
        let natt_port = ctx.io.config.natt_port;
        let udp = floated(self.path, nat, self.connection.mobike, natt_port);
        let (path, stream, separate) = match (self.is_over_tcp(), extensions.separate) {
            (true, apart) => {
                let stream = self.tcp.as_ref().map(|line| line.stream.clone());
                (self.path, stream, apart.then(|| beside(self.path, natt_port)))
            }
            (false, true) => {
                let (path, stream) = self.open_line(ctx);
                (path, Some(stream), Some(udp))
            }
            (false, false) => (udp, None, None),
        };
        let first = self.wanted.first();
        let childless = match (self.connection.childless, extensions.childless) {
            (Childless::Force, false) => {
                let text = "childless = force, but the peer does not support it";
                return Err(Failure::Config(text.to_owned()));
            }
            (Childless::Force | Childless::Prefer, true) => true,
            (Childless::Allow, true) => first.is_none_or(|wanted| wanted.child.is_none()),
            _ => false,
        };
        let vips = wanted(&self.connection, &self.vips);
        let mut queue = VecDeque::new();
        let mut waiting = Vec::new();
        let mut child = None;
        for (index, Wanted { child: config, request, packet }) in self.wanted.iter().enumerate() {
            // An SA that must have a child accepts the first one.
            let must = index == 0 && !childless;
            let config = match (config, must) {
                (Some(config), _) => Some(config),
                (None, true) => self.connection.children.first(),
                (None, false) => None,
            };
            match config {
                None => waiting.extend(*request),
                Some(config) if must => {
                    let spec = OfferSpec {
                        config,
                        rekeys: None,
                        joins: None,
                        dynamic: any_of(&vips),
                        packet: *packet,
                        ike_method: None,
                        ordinal: 0,
                        request: *request,
                        retry: Retry::default(),
                    };
                    child = Some(
                        RequestedChild::offer(ctx, self.id, path, &spec)
                            .map_err(NoOffer::failure)?,
                    );
                }
                Some(config) => queue.push_back(Task::CreateChild {
                    config: Arc::clone(config),
                    packet: *packet,
                    request: *request,
                    retry: Retry::default(),
                    join: None,
                }),
            }
        }
        let local_id = local_id_at(&self.connection, path);
        // An end that does not sign need not know.
        let deferred = announced.deferred && extensions.intermediate && signs(&self.connection);
        let resume = self.presented().cloned();
        let rest = match &resume {
            Some(_) => Steps::none(),
            None => Steps::new(&session.selected, extensions, deferred),
        };
        let auth = Box::new(ExpectAuthResponse {
            transcript,
            child,
            local_id,
            vips,
            queue,
            announced,
            rounds: Rounds::default(),
            initial_contact: self.initial_contact,
            redirect: None,
            eap: None,
            told: Vec::new(),
            resume,
        });
        let mut channel = Channel::new(
            &ctx.io,
            NewChannel {
                id: self.id,
                initiator: true,
                spis: Spis::new(self.spi_i, spi_r),
                path,
                nat,
                extensions,
                connection: Arc::clone(&self.connection),
                session,
                started: self.started,
            },
        );
        channel.begin_after_init(&ctx.io, Some(rtt));
        channel.roaming().begin_stream(stream, separate);
        let peer = Peer::asked(self.replaces.is_some());
        let mut candidate = IkeSa::new(channel, peer, State::Closed(Failure::NotFound));
        candidate.waiting = waiting;
        candidate.peer.set_redirected(self.redirected);
        candidate.change(|_, stem| auth.proceed(stem, ctx, rest));
        self.candidates.push(candidate);
        self.give_up_at = None;
        self.reap(ctx);
        Ok(())
    }

    /// Drops candidates that have failed. After the last one there is still a moment for a response that
    /// contradicts.
    pub(super) fn reap(&mut self, ctx: &mut Context<'_>) {
        for candidate in &mut self.candidates {
            candidate.settle(ctx);
        }
        let to = self
            .candidates
            .iter_mut()
            .find_map(|one| one.state.with_unproven(|its| its.redirect)?);
        if let Some(gateway) = to {
            return self.redirected_to(ctx, gateway);
        }
        let (mut failed, mut genuine) = (None, false);
        let (used, seen) = (&mut self.used, &mut self.seen);
        self.candidates.retain_mut(|candidate| match &candidate.state {
            State::Closed(reason) => {
                failed = Some(reason.clone());
                genuine |= candidate.channel.link().is_genuine();
                if candidate.channel.window().next_request_id() == Ok(1) {
                    // It has sent nothing, so another candidate may use its keys.
                    let Session { selected, keys, .. } = candidate.channel.session();
                    let mut made_of = None;
                    used.retain(|(suite, key, response)| {
                        let its = *suite == selected.suite
                            && keys.ei().is_some_and(|ei| key.ct_eq(ei.expose()));
                        if its {
                            made_of = Some(Arc::clone(response));
                        }
                        !its
                    });
                    // Responses with the same keys were left to this candidate. They may come again, but not its
                    // own.
                    seen.retain(|seen| {
                        let mut kept = made_of.iter().chain(used.iter().map(|used| &used.2));
                        kept.any(|response| response == seen)
                    });
                }
                false
            }
            _ => true,
        });
        if let Some(reason) = failed {
            self.failure = Some(reason);
            if self.candidates.is_empty() {
                self.give_up_at = Some(ctx.io.now.mono);
                // Over TCP only the peer can have answered. A refusal by the genuine peer is final: a wrong
                // password is not tried again.
                let left = self.opinions_left.saturating_sub(1);
                self.opinions_left = if self.is_over_tcp() || genuine { 0 } else { left };
            }
        }
    }
}
