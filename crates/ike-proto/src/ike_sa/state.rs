//! The states of an IKE SA: what may arrive next, and the data of each.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::context::Context;
use super::life::Life;
use super::plane::Query;
use crate::channel::{Channel, Extensions, PpkPlace};
use crate::child::Join;
use crate::config::ChildConfig;
use crate::config::candidates::Candidates;
use crate::config::proposal::Selected;
use crate::crypto::PendingKe;
use crate::dataplane::Flow;
use crate::event::{ChildSaId, Failure, IkeSaId, RequestId, Ticket};
use crate::exchange::auth::announce::Announcements;
use crate::exchange::auth::eap::{AwaitEap, EapRound};
use crate::exchange::auth::questions::{Covered, Judging, SigningRound};
use crate::exchange::auth::rounds::Rounds;
use crate::exchange::config::AwaitLease;
use crate::exchange::followup::Answering;
use crate::exchange::mobike::Mobility;
use crate::exchange::ppk::OfferedPpk;
use crate::exchange::requested_child::RequestedChild;
use crate::exchange::resume::former::Held;
use crate::exchange::resume::ticket::TicketState;
use crate::exchange::sa_init::other_forms;
use crate::exchange::sent::{Retry, Sent};
use crate::ike_sa::Children;
use crate::ike_sa::Identity;
use crate::ike_sa::Queue;
use crate::keys::Nonces;
use crate::keys::epoch::Opened;
use crate::keys::int_auth::IntAuth;
use crate::keys::signed_octets::{AuthFailure, SignedOctets, Transcript};
use crate::wire::payload::{Id, IdData};
use crate::wire::registry::KeMethodId;

/// The state of an IKE SA. An initiator's IKE_SA_INIT is an [`Attempt`](crate::endpoint::attempt::Attempt),
/// because there is no SA before a response.
pub(crate) enum State {
    /// Responder: the next additional key exchange is due.
    ExpectIntermediateRequest(Box<ExpectIntermediateRequest>),
    /// Initiator: an additional key exchange was sent.
    ExpectIntermediateResponse(Box<ExpectIntermediateResponse>),
    /// Responder: IKE_SA_INIT was answered, and all additional key exchanges.
    ExpectAuthRequest(Box<ExpectAuthRequest>),
    /// Initiator: IKE_AUTH was sent.
    ExpectAuthResponse(Box<ExpectAuthResponse>),
    /// Initiator: IKE_AUTH is to be sent once it is signed.
    AwaitRequestSignature(Box<AwaitSignature<ExpectAuthResponse>>),
    /// Initiator: the responder showed its certificates.
    AwaitResponderVerdict(Box<AwaitVerdict<ExpectAuthResponse>>),
    /// Responder: the initiator showed its certificates.
    AwaitInitiatorVerdict(Box<AwaitVerdict<ExpectAuthRequest>>),
    /// Responder: the initiator is authenticated, and the response is to be signed.
    AwaitResponseSignature(Box<AwaitSignature<ExpectAuthRequest>>),
    /// Responder: the peer's addresses are being chosen.
    AwaitLease(Box<AwaitLease>),
    /// Initiator: an EAP packet of the responder is being handled.
    AwaitAuthenticatorPacket(Box<AwaitEap<ExpectAuthResponse>>),
    /// Responder: an EAP packet of the initiator is being handled, or the first one is being made.
    AwaitPeerPacket(Box<AwaitEap<ExpectAuthRequest>>),
    /// Both ends are authenticated.
    Established(Box<Established>),
    /// The SA has ended. The endpoint removes it at the end of the input.
    Closed(Failure),
}

/// Cookies of an IKE_SA_INIT request.
#[derive(Debug, Default, Clone)]
pub(crate) struct OtherCookies(Vec<Vec<u8>>);

impl OtherCookies {
    /// Adds one, if it is not among them.
    pub(crate) fn add(&mut self, cookie: Vec<u8>) {
        if !self.0.contains(&cookie) {
            self.0.push(cookie);
        }
    }
}

