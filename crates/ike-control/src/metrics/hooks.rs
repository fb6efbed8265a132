//! Reports of the driver and the data plane to the counters.

use std::time::Duration;

use ike_proto::wire::registry::NotifyType;
use ike_proto::{
    ChildSaId, DropReason, Endpoint, Event, IkeSaId, Question, Transmit, TransmitKind,
};
use ike_tokio::{Observer, PlaneHandle, Work};

use super::Meters;
use super::esp::Way;

/// Length of the IKE header (RFC 7296 §3.1), and where the type of its first payload stands.
const HEADER: usize = 28;
const NEXT_PAYLOAD: usize = 16;
const EXCHANGE: usize = 18;
/// Encrypted and Authenticated Fragment (RFC 7383 §2.5), Notify, and the exchanges that begin.
const SKF: u8 = 53;
const NOTIFY: u8 = 41;
const IKE_SA_INIT: u8 = 34;
const IKE_SESSION_RESUME: u8 = 38;

impl Observer for Meters {
    fn event<'a>(
        &'a self,
        event: &'a Event,
        endpoint: &Endpoint,
        _plane: &'a PlaneHandle,
    ) -> Option<Work<'a>> {
        self.count(event, endpoint);
        None
    }

    fn received(&self, octets: &[u8]) {
        self.0.messages_received.inc();
        if octets.get(NEXT_PAYLOAD) == Some(&SKF) {
            self.0.fragments_received.inc();
        }
    }

    fn sending(&self, transmit: &Transmit) {
        match transmit.kind {
            TransmitKind::KeepAlive => return,
            TransmitKind::Retransmission => self.0.retransmissions.inc(),
            TransmitKind::FragmentAck => self.0.fragment_acks.inc(),
            TransmitKind::Ike | TransmitKind::Probe => {}
        }
        self.0.messages_sent.inc();
        if transmit.octets.get(NEXT_PAYLOAD) == Some(&SKF) {
            self.0.fragments_sent.inc();
        }
        if is_cookie_demand(&transmit.octets) {
            self.0.cookies.inc();
        }
    }

    fn not_sent(&self) {
        self.0.send_errors.inc();
    }

    fn suppressed(&self, lines: u32) {
        self.0.log_suppressed.inc_by(lines.into());
    }
}

impl Meters {
    /// A question is answered beside the engine.
    pub(super) fn asked(&self, question: &Question) {
        let kind = match question {
            Question::Sign(_) => "sign",
            Question::Judge(_) => "judge",
            Question::Revocation(_) => "revocation",
            Question::Resume(_) => "resume",
            Question::Exchange(_) => "key_exchange",
            Question::Eap(_) => "eap",
            Question::Ends { .. } => "ends",
            Question::Lease(_) => "lease",
        };
        self.0.questions.with_label_values(&[kind]).inc();
    }

    /// The data plane refused a command.
    pub(super) fn plane_error(&self, command: &str) {
        self.0.plane_errors.with_label_values(&[command]).inc();
    }

    /// Counts an event of the engine, before anything else changes there.
    fn count(&self, event: &Event, endpoint: &Endpoint) {
        let inner = &*self.0;
        match event {
            Event::IkeUp(ike) => {
                let Some(brief) = endpoint.brief(*ike) else { return };
                let role = if brief.initiator { "initiator" } else { "responder" };
                inner.handshakes.with_label_values(&[role]).inc();
                if brief.resumed {
                    inner.resumptions.with_label_values(&[role]).inc();
                }
                if let Some(time) = brief.setup_time {
                    let seconds = inner.handshake_seconds.with_label_values(&[role]);
                    seconds.observe(time.as_secs_f64());
                }
            }
            Event::IkeDown { established, reason, .. } => {
                let which = if *established { &inner.ike_downs } else { &inner.handshake_failures };
                which.with_label_values(&[reason.word()]).inc();
            }
            Event::TicketRefused { client, .. } => {
                let role = if *client { "initiator" } else { "responder" };
                inner.tickets_refused.with_label_values(&[role]).inc();
            }
            Event::InitRefused { .. } => inner.init_refused.inc(),
            Event::PeerRefused(_) => inner.peers_refused.inc(),
            Event::ChildRefused { .. } => {
                inner.child_failures.with_label_values(&["refused"]).inc();
            }
            Event::ChildFailed { reason, .. } => {
                inner.child_failures.with_label_values(&[reason.word()]).inc();
            }
            Event::IkeRekeyed { new, .. } => {
                inner.rekeys.with_label_values(&["ike"]).inc();
                if let Some(time) = endpoint.brief(*new).and_then(|brief| brief.setup_time) {
                    let seconds = inner.rekey_seconds.with_label_values(&["ike"]);
                    seconds.observe(time.as_secs_f64());
                }
            }
            Event::ChildUp { ike, child } => _ = self.child(*ike, *child, endpoint),
            Event::ChildRekeyed { ike, new, .. } => {
                inner.rekeys.with_label_values(&["child"]).inc();
                if let Some(time) = self.child(*ike, *new, endpoint) {
                    let seconds = inner.rekey_seconds.with_label_values(&["child"]);
                    seconds.observe(time.as_secs_f64());
                }
            }
            Event::TokenGiven { .. } => inner.tokens_given.inc(),
            Event::Dropped { why, .. } => {
                inner.dropped.with_label_values(&[why.text()]).inc();
                if *why == DropReason::BadIntegrity {
                    inner.decrypt_failures.inc();
                }
            }
            _ => {}
        }
    }

    /// Counts what the SAs of a child carry from now on; how long it took to set up.
    fn child(&self, ike: IkeSaId, id: ChildSaId, endpoint: &Endpoint) -> Option<Duration> {
        let brief = endpoint.brief(ike)?;
        let child = brief.children().find(|child| child.id == id)?;
        let connection = self.0.labels.of(brief.connection);
        self.0.esp.begin(child.inbound, connection, Way::In);
        self.0.esp.begin(child.outbound, connection, Way::Out);
        Some(child.setup_time)
    }
}

/// True for the answer that demands a cookie: a response of the first exchange with that notify alone.
fn is_cookie_demand(octets: &[u8]) -> bool {
    let kind = octets.get(HEADER + 6..HEADER + 8).and_then(|two| two.try_into().ok());
    octets.get(NEXT_PAYLOAD) == Some(&NOTIFY)
        && matches!(octets.get(EXCHANGE), Some(&(IKE_SA_INIT | IKE_SESSION_RESUME)))
        && octets.get(HEADER) == Some(&0)
        && kind.map(u16::from_be_bytes) == Some(NotifyType::COOKIE.0)
}

#[cfg(test)]
mod tests {
    use ike_proto::Failure;

    use super::*;

    #[test]
    fn only_the_demand_for_a_cookie_is_one() {
        let mut octets = vec![0; HEADER + 24];
        (octets[NEXT_PAYLOAD], octets[EXCHANGE]) = (NOTIFY, IKE_SA_INIT);
        octets[HEADER + 6..HEADER + 8].copy_from_slice(&NotifyType::COOKIE.0.to_be_bytes());
        assert!(is_cookie_demand(&octets));
        // A request that brings one has its proposals after it.
        octets[HEADER] = 33;
        assert!(!is_cookie_demand(&octets));
        assert!(!is_cookie_demand(&octets[..HEADER + 7]));
    }

    #[test]
    fn what_a_peer_makes_up_is_one_label() {
        let invented = Failure::Peer(NotifyType(65_000));
        assert_eq!(invented.word(), "other notify");
        assert_eq!(Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN).word(), "NO_PROPOSAL_CHOSEN");
    }
}
