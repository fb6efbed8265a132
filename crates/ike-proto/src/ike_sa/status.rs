//! The view of an IKE SA for `list`.

use std::sync::Arc;
use std::time::Duration;

use super::IkeSa;
use super::state::IkePhase;
use crate::channel::timer::{Timer, TimerKey};
use crate::child::ChildSa;
use crate::event::{IkeState, IkeStatus, SecretsNow};

impl IkeSa {
    /// State, time to established, and children.
    pub(crate) fn brief(&self) -> (IkeState, Option<Duration>, &[ChildSa]) {
        let Some(established) = self.established() else {
            return (IkeState::Connecting, None, &[]);
        };
        let setup_time =
            established.identity.since().saturating_duration_since(self.channel.link().started());
        (phase_state(established.phase), Some(setup_time), established.children.as_slice())
    }

    pub(crate) fn status(&self) -> IkeStatus {
        let established = self.established();
        let state = established.map(|established| phase_state(established.phase));
        let state = state.unwrap_or(IkeState::Connecting);
        IkeStatus {
            id: self.channel.link().id(),
            connection: self.channel.connection().name.clone(),
            config: established.map(|_| Arc::clone(self.channel.connection())),
            secrets: SecretsNow::Same,
            state,
            initiator: self.channel.link().is_initiator(),
            spi_i: self.channel.link().spis().i(),
            spi_r: self.channel.link().spis().r(),
            path: self.channel.route().path(),
            local_id: established.map(|established| established.identity.local_id().clone()),
            remote_id: established.map(|established| established.identity.remote_id().clone()),
            esp_in_udp: self.channel.route().agreed_on_udp(),
            nat_local: self.channel.route().nat().local,
            nat_remote: self.channel.route().nat().remote,
            mobike: self.channel.route().mobike().is_some(),
            ppk: self.peer.ppk().used().cloned(),
            resumed: self.is_resumed(),
            full_transcript: self.channel.link().extensions().full_transcript,
            assignment: self.peer.assigned().get().cloned(),
            local_auth: established
                .map(|e| e.identity.authenticated().local.to_vec())
                .unwrap_or_default(),
            remote_auth: established
                .map(|e| e.identity.authenticated().remote.to_vec())
                .unwrap_or_default(),
            algorithms: Some(self.channel.session().selected.clone()),
            established: established.map(|established| established.identity.since()),
            setup_time: established.map(|established| {
                established
                    .identity
                    .since()
                    .saturating_duration_since(self.channel.link().started())
            }),
            rekey_at: established.and_then(|e| e.life.at(TimerKey::Ike(Timer::RekeyIke))),
            reauth_at: established.and_then(|e| e.life.at(TimerKey::Ike(Timer::ReauthIke))),
            outstanding: self.channel.window().outstanding().map(|(exchange, _)| exchange),
            children: established
                .map(|established| established.children.iter().map(ChildSa::status).collect())
                .unwrap_or_default(),
        }
    }
}

fn phase_state(phase: IkePhase) -> IkeState {
    match phase {
        IkePhase::Alive | IkePhase::Crossed(_) => IkeState::Established,
        IkePhase::Replaced(_) => IkeState::Rekeyed,
        IkePhase::Closing => IkeState::Deleting,
    }
}