/// What AUTH covers: the IKE_SA_INIT messages (RFC 7296 §2.15), and every IKE_INTERMEDIATE.
#[derive(Default)]
pub(crate) struct InitTranscript {
    pub(crate) request: Arc<[u8]>,
    /// Responder: other cookies that the initiator may have got. Its AUTH may cover the request with one of them.
    // One pointer, because there may be many half-open SAs, and few of them have any.
    pub(crate) cookies: Option<Box<OtherCookies>>,
    pub(crate) response: Arc<[u8]>,
    pub(crate) ni: Box<[u8]>,
    pub(crate) nr: Box<[u8]>,
    pub(crate) int_auth: IntAuth,
}

impl InitTranscript {
    /// Ni and Nr.
    pub(crate) fn nonces(&self) -> Nonces<'_> {
        Nonces { i: &self.ni, r: &self.nr }
    }

    /// What the AUTH of one end covers of IKE_SA_INIT. `full` if both ends announced downgrade prevention.
    fn covered(&self, by_initiator: bool, full: bool) -> Transcript<'_> {
        let (own, peer) = match by_initiator {
            true => (&self.request, &self.response),
            false => (&self.response, &self.request),
        };
        if full { Transcript::Full { own, peer } } else { Transcript::RealMessage(own) }
    }

    /// The octets that this end's AUTH covers with the present keys.
    pub(crate) fn own_covered(&self, channel: &Channel, id: &IdData) -> Covered {
        let keys = &channel.session().keys;
        let sk_p = if channel.link().is_initiator() { keys.pi() } else { keys.pr() };
        Covered { octets: self.own_octets(channel, id), sk_p: sk_p.duplicate() }
    }

    /// The octets that this end's AUTH payload covers.
    fn own_octets(&self, channel: &Channel, id: &IdData) -> SignedOctets {
        self.octets(channel, channel.link().is_initiator(), id.as_id())
    }

    /// The octets that the peer's AUTH payload covers. `id` is the identity as received.
    pub(crate) fn peer_octets(&self, channel: &Channel, id: Id<'_>) -> SignedOctets {
        self.octets(channel, !channel.link().is_initiator(), id)
    }

    /// Verifies the AUTH of the initiator. It covers the request that the initiator takes for answered. This may be another
    /// than the one that was answered: with a cookie or without, because the demand of a cookie and the response crossed, or
    /// because somebody on the path sent the other one.
    pub(crate) fn verify_initiator<T>(
        &mut self,
        channel: &Channel,
        id: Id<'_>,
        verify: impl Fn(&SignedOctets) -> Result<T, AuthFailure>,
    ) -> Result<T, AuthFailure> {
        let verdict = verify(&self.peer_octets(channel, id));
        if verdict.is_ok() {
            return verdict;
        }
        let answered = Arc::clone(&self.request);
        let cookies = self.cookies.as_ref().map_or(&[][..], |cookies| &cookies.0);
        for form in other_forms(&answered, cookies) {
            self.request = form;
            let verdict = verify(&self.peer_octets(channel, id));
            if verdict.is_ok() {
                return verdict;
            }
        }
        // Another candidate may have a key that verifies this one.
        self.request = answered;
        verdict
    }

    fn octets(&self, channel: &Channel, initiator: bool, id: Id<'_>) -> SignedOctets {
        let (nonce, key) = if initiator {
            (&self.nr, channel.session().keys.pi())
        } else {
            (&self.ni, channel.session().keys.pr())
        };
        let message = self.covered(initiator, channel.link().extensions().full_transcript);
        let int_auth = self.int_auth.finish();
        SignedOctets::new(channel.session().prf, key, message, nonce, id, int_auth.as_deref())
    }
}

