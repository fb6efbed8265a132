//! What `list` shows of an IKE SA.

use super::IkeSa;
use super::state::{IkePhase, State};
use super::timer::{Timer, TimerKey};
use crate::child::ChildSa;
use crate::event::{IkeState, IkeStatus};

impl IkeSa {
    pub(crate) fn status(&self) -> IkeStatus {
        let established = match &self.state {
            State::Established(established) => Some(established),
            _ => None,
        };
        let state = match established.map(|established| established.phase) {
            None => IkeState::Connecting,
            Some(IkePhase::Alive | IkePhase::Crossed(_)) => IkeState::Established,
            Some(IkePhase::Replaced(_)) => IkeState::Rekeyed,
            Some(IkePhase::Closing) => IkeState::Deleting,
        };
        IkeStatus {
            id: self.id,
            connection: self.connection.name.clone(),
            state,
            initiator: self.initiator,
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            path: self.path,
            local_id: established.map(|established| established.local_id.clone()),
            remote_id: established.map(|established| established.remote_id.clone()),
            nat_local: self.nat.local,
            nat_remote: self.nat.remote,
            ppk: self.ppk.used().cloned(),
            full_transcript: self.extensions.full_transcript,
            local_auth: established.map(|e| e.authenticated.local.clone()).unwrap_or_default(),
            remote_auth: established.map(|e| e.authenticated.remote.clone()).unwrap_or_default(),
            algorithms: Some(self.session.selected.clone()),
            established: established.map(|established| established.since),
            setup_time: established
                .map(|established| established.since.saturating_duration_since(self.started)),
            rekey_at: self.timers.get(TimerKey::Ike(Timer::RekeyIke)),
            reauth_at: self.timers.get(TimerKey::Ike(Timer::ReauthIke)),
            outstanding: self.window.outstanding().map(|(exchange, _)| exchange),
            children: established
                .map(|established| established.children.iter().map(ChildSa::status).collect())
                .unwrap_or_default(),
        }
    }
}
