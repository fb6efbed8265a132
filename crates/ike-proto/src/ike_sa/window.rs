//! Message IDs and reliability (RFC 7296 §2.1–2.4): one request outstanding in each direction.
//!
//! ```text
//! our requests    next_request_id → start_request → retransmit* → on_response_authenticated
//! their requests  classify: NewRequest → on_request_authenticated → start_response
//! ```
//!
//! `classify` takes `&self`: a message changes nothing here before it is authenticated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Retransmission;
use crate::crypto::SecureRandom;
use crate::wire::Header;
use crate::wire::registry::ExchangeType;

/// The sealed datagrams of one message; shared, so that sending again copies nothing.
pub(crate) type Datagrams = Arc<[Arc<[u8]>]>;

/// What an arriving datagram is to the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Class {
    /// The request, or a fragment of it, that is due.
    NewRequest,
    /// A request answered before, with the response to send again. To send it only to a peer that
    /// opens the datagram with its keys is the caller's part.
    RetransmittedRequest(Datagrams),
    /// A request that is being answered.
    InProgress,
    /// The response, or a fragment of it, to the outstanding request.
    ExpectedResponse,
    /// Something over and done with; to be dropped in silence.
    Stale,
    /// A message ID not due yet (INVALID_MESSAGE_ID of RFC 7296 §2.3 would be the notify).
    OutOfWindow,
}

/// Why no request can be made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRequest {
    /// One is outstanding, and the window is one (RFC 7296 §2.3).
    Outstanding,
    /// The last message ID is used: the IKE SA must be closed (RFC 7296 §2.2).
    Exhausted,
}

/// What to do when the retransmission timer fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retransmit {
    /// Send these again.
    Send(Datagrams),
    /// The peer is gone.
    GiveUp,
    /// Nothing is due.
    Nothing,
}

/// The window of one IKE SA.
#[derive(Debug)]
pub(crate) struct Window {
    ladder: Retransmission,
    /// Message ID of our next request; `None` after the last one.
    next_request: Option<u32>,
    outstanding: Option<Outstanding>,
    /// Message ID of the peer's next request; `None` after the last one.
    next_expected: Option<u32>,
    theirs: Theirs,
}

/// Our request that awaits its response.
#[derive(Debug)]
struct Outstanding {
    exchange: ExchangeType,
    message_id: u32,
    datagrams: Datagrams,
    /// Sends after the first.
    tries: u32,
    /// When to send again or give up.
    due: Instant,
}

/// The peer's latest request.
#[derive(Debug)]
enum Theirs {
    /// None yet.
    Nothing,
    /// Authenticated, its response not made yet.
    InProgress { exchange: ExchangeType, request: u64 },
    /// Answered.
    Answered(Answered),
}

/// A request of the peer, and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Exchange type.
    pub(crate) exchange: ExchangeType,
    /// Message ID.
    pub(crate) message_id: u32,
    /// A digest of the request's first datagram.
    pub(crate) request: u64,
    /// The answer.
    pub(crate) response: Datagrams,
}

impl Window {
    /// The window of a new IKE SA: both directions start at message ID 0.
    pub(crate) fn new(ladder: Retransmission) -> Self {
        Self {
            ladder,
            next_request: Some(0),
            outstanding: None,
            next_expected: Some(0),
            theirs: Theirs::Nothing,
        }
    }

    /// The window after IKE_SA_INIT, which took message ID 0 of the original initiator's requests.
    pub(crate) fn after_init(ladder: Retransmission, initiator: bool) -> Self {
        let window = Self::new(ladder);
        if initiator {
            Self { next_request: Some(1), ..window }
        } else {
            Self { next_expected: Some(1), ..window }
        }
    }

