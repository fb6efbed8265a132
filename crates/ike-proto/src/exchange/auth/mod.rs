//! IKE_AUTH (RFC 7296 §1.2, §2.15), and childless as RFC 6023 has it.
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, SK {IDi, [IDr,] AUTH,
//!      [SAi2, TSi, TSr]}  -->
//!                               <--  HDR, SK {IDr, AUTH, [SAr2, TSi, TSr]}
//! ```

mod initiator;
mod psk;
mod responder;

use std::collections::VecDeque;

use crate::config::{ConnectionConfig, IdMatch, Unique};
use crate::event::{Event, Failure, Path};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, IkePhase, InitTranscript, State, Task};
use crate::keys::signed_octets::{SignedOctets, Transcript};
use crate::wire::payload::{Auth, Id, IdData, Payload};
use crate::wire::registry::AuthMethod;

impl IkeSa {
    /// What this end's AUTH payload covers.
    fn own_octets(&self, transcript: &InitTranscript, id: &IdData) -> SignedOctets {
        self.octets(transcript, self.initiator, id.as_id())
    }

    /// What the peer's AUTH payload covers; `id` as it was received.
    fn peer_octets(&self, transcript: &InitTranscript, id: Id<'_>) -> SignedOctets {
        self.octets(transcript, !self.initiator, id)
    }

    fn octets(&self, transcript: &InitTranscript, initiator: bool, id: Id<'_>) -> SignedOctets {
        let (message, nonce, key) = if initiator {
            (&transcript.request, &transcript.nr, &self.session.keys.pi)
        } else {
            (&transcript.response, &transcript.ni, &self.session.keys.pr)
        };
        let message = Transcript::RealMessage(message);
        let int_auth = transcript.int_auth.finish();
        SignedOctets::new(self.session.prf, key, message, nonce, id, int_auth.as_deref())
    }

    /// Both ends are authenticated.
    fn establish(
        &mut self,
        ctx: &mut Context<'_>,
        local_id: IdData,
        remote_id: IdData,
        queue: VecDeque<Task>,
    ) {
        self.state = State::Established(Box::new(Established {
            local_id,
            remote_id,
            since: ctx.now.mono,
            children: Vec::new(),
            ours: None,
            responding: None,
            queue,
            installing: Vec::new(),
            phase: IkePhase::Alive,
            delayed: Vec::new(),
            lingering: Vec::new(),
            queries: Vec::new(),
            theirs: Vec::new(),
        }));
        self.arm_lifetimes(ctx);
        ctx.event(Event::IkeUp(self.id));
    }
}

pub(crate) fn auth_payloads<'a>(id: &'a IdData, auth: &'a [u8]) -> Vec<Payload<'a>> {
    vec![Payload::IdR(id.as_id()), Payload::Auth(Auth { method: AuthMethod::PSK, data: auth })]
}

/// This end's identity: the configured one, else its address.
pub(crate) fn local_id_at(connection: &ConnectionConfig, path: Path) -> IdData {
    connection.local_id().cloned().unwrap_or_else(|| IdData::ip(path.local.ip().to_canonical()))
}

fn local_id(connection: &ConnectionConfig, sa: &IkeSa) -> IdData {
    local_id_at(connection, sa.path)
}

fn answers_to(connection: &ConnectionConfig, sa: &IkeSa, wanted: &Id<'_>) -> bool {
    local_id(connection, sa).matches(*wanted)
}

/// True if `id` is one the peer may assert.
pub(crate) fn matches_id(wanted: &IdMatch, id: &IdData) -> bool {
    match wanted {
        IdMatch::Any => true,
        IdMatch::Exact(exact) => exact.matches(id.as_id()),
        IdMatch::DnPattern(pattern) => pattern.covers(id.as_id()),
        IdMatch::Suffix(pattern) => {
            let suffix = pattern.data.strip_prefix(b"*").unwrap_or(&pattern.data);
            pattern.kind == id.kind
                && id.data.len() > suffix.len()
                && id.data[id.data.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
    }
}

/// True if INITIAL_CONTACT is to be sent by `connection`.
pub(crate) fn sends_initial_contact(connection: &ConnectionConfig) -> bool {
    connection.unique != Unique::Never
}

/// Stands in while a state is taken apart; never seen from outside.
fn closed_placeholder() -> State {
    State::Closed(Failure::NotFound)
}
