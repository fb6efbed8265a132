//! A data plane that reports to the counters: refused commands, and the last figures of an SA that is removed.

use ike_proto::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Event, Reply, SaId};

use super::Meters;

/// Wraps a data plane. It counts refused commands, and the last figures of an SA that is removed.
pub struct Metered {
    plane: Box<dyn DataPlane + Send>,
    meters: Meters,
}

impl Metered {
    /// Counts the commands of `plane` in `meters`.
    pub fn new(plane: Box<dyn DataPlane + Send>, meters: Meters) -> Self {
        Self { plane, meters }
    }

    /// The last figures of an SA.
    fn last_words(&mut self, id: SaId) {
        let esp = &self.meters.0.esp;
        if esp.has(id)
            && let Ok(Reply::Usage(_, usage)) = self.plane.apply(Command::QueryUsage(id))
        {
            esp.sample(id, usage);
        }
    }
}

impl DataPlane for Metered {
    fn capabilities(&self) -> Capabilities {
        self.plane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let name = match &command {
            Command::InstallSa(_) => "install_sa",
            Command::RemoveSa(id) => {
                self.last_words(*id);
                "remove_sa"
            }
            Command::InstallPolicy(_) => "install_policy",
            Command::RemovePolicy(_) => "remove_policy",
            Command::UpdateSa { .. } => "update_sa",
            Command::QueryUsage(_) | Command::PathProbed(..) => return self.plane.apply(command),
            Command::Flush => "flush",
            Command::RemoveSas => "remove_sas",
        };
        let moved = match &command {
            Command::UpdateSa { id, dst, .. } => Some((*id, SaId { dst: dst.ip(), ..*id })),
            _ => None,
        };
        let gone = match &command {
            Command::RemoveSa(id) => Some(*id),
            _ => None,
        };
        let done = self.plane.apply(command);
        match &done {
            Ok(_) => {
                if let Some((old, new)) = moved {
                    self.meters.0.esp.rename(old, new);
                }
            }
            Err(_) => self.meters.plane_error(name),
        }
        if let Some(id) = gone {
            self.meters.0.esp.end(id);
        }
        done
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.plane.poll_event()
    }
}
