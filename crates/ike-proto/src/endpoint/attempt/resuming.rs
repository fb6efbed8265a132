//! An attempt that presents a ticket (RFC 5723): IKE_SESSION_RESUME stands in the place of IKE_SA_INIT.
//! Nobody has authenticated what comes back, as there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attempt, Switch};
use crate::event::{Event, Failure, Path};
use crate::exchange::resume::former::Held;
use crate::exchange::resume::initiator::{NoKe, encode_request};
use crate::ike_sa::context::Context;
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};

/// How long a gateway has to answer IKE_SESSION_RESUME before it is asked by IKE_SA_INIT, and that: five tries of
/// the ladder.
const PATIENCE: Duration = Duration::from_secs(7);
/// How long it has to answer IKE_SESSION_RESUME once neither was answered: most likely nobody is there yet, and
/// who comes back may know the ticket.
const NOBODY_THERE: Duration = Duration::from_secs(24);
/// And for how long IKE_SA_INIT is tried then.
const ONCE_MORE: Duration = Duration::from_secs(2);
/// How long it may take in all, if somebody has answered.
const IN_ALL: Duration = Duration::from_secs(20);
/// The turn from which on there is only IKE_SA_INIT, for as long as the ladder goes.
const LAST_TURN: u8 = 7;

/// The ticket that goes along with an attempt.
#[derive(Clone)]
pub(crate) struct Carried {
    pub(crate) held: Arc<Held>,
    /// The attempt is made by it. If not, it was not taken, or nobody has answered. Nobody has authenticated
    /// that, so that it is kept until there is an IKE SA.
    presents: bool,
    /// Attempts before this one that were made with it and without it by turns.
    turn: u8,
}

impl Carried {
    /// To be presented.
    pub(crate) fn new(held: Arc<Held>) -> Self {
        Self { held, presents: true, turn: 0 }
    }
}

impl Attempt {
    /// The ticket that is presented.
    pub(super) fn presented(&self) -> Option<&Arc<Held>> {
        match &self.ticket {
            Some(Carried { held, presents: true, .. }) => Some(held),
            _ => None,
        }
    }

    /// True if it is made by a ticket.
    pub(crate) fn is_resuming(&self) -> bool {
        self.presented().is_some()
    }

    /// The exchange that it begins by.
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
        let octets = encode_request(&request, ctx.config, ctx.crypto, held);
        self.send_request(ctx, octets.into(), KeMethodId::NONE, ke);
    }

    /// Somebody says that the gateway does not take the ticket. To begin by IKE_SA_INIT costs what it costs, and
    /// no more; a gateway that does take it may have answered before.
    pub(super) fn on_ticket_refused(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        kind: NotifyType,
    ) {
        if !self.candidates.is_empty() {
            return ctx.dropped(path, "the ticket is refused and taken");
        }
        self.give_up_ticket();
        self.switch = Some(Switch::Anew);
        let why = format!("the gateway answered {kind}");
        ctx.event(Event::TicketRefused { path: self.path, client: true, why });
    }

    /// What follows is made by IKE_SA_INIT.
    pub(crate) fn give_up_ticket(&mut self) {
        if let Some(carried) = &mut self.ticket {
            (carried.presents, carried.turn) = (false, LAST_TURN);
        }
    }

    /// When it is the turn of the other way to begin.
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
        let won = self.candidates.iter().any(|candidate| candidate.genuine);
        if won || self.switch.is_some() || self.patience_ends().is_none_or(|at| at > ctx.now.mono) {
            return;
        }
        let Some(carried) = &mut self.ticket else { return };
        let first = carried.turn == 0;
        (carried.presents, carried.turn) = (!carried.presents, carried.turn + 1);
        self.switch = Some(Switch::Anew);
        if first {
            let why = Failure::Timeout.to_string();
            ctx.event(Event::TicketRefused { path: self.path, client: true, why });
        }
    }
}
