//! The observer that keeps leases, accounting and the index of live certificates in step with the IKE SAs.

use ike_proto::config::EndpointConfig;
use ike_proto::{Endpoint, Event};
use ike_tokio::{Observer, PlaneHandle, Work};

use crate::accounting::Accounting;
use crate::credentials::Credentials;

/// Gives addresses back to the pools, and reports events to [`Accounting`] and [`Credentials`]. A program with an
/// [`Observer`] of its own passes each event on to this one, and awaits the returned work.
#[derive(Debug, Clone)]
pub struct Sessions {
    credentials: Credentials,
    accounting: Accounting,
}

impl Sessions {
    /// Sessions begin while `credentials` has RADIUS servers with accounting, or with requests about sessions.
    pub fn new(credentials: Credentials, accounting: Accounting) -> Self {
        Self { credentials, accounting }
    }
}

impl Observer for Sessions {
    fn event<'a>(
        &'a self,
        event: &'a Event,
        endpoint: &Endpoint,
        plane: &'a PlaneHandle,
    ) -> Option<Work<'a>> {
        self.credentials.note(event, endpoint);
        self.credentials.coverage().note(event, endpoint);
        if let Event::Unassigned(assignment) = event
            && !assignment.ours
        {
            self.credentials.pools().release(assignment);
        }
        let over = self.accounting.event(event, endpoint, || self.credentials.radius())?;
        Some(Box::pin(self.accounting.over(over, plane)))
    }

    fn reloading(&self, config: &EndpointConfig) {
        self.credentials.coverage().configure(config);
    }
}
