//! `alert`: which of an engine's events strongSwan has a type of alert for.

use ike_proto::wire::registry::NotifyType;
use ike_proto::{Distrust, Event, Failure};

/// The type of alert, if `event` is one.
pub(super) fn kind(event: &Event) -> Option<&'static str> {
    match event {
        Event::PeerRefused(refused) => Some(match refused.distrust {
            Some(Distrust::Revoked) => "cert-revoked",
            Some(Distrust::RevocationUnknown) => "cert-validation-failed",
            Some(Distrust::Expired) => "cert-expired",
            _ => "peer-auth-failed",
        }),
        Event::InitRefused { .. } => Some("proposal-mismatch-ike"),
        Event::ChildRefused { .. } => Some("ts-mismatch"),
        Event::IkeDown { established, reason, .. } => of_ike(*established, reason),
        Event::ChildFailed { reason, .. } => of_child(reason),
        _ => None,
    }
}

fn of_ike(established: bool, reason: &Failure) -> Option<&'static str> {
    Some(match reason {
        Failure::Timeout if established => "retransmit-send-timeout",
        Failure::Timeout => "peer-init-unreachable",
        Failure::Peer(NotifyType::AUTHENTICATION_FAILED) | Failure::Credentials(_) => {
            "local-auth-failed"
        }
        Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN)
        | Failure::Refused(NotifyType::NO_PROPOSAL_CHOSEN) => "proposal-mismatch-ike",
        Failure::Expired => "ike-sa-expired",
        Failure::Replaced => "unique-replace",
        _ => return None,
    })
}

fn of_child(reason: &Failure) -> Option<&'static str> {
    Some(match reason {
        Failure::Peer(NotifyType::TS_UNACCEPTABLE)
        | Failure::Refused(NotifyType::TS_UNACCEPTABLE) => "ts-mismatch",
        Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN)
        | Failure::Refused(NotifyType::NO_PROPOSAL_CHOSEN) => "proposal-mismatch-child",
        Failure::DataPlane(_) => "install-child-sa-failed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use ike_proto::{Disbelief, IkeSaId, Path, PeerRefused, Transport};

    use super::*;

    #[test]
    fn alerts_have_strongswans_types() {
        let down = |established, reason| {
            let connection = "site".to_owned();
            kind(&Event::IkeDown { ike: IkeSaId(1), connection, established, reason })
        };
        assert_eq!(down(true, Failure::Timeout), Some("retransmit-send-timeout"));
        assert_eq!(down(false, Failure::Timeout), Some("peer-init-unreachable"));
        assert_eq!(down(true, Failure::Terminated), None);
        let failed =
            |reason| kind(&Event::ChildFailed { ike: IkeSaId(1), name: "net".to_owned(), reason });
        assert_eq!(failed(Failure::Peer(NotifyType::TS_UNACCEPTABLE)), Some("ts-mismatch"));
        assert_eq!(failed(Failure::DataPlane("no".to_owned())), Some("install-child-sa-failed"));
        assert_eq!(kind(&Event::IkeUp(IkeSaId(1))), None);
    }

    /// Fault: look for the word "revoked" in the reason.
    #[test]
    fn what_is_not_known_to_be_revoked_is_not_told_as_revoked() {
        let address = "192.0.2.1:500".parse().unwrap();
        let refused = |distrust| PeerRefused {
            ike: IkeSaId(1),
            path: Path { local: address, remote: address, transport: Transport::Udp },
            connection: "site".to_owned(),
            local_id: None,
            remote_id: None,
            distrust,
            why: Disbelief::Untrusted(
                "not known whether certificate \"CN=peer\" has been revoked".to_owned(),
            ),
        };
        let alert = |distrust| kind(&Event::PeerRefused(Box::new(refused(distrust))));
        assert_eq!(alert(Some(Distrust::RevocationUnknown)), Some("cert-validation-failed"));
        assert_eq!(alert(Some(Distrust::Revoked)), Some("cert-revoked"));
        assert_eq!(alert(Some(Distrust::Expired)), Some("cert-expired"));
        assert_eq!(alert(Some(Distrust::Other)), Some("peer-auth-failed"));
        assert_eq!(alert(None), Some("peer-auth-failed"));
    }
}
