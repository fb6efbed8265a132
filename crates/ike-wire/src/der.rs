//! A reader for the few DER structures an IKE endpoint sees outside certificates: algorithm
//! identifiers, public keys, signatures of two integers (X.690 §8 and §10).
//!
//! Strict: definite lengths in their shortest form, integers in their shortest form, one-octet tags.

use std::fmt;

/// `INTEGER`.
pub const INTEGER: u8 = 0x02;
/// `BIT STRING`.
pub const BIT_STRING: u8 = 0x03;
/// `OCTET STRING`.
pub const OCTET_STRING: u8 = 0x04;
/// `NULL`.
pub const NULL: u8 = 0x05;
/// `OBJECT IDENTIFIER`.
pub const OBJECT_IDENTIFIER: u8 = 0x06;
/// `SEQUENCE`.
pub const SEQUENCE: u8 = 0x30;

/// A context-specific constructed tag, `[number]` with `number` below 31.
pub const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// Reads elements one after the other; every method yields `None` for what is not DER, and moves on
/// only if it yields something.
#[derive(Debug, Clone, Copy)]
pub struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Reads `octets` from the start.
    pub fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    /// True when everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Some` when everything was read: ends a chain of reads.
    pub fn end(&self) -> Option<()> {
        self.is_empty().then_some(())
    }

    /// The tag of the next element, without reading it.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The content of the next element, which must have `tag`.
    pub fn content(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.peek()? != tag {
            return None;
        }
        let (_, content, rest) = split(self.0)?;
        self.0 = rest;
        Some(content)
    }

    /// The next element, which must have `tag`, as a reader of its content.
    pub fn nested(&mut self, tag: u8) -> Option<Self> {
        self.content(tag).map(Self)
    }

    /// The next element whole, header included; it must have `tag`.
    pub fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.peek()? != tag {
            return None;
        }
        let (element, _, rest) = split(self.0)?;
        self.0 = rest;
        Some(element)
    }

    /// The next element, a non-negative `INTEGER`: its big-endian octets without leading zeros, so
    /// that zero is empty.
    pub fn unsigned(&mut self) -> Option<&'a [u8]> {
        let mut next = *self;
        let octets = match next.content(INTEGER)? {
            [] => return None,
            [0] => &[],
            // A leading zero stands only in front of a top bit that is set, and a top bit that is set
            // without it is a negative number's.
            [0, second, ..] if *second < 0x80 => return None,
            [0, rest @ ..] => rest,
            [first, ..] if *first >= 0x80 => return None,
            octets => octets,
        };
        *self = next;
        Some(octets)
    }

    /// The content of the next element, an `OBJECT IDENTIFIER` whose subidentifiers are whole and in their shortest form
    /// (X.690 §8.19.2).
    pub fn object_identifier(&mut self) -> Option<&'a [u8]> {
        let mut next = *self;
        let content = next.content(OBJECT_IDENTIFIER)?;
        if content.last()? & 0x80 != 0 {
            return None;
        }
        let mut begins = true;
        for &octet in content {
            if begins && octet == 0x80 {
                return None;
            }
            begins = octet & 0x80 == 0;
        }
        *self = next;
        Some(content)
    }

    /// The next element, a `BIT STRING` of whole octets.
    pub fn bits(&mut self) -> Option<&'a [u8]> {
        let mut next = *self;
        let (&unused, octets) = next.content(BIT_STRING)?.split_first()?;
        if unused != 0 {
            return None;
        }
        *self = next;
        Some(octets)
    }
}

/// Writes the content of an `OBJECT IDENTIFIER` in dotted form.
pub fn write_dotted(f: &mut impl fmt::Write, oid: &[u8]) -> fmt::Result {
    let mut arc = 0u64;
    let mut first = true;
    for octet in oid {
        arc = arc << 7 | u64::from(octet & 0x7f);
        if octet & 0x80 != 0 {
            continue;
        }
        if std::mem::take(&mut first) {
            let root = (arc / 40).min(2);
            write!(f, "{root}.{}", arc - 40 * root)?;
        } else {
            write!(f, ".{arc}")?;
        }
        arc = 0;
    }
    Ok(())
}

