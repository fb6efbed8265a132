//! A responder's IKE SA that has answered IKE_SA_INIT and has received nothing since. There may be many such SAs,
//! and most of their peers never come back. So this is smaller than an [`IkeSa`].

use std::sync::Arc;
use std::time::Instant;

use crate::channel::{Channel, NewChannel};
use crate::config::ConnectionConfig;
use crate::crypto::CryptoError;
use crate::event::{IkeSaId, IkeState, IkeStatus, Path, SecretsNow, Ticket, Transport};
use crate::exchange::auth::rounds::Rounds;
use crate::exchange::intermediate::expect_request;
use crate::exchange::resume;
use crate::exchange::sa_init::{self, Answer};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthRequest, OtherCookies, Steps};
use crate::ike_sa::{IkeSa, Peer};
use crate::keys::{Seed, Spis};
use crate::question::{Claim, Key};
use crate::reason::DropReason;
use crate::wire::Message;
use crate::wire::payload::Payload;

/// Message ID of the request that follows IKE_SA_INIT.
const FIRST_REQUEST: u32 = 1;

/// The data from which the IKE SA is made when its peer continues: the answer, but no keys and nothing else that
/// can be derived from it.
pub(super) struct Parked {
    id: IkeSaId,
    spi_i: u64,
    path: Path,
    stage: Stage,
    started: Instant,
    /// When the response was sent first.
    answered: Instant,
    /// When the response was last sent.
    sent: Instant,
    /// When the SA is given up.
    until: Instant,
}

/// How long a request has been waiting, and how long it may wait.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    since: Instant,
    until: Instant,
}

#[expect(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
enum Stage {
    /// Its slow key exchange is in progress.
    Asked(Asked),
    Answered(Answer),
}

/// An IKE_SA_INIT request that waits for its key exchange.
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    pub(super) _claim: Claim,
    pub(super) request: Arc<[u8]>,
    /// Its hash, by which a retransmission is recognized.
    pub(super) hash: u64,
    /// True if it brought a cookie.
    pub(super) brought: bool,
    /// A cookie that is not valid, with which it has come again.
    pub(super) stray: Option<Box<OtherCookies>>,
    /// This end's SPI.
    pub(super) spi_r: u64,
}

impl Parked {
    /// The SA of a request that waits from now on.
    pub(super) fn asked(
        ctx: &Context<'_>,
        id: IkeSaId,
        path: Path,
        asked: Asked,
        spi_i: u64,
    ) -> Self {
        let now = ctx.io.now.mono;
        let until = now + ctx.io.config.half_open_timeout;
        let stage = Stage::Asked(asked);
        Self { id, spi_i, path, stage, started: now, answered: now, sent: now, until }
    }

    /// The request that waits for the answer to `ticket`, and since when.
    pub(super) fn waiting_for(&self, ticket: Ticket) -> Option<(&Asked, Waited)> {
        match &self.stage {
            Stage::Asked(asked) if asked.ticket == ticket => {
                Some((asked, Waited { since: self.started, until: self.until }))
            }
            _ => None,
        }
    }

