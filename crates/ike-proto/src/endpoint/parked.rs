//! A responder's IKE SA that has answered IKE_SA_INIT and heard nothing since. Most of an [`IkeSa`] is for
//! what comes then, strangers may be many, and most of them never come back.

use std::sync::Arc;
use std::time::Instant;

use crate::config::ConnectionConfig;
use crate::crypto::CryptoError;
use crate::event::{IkeSaId, IkeState, IkeStatus, Path};
use crate::exchange::auth::rounds::Rounds;
use crate::exchange::intermediate::expect_request;
use crate::exchange::sa_init::{self, Answer};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthRequest, Steps};
use crate::ike_sa::timer::{Timer, TimerKey};
use crate::ike_sa::window::Window;
use crate::ike_sa::{IkeSa, NewIkeSa};

/// What the IKE SA is made of when its peer goes on: the answer, and neither keys nor anything else that
/// can be made of it.
pub(super) struct Parked {
    id: IkeSaId,
    spi_i: u64,
    path: Path,
    answer: Answer,
    started: Instant,
    /// When the response was sent for the last time.
    sent: Instant,
    /// When it is given up.
    until: Instant,
}

impl Parked {
    /// `answer` is sent to `path` now.
    pub(super) fn new(
        ctx: &Context<'_>,
        id: IkeSaId,
        path: Path,
        mut answer: Answer,
        spi_i: u64,
    ) -> Self {
        answer.connections.shrink_to_fit();
        let now = ctx.now.mono;
        let until = now + ctx.config.half_open_timeout;
        Self { id, spi_i, path, answer, started: now, sent: now, until }
    }

    /// The IKE SA. `self` is of no use after that.
    ///
    /// # Errors
    ///
    /// That of the backend, if it has not got the algorithms any more that it had.
    pub(super) fn wake(&mut self, ctx: &Context<'_>) -> Result<IkeSa, CryptoError> {
        let Answer {
            selected,
            shared,
            transcript,
            extensions,
            announced,
            deferred,
            nat,
            spi_r,
            connections,
        } = &mut self.answer;
        let (nonces, spis) = ((&*transcript.ni, &*transcript.nr), (self.spi_i, *spi_r));
        let session = sa_init::session(ctx.crypto, selected.clone(), shared, nonces, spis, false)?;
        // The connection that gave the proposal stands in until the peer is authenticated.
        let connection =
            connections.first().map_or_else(|| Arc::new(ConnectionConfig::new("")), Arc::clone);
        let rest = Steps::new(&session.selected, *extensions, *deferred);
        let auth = ExpectAuthRequest {
            transcript: std::mem::take(transcript),
            connections: std::mem::take(connections),
            announced: std::mem::take(announced),
            rounds: Rounds::default(),
            first: None,
        };
        let new = NewIkeSa {
            id: self.id,
            initiator: false,
            spis,
            path: self.path,
            nat: *nat,
            extensions: *extensions,
            connection,
            session,
            state: expect_request(rest, auth),
            started: self.started,
        };
        let mut sa = IkeSa::new(ctx, new);
        sa.last_heard = self.started;
        sa.window = Window::after_init(ctx.config.retransmission, false);
        sa.init_answered(self.started, false);
        sa.init_answered(self.sent, true);
        sa.timers.set(TimerKey::Ike(Timer::HalfOpen), self.until);
        Ok(sa)
    }

    /// The request has come again at `now`: the response, and where it went.
    pub(super) fn answer_again(&mut self, now: Instant) -> (Arc<[u8]>, Path) {
        self.sent = now;
        (Arc::clone(&self.answer.transcript.response), self.path)
    }

    pub(super) fn path(&self) -> Path {
        self.path
    }

    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    pub(super) fn spi(&self) -> u64 {
        self.answer.spi_r
    }

    /// What `list` shows of it.
    pub(super) fn status(&self) -> IkeStatus {
        let Answer { selected, connections, nat, extensions, spi_r, .. } = &self.answer;
        let connection = connections.first();
        IkeStatus {
            id: self.id,
            connection: connection.map(|connection| connection.name.clone()).unwrap_or_default(),
            state: IkeState::Connecting,
            initiator: false,
            spi_i: self.spi_i,
            spi_r: *spi_r,
            path: self.path,
            local_id: None,
            remote_id: None,
            nat_local: nat.local,
            nat_remote: nat.remote,
            ppk: None,
            full_transcript: extensions.full_transcript,
            local_auth: Vec::new(),
            remote_auth: Vec::new(),
            algorithms: Some(selected.clone()),
            established: None,
            setup_time: None,
            rekey_at: None,
            reauth_at: None,
            outstanding: None,
            children: Vec::new(),
        }
    }
}
