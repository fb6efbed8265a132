//! The responder asks whether the initiator's public key is to be trusted, and judges the answer.

use super::blame::Blame;
use super::questions::{Judging, ask, peer_credentials, signed_by};
use super::responder::ids;
use super::signature;
use crate::channel::Channel;
use crate::config::AuthConfig;
use crate::event::{Disbelief, Distrust, Failure, UsedAuth};
use crate::exchange::{Payloads, required};
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{AwaitVerdict, ExpectAuthRequest, State};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::PeerAuthenticated;
use crate::question::{Answer, PeerKey, Question};
use crate::wire::decode_inner_payloads;
use crate::wire::payload::{Id, Payload};
use crate::wire::registry::NotifyType;

impl ExpectAuthRequest {
    /// Asks about the key for the first candidate. `payloads` are those of `message`.
    pub(super) fn ask_for_key(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        message: Opened,
        judging: Judging,
        payloads: &[Payload<'_>],
    ) -> State {
        let index = self.rounds.proven();
        let id = Payloads(payloads).id_i().ok().flatten().map(Id::to_owned);
        // Any connection that accepts public keys will do for a decoy.
        let mut possible = judging.candidates.iter().chain(&*self.connections);
        let asked = id.and_then(|id| {
            possible
                .find_map(|connection| peer_credentials(connection, index, id.clone(), payloads))
        });
        let Some(asked) = asked else {
            return self.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
        };
        let ticket = ask(ctx, stem.channel, Question::Judge(asked));
        let asked = AwaitVerdict { ticket, waiting: self, message, judging };
        State::AwaitInitiatorVerdict(Box::new(asked))
    }

    /// Checks whether the answer is a key that has made the signature, or such a key after the check of
    /// revocation.
    fn check_key(
        &mut self,
        channel: &Channel,
        ctx: &Context<'_>,
        judging: &mut Judging,
        payloads: &[Payload<'_>],
        answer: Answer,
    ) -> Result<(PeerKey, UsedAuth, PeerAuthenticated), Failure> {
        let key = match answer {
            Answer::Key(key) => key,
            Answer::Untrusted(kind, why) => return Err(Failure::Untrusted(kind, why)),
            Answer::Failed(why) => return Err(Failure::Untrusted(Distrust::Other, why)),
            Answer::Signed(_)
            | Answer::Resumable
            | Answer::Exchanged(_)
            | Answer::Leased(..)
            | Answer::Eap(_)
            | Answer::Ends { .. } => {
                return Err(Failure::Authentication);
            }
        };
        if let Some((known, mut used, evidence)) = judging.proven.take() {
            if key.revocation_pending || key.spki != known.spki {
                let why = "revocation is not settled".to_owned();
                return Err(Failure::Untrusted(Distrust::RevocationUnknown, why));
            }
            // What is known of its certificates is the outcome of the question.
            used.certificate.clone_from(&key.certificate);
            return Ok((key, used, evidence));
        }
        let parsed = Payloads(payloads);
        let index = self.rounds.proven();
        let connections = judging.candidates.iter().chain(&*self.connections);
        let constraints =
            connections.flat_map(|c| c.remote.get(index)).find_map(|round| match &round.auth {
                AuthConfig::Pubkey(pubkey) => Some(&pubkey.ike),
                _ => None,
            });
        let id = required(parsed.id_i()?)?;
        let (Some(asked), Some(data)) = (constraints, judging.auth_data(&parsed)) else {
            return Err(Failure::Authentication);
        };
        let verdict = self.transcript.verify_initiator(channel, *id, |octets| {
            signature::verify((ctx.io.config, ctx.crypto), asked, &key.spki, octets, data)
        });
        let (evidence, scheme) = verdict.map_err(|_| Failure::Authentication)?;
        let used = signed_by(id.to_owned(), data.0, scheme, &key);
        Ok((key, used, evidence))
    }
}

impl AwaitVerdict<ExpectAuthRequest> {
    pub(super) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { mut waiting, message, mut judging, .. } = self;
        let index = waiting.rounds.proven();
        let octets = message.octets.clone();
        let payloads = match decode_inner_payloads(message.first, &octets) {
            Ok(payloads) => payloads,
            // It was decoded once already.
            Err(error) => return waiting.refuse(stem, ctx, error.into()),
        };
        if let Some(ticket) = waiting.resume.take() {
            return waiting.on_resumable(stem, ctx, &ticket, (&payloads, &message), answer);
        }
        let judged = waiting.check_key(stem.channel, ctx, &mut judging, &payloads, answer);
        let connection = judging.candidates.front().cloned();
        match (judged, connection) {
            (Ok((key, used, evidence)), Some(connection)) if judging.decoy.is_none() => {
                if !key.revocation_pending {
                    let proof = (used, evidence);
                    return waiting.initiator_proven(
                        stem,
                        ctx,
                        &connection,
                        proof,
                        &payloads,
                        &message,
                    );
                }
                let id = used.id.clone();
                let asked = peer_credentials(&connection, index, id, &payloads);
                let Some(asked) = asked else {
                    return waiting.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
                };
                let ticket = ask(ctx, stem.channel, Question::Revocation(asked));
                judging.proven = Some((key, used, evidence));
                State::AwaitInitiatorVerdict(Box::new(Self { ticket, waiting, message, judging }))
            }
            (judged, connection) => {
                judging.candidates.pop_front();
                if judging.decoy.is_none() && !judging.candidates.is_empty() {
                    return waiting.ask_for_key(stem, ctx, message, judging, &payloads);
                }
                let reason = judged.err().unwrap_or(Failure::Authentication);
                let blame = judging.decoy.unwrap_or_else(|| match &reason {
                    Failure::Untrusted(kind, why) => {
                        Blame::of(connection.as_deref(), Disbelief::Untrusted(why.clone()))
                            .distrusting(*kind)
                    }
                    _ => Blame::of(connection.as_deref(), Disbelief::WrongSignature),
                });
                blame.tell(stem.channel, ctx, ids(&Payloads(&payloads)));
                waiting.fail(stem, ctx, reason)
            }
        }
    }
}
