//! The services of the daemon that hear what its drivers do.

use ike_aaa::Sessions;
use ike_proto::config::EndpointConfig;
use ike_proto::{Endpoint, Event, Transmit};
use ike_tokio::{Observer, PlaneHandle, Work};

use super::metering::Metering;
use crate::system::System;

/// All of them; clones have the same ones.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) sessions: Sessions,
    pub(super) system: System,
    pub(super) metering: Metering,
}

impl Observer for Services {
    fn event<'a>(
        &'a self,
        event: &'a Event,
        endpoint: &Endpoint,
        plane: &'a PlaneHandle,
    ) -> Option<Work<'a>> {
        self.system.run_hooks(event, endpoint);
        let over = self.sessions.event(event, endpoint, plane);
        // It counts at once.
        drop(self.metering.event(event, endpoint, plane));
        if over.is_none() && !System::concerns(event) {
            return None;
        }
        Some(Box::pin(async move {
            self.system.event(event).await;
            if let Some(over) = over {
                over.await;
            }
        }))
    }

    fn reloading(&self, config: &EndpointConfig) {
        self.sessions.reloading(config);
        self.system.reload(config);
    }

    fn received(&self, octets: &[u8]) {
        self.metering.received(octets);
    }

    fn sending(&self, transmit: &Transmit) {
        self.metering.sending(transmit);
    }

    fn not_sent(&self) {
        self.metering.not_sent();
    }

    fn suppressed(&self, lines: u32) {
        self.metering.suppressed(lines);
    }
}
