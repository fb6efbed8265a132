//! Logging of the calls of a data plane.

use ipsec_types::dataplane::{Capabilities, Command, DataPlane, DataPlaneError, Event, Reply};
use tracing::{debug, warn};

use crate::summary::Summary;

/// Logs each command, its outcome and each event, without keys.
#[derive(Debug)]
pub struct Tracer<D> {
    inner: D,
}

impl<D> Tracer<D> {
    /// Logs the calls of `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner }
    }

    /// The wrapped plane.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The wrapped plane.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: DataPlane> DataPlane for Tracer<D> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let summary = Summary::of(&command);
        let result = self.inner.apply(command);
        match &result {
            Ok(Reply::Done) => debug!(command = %summary, "data plane"),
            Ok(Reply::Usage(_, usage)) => {
                debug!(command = %summary, bytes = usage.bytes, packets = usage.packets, "data plane");
            }
            Err(error) => warn!(command = %summary, %error, "data plane refused"),
        }
        result
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.inner.poll_event()?;
        debug!(?event, "data plane");
        Some(event)
    }
}
