//! The negotiation of a Child SA's mode: the initiator requests a mode other than tunnel mode by a notify, and has
//! it if the responder repeats the notify (RFC 7296 §1.3.1, RFC 9347 §5.1).

use super::Payloads;
use crate::dataplane::{Mode, Processing};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;

/// Requirement in USE_AGGFRAG (RFC 9347 §6.1.4): inner packets must not be split.
const DONT_FRAGMENT: u8 = 1;

/// The notify that requests `mode`, or accepts it.
pub(crate) fn payload(mode: Mode, processing: &Processing) -> Option<Payload<'static>> {
    let notify = match mode {
        Mode::Transport => Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]),
        Mode::Iptfs if processing.iptfs.accept_fragments => {
            Notify::new(NotifyType::USE_AGGFRAG, &[0])
        }
        Mode::Iptfs => Notify::new(NotifyType::USE_AGGFRAG, &[DONT_FRAGMENT]),
        // No notify is registered for BEET.
        Mode::Tunnel | Mode::Beet => return None,
    };
    Some(Payload::Notify(notify))
}

/// The mode in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Tunnel,
    Transport,
    Aggfrag(Requirements),
    /// More than one mode.
    Contradiction,
}

/// The requirements of the sender of USE_AGGFRAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirements {
    /// They can be met.
    Met {
        /// Inner packets must not be split.
        dont_fragment: bool,
    },
    /// They are not understood, or not supported.
    Beyond,
}

impl Asked {
    pub(crate) fn read(payloads: &Payloads<'_, '_>) -> Self {
        let transport = payloads.notify(NotifyType::USE_TRANSPORT_MODE).is_some();
        let aggfrag = payloads.notify(NotifyType::USE_AGGFRAG);
        match (transport, aggfrag) {
            (false, None) => Self::Tunnel,
            (true, None) => Self::Transport,
            (false, Some(notify)) => Self::Aggfrag(Requirements::of(notify.data)),
            //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-iptfs-19#section-5.1
            //# the USE_AGGFRAG notification MUST NOT
            //# be combined with USE_TRANSPORT notification.
            (true, Some(_)) => Self::Contradiction,
        }
    }
}

impl Requirements {
    fn of(data: &[u8]) -> Self {
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-iptfs-19#section-5.1
        //# If any
        //# requirement flags are not understood or cannot be supported by the
        //# receiver then the receiver SHOULD NOT enable use of AGGFRAG_PAYLOAD
        // There are two requirements. No data plane here sends congestion control information back.
        match data {
            [0] => Self::Met { dont_fragment: false },
            [DONT_FRAGMENT] => Self::Met { dont_fragment: true },
            _ => Self::Beyond,
        }
    }
}
