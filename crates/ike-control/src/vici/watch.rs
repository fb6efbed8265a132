//! Events about SAs: `ike-updown`, `ike-rekey`, `ike-update`, `child-updown`, `child-rekey`, `alert`.

use std::collections::BTreeMap;
use std::io;

use ike_proto::{ChildSaId, Event, IkeSaId};
use ike_tokio::IkeView;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use vici::Section;

use super::session::Outlet;
use super::{alert, list};
use crate::operator::Operator;

/// All of them.
pub(super) const EVENTS: [&str; 6] =
    [IKE_UPDOWN, IKE_REKEY, IKE_UPDATE, CHILD_UPDOWN, CHILD_REKEY, ALERT];

const IKE_UPDOWN: &str = "ike-updown";
const IKE_REKEY: &str = "ike-rekey";
const IKE_UPDATE: &str = "ike-update";
const CHILD_UPDOWN: &str = "child-updown";
const CHILD_REKEY: &str = "child-rekey";
const ALERT: &str = "alert";

/// The SAs as they were last seen: of one that is gone there is nothing else to tell.
struct Watch {
    known: BTreeMap<IkeSaId, IkeView>,
    operator: Operator,
    outlet: Outlet,
}

/// Tells what happens until the client is gone, or has fallen behind: `known` is what was there.
pub(super) async fn run(
    mut events: broadcast::Receiver<Event>,
    known: Vec<IkeView>,
    operator: Operator,
    outlet: Outlet,
) {
    let known = known.into_iter().map(|view| (view.status.id, view)).collect();
    let mut watch = Watch { known, operator, outlet };
    loop {
        let told = match events.recv().await {
            Ok(event) => watch.tell(event).await,
            Err(RecvError::Closed) => return,
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "a VICI client takes its events too slowly");
                watch.anew().await;
                Ok(())
            }
        };
        if told.is_err() {
            return;
        }
    }
}

impl Watch {
    async fn tell(&mut self, event: Event) -> io::Result<()> {
        if let Some(kind) = alert::kind(&event).filter(|_| self.outlet.wants(ALERT)) {
            let alert = Section::new().text("type", kind);
            let about = of(&event).and_then(|ike| self.known.get(&ike));
            let alert = match about {
                Some(view) => {
                    let name = list::key(&view.status.connection);
                    alert.section("ike-sa", Section::new().section(name, list::ike_sa(view)))
                }
                None => alert,
            };
            self.outlet.event(ALERT, alert).await?;
        }
        match event {
            Event::PathChanged { ike, path } => {
                // As it was, and where it is now.
                let now = Section::new()
                    .text("local-host", path.local.ip().to_string())
                    .text("local-port", path.local.port().to_string())
                    .text("remote-host", path.remote.ip().to_string())
                    .text("remote-port", path.remote.port().to_string());
                let sent = self.send(IKE_UPDATE, now, ike, list::ike_sa).await;
                self.look(ike).await;
                sent
            }
            Event::IkeUp(ike) => {
                self.look(ike).await;
                let up = Section::new().text("up", "yes");
                self.send(IKE_UPDOWN, up, ike, list::ike_sa).await
            }
            Event::IkeDown { ike, established: true, .. } => {
                let sent = self.send(IKE_UPDOWN, Section::new(), ike, list::ike_sa).await;
                self.known.remove(&ike);
                sent
            }
            Event::IkeRekeyed { old, new } => {
                let was = self.known.remove(&old).map(|view| list::ike_sa(&view));
                self.look(new).await;
                let (Some(was), Some(is)) = (was, self.known.get(&new)) else { return Ok(()) };
                let both = Section::new().section("old", was).section("new", list::ike_sa(is));
                let name = list::key(&is.status.connection);
                self.outlet.event(IKE_REKEY, Section::new().section(name, both)).await
            }
            Event::ChildUp { ike, child } => {
                self.look(ike).await;
                let up = Section::new().text("up", "yes");
                self.send(CHILD_UPDOWN, up, ike, |view| with_child(view, child)).await
            }
            Event::ChildDown { ike, child, .. } => {
                let one = |view: &IkeView| with_child(view, child);
                let sent = self.send(CHILD_UPDOWN, Section::new(), ike, one).await;
                if let Some(view) = self.known.get_mut(&ike) {
                    view.children.retain(|known| known.status.id != child);
                }
                sent
            }
            Event::ChildRekeyed { ike, old, new } => {
                let was = self.known.get(&ike).and_then(|view| child_of(view, old));
                self.look(ike).await;
                let Some(view) = self.known.get(&ike) else { return Ok(()) };
                let (Some((name, was)), Some((_, is))) = (was, child_of(view, new)) else {
                    return Ok(());
                };
                let both = Section::new().section("old", was).section("new", is);
                let children = Section::new().section(name, both);
                let sa = list::ike_sa(view).section("child-sas", children);
                let name = list::key(&view.status.connection);
                self.outlet.event(CHILD_REKEY, Section::new().section(name, sa)).await
            }
            _ => Ok(()),
        }
    }

    /// Looks at an IKE SA as it is now. What is gone meanwhile stays as it was, until that is told.
    async fn look(&mut self, ike: IkeSaId) {
        if let Ok(Some(view)) = self.operator.handle().view(ike).await {
            self.known.insert(ike, view);
        }
    }

    async fn anew(&mut self) {
        if let Ok(views) = self.operator.list().await {
            self.known = views.into_iter().map(|view| (view.status.id, view)).collect();
        }
    }

    async fn send(
        &self,
        event: &str,
        section: Section,
        ike: IkeSaId,
        describe: impl Fn(&IkeView) -> Section,
    ) -> io::Result<()> {
        let Some(view) = self.known.get(&ike) else { return Ok(()) };
        let name = list::key(&view.status.connection);
        self.outlet.event(event, section.section(name, describe(view))).await
    }
}

/// The IKE SA that an alert is about.
fn of(event: &Event) -> Option<IkeSaId> {
    match event {
        Event::IkeDown { ike, .. } | Event::ChildFailed { ike, .. } => Some(*ike),
        Event::ChildRefused { ike, .. } => Some(*ike),
        Event::PeerRefused(refused) => Some(refused.ike),
        _ => None,
    }
}

fn with_child(view: &IkeView, child: ChildSaId) -> Section {
    let children = list::child_sas(view, |_, id| id == child.0);
    list::ike_sa(view).section("child-sas", children)
}

/// Its name, and the child.
fn child_of(view: &IkeView, child: ChildSaId) -> Option<(String, Section)> {
    let known = view.children.iter().find(|known| known.status.id == child)?;
    let described = list::child_sas(view, |_, id| id == child.0);
    let (_, value) = described.iter().next()?;
    match value {
        vici::Value::Section(section) => Some((list::key(&known.status.name), section.clone())),
        _ => None,
    }
}