    /// The ticket of the open question.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match &self.stage {
            Stage::Asked(asked) => Some(asked.ticket),
            Stage::Answered(_) => None,
        }
    }

    /// The SA of a request whose `answer` is sent to `path` now. `waited` if the request was
    /// [`asked`](Self::asked) about.
    pub(super) fn new(
        ctx: &Context<'_>,
        id: IkeSaId,
        path: Path,
        answer: Answer,
        spi_i: u64,
        waited: Option<Waited>,
    ) -> Self {
        let now = ctx.io.now.mono;
        let first = || Waited { since: now, until: now + ctx.io.config.half_open_timeout };
        let Waited { since, until } = waited.unwrap_or_else(first);
        let stage = Stage::Answered(answer);
        Self { id, spi_i, path, stage, started: since, answered: now, sent: now, until }
    }

    /// Handles a datagram with this end's SPI. Returns the IKE SA if the datagram may be the peer's next request.
    /// Other datagrams, and timers, are not worth a key derivation.
    ///
    /// # Errors
    ///
    /// Why the datagram is dropped.
    pub(super) fn on_datagram(
        &mut self,
        ctx: &Context<'_>,
        path: Path,
        message: &Message<'_>,
    ) -> Result<IkeSa, DropReason> {
        let Stage::Answered(answer) = &self.stage else {
            return Err(DropReason::InitNotAnswered);
        };
        let header = &message.header;
        if !header.flags.initiator {
            return Err(DropReason::WrongInitiatorFlag);
        }
        if (header.spi_i, header.spi_r) != (self.spi_i, answer.spi_r) {
            return Err(DropReason::SpisOfNoSa);
        }
        // See `Route::takes_from`: the SA uses UDP so far.
        if (path.transport == Transport::Tcp) != answer.extensions.separate {
            return Err(DropReason::WrongTransport);
        }
        let sealed = match message.payloads.last() {
            Some(Payload::Sk(sk)) => sk.body,
            Some(Payload::Skf(skf)) if answer.extensions.fragmentation => skf.body,
            _ => return Err(DropReason::Unprotected),
        };
        if header.flags.response || header.message_id < FIRST_REQUEST {
            return Err(DropReason::UsedMessageId);
        }
        if header.message_id > FIRST_REQUEST {
            return Err(DropReason::MessageIdOutOfWindow);
        }
        let lengths = ctx.crypto.ciphers.lengths(answer.selected.suite);
        // The length of the padding needs one octet.
        if lengths.is_none_or(|lengths| sealed.len() <= lengths.iv + lengths.icv) {
            return Err(DropReason::BadIntegrity);
        }
        self.wake(ctx).map_err(|_| DropReason::NoKeys)
    }

    /// Makes the IKE SA. `self` must not be used after that.
    ///
    /// # Errors
    ///
    /// The backend's error, if it no longer has the algorithms. Any error while the key exchange is in progress.
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
            resume,
        } = match &mut self.stage {
            Stage::Answered(answer) => answer,
            Stage::Asked(_) => return Err(CryptoError::Backend),
        };
        let spis = Spis::new(self.spi_i, *spi_r);
        let seed = Seed::new(transcript.nonces(), spis);
        let resume = resume.take();
        let session = match &resume {
            None => sa_init::session(ctx.crypto, selected.clone(), shared, &seed, false)?,
            Some(_) => resume::session(ctx.crypto, selected.clone(), shared, &seed, false)?,
        };
        // The connection of the chosen proposal is used until the peer is authenticated.
        let connection =
            connections.first().map_or_else(|| Arc::new(ConnectionConfig::new("")), Arc::clone);
        let rest = match &resume {
            None => Steps::new(&session.selected, *extensions, *deferred),
            Some(_) => Steps::none(),
        };
        let auth = Box::new(ExpectAuthRequest {
            transcript: std::mem::take(transcript),
            connections: std::mem::take(connections),
            announced: std::mem::take(announced),
            rounds: Rounds::default(),
            first: None,
            eap: None,
            resume,
        });
        let new = NewChannel {
            id: self.id,
            initiator: false,
            spis,
            path: self.path,
            nat: *nat,
            extensions: *extensions,
            connection,
            session,
            started: self.started,
        };
        let mut channel = Channel::new(&ctx.io, new);
        channel.begin_after_init(&ctx.io, None);
        channel.init_answered(self.answered, false);
        channel.init_answered(self.sent, true);
        channel.deadlines().limit_half_open(Some(self.until));
        Ok(IkeSa::new(channel, Peer::default(), expect_request(rest, auth)))
    }

    /// Handles a retransmission of the request at `now`. Returns the response, if there is one yet, and its path.
    pub(super) fn answer_again(&mut self, now: Instant) -> Option<(Arc<[u8]>, Path)> {
        let Stage::Answered(answer) = &self.stage else { return None };
        self.sent = now;
        Some((Arc::clone(&answer.transcript.response), self.path))
    }

    /// The request has come again from `path`, as `octets` with this cookie.
    ///
    /// A valid cookie proves the address, and this end's AUTH covers the form with it: the peer takes its last request for
    /// answered. A cookie that is not valid may be one that somebody else has given to the peer. One of them is kept.
    pub(super) fn came_with(&mut self, path: Path, octets: &[u8], cookie: &[u8], valid: bool) {
        if self.path != path {
            return;
        }
        let (request, stray) = match &mut self.stage {
            Stage::Asked(asked) => {
                asked.brought |= valid;
                (&mut asked.request, &mut asked.stray)
            }
            Stage::Answered(answer) => {
                (&mut answer.transcript.request, &mut answer.transcript.cookies)
            }
        };
        if **request == *octets {
            return;
        }
        if valid {
            *request = octets.into();
        } else {
            stray.insert(Box::default()).add(cookie.to_vec());
        }
    }

    /// Adds the cookies that may have been demanded for the request.
    pub(super) fn add_cookies(&mut self, made: impl FnOnce(&[u8], u64) -> Vec<Vec<u8>>) {
        if let Stage::Answered(answer) = &mut self.stage {
            for cookie in made(&answer.transcript.ni, self.spi_i) {
                answer.transcript.cookies.get_or_insert_default().add(cookie);
            }
        }
    }

    /// Takes the cookie that came before the answer; see [`came_with`](Self::came_with).
    pub(super) fn set_stray(&mut self, stray: Option<Box<OtherCookies>>) {
        if let Stage::Answered(answer) = &mut self.stage {
            answer.transcript.cookies = stray;
        }
    }

    /// When the peer was last heard; `None` while it waits for this end.
    pub(super) fn heard(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Asked(_) => None,
            Stage::Answered(_) => Some(self.sent),
        }
    }

    /// The number of octets of the request that are kept.
    pub(super) fn octets(&self) -> usize {
        match &self.stage {
            Stage::Asked(asked) => asked.request.len(),
            Stage::Answered(answer) => answer.transcript.request.len(),
        }
    }

    pub(super) fn path(&self) -> Path {
        self.path
    }

    /// The TCP connection whose first request waits for a slow key exchange. An SA that has answered is not parked
    /// over TCP.
    pub(super) fn stream_path(&self) -> Option<Path> {
        (self.path.transport == Transport::Tcp).then_some(self.path)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    pub(super) fn spi(&self) -> u64 {
        match &self.stage {
            Stage::Asked(asked) => asked.spi_r,
            Stage::Answered(answer) => answer.spi_r,
        }
    }

    /// The connection that the SA will probably have, for `list`.
    pub(super) fn connection(&self) -> Option<&ConnectionConfig> {
        match &self.stage {
            Stage::Asked(_) => None,
            Stage::Answered(answer) => answer.connections.first().map(Arc::as_ref),
        }
    }

    pub(super) fn status(&self) -> IkeStatus {
        let answer = match &self.stage {
            Stage::Asked(_) => None,
            Stage::Answered(answer) => Some(answer),
        };
        let connection = answer.and_then(|answer| answer.connections.first());
        IkeStatus {
            id: self.id,
            connection: connection.map(|connection| connection.name.clone()).unwrap_or_default(),
            config: None,
            secrets: SecretsNow::Same,
            state: IkeState::Connecting,
            initiator: false,
            spi_i: self.spi_i,
            spi_r: self.spi(),
            path: self.path,
            local_id: None,
            remote_id: None,
            esp_in_udp: false,
            nat_local: answer.is_some_and(|answer| answer.nat.local),
            mobike: false,
            nat_remote: answer.is_some_and(|answer| answer.nat.remote),
            ppk: None,
            resumed: false,
            full_transcript: answer.is_some_and(|answer| answer.extensions.full_transcript),
            assignment: None,
            local_auth: Vec::new(),
            remote_auth: Vec::new(),
            algorithms: answer.map(|answer| answer.selected.clone()),
            established: None,
            setup_time: None,
            rekey_at: None,
            reauth_at: None,
            outstanding: None,
            children: Vec::new(),
        }
    }
}