/// Appends an element to `out`: `tag`, the length in its shortest form, and the concatenated `parts`.
pub fn push(out: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.push(tag);
    let be = len.to_be_bytes();
    let significant = be.iter().position(|&octet| octet != 0).unwrap_or(be.len() - 1);
    let length = be.get(significant..).unwrap_or_default();
    if len >= 0x80 {
        // At most eight octets of length, so that the sum cannot overflow.
        out.push(0x80 | length.len() as u8);
    }
    out.extend_from_slice(length);
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Appends a non-negative `INTEGER` of big-endian `octets`, which may have leading zeros.
pub fn push_unsigned(out: &mut Vec<u8>, octets: &[u8]) {
    let start = octets.iter().position(|&octet| octet != 0).unwrap_or(octets.len());
    let octets = octets.get(start..).unwrap_or_default();
    let sign: &[u8] = match octets.first() {
        Some(&first) if first < 0x80 => &[],
        _ => &[0],
    };
    push(out, INTEGER, &[sign, octets]);
}

/// The first element of `octets`: all of it, its content, and what follows.
fn split(octets: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&tag, rest) = octets.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let len = length.iter().fold(0, |len, &octet| len << 8 | usize::from(octet));
            // The shortest form only: no leading zero, and not for what one octet can say.
            if length.first() == Some(&0) || len < 0x80 {
                return None;
            }
            (len, rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(len)?;
    let element = octets.get(..octets.len() - after.len())?;
    Some((element, content, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_minimal_and_within_bounds() {
        for bad in [
            &[][..],
            &[0x04],
            &[0x04, 0x01],
            &[0x04, 0x80, 0x00, 0x00],
            &[0x04, 0x81, 0x01, 0xaa],
            &[0x04, 0x82, 0x00, 0x80],
            &[0x04, 0x84, 0x00, 0x00, 0x00, 0x01, 0xaa],
            &[0x04, 0xff, 0xaa],
            &[0x1f, 0x04, 0x00],
        ] {
            let tag = bad.first().copied().unwrap_or_default();
            assert_eq!(Der::new(bad).content(tag), None, "{bad:02x?}");
        }
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let mut out = Vec::new();
            push(&mut out, OCTET_STRING, &[&vec![7; len]]);
            let mut der = Der::new(&out);
            assert_eq!(der.content(OCTET_STRING).map(<[u8]>::len), Some(len));
            assert_eq!(der.end(), Some(()));
            out.pop();
            assert_eq!(Der::new(&out).content(OCTET_STRING), None);
        }
    }

    #[test]
    fn integers_are_minimal_and_not_negative() {
        let value = |octets: &[u8]| {
            let mut out = Vec::new();
            push(&mut out, INTEGER, &[octets]);
            Der::new(&out).unsigned().map(<[u8]>::to_vec)
        };
        assert_eq!(value(&[0]), Some(vec![]));
        assert_eq!(value(&[0x7f]), Some(vec![0x7f]));
        assert_eq!(value(&[0, 0x80]), Some(vec![0x80]));
        assert_eq!(value(&[]), None);
        assert_eq!(value(&[0x80]), None);
        assert_eq!(value(&[0, 0x7f]), None);
        assert_eq!(value(&[0, 0]), None);
        for octets in [&[][..], &[0], &[0, 0, 1], &[0x80], &[0x12, 0x34]] {
            let mut out = Vec::new();
            push_unsigned(&mut out, octets);
            let back = Der::new(&out).unsigned().map(<[u8]>::to_vec);
            let zeros = octets.iter().take_while(|&&octet| octet == 0).count();
            assert_eq!(back.as_deref(), Some(&octets[zeros..]));
        }
    }

    #[test]
    fn a_refused_read_does_not_move() {
        let mut der = Der::new(&[INTEGER, 1, 0x80, BIT_STRING, 2, 1, 0]);
        assert_eq!(der.unsigned(), None);
        assert_eq!(der.content(INTEGER), Some(&[0x80][..]));
        assert_eq!(der.bits(), None);
        assert_eq!(der.element(BIT_STRING), Some(&[BIT_STRING, 2, 1, 0][..]));
        assert_eq!(der.peek(), None);
    }
}