pub(crate) struct ExpectAuthRequest {
    pub(crate) transcript: InitTranscript,
    /// The connections that the peer may belong to; one after its first round.
    pub(crate) connections: Candidates,
    pub(crate) announced: Announcements,
    pub(crate) rounds: Rounds,
    /// The first IKE_AUTH request: its Child SA waits for the last round (RFC 4739 §2).
    pub(crate) first: Option<Opened>,
    /// The EAP round in progress.
    pub(crate) eap: Option<Box<EapRound>>,
    /// The ticket of the resumption, until the peer has proven that the ticket is its own.
    pub(crate) resume: Option<Box<TicketState>>,
}

/// The remaining work of IKE_INTERMEDIATE: the additional key exchanges in order, and a PPK with or after the last
/// of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Steps {
    methods: VecDeque<KeMethodId>,
    ppk: bool,
    announce: bool,
}

/// One IKE_INTERMEDIATE exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its key exchange.
    pub(crate) method: Option<KeMethodId>,
    /// True if it may carry a PPK.
    pub(crate) ppk: bool,
    /// True if the responder announces its authentication methods in it (RFC 9593 §3.1).
    pub(crate) announce: bool,
}

impl Steps {
    /// The steps for `selected` and `extensions`. `announce` if the responder has postponed its
    /// SUPPORTED_AUTH_METHODS.
    pub(crate) fn new(selected: &Selected, extensions: Extensions, announce: bool) -> Self {
        let ppk = extensions.ppk == Some(PpkPlace::Intermediate);
        Self { methods: selected.additional().collect(), ppk, announce }
    }

    /// No step.
    pub(crate) fn none() -> Self {
        Self { methods: VecDeque::new(), ppk: false, announce: false }
    }

    /// The next exchange.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let method = self.methods.pop_front();
        //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
        //# the
        //# PPK_IDENTITY_KEY notification(s) MUST be sent in the last one, i.e.,
        //# in the IKE_INTERMEDIATE exchange immediately preceding the IKE_AUTH
        //# exchange. If this IKE_INTERMEDIATE exchange contains other payloads
        //# aimed for some other purpose, then the notification(s) MAY be
        //# piggybacked with these payloads.
        let last = self.methods.is_empty();
        let ppk = last && std::mem::take(&mut self.ppk);
        //= https://www.rfc-editor.org/rfc/rfc9593#section-3.1
        //# it is RECOMMENDED that the responder use the last
        //# IKE_INTERMEDIATE exchange (the one just before IKE_AUTH) to send the
        //# list of supported authentication methods.
        let announce = last && std::mem::take(&mut self.announce);
        (method.is_some() || ppk || announce).then_some(Step { method, ppk, announce })
    }

    /// Handles that the last key exchange had no PPK: the PPK comes in an exchange of its own.
    pub(crate) fn put_off_ppk(&mut self) {
        self.ppk = true;
    }
}

pub(crate) struct ExpectIntermediateRequest {
    pub(crate) step: Step,
    /// The steps after it.
    pub(crate) rest: Steps,
    pub(crate) auth: Box<ExpectAuthRequest>,
}

pub(crate) struct ExpectIntermediateResponse {
    pub(crate) ke: Option<(KeMethodId, Arc<dyn PendingKe>)>,
    /// PPKs offered.
    pub(crate) ppks: Vec<OfferedPpk>,
    /// The steps after it.
    pub(crate) rest: Steps,
    pub(crate) auth: Box<ExpectAuthResponse>,
}

pub(crate) struct ExpectAuthResponse {
    pub(crate) transcript: InitTranscript,
    /// The child of this exchange; `None` when childless.
    pub(crate) child: Option<Box<RequestedChild>>,
    pub(crate) local_id: IdData,
    /// Virtual IPs to request.
    pub(crate) vips: Vec<IpAddr>,
    /// Tasks for the established SA.
    pub(crate) queue: VecDeque<Task>,
    pub(crate) announced: Announcements,
    pub(crate) rounds: Rounds,
    /// True if INITIAL_CONTACT is to be sent.
    pub(crate) initial_contact: bool,
    /// The gateway to which the responder, which is authenticated, redirects this client.
    pub(crate) redirect: Option<IpAddr>,
    /// The EAP round in progress.
    pub(crate) eap: Option<Box<EapRound>>,
    /// Addresses of this end that were announced to the peer, for MOBIKE.
    pub(crate) told: Vec<IpAddr>,
    /// The ticket of the resumption.
    pub(crate) resume: Option<Arc<Held>>,
}

