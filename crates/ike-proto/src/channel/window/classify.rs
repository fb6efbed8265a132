//! What a received datagram is for the window. Nothing changes here, because the datagram is not authenticated
//! yet.

use super::{Theirs, Window};
use crate::wire::Header;

/// What a received datagram is for the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Class {
    /// The expected request, or a fragment of it.
    NewRequest,
    /// A request that was answered before. The caller sends its response again, but only to a peer that has sealed
    /// the datagram with the keys.
    RetransmittedRequest,
    /// A request that is being answered.
    InProgress,
    /// The response, or a fragment of it, to the outstanding request.
    ExpectedResponse,
    /// An old message, to be dropped without an answer.
    Stale,
    /// A message ID that is not expected yet (RFC 7296 §2.3 has the notify INVALID_MESSAGE_ID for it).
    OutOfWindow,
}

impl Window {
    /// Classifies a datagram with this header. `fragment` is the number and total of its Encrypted Fragment
    /// payload, if it has one.
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
            Theirs::Answered(answered)
                if answered.message_id == header.message_id
                    && answered.exchange == header.exchange =>
            {
                //= https://www.rfc-editor.org/rfc/rfc7383#section-2.6.1
                //# that event MUST only trigger a retransmission of the response message
                //# (fragmented or not) if the Fragment Number field in the received
                //# fragment is set to 1; otherwise, it MUST be ignored.
                match fragment {
                    None | Some((1, _)) => Class::RetransmittedRequest,
                    Some(_) => Class::Stale,
                }
            }
            _ => Class::Stale,
        }
    }
}
