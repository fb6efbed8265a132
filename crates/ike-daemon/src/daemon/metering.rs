//! The counters of the daemon, if the configuration has `[charon.metrics]`.

use std::sync::Arc;

use ike_control::exporter::MetricsSocket;
use ike_control::metrics::{Counted, Metered, Meters};
use ike_proto::{Endpoint, Event, Transmit};
use ike_tokio::{Answerer, NoPlane, Observer, Plane, PlaneHandle, Work};

use super::Daemon;
use crate::config::Config;

/// How much of this daemon on the host others have taken away, and it has put back.
fn put_back() -> u64 {
    routes::put_back() + xfrm::plane::put_back() + esp::io::put_back()
}

fn lacks_second_line() -> bool {
    esp::io::missing().is_some()
}

/// Counts, or does nothing. Clones have the same counters.
#[derive(Clone)]
pub(super) struct Metering(Option<Meters>);

impl Metering {
    pub(super) fn of(config: &Config) -> Self {
        let meters = config.metrics.as_ref().map(|metrics| Meters::new(metrics.connections));
        if let Some(meters) = &meters {
            meters.count_put_back(put_back);
            meters.show_second_line(lacks_second_line);
            meters.count_dropped_lines(crate::log::dropped);
        }
        Self(meters)
    }

    /// Counts what `plane` is told.
    pub(super) fn watch(&self, plane: &mut Plane) {
        if let Some(meters) = &self.0 {
            let control = std::mem::replace(&mut plane.control, Box::new(NoPlane));
            plane.control = Box::new(Metered::new(control, meters.clone()));
        }
    }

    /// Counts what `answerer` answers.
    pub(super) fn counted(&self, answerer: Arc<dyn Answerer>) -> Arc<dyn Answerer> {
        match &self.0 {
            Some(meters) => Arc::new(Counted::new(answerer, meters.clone())),
            None => answerer,
        }
    }
}

impl Observer for Metering {
    fn event<'a>(
        &'a self,
        event: &'a Event,
        endpoint: &Endpoint,
        plane: &'a PlaneHandle,
    ) -> Option<Work<'a>> {
        self.0.as_ref()?.event(event, endpoint, plane)
    }

    fn received(&self, octets: &[u8]) {
        if let Some(meters) = &self.0 {
            meters.received(octets);
        }
    }

    fn sending(&self, transmit: &Transmit) {
        if let Some(meters) = &self.0 {
            meters.sending(transmit);
        }
    }

    fn not_sent(&self) {
        if let Some(meters) = &self.0 {
            meters.not_sent();
        }
    }

    fn suppressed(&self, lines: u32) {
        if let Some(meters) = &self.0 {
            meters.suppressed(lines);
        }
    }
}

impl Daemon {
    /// Serves metrics as long as the daemon runs; nothing if its configuration has no `[charon.metrics]`.
    pub fn serve_metrics(&mut self, socket: MetricsSocket) {
        if let Some(meters) = self.meters().cloned() {
            self.tasks.push(tokio::spawn(socket.serve(self.operator.clone(), meters)));
        }
    }

    /// The counters, if the configuration has `[charon.metrics]`.
    pub fn meters(&self) -> Option<&Meters> {
        self.metering.0.as_ref()
    }
}