    /// Says what a datagram with this header is. `fragment` is the number and total of its Encrypted
    /// Fragment payload, if it has one.
    pub(crate) fn classify(&self, header: &Header, fragment: Option<(u16, u16)>) -> Class {
        if header.flags.response {
            return self.classify_response(header);
        }
        match self.next_expected {
            Some(next) if header.message_id > next => Class::OutOfWindow,
            Some(next) if header.message_id == next => match self.theirs {
                Theirs::InProgress { exchange, .. } if exchange == header.exchange => {
                    Class::InProgress
                }
                Theirs::InProgress { .. } => Class::Stale,
                _ => Class::NewRequest,
            },
            _ => self.classify_old_request(header, fragment),
        }
    }

    fn classify_response(&self, header: &Header) -> Class {
        match &self.outstanding {
            Some(ours) if ours.message_id == header.message_id => {
                if ours.exchange == header.exchange {
                    Class::ExpectedResponse
                } else {
                    Class::Stale
                }
            }
            _ if self.next_request.is_some_and(|next| header.message_id >= next) => {
                Class::OutOfWindow
            }
            _ => Class::Stale,
        }
    }

    fn classify_old_request(&self, header: &Header, fragment: Option<(u16, u16)>) -> Class {
        match &self.theirs {
            Theirs::Answered(Answered { exchange, message_id, response, .. })
                if *message_id == header.message_id && *exchange == header.exchange =>
            {
                //= RFC 7383 §2.6.1
                //# that event MUST only trigger a retransmission of the response message
                //# (fragmented or not) if the Fragment Number field in the received
                //# fragment is set to 1; otherwise, it MUST be ignored.
                match fragment {
                    None | Some((1, _)) => Class::RetransmittedRequest(Arc::clone(response)),
                    Some(_) => Class::Stale,
                }
            }
            _ => Class::Stale,
        }
    }

    /// The message ID the next request must be sealed with.
    pub(crate) fn next_request_id(&self) -> Result<u32, NoRequest> {
        if self.outstanding.is_some() {
            return Err(NoRequest::Outstanding);
        }
        self.next_request.ok_or(NoRequest::Exhausted)
    }

    /// Notes that the request with [`next_request_id`](Self::next_request_id) is sent at `now`.
    /// Does nothing but answer the error if there can be none.
    pub(crate) fn start_request(
        &mut self,
        now: Instant,
        exchange: ExchangeType,
        datagrams: Datagrams,
        rng: &mut dyn SecureRandom,
    ) -> Result<(), NoRequest> {
        let message_id = self.next_request_id()?;
        self.next_request = message_id.checked_add(1);
        let due = deadline(now, wait(&self.ladder, 0, rng));
        self.outstanding = Some(Outstanding { exchange, message_id, datagrams, tries: 0, due });
        Ok(())
    }

    /// Puts other datagrams in place of the outstanding request, under its message ID, and starts the
    /// ladder over: an IKE_SA_INIT with a cookie or another key exchange method (RFC 7296 §2.2), or
    /// smaller fragments (RFC 7383 §2.5.2). False if no request is outstanding.
    pub(crate) fn replace_request(
        &mut self,
        now: Instant,
        datagrams: Datagrams,
        rng: &mut dyn SecureRandom,
    ) -> bool {
        let due = deadline(now, wait(&self.ladder, 0, rng));
        let Some(ours) = &mut self.outstanding else { return false };
        ours.datagrams = datagrams;
        ours.tries = 0;
        ours.due = due;
        true
    }

    /// As [`replace_request`](Self::replace_request), but the ladder goes on where it is.
    pub(crate) fn swap_request(&mut self, datagrams: Datagrams) -> bool {
        let Some(ours) = &mut self.outstanding else { return false };
        ours.datagrams = datagrams;
        true
    }

    /// Exchange type and message ID of the outstanding request.
    pub(crate) fn outstanding(&self) -> Option<(ExchangeType, u32)> {
        self.outstanding.as_ref().map(|ours| (ours.exchange, ours.message_id))
    }

    /// Ends the outstanding request: its response is authenticated and whole. False if `message_id`
    /// is not its own.
    pub(crate) fn on_response_authenticated(&mut self, message_id: u32) -> bool {
        let ends = self.outstanding.as_ref().is_some_and(|ours| ours.message_id == message_id);
        if ends {
            self.outstanding = None;
        }
        ends
    }

