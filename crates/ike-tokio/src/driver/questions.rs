//! Answers to the engine's questions, on their way to the engine.

use ike_proto::{Answer, Question, Ticket};

/// An answer on its way to the engine.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) ticket: Ticket,
    /// Who was asked about, if it was a peer.
    pub(super) about: Option<Peer>,
    pub(super) answer: Answer,
}

/// A peer as the log names it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) connection: String,
    /// The identity it asserts.
    pub(super) id: String,
}

impl Peer {
    /// Whom `question` is about.
    pub(super) fn of(question: &Question) -> Option<Self> {
        match question {
            Question::Judge(peer) | Question::Revocation(peer) => {
                Some(Self { connection: peer.connection.clone(), id: peer.id.to_string() })
            }
            // The engine itself tells what failed in EAP, and who presented a ticket.
            Question::Sign(_)
            | Question::Resume(_)
            | Question::Exchange(_)
            | Question::Lease(_)
            | Question::Eap(_)
            | Question::Ends { .. } => None,
        }
    }
}
