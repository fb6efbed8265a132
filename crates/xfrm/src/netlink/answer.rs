//! Datagrams from the kernel, taken apart. Nothing here panics, whatever they hold.

use netlink_packet_core::{NetlinkBuffer, NlasIterator, ParseableParametrized};
use netlink_packet_xfrm::XfrmMessage;

use super::gaps;

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// Number of the request it answers; 0 for an event.
    pub sequence: u32,
    /// What the header says.
    pub flags: u16,
    /// Message type.
    pub message_type: u16,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// An acknowledgement, or a refusal if `errno` is not 0; the end of a dump as well.
    End {
        /// errno, positive.
        errno: i32,
        /// The kernel's text, of an error or a warning.
        text: Option<String>,
    },
    /// Something else, still to be parsed.
    Message(u16, &'a [u8]),
    /// To be ignored.
    Nothing,
}

/// The messages of `datagram`. Ends at the first that is not whole, with an error.
pub(crate) fn frames(datagram: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, &'static str>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Ok(buffer) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            return Some(Err("a message that is cut short"));
        };
        let length = usize::try_from(buffer.length()).unwrap_or(usize::MAX);
        let Some(payload) = rest.get(HEADER..length) else {
            rest = &[];
            return Some(Err("a message shorter than its header"));
        };
        let frame = Frame {
            sequence: buffer.sequence_number(),
            flags: buffer.flags(),
            message_type: buffer.message_type(),
            payload,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(frame))
    })
}

/// What `frame` is.
pub(crate) fn classify<'a>(frame: &Frame<'a>) -> Result<Answer<'a>, &'static str> {
    match frame.message_type {
        NLMSG_NOOP => Ok(Answer::Nothing),
        NLMSG_ERROR | NLMSG_DONE => {
            // The length in front of NLMSG_DONE's code is optional (a dump of nothing).
            let code = match frame.payload.first_chunk() {
                Some(code) => i32::from_ne_bytes(*code),
                None if frame.message_type == NLMSG_DONE => 0,
                None => return Err("an acknowledgement that is cut short"),
            };
            Ok(Answer::End { errno: code.checked_neg().unwrap_or(i32::MAX), text: text(frame) })
        }
        NLMSG_OVERRUN => Err("an overrun"),
        kind => Ok(Answer::Message(kind, frame.payload)),
    }
}

/// Parses a message of `kind`. The error is the crate's text, which has lengths and no contents.
pub(crate) fn parse(kind: u16, payload: &[u8]) -> Result<XfrmMessage, String> {
    let fixed = gaps::fixed_length(kind).unwrap_or(0);
    if payload.len() < fixed {
        return Err(format!(
            "a message of type {kind:#x} with {} of {fixed} octets",
            payload.len()
        ));
    }
    XfrmMessage::parse_with_param(payload, kind).map_err(|error| error.to_string())
}

/// NLMSGERR_ATTR_MSG, if the kernel gave one (extended ACK).
fn text(frame: &Frame<'_>) -> Option<String> {
    if frame.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let offset = if frame.message_type == NLMSG_DONE {
        4
    } else if frame.flags & NLM_F_CAPPED != 0 {
        4 + HEADER
    } else {
        let request = frame.payload.get(4..8)?.first_chunk().map(|n| u32::from_ne_bytes(*n))?;
        4_usize.checked_add(usize::try_from(request).ok()?.checked_next_multiple_of(4)?)?
    };
    NlasIterator::new(frame.payload.get(offset..)?)
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| {
            let value = attribute.value();
            let value = value.strip_suffix(&[0]).unwrap_or(value);
            value.escape_ascii().to_string()
        })
        .filter(|text| !text.is_empty())
}

/// Octets of a message's header.
const HEADER: usize = 16;
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
/// The request is not in its acknowledgement.
const NLM_F_CAPPED: u16 = 0x100;
/// Attributes follow.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// The table changed while it was dumped.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSGERR_ATTR_MSG: u16 = 1;
