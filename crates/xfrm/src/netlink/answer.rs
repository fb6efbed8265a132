//! Datagrams from the kernel, taken apart. Nothing here panics, whatever they hold.

use netlink_packet_core::{NetlinkBuffer, NlasIterator, ParseableParametrized};
use netlink_packet_xfrm::XfrmMessage;

use super::gaps;

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// Number of the request it answers; 0 for an event.
    pub sequence: u32,
    /// Flags of the header.
    pub flags: u16,
    /// Message type.
    pub message_type: u16,
    /// The octets after the header.
    pub payload: &'a [u8],
}

/// The kinds of messages.
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

/// Classifies `frame`.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message with its header.
    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + payload.len()).unwrap();
        let mut octets = length.to_ne_bytes().to_vec();
        octets.extend(kind.to_ne_bytes());
        octets.extend(flags.to_ne_bytes());
        octets.extend(sequence.to_ne_bytes());
        octets.extend([0; 4]);
        octets.extend(payload);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut octets = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        octets.extend(kind.to_ne_bytes());
        octets.extend(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn only(datagram: &[u8]) -> Frame<'_> {
        let frames: Vec<_> = frames(datagram).collect();
        assert_eq!(frames.len(), 1);
        frames[0].unwrap()
    }

    #[test]
    fn acknowledgements_and_refusals() {
        let request = message(0x10, 5, 7, &[]);
        let text = [attribute(2, &[1, 0, 0, 0]), attribute(1, b"no such device\0")].concat();
        let refused = [&(-95_i32).to_ne_bytes()[..], &request, &text].concat();
        let datagram = message(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 7, &refused);
        let wanted = Answer::End { errno: 95, text: Some("no such device".into()) };
        assert_eq!(classify(&only(&datagram)), Ok(wanted));

        // Without the flag, what follows is not attributes.
        let datagram = message(NLMSG_ERROR, NLM_F_CAPPED, 7, &refused);
        assert_eq!(classify(&only(&datagram)), Ok(Answer::End { errno: 95, text: None }));

        // Not capped: the whole request lies between.
        let long = message(0x10, 5, 7, &[9; 30]);
        let refused = [&(-22_i32).to_ne_bytes()[..], &long, &text].concat();
        let datagram = message(NLMSG_ERROR, NLM_F_ACK_TLVS, 7, &refused);
        let wanted = Answer::End { errno: 22, text: Some("no such device".into()) };
        assert_eq!(classify(&only(&datagram)), Ok(wanted));

        let done = message(NLMSG_DONE, 2, 7, &[]);
        assert_eq!(classify(&only(&done)), Ok(Answer::End { errno: 0, text: None }));
        let cut = message(NLMSG_ERROR, 0, 7, &[1, 2]);
        assert!(classify(&only(&cut)).is_err());
        let done = message(NLMSG_DONE, 2, 7, &i32::MIN.to_ne_bytes());
        assert_eq!(classify(&only(&done)), Ok(Answer::End { errno: i32::MAX, text: None }));
    }

    #[test]
    fn datagrams_that_are_cut_short() {
        let two = [message(0x26, 0, 1, &[0; 64]), message(0x26, 0, 2, &[0; 64])].concat();
        assert_eq!(frames(&two).filter_map(Result::ok).count(), 2);
        for length in 0..two.len() {
            let whole = length / 80;
            let found: Vec<_> = frames(&two[..length]).collect();
            assert_eq!(found.iter().filter(|frame| frame.is_ok()).count(), whole);
            assert_eq!(found.len(), whole + usize::from(length % 80 != 0), "{length}");
        }
        let mut none = two.clone();
        none[..4].fill(0);
        assert!(frames(&none).all(|frame| frame.is_err()));
    }

    #[test]
    fn messages_that_are_cut_short() {
        for kind in 0x10..0x2a {
            let length = gaps::fixed_length(kind).unwrap_or(0);
            for length in 0..length {
                let error = parse(kind, &vec![0; length]).unwrap_err();
                assert!(error.contains(&length.to_string()), "{error}");
            }
            assert!(parse(kind, &vec![0; length]).is_ok(), "{kind:#x}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn nothing_panics(datagram in proptest::collection::vec(any::<u8>(), 0..600)) {
            for frame in frames(&datagram).flatten() {
                if let Ok(Answer::Message(kind, payload)) = classify(&frame) {
                    let _ = parse(kind, payload);
                }
            }
        }

        /// Messages of every type, with attributes of every type and any length.
        #[test]
        fn no_message_panics(
            kind in 0x0f_u16..0x2a,
            flags in any::<u16>(),
            cut in 0_usize..3,
            mut payload in proptest::collection::vec(any::<u8>(), 300),
            attributes in proptest::collection::vec(
                (0_u16..45, proptest::collection::vec(any::<u8>(), 0..300)), 0..6),
        ) {
            payload.truncate(gaps::fixed_length(kind).unwrap_or(8));
            for (kind, value) in &attributes {
                payload.extend(attribute(*kind, value));
            }
            payload.truncate(payload.len().saturating_sub(cut));
            let datagram = message(kind, flags, 1, &payload);
            for frame in frames(&datagram).flatten() {
                let _ = classify(&frame);
                if let Ok(message) = parse(frame.message_type, frame.payload) {
                    take(&message);
                }
            }
            let _ = crate::event::parse(&datagram);
        }
    }

    /// What the crate reads of a message.
    fn take(message: &XfrmMessage) {
        match message {
            XfrmMessage::AddSa(sa) => {
                let _ = crate::state::decode(sa);
                let _ = format!("{:?}", crate::state::decode(sa));
            }
            XfrmMessage::AddPolicy(policy) => _ = crate::policy::decode(policy),
            _ => {}
        }
    }
}
