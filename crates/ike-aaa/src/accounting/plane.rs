//! A data plane that reports to the sessions: the last figures of SAs that are removed, and the new names of SAs that
//! move to other addresses.

use ike_proto::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Event, Reply, SaId};

use super::{Accounting, lock};

/// Wraps another data plane.
pub(super) struct Accounted {
    plane: Box<dyn DataPlane + Send>,
    accounting: Accounting,
}

impl Accounted {
    /// Wraps `plane` for the sessions of `accounting`.
    pub(super) fn new(plane: Box<dyn DataPlane + Send>, accounting: Accounting) -> Self {
        Self { plane, accounting }
    }

    /// Reads the counters of an SA that is about to go, and takes it from its session.
    fn last_words(&mut self, id: SaId) {
        if !lock(&self.accounting.0.sas).contains_key(&id) {
            return;
        }
        if let Ok(Reply::Usage(_, usage)) = self.plane.apply(Command::QueryUsage(id)) {
            self.accounting.seen(&[id], vec![usage]);
        }
        let gone = lock(&self.accounting.0.sas).remove(&id);
        if let Some(tracked) = gone {
            lock(&tracked.account.sas).remove(&id);
        }
    }
}

impl DataPlane for Accounted {
    fn capabilities(&self) -> Capabilities {
        self.plane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let moved = match &command {
            Command::UpdateSa { id, dst, .. } => Some((*id, SaId { dst: dst.ip(), ..*id })),
            Command::RemoveSa(id) => {
                self.last_words(*id);
                None
            }
            Command::Flush | Command::RemoveSas => {
                let all: Vec<SaId> = lock(&self.accounting.0.sas).keys().copied().collect();
                all.into_iter().for_each(|id| self.last_words(id));
                None
            }
            _ => None,
        };
        let done = self.plane.apply(command)?;
        if let Some(moved) = moved {
            self.accounting.moved(&[moved]);
        }
        Ok(done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.plane.poll_event()
    }
}
