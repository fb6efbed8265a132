//! Notification Data of FRAGMENT_ACK_REQ and FRAGMENT_ACK_RES
//! (draft-antony-ipsecme-ikev2-fragment-acknowledgment §3): the missing fragments of one message.
//!
//! The draft's text calls the second number of a pair a range "of additional missing fragments". Its example,
//! `4,4; 7,10`, has the last fragment of a range there. This decoder follows the example: a single fragment is
//! `4,4`, which as a count would mean five fragments. A count reads as a range that ends before it begins, or that
//! overlaps the next one, and is refused.

use crate::codec::{DecodeError, Reader};

/// Octets of one range.
const RANGE: usize = 4;

/// The most ranges that are read from one notify: more than a message of 64 KiB has in any reasonable fragments.
const MOST: usize = 512;

/// Fragments that are missing, from the first of them to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingRange {
    /// Fragment Number of the first, from 1.
    pub first: u16,
    /// Fragment Number of the last.
    pub last: u16,
}

impl MissingRange {
    /// Appends the ranges.
    pub fn encode_all(ranges: &[Self], out: &mut Vec<u8>) {
        for range in ranges {
            out.extend(range.first.to_be_bytes());
            out.extend(range.last.to_be_bytes());
        }
    }

    /// Decodes `data` about a message of `total` fragments. No range means that no fragment is missing.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if there are excess octets, or unless the ranges are within the message, ascending and
    /// separate. A contradictory list is refused as a whole.
    pub fn decode_all(data: &[u8], total: u16) -> Result<Vec<Self>, DecodeError> {
        if !data.len().is_multiple_of(RANGE) || data.len() > MOST * RANGE {
            return Err(DecodeError::Invalid("length of missing fragments"));
        }
        let mut r = Reader::new(data);
        let mut ranges = Vec::with_capacity(data.len() / RANGE);
        let mut before = 0;
        while !r.is_empty() {
            let first = r.u16("missing fragments")?;
            let last = r.u16("missing fragments")?;
            if first <= before || last < first || last > total {
                return Err(DecodeError::Invalid("range of missing fragments"));
            }
            before = last;
            ranges.push(Self { first, last });
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Notify, Payload, assert_round_trip};
    use crate::registry::NotifyType;

    fn ranges(pairs: &[(u16, u16)]) -> Vec<MissingRange> {
        pairs.iter().map(|&(first, last)| MissingRange { first, last }).collect()
    }

    #[test]
    fn the_example_of_the_draft() {
        let example = ranges(&[(4, 4), (7, 10)]);
        let mut data = Vec::new();
        MissingRange::encode_all(&example, &mut data);
        assert_eq!(data, [0, 4, 0, 4, 0, 7, 0, 10]);
        assert_eq!(MissingRange::decode_all(&data, 10), Ok(example));
        let notify = Notify::new(NotifyType(51_522), &data);
        let octets = [0, 0, 0xc9, 0x42, 0, 4, 0, 4, 0, 7, 0, 10];
        assert_round_trip(&Payload::Notify(notify), &octets);
    }

    #[test]
    fn nothing_and_everything() {
        assert_eq!(MissingRange::decode_all(&[], 1), Ok(Vec::new()));
        let all = ranges(&[(1, u16::MAX)]);
        assert_eq!(MissingRange::decode_all(&[0, 1, 0xff, 0xff], u16::MAX), Ok(all));
    }

    #[test]
    fn contradictions_are_refused_as_a_whole() {
        let bad: [&[(u16, u16)]; 9] = [
            &[(0, 0)],
            &[(0, 3)],
            &[(4, 3)],
            &[(7, 11)],
            &[(11, 11)],
            &[(4, 4), (4, 4)],
            &[(4, 6), (6, 8)],
            &[(7, 8), (4, 4)],
            // As counts: 4, and 7 to 10.
            &[(4, 0), (7, 3)],
        ];
        for pairs in bad {
            let mut data = Vec::new();
            MissingRange::encode_all(&ranges(pairs), &mut data);
            let error = Err(DecodeError::Invalid("range of missing fragments"));
            assert_eq!(MissingRange::decode_all(&data, 10), error, "{pairs:?}");
        }
    }

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        let error = Err(DecodeError::Invalid("length of missing fragments"));
        for len in [1, 2, 3, 5, 4 * MOST + 1, 4 * MOST + 4, 65_535] {
            assert_eq!(MissingRange::decode_all(&vec![1; len], 9), error, "{len}");
        }
        let most: Vec<_> = (1..=512).map(|n| (2 * n, 2 * n)).collect();
        let mut data = Vec::new();
        MissingRange::encode_all(&ranges(&most), &mut data);
        assert_eq!(MissingRange::decode_all(&data, 2000).map(|found| found.len()), Ok(MOST));
    }
}
