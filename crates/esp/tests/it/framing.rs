//! IKE and ESP in TCP streams: what comes out is what went in, however it was cut, and what is wrong
//! ends the stream.

use esp::tcp::{Deframer, FramingError, LARGEST, Message, PREFIX, push_esp, push_ike};
use proptest::prelude::*;

/// An IKE message of `len` octets at least, with a header that says how long it is.
fn ike(len: usize) -> Vec<u8> {
    let mut message = vec![0x5a; len.max(28)];
    let length = u32::try_from(message.len()).expect("a length");
    message[24..28].copy_from_slice(&length.to_be_bytes());
    message
}

fn esp(len: usize) -> Vec<u8> {
    let mut packet = vec![0xe5; len.max(8)];
    packet[..4].copy_from_slice(&0xc001_d00d_u32.to_be_bytes());
    packet
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Ike(Vec<u8>),
    Esp(Vec<u8>),
}

/// Everything that is there by now.
fn all(deframer: &mut Deframer) -> Result<Vec<Owned>, FramingError> {
    let mut found = Vec::new();
    while let Some(message) = deframer.next_message()? {
        found.push(match message {
            Message::Ike(message) => Owned::Ike(message.to_vec()),
            Message::Esp(packet) => Owned::Esp(packet.to_vec()),
        });
    }
    Ok(found)
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len() + 2).expect("a length");
    [&length.to_be_bytes()[..], message].concat()
}

/// What an accepted connection makes of `octets`, which come in one piece.
fn accepted(octets: &[u8]) -> Result<Vec<Owned>, FramingError> {
    let mut deframer = Deframer::accepted();
    deframer.room(octets.len()).extend_from_slice(octets);
    all(&mut deframer)
}

fn after_prefix(octets: &[u8]) -> Result<Vec<Owned>, FramingError> {
    accepted(&[&PREFIX, octets].concat())
}

#[test]
fn octets_are_those_of_the_figures() {
    let mut stream = Vec::new();
    let message = ike(28);
    assert!(push_ike(&mut stream, &message));
    assert_eq!(stream[..6], [0, 34, 0, 0, 0, 0], "Figure 1: length, non-ESP marker");
    assert_eq!(stream[6..], message[..]);
    stream.clear();
    assert!(push_esp(&mut stream, &esp(9)));
    assert_eq!(stream[..6], [0, 11, 0xc0, 0x01, 0xd0, 0x0d], "Figure 2: length, SPI");
    assert_eq!(PREFIX, [0x49, 0x4b, 0x45, 0x54, 0x43, 0x50], "Figure 3");
}

#[test]
fn the_prefix_is_waited_for_and_checked_octet_by_octet() {
    let mut deframer = Deframer::accepted();
    for (at, octet) in PREFIX.iter().enumerate() {
        assert_eq!(deframer.begin(), Ok(false), "after {at} octets");
        deframer.room(1).push(*octet);
        assert_eq!(all(&mut deframer), Ok(vec![]));
    }
    assert_eq!(deframer.begin(), Ok(true));
    for wrong in [&b"I"[..], b"IK", b"IKETC"] {
        // The first octet that differs is enough.
        assert_eq!(accepted(&[wrong, b"X"].concat()), Err(FramingError::Prefix));
    }
    assert_eq!(accepted(b"GET / HTTP/1.1\r\n\r\n"), Err(FramingError::Prefix));
    assert_eq!(accepted(&[0; 4]), Err(FramingError::Prefix));
}

#[test]
fn this_end_opened_it_and_no_prefix_comes() {
    let mut deframer = Deframer::opened();
    assert_eq!(deframer.begin(), Ok(true));
    let mut stream = Vec::new();
    assert!(push_ike(&mut stream, &ike(40)));
    deframer.room(stream.len()).extend_from_slice(&stream);
    assert_eq!(all(&mut deframer), Ok(vec![Owned::Ike(ike(40))]));
    // A prefix there is a length like any other: 0x494b octets that do not come.
    let mut deframer = Deframer::opened();
    deframer.room(6).extend_from_slice(&PREFIX);
    assert_eq!(all(&mut deframer), Ok(vec![]));
    assert_eq!(deframer.waiting(), 6);
}

#[test]
fn lengths_of_0_and_1_are_fatal_and_2_and_keepalives_are_nothing() {
    assert_eq!(after_prefix(&[0, 0]), Err(FramingError::Length(0)));
    assert_eq!(after_prefix(&[0, 1]), Err(FramingError::Length(1)));
    let quiet = [[0, 2].as_slice(), &frame(&[0xff])].concat().repeat(1000);
    let mut stream = quiet;
    assert!(push_esp(&mut stream, &esp(30)));
    assert_eq!(after_prefix(&stream), Ok(vec![Owned::Esp(esp(30))]), "not errors, however many");
}

