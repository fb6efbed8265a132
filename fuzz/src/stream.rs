//! Target `stream`: octets of a TCP stream, cut as the input says. They are judged alike however they are
//! cut, no more is kept than arrived, and what comes out goes in again.

use esp::tcp::{Deframer, FramingError, LARGEST, LENGTH, Message, push_esp, push_ike};

/// Runs one input: the first octet says which end opened the connection, the second how it is cut. Returns
/// the number of messages.
pub fn run(octets: &[u8]) -> usize {
    let [kind, cut, stream @ ..] = octets else { return 0 };
    let deframer = || if kind % 2 == 0 { Deframer::accepted() } else { Deframer::opened() };
    let whole = read(deframer(), stream, stream.len().max(1));
    let pieces = read(deframer(), stream, usize::from(*cut).max(1));
    assert_eq!(whole, pieces, "cut into pieces of {cut}");
    // Apart from what is passed over, what came out is what goes in.
    let again = read(Deframer::opened(), &pieces.octets, 7);
    assert_eq!(again.octets, pieces.octets);
    assert_eq!((again.messages, again.error), (pieces.messages, None));
    pieces.messages
}

/// What a stream held, framed anew, and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    octets: Vec<u8>,
    messages: usize,
    error: Option<FramingError>,
}

fn read(mut deframer: Deframer, stream: &[u8], cut: usize) -> Read {
    let (mut octets, mut messages) = (Vec::new(), 0);
    for piece in stream.chunks(cut) {
        deframer.room(piece.len()).extend_from_slice(piece);
        loop {
            let pushed = match deframer.next_message() {
                Ok(None) => break,
                Err(error) => return Read { octets, messages, error: Some(error) },
                Ok(Some(Message::Ike(message))) => push_ike(&mut octets, message),
                Ok(Some(Message::Esp(packet))) => push_esp(&mut octets, packet),
            };
            assert!(pushed, "nothing longer comes out than could go in");
            messages += 1;
        }
        assert!(deframer.waiting() < LARGEST + LENGTH, "less than one message waits");
    }
    Read { octets, messages, error: None }
}