impl ExpectAuthResponse {
    /// Gives up the SPI that is reserved for the child, because the SA ends.
    pub(super) fn forget_child(&self, ctx: &mut Context<'_>) {
        if let Some(offer) = &self.child {
            ctx.ids.esp.remove(&offer.spi_in());
        }
    }
}

/// A signature is being made.
pub(crate) struct AwaitSignature<W> {
    pub(crate) ticket: Ticket,
    pub(crate) waiting: Box<W>,
    /// This end's round.
    pub(crate) round: SigningRound,
}

/// The peer's certificates are being judged.
pub(crate) struct AwaitVerdict<W> {
    pub(crate) ticket: Ticket,
    pub(crate) waiting: Box<W>,
    /// The peer's message.
    pub(crate) message: Opened,
    pub(crate) judging: Judging,
}

pub(crate) struct Established {
    pub(crate) identity: Identity,
    pub(crate) children: Children,
    /// The request in flight, until its handler has it.
    pub(crate) sent: Option<Sent>,
    pub(crate) queue: Queue,
    pub(crate) phase: IkePhase,
    /// Requested counters.
    pub(super) queries: Vec<(Ticket, Query)>,
    pub(crate) answering: Answering,
    pub(crate) life: Life,
}

/// The phase of an established IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IkePhase {
    Alive,
    /// Made by a rekey of the peer that crossed ours. Until it is clear which of the two stays, the SA with this
    /// id keeps the children.
    Crossed(IkeSaId),
    /// A rekey replaced this SA by the one with this id.
    Replaced(IkeSaId),
    /// A Delete is queued or in flight.
    Closing,
}

/// A request to be sent when the window is free.
#[derive(Debug)]
pub(crate) enum Task {
    CreateChild {
        config: Arc<ChildConfig>,
        /// The packet for which it is made.
        packet: Option<Flow>,
        request: Option<RequestId>,
        retry: Retry,
        /// Its place among several for the same traffic.
        join: Option<Join>,
    },
    RekeyChild {
        child: ChildSaId,
        request: Option<RequestId>,
        retry: Retry,
    },
    DeleteChild {
        child: ChildSaId,
        reason: Failure,
        request: Option<RequestId>,
    },
    RekeyIke {
        request: Option<RequestId>,
        retry: Retry,
    },
    DeleteIke {
        reason: Failure,
        request: Option<RequestId>,
    },
    /// Deletes an ESP SA that only the peer has, because this end could not use the answer.
    DeleteSpi(u32),
    Liveness,
    /// Sends the peer the token of this SA (RFC 6290).
    Token,
    /// Tells the client when to authenticate again (RFC 4478).
    AuthLifetime,
    /// Tells the peer that no SA exists for its ESP packets with this SPI.
    InvalidSpi(u32),
    /// Sends addresses to the peer (RFC 4555).
    Mobility(Mobility),
    /// Requests a ticket (RFC 5723).
    RequestTicket,
    /// Redirects the client to another gateway (RFC 5685).
    Redirect {
        to: IpAddr,
        request: Option<RequestId>,
    },
    /// Finds out whether the path of a child carries packets of this size.
    Probe {
        child: ChildSaId,
        octets: u16,
    },
}

impl Task {
    /// True if it may begin with a key exchange.
    pub(crate) fn exchanges_keys(&self) -> bool {
        matches!(self, Self::CreateChild { .. } | Self::RekeyChild { .. } | Self::RekeyIke { .. })
    }

