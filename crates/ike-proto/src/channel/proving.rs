//! What authentication changes in a channel: the connection, the trust in the peer, and the keys.

use std::sync::Arc;

use super::io::Io;
use super::link::{Link, Twin};
use super::nat::floated;
use super::route::Route;
use super::session::Session;
use crate::config::ConnectionConfig;
use crate::keys::epoch::Epoch;
use crate::keys::{AuthKeys, IkeKeys};
use crate::wire::payload::IdData;

/// A channel whose peer is being authenticated, for the time of one call.
pub(crate) struct Proving<'a> {
    pub(super) link: &'a mut Link,
    pub(super) route: &'a mut Route,
    pub(super) session: &'a mut Session,
}

impl Proving<'_> {
    /// Replaces the connection by another one to which the peer may belong.
    pub(crate) fn set_connection(&mut self, connection: Arc<ConnectionConfig>) {
        self.link.set_connection(connection);
    }

    /// Records another IKE_SA_INIT response that makes the same keys.
    pub(crate) fn add_twin(&mut self, twin: Twin) {
        self.link.add_twin(twin);
    }

    /// Replaces the IKE_SA_INIT response in use by the next one with the same keys, and the path by the one that
    /// follows from it. Returns that response. `None` if there is none left.
    pub(crate) fn take_twin(&mut self, io: &Io<'_>) -> Option<Arc<[u8]>> {
        let (response, nat) = self.link.trust_twin()?;
        let mobike = self.link.connection().mobike;
        self.route.nat = nat;
        self.route.path = floated(self.route.path, nat, mobike, io.config.natt_port);
        Some(response)
    }

    /// Records that the peer is authenticated in one round. The IKE_SA_INIT response in use is genuine.
    pub(crate) fn note_genuine(&mut self) {
        self.link.note_genuine();
    }

    /// Records that the peer is authenticated as `owner`. Keys that only the handshake needs are wiped.
    pub(crate) fn set_authenticated(&mut self, io: &Io<'_>, owner: &IdData) {
        self.link.set_authenticated(io, owner);
        self.session.keys.keep_d();
    }

    /// Puts `keys` in the place of those of IKE_AUTH, and returns these.
    pub(crate) fn replace_auth_keys(&mut self, keys: AuthKeys) -> AuthKeys {
        self.session.keys.replace_auth_keys(keys)
    }

    /// Puts the next generation of `keys`, which `epoch` has, in force. The former one still opens messages.
    pub(crate) fn advance(&mut self, keys: IkeKeys, epoch: Epoch) {
        self.session.advance(keys, epoch);
    }

    /// Forgets the former keys: no message of the peer comes under them any more.
    pub(crate) fn forget_former_keys(&mut self) {
        self.session.previous = None;
    }
}