#[test]
fn what_makes_no_sense_is_passed_over_but_not_for_ever() {
    let short_ike = [&[0; 4][..], &[1; 27]].concat();
    let mut wrong_length = [&[0; 4][..], &ike(28)].concat();
    wrong_length.push(0);
    let cases = [vec![7], vec![0xff, 0xff], vec![0, 0, 0], vec![0; 4], short_ike, wrong_length];
    for senseless in cases.iter().chain([&vec![0, 0, 1, 0, 0, 0, 0]]) {
        let mut stream = frame(senseless).repeat(15);
        assert!(push_ike(&mut stream, &ike(50)));
        stream.extend(frame(senseless).repeat(15));
        assert_eq!(after_prefix(&stream), Ok(vec![Owned::Ike(ike(50))]), "{senseless:?}");
        stream.extend(frame(senseless));
        assert_eq!(after_prefix(&stream), Err(FramingError::Senseless), "{senseless:?}");
    }
}

#[test]
fn the_longest_messages_pass_and_longer_ones_are_not_sent() {
    let mut stream = Vec::new();
    assert!(push_esp(&mut stream, &esp(LARGEST)));
    assert!(push_ike(&mut stream, &ike(LARGEST - 4)));
    let whole = stream.len();
    assert!(!push_esp(&mut stream, &esp(LARGEST + 1)));
    assert!(!push_ike(&mut stream, &ike(LARGEST - 3)));
    assert_eq!(stream.len(), whole);
    let expected = vec![Owned::Esp(esp(LARGEST)), Owned::Ike(ike(LARGEST - 4))];
    assert_eq!(after_prefix(&stream), Ok(expected));
}

#[test]
fn a_length_alone_takes_no_memory() {
    let mut deframer = Deframer::accepted();
    deframer.room(8).extend_from_slice(&[&PREFIX[..], &[0xff, 0xff]].concat());
    assert_eq!(all(&mut deframer), Ok(vec![]));
    assert!(deframer.room(64).capacity() <= 256);
    // A large message leaves nothing behind either.
    deframer.room(LARGEST).extend_from_slice(&esp(LARGEST));
    assert_eq!(all(&mut deframer).unwrap().len(), 1);
    assert!(deframer.room(64).capacity() <= 256);
}

fn message() -> impl Strategy<Value = Owned> {
    let len = prop_oneof![4 => 0..200_usize, 1 => 0..LARGEST - 4];
    (any::<bool>(), len).prop_map(|(is_ike, len)| match is_ike {
        true => Owned::Ike(ike(len)),
        false => Owned::Esp(esp(len)),
    })
}

proptest! {
    #[test]
    fn however_it_is_cut(
        messages in prop::collection::vec(message(), 0..8),
        cuts in prop::collection::vec(1..3000_usize, 1..20),
    ) {
        let mut stream = PREFIX.to_vec();
        for message in &messages {
            let pushed = match message {
                Owned::Ike(message) => push_ike(&mut stream, message),
                Owned::Esp(packet) => push_esp(&mut stream, packet),
            };
            prop_assert!(pushed);
        }
        let mut deframer = Deframer::accepted();
        let (mut found, mut rest) = (Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            let (piece, more) = rest.split_at(rest.len().min(*cut));
            deframer.room(piece.len()).extend_from_slice(piece);
            found.extend(all(&mut deframer)?);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, messages);
        prop_assert_eq!(deframer.waiting(), 0);
    }

    #[test]
    fn garbage_is_judged_the_same_however_it_is_cut(
        octets in prop::collection::vec(prop_oneof![2 => 0..4_u8, 1 => any::<u8>()], 0..400),
        cut in 1..20_usize,
    ) {
        let whole = after_prefix(&octets);
        let mut deframer = Deframer::accepted();
        let mut pieces = Ok(Vec::new());
        for piece in [&PREFIX, &octets[..]].concat().chunks(cut) {
            deframer.room(piece.len()).extend_from_slice(piece);
            match (&mut pieces, all(&mut deframer)) {
                (Ok(found), Ok(more)) => found.extend(more),
                (_, Err(error)) => { pieces = Err(error); break }
                (Err(_), _) => {}
            }
        }
        prop_assert_eq!(pieces, whole);
    }
}