    /// The command that waits for it, and whether that command wants the end of the SA.
    pub(crate) fn request(self) -> (Option<RequestId>, bool) {
        match self {
            Self::CreateChild { request, .. }
            | Self::RekeyChild { request, .. }
            | Self::RekeyIke { request, .. }
            | Self::Redirect { request, .. } => (request, false),
            Self::DeleteChild { request, .. } | Self::DeleteIke { request, .. } => (request, true),
            Self::DeleteSpi(_)
            | Self::Liveness
            | Self::Token
            | Self::AuthLifetime
            | Self::RequestTicket
            | Self::InvalidSpi(_)
            | Self::Mobility(_)
            | Self::Probe { .. } => (None, false),
        }
    }
}

impl State {
    /// The responder's data before IKE_AUTH, or during IKE_INTERMEDIATE.
    pub(crate) fn half_open(&self) -> Option<&ExpectAuthRequest> {
        match self {
            Self::ExpectAuthRequest(waiting) => Some(waiting),
            Self::AwaitInitiatorVerdict(asked) => Some(&asked.waiting),
            Self::AwaitResponseSignature(asked) => Some(&asked.waiting),
            Self::AwaitLease(asked) => Some(&asked.waiting),
            Self::AwaitPeerPacket(asked) => Some(&asked.waiting),
            Self::ExpectIntermediateRequest(waiting) => Some(&waiting.auth),
            Self::ExpectIntermediateResponse(_)
            | Self::ExpectAuthResponse(_)
            | Self::AwaitRequestSignature(_)
            | Self::AwaitResponderVerdict(_)
            | Self::AwaitAuthenticatorPacket(_)
            | Self::Established(_)
            | Self::Closed(_) => None,
        }
    }

    /// Does something with the initiator's data before the end of IKE_AUTH, or during IKE_INTERMEDIATE. `None` in other
    /// states.
    pub(crate) fn with_unproven<R>(
        &mut self,
        handle: impl FnOnce(&mut ExpectAuthResponse) -> R,
    ) -> Option<R> {
        match self {
            Self::ExpectAuthResponse(waiting) => Some(handle(waiting)),
            Self::AwaitRequestSignature(asked) => Some(handle(&mut asked.waiting)),
            Self::AwaitResponderVerdict(asked) => Some(handle(&mut asked.waiting)),
            Self::AwaitAuthenticatorPacket(asked) => Some(handle(&mut asked.waiting)),
            Self::ExpectIntermediateResponse(waiting) => Some(handle(&mut waiting.auth)),
            Self::ExpectIntermediateRequest(_)
            | Self::ExpectAuthRequest(_)
            | Self::AwaitInitiatorVerdict(_)
            | Self::AwaitResponseSignature(_)
            | Self::AwaitLease(_)
            | Self::AwaitPeerPacket(_)
            | Self::Established(_)
            | Self::Closed(_) => None,
        }
    }

    /// True for an initiator that has not authenticated the peer yet.
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(
            self,
            Self::ExpectAuthResponse(_)
                | Self::AwaitRequestSignature(_)
                | Self::AwaitResponderVerdict(_)
                | Self::AwaitAuthenticatorPacket(_)
                | Self::ExpectIntermediateResponse(_)
        )
    }

    /// The ticket of the open question.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::AwaitRequestSignature(asked) => Some(asked.ticket),
            Self::AwaitResponseSignature(asked) => Some(asked.ticket),
            Self::AwaitResponderVerdict(asked) => Some(asked.ticket),
            Self::AwaitInitiatorVerdict(asked) => Some(asked.ticket),
            Self::AwaitLease(asked) => Some(asked.ticket),
            Self::AwaitAuthenticatorPacket(asked) => Some(asked.ticket),
            Self::AwaitPeerPacket(asked) => Some(asked.ticket),
            Self::ExpectIntermediateRequest(_)
            | Self::ExpectIntermediateResponse(_)
            | Self::ExpectAuthRequest(_)
            | Self::ExpectAuthResponse(_)
            | Self::Established(_)
            | Self::Closed(_) => None,
        }
    }
}
