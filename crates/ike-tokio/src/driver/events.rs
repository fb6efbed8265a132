//! The engine's events, and their receivers.

use ike_proto::{Event, Failure};

use super::{Driver, Wanted};
use crate::clock::now;

impl Driver {
    pub(super) async fn event(&mut self, event: Event) {
        if let Event::ChildUp { ike, child } = event {
            let mut shunts = self.shunts.lock().await;
            if shunts.any()
                && let Some(status) = self.endpoint.ike_sa(ike)
            {
                shunts.child_up(status, child, &self.plane).await;
            }
        }
        if let Event::ChildFailed { ike, name, reason: Failure::DataPlane(_) } = &event
            && let Some(status) = self.endpoint.ike_sa(*ike)
        {
            let mut shunts = self.shunts.lock().await;
            shunts.not_protected(status, name, &self.plane).await;
        }
        if let Some(work) = self.observer.event(&event, &self.endpoint, self.plane.handle()) {
            work.await;
        }
        self.log.event(now().mono, &event, &self.endpoint);
        if let Event::Done(id, outcome) = &event {
            if let Some(answer) = self.pending.remove(id) {
                // The asker may have stopped waiting.
                let _ = answer.send(outcome.clone());
            }
            // Who asked for the end hears of it when the data plane is gone, too.
            if self.stopping.as_ref().is_some_and(|(stop, _)| stop == id) {
                self.stopped = !self.lines.several();
                self.ending = true;
                self.lines.end();
            }
        }
        match &event {
            Event::IkeRekeyed { new, .. } => {
                let brief = self.endpoint.brief(*new);
                let ours = brief.as_ref().is_some_and(|brief| brief.initiator);
                self.counters.ike_rekeyed(ours, brief.map_or("", |brief| brief.connection));
            }
            Event::ChildRekeyed { ike, .. } => {
                let connection = self.endpoint.brief(*ike).map_or("", |brief| brief.connection);
                self.counters.child_rekeyed(connection);
            }
            Event::Dropped { why, .. } => self.counters.dropped(*why),
            _ => {}
        }
        match &event {
            Event::Notice(ike, notice) => return self.lines.notify(*ike, *notice),
            Event::Trap { connection, child, local, remote } => {
                return self.lines.trap(connection.clone(), child.clone(), *local, *remote);
            }
            Event::Acquire { connection, child, packet } => {
                let (connection, child) = (connection.clone(), child.clone());
                // The program may take no more of them.
                let _ = self.wanted.send(Wanted::Packet { connection, child, packet: *packet });
            }
            Event::Restart { connection, child, local, remote } => {
                let (connection, child) = (connection.clone(), child.clone());
                let (local, remote) = (*local, *remote);
                let _ = self.wanted.send(Wanted::Restart { connection, child, local, remote });
                return;
            }
            _ => {}
        }
        // A flood of these would push what listeners wait for out of their queues.
        let flood = matches!(
            event,
            Event::Dropped { .. } | Event::InitRefused { .. } | Event::TokenGiven { .. }
        );
        if !flood && self.events.receiver_count() > 0 {
            // He may have gone meanwhile.
            let _ = self.events.send(event);
        }
    }
}
