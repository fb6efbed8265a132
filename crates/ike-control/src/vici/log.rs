//! `control-log`: one line for each event during a command.

use std::io;

use ike_proto::{ChildSaId, Event, IkeSaId};
use ike_tokio::IkeView;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use vici::Section;

use super::session::{CONTROL_LOG, Outlet};
use crate::operator::Operator;

/// Who sends a client what happens.
pub(super) struct Log<'a> {
    /// The client.
    pub(super) outlet: &'a Outlet,
    /// The daemon.
    pub(super) operator: &'a Operator,
}

impl Log<'_> {
    /// What comes of `work`, while all that happens is told.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> io::Result<T> {
        if !self.outlet.wants(CONTROL_LOG) {
            return Ok(work.await);
        }
        let mut events = self.operator.handle().events();
        let mut work = std::pin::pin!(work);
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                event = events.recv() => match event {
                    Ok(event) => self.tell(event).await?,
                    Err(RecvError::Lagged(_)) => {}
                    // The daemon ends, and so does the work.
                    Err(RecvError::Closed) => break work.await,
                },
            }
        };
        self.rest(&mut events).await?;
        Ok(outcome)
    }

    async fn rest(&self, events: &mut Receiver<Event>) -> io::Result<()> {
        loop {
            match events.try_recv() {
                Ok(event) => self.tell(event).await?,
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(()),
            }
        }
    }

    async fn tell(&self, event: Event) -> io::Result<()> {
        let line = match event {
            Event::IkeUp(ike) => self.view(ike).await.map(|view| established(&view)),
            Event::ChildUp { ike, child } => {
                self.view(ike).await.and_then(|view| child_up(&view, child))
            }
            Event::IkeDown { ike, connection, established, reason } => {
                let what = if established { "down" } else { "not established" };
                Some(format!("IKE_SA {connection}[{}] {what}: {reason}", ike.0))
            }
            Event::ChildDown { child, name, reason, .. } => {
                Some(format!("CHILD_SA {name}{{{}}} down: {reason}", child.0))
            }
            Event::ChildFailed { name, reason, .. } => {
                Some(format!("CHILD_SA {name} not established: {reason}"))
            }
            Event::PeerRefused(refused) => Some(format!("peer refused: {}", refused.why)),
            _ => None,
        };
        let Some(line) = line else { return Ok(()) };
        let section = Section::new().text("group", "IKE").text("level", "1").text("msg", line);
        self.outlet.event(CONTROL_LOG, section).await
    }

    async fn view(&self, ike: IkeSaId) -> Option<IkeView> {
        self.operator.handle().view(ike).await.ok().flatten()
    }
}

fn established(view: &IkeView) -> String {
    let status = &view.status;
    let id = |id: &Option<_>| id.as_ref().map_or_else(String::new, ToString::to_string);
    format!(
        "IKE_SA {}[{}] established between {}[{}]...{}[{}]",
        status.connection,
        status.id.0,
        status.path.local.ip(),
        id(&status.local_id),
        status.path.remote.ip(),
        id(&status.remote_id),
    )
}

fn child_up(view: &IkeView, child: ChildSaId) -> Option<String> {
    let child = view.children.iter().find(|known| known.status.id == child)?;
    let status = &child.status;
    let ts = |ts: &[ike_proto::dataplane::TrafficSelector]| {
        ts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    Some(format!(
        "CHILD_SA {}{{{}}} established with SPIs {:08x} in, {:08x} out and TS {} === {}",
        status.name,
        status.id.0,
        status.inbound.spi,
        status.outbound.spi,
        ts(&status.local_ts),
        ts(&status.remote_ts),
    ))
}
