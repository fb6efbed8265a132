//! One client: the events it has registered for, and the answers to its packets.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use vici::{Packet, Section};

use super::{commands, feed, watch};
use crate::operator::Operator;

/// Streamed while `list-sas` is answered.
pub(super) const LIST_SA: &str = "list-sa";
/// Streamed while `list-conns` is answered.
pub(super) const LIST_CONN: &str = "list-conn";
/// Streamed while `list-certs` is answered.
pub(super) const LIST_CERT: &str = "list-cert";
/// Streamed while `list-policies` is answered.
pub(super) const LIST_POLICY: &str = "list-policy";
/// Streamed while `list-authorities` is answered.
pub(super) const LIST_AUTHORITY: &str = "list-authority";
/// Every line of the log.
pub(super) const LOG: &str = "log";
/// What happens while `initiate` or `terminate` is under way.
pub(super) const CONTROL_LOG: &str = "control-log";

/// Where a client's segments go, and which events it wants.
#[derive(Clone)]
pub(super) struct Outlet {
    out: mpsc::Sender<Vec<u8>>,
    wanted: Arc<Mutex<BTreeSet<String>>>,
}

impl Outlet {
    /// True if the client has registered for events of this name.
    pub(super) fn wants(&self, event: &str) -> bool {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).contains(event)
    }

    /// Sends an event, if it is wanted; waits until there is room for it.
    pub(super) async fn event(&self, name: &str, section: Section) -> io::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        self.send(&Packet::Event(name.to_owned(), section)).await
    }

    async fn send(&self, packet: &Packet) -> io::Result<()> {
        let segment = match packet.encode() {
            Ok(segment) => segment,
            // The client can do without; without an answer it could not.
            Err(error) if matches!(packet, Packet::Event(..)) => {
                tracing::warn!(%error, "an event that VICI cannot carry");
                return Ok(());
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        self.out.send(segment).await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// A client's side of the daemon.
pub(super) struct Session {
    /// Where answers and events go.
    pub(super) outlet: Outlet,
    /// The daemon.
    pub(super) operator: Operator,
    /// What `reload-settings` reads.
    pub(super) file: Option<PathBuf>,
    /// When the socket was opened.
    pub(super) since: SystemTime,
    watching: Option<JoinHandle<()>>,
    feeding: Option<JoinHandle<()>>,
}

impl Session {
    pub(super) fn new(
        operator: Operator,
        file: Option<PathBuf>,
        since: SystemTime,
        out: mpsc::Sender<Vec<u8>>,
    ) -> Self {
        let outlet = Outlet { out, wanted: Arc::default() };
        Self { outlet, operator, file, since, watching: None, feeding: None }
    }

    /// True if the client has registered for an event.
    pub(super) fn listens(&self) -> bool {
        !self.outlet.wanted.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Answers a packet. The error ends the connection.
    pub(super) async fn handle(&mut self, packet: Packet) -> io::Result<()> {
        let answer = match packet {
            Packet::Request(name, section) => {
                match commands::answer(self, &name, &section).await? {
                    Some(section) => Packet::Response(section),
                    None => Packet::UnknownCommand,
                }
            }
            Packet::Register(name) if known(&name) => {
                self.watch(&name).await;
                self.change(|wanted| wanted.insert(name));
                Packet::Confirm
            }
            Packet::Unregister(name) if self.change(|wanted| wanted.remove(&name)) => {
                Packet::Confirm
            }
            Packet::Register(_) | Packet::Unregister(_) => Packet::UnknownEvent,
            _ => return Err(io::Error::other("a packet that servers send")),
        };
        self.outlet.send(&answer).await
    }

    /// Begins to look at what happens to SAs, with the first event that tells it.
    async fn watch(&mut self, name: &str) {
        if watch::EVENTS.contains(&name) && self.watching.is_none() {
            let events = self.operator.handle().events();
            let known = self.operator.list().await.unwrap_or_default();
            let watch = watch::run(events, known, self.operator.clone(), self.outlet.clone());
            self.watching = Some(tokio::spawn(watch));
        }
        if name == LOG && self.feeding.is_none() {
            self.feeding = Some(tokio::spawn(feed::run(crate::log::listen(), self.outlet.clone())));
        }
    }

    fn change(&self, how: impl FnOnce(&mut BTreeSet<String>) -> bool) -> bool {
        how(&mut self.outlet.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for task in self.watching.iter().chain(&self.feeding) {
            task.abort();
        }
    }
}

fn known(event: &str) -> bool {
    [LIST_SA, LIST_CONN, LIST_CERT, LIST_POLICY, LIST_AUTHORITY, CONTROL_LOG, LOG].contains(&event)
        || watch::EVENTS.contains(&event)
}