    /// Forgets the outstanding request without a response. Its message ID stays used, so that only
    /// an IKE SA about to be closed may do this (RFC 7296 §2.8.2, §2.25.2).
    pub(crate) fn abandon_request(&mut self) {
        self.outstanding = None;
    }

    /// When [`retransmit`](Self::retransmit) is due.
    pub(crate) fn next_retransmit(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|ours| ours.due)
    }

    /// Takes one step on the retransmission ladder if it is due at `now`.
    pub(crate) fn retransmit(&mut self, now: Instant, rng: &mut dyn SecureRandom) -> Retransmit {
        let Some(ours) = self.outstanding.as_mut().filter(|ours| ours.due <= now) else {
            return Retransmit::Nothing;
        };
        if ours.tries >= self.ladder.tries {
            return Retransmit::GiveUp;
        }
        ours.tries += 1;
        ours.due = deadline(now, wait(&self.ladder, ours.tries, rng));
        Retransmit::Send(Arc::clone(&ours.datagrams))
    }

    /// How often the outstanding request was sent again.
    pub(crate) fn tries(&self) -> u32 {
        self.outstanding.as_ref().map_or(0, |ours| ours.tries)
    }

    /// Notes that the request that is due is authenticated and whole, and is being answered; `request`
    /// is a digest of its first datagram. The response before it is forgotten, since the peer has it
    /// (RFC 7296 §2.1). False, and nothing done, if `message_id` is not due.
    pub(crate) fn on_request_authenticated(
        &mut self,
        message_id: u32,
        exchange: ExchangeType,
        request: u64,
    ) -> bool {
        let due = self.next_expected == Some(message_id)
            && !matches!(self.theirs, Theirs::InProgress { .. });
        if due {
            self.theirs = Theirs::InProgress { exchange, request };
        }
        due
    }

    /// Message ID and exchange type of the request being answered.
    pub(crate) fn in_progress(&self) -> Option<(u32, ExchangeType)> {
        match self.theirs {
            Theirs::InProgress { exchange, .. } => Some((self.next_expected?, exchange)),
            _ => None,
        }
    }

    /// Keeps the response to the request in progress, for when the request comes again. False if
    /// none is in progress.
    pub(crate) fn start_response(&mut self, response: Datagrams) -> bool {
        let Theirs::InProgress { exchange, request } = self.theirs else { return false };
        let Some(message_id) = self.next_expected else { return false };
        self.theirs = Theirs::Answered(Answered { exchange, message_id, request, response });
        self.next_expected = message_id.checked_add(1);
        true
    }

    /// Gives away the answer that is kept, for when the IKE SA is over.
    pub(crate) fn take_answered(&mut self) -> Option<Answered> {
        match std::mem::replace(&mut self.theirs, Theirs::Nothing) {
            Theirs::Answered(answered) => Some(answered),
            Theirs::Nothing | Theirs::InProgress { .. } => None,
        }
    }
}

/// How long to wait after try `n`: `timeout * base^n`, at most `limit`, less the jitter.
fn wait(ladder: &Retransmission, n: u32, rng: &mut dyn SecureRandom) -> Duration {
    let power = ladder.base.max(1.0).powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut wait = Duration::try_from_secs_f64(ladder.timeout.as_secs_f64() * power)
        .unwrap_or(LONGEST_WAIT)
        .min(LONGEST_WAIT);
    if !ladder.limit.is_zero() {
        wait = wait.min(ladder.limit);
    }
    if ladder.jitter > 0 {
        let mut octets = [0; 4];
        rng.fill(&mut octets);
        let drawn = f64::from(u32::from_be_bytes(octets)) / f64::from(u32::MAX);
        let percent = f64::from(ladder.jitter.min(100));
        wait = wait.mul_f64(1.0 - drawn * percent / 100.0);
    }
    wait
}

/// `now + wait`, or `now` on a clock that cannot hold the sum.
fn deadline(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or(now)
}

/// A day: keeps the sum with any sane `Instant` in range whatever the configuration says.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests;
