//! An attempt that presents a ticket (RFC 5723): IKE_SESSION_RESUME takes the place of IKE_SA_INIT. Its responses
//! are not authenticated either.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attempt, Switch};
use crate::event::{Event, Path};
use crate::exchange::resume::former::Held;
use crate::exchange::resume::initiator::{NoKe, encode_request};
use crate::ike_sa::context::Context;
use crate::reason::{DropReason, TicketReason};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};

/// How long the gateway has to answer IKE_SESSION_RESUME before the client tries IKE_SA_INIT, and then to answer
/// that: five transmissions of the schedule.
const PATIENCE: Duration = Duration::from_secs(7);
/// How long it has to answer IKE_SESSION_RESUME after both got no answer. Then the gateway is most likely not
/// there yet, and may know the ticket when it comes back.
const NOBODY_THERE: Duration = Duration::from_secs(24);
/// How long IKE_SA_INIT is tried after that.
const ONCE_MORE: Duration = Duration::from_secs(2);
/// How long the attempt may take in all after an answer.
const IN_ALL: Duration = Duration::from_secs(20);
/// From this turn on there is only IKE_SA_INIT, until the schedule ends.
const LAST_TURN: u8 = 7;

/// The ticket of an attempt.
#[derive(Clone)]
pub(crate) struct Carried {
    pub(crate) held: Arc<Held>,
    /// True if the attempt presents the ticket. Otherwise the ticket was refused, or there was no answer. Neither
    /// is authenticated, so the ticket is kept until there is an IKE SA.
    presents: bool,
    /// Number of earlier attempts, alternately with the ticket and without it.
    turn: u8,
}

impl Carried {
    /// A ticket to be presented.
    pub(in crate::endpoint) fn new(held: Arc<Held>) -> Self {
        Self { held, presents: true, turn: 0 }
    }
}

impl Attempt {
    /// The ticket, if it is presented.
    pub(super) fn presented(&self) -> Option<&Arc<Held>> {
        match &self.ticket {
            Some(Carried { held, presents: true, .. }) => Some(held),
            _ => None,
        }
    }

    /// True if the attempt presents a ticket.
    pub(in crate::endpoint) fn is_resuming(&self) -> bool {
        self.presented().is_some()
    }

    /// The first exchange of the attempt.
    pub(super) fn first_exchange(&self) -> ExchangeType {
        match self.presented() {
            Some(_) => ExchangeType::IKE_SESSION_RESUME,
            None => ExchangeType::IKE_SA_INIT,
        }
    }

    /// Presents the ticket.
    pub(super) fn send_ticket(&mut self, ctx: &mut Context<'_>, held: &Held) {
        let ke: Arc<NoKe> = Arc::new(NoKe);
        let request = self.request(ctx, KeMethodId::NONE, &[]);
        let octets = encode_request(&request, ctx.io.config, ctx.crypto, held);
        self.send_request(ctx, octets.into(), KeMethodId::NONE, ke);
    }

    /// Handles an unauthenticated refusal of the ticket. IKE_SA_INIT instead costs only its usual price. The
    /// gateway may have accepted the ticket before.
    pub(super) fn on_ticket_refused(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        kind: NotifyType,
    ) {
        if !self.candidates.is_empty() {
            return ctx.io.dropped(path, DropReason::TicketRefusedAndTaken);
        }
        self.give_up_ticket();
        self.switch = Some(Switch::Anew);
        let why = TicketReason::Answered(kind);
        ctx.io.event(Event::TicketRefused { path: self.path, client: true, why });
    }

    /// Goes on with IKE_SA_INIT only.
    pub(in crate::endpoint) fn give_up_ticket(&mut self) {
        if let Some(carried) = &mut self.ticket {
            (carried.presents, carried.turn) = (false, LAST_TURN);
        }
    }

    /// When the attempt changes to the other exchange.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        let Carried { presents, turn, .. } = self.ticket.as_ref()?;
        let (waits, answered) = (self.candidates.is_empty(), self.heard > self.started);
        let patience = match (*presents, *turn) {
            (true, 0) if waits => PATIENCE,
            (true, 0) => IN_ALL,
            (true, _) => NOBODY_THERE,
            (false, LAST_TURN..) => return None,
            (false, _) if !waits || answered || self.is_over_tcp() => return None,
            (false, 1) => PATIENCE,
            (false, _) => ONCE_MORE,
        };
        Some(self.started + patience)
    }

    pub(super) fn on_resume_timeout(&mut self, ctx: &mut Context<'_>) {
        let won = self.candidates.iter().any(|candidate| candidate.channel.link().is_genuine());
        let undecided = !won && self.switch.is_none();
        let due = self.patience_ends().is_some_and(|at| at <= ctx.io.now.mono);
        if let Some(carried) = self.ticket.as_mut().filter(|_| undecided && due) {
            let first = carried.turn == 0;
            (carried.presents, carried.turn) = (!carried.presents, carried.turn + 1);
            self.switch = Some(Switch::Anew);
            if first {
                let why = TicketReason::NoAnswer;
                ctx.io.event(Event::TicketRefused { path: self.path, client: true, why });
            }
        }
    }
}
