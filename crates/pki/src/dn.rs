//! Distinguished names, compared by the rules of RFC 5280 §7.1.

use std::borrow::Cow;

use aws_lc_rs::digest::{Context, SHA256};
use ike_proto::wire::der::{Der, OBJECT_IDENTIFIER, SEQUENCE};

/// The relative distinguished names of a DER Name.
#[derive(Debug)]
pub(crate) struct Name<'a>(Vec<Vec<Attribute<'a>>>);

/// A hash that is the same for two DER Names if they match. A name that cannot be compared matches itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameHash([u8; 32]);

impl NameHash {
    //= https://www.rfc-editor.org/rfc/rfc5280#section-7.1
    //# Two distinguished names DN1 and DN2 match if they
    //# have the same number of RDNs, for each RDN in DN1 there is a matching
    //# RDN in DN2, and the matching RDNs appear in the same order in both
    //# DNs.
    pub fn of(name: &[u8]) -> Self {
        let mut hash = Context::new(&SHA256);
        match Name::read(name) {
            None => {
                hash.update(b"?");
                hash.update(name);
            }
            Some(name) => {
                for rdn in &name.0 {
                    let mut attributes: Vec<_> = rdn.iter().map(Attribute::prepared).collect();
                    attributes.sort();
                    hash.update(&[b'R', attributes.len() as u8]);
                    for parts in &attributes {
                        for part in parts {
                            hash.update(&part.len().to_be_bytes());
                            hash.update(part);
                        }
                    }
                }
            }
        }
        let mut octets = [0; 32];
        octets.copy_from_slice(hash.finish().as_ref());
        Self(octets)
    }

    pub fn octets(&self) -> &[u8; 32] {
        &self.0
    }
}

/// True for two DER Names that match (RFC 5280 §7.1).
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a == b || NameHash::of(a) == NameHash::of(b)
}

/// One attribute of a distinguished name.
#[derive(Debug)]
struct Attribute<'a> {
    /// Content of the OBJECT IDENTIFIER.
    oid: &'a [u8],
    tag: u8,
    value: &'a [u8],
}

/// The value of an attribute.
enum Value<'a> {
    Text(Cow<'a, str>),
    /// A string whose octets are not characters of its type.
    Unclear,
    NoText,
}

impl<'a> Name<'a> {
    /// Reads a DER Name; `None` if it is malformed, or has more attributes than this module compares.
    pub fn read(name: &'a [u8]) -> Option<Self> {
        let mut outer = Der::new(name);
        let mut name = outer.nested(SEQUENCE)?;
        outer.end()?;
        let mut all = Vec::new();
        while !name.is_empty() {
            let mut set = name.nested(SET)?;
            let mut rdn = Vec::new();
            while !set.is_empty() {
                let mut pair = set.nested(SEQUENCE)?;
                let oid = pair.content(OBJECT_IDENTIFIER)?;
                let tag = pair.peek()?;
                let value = pair.content(tag)?;
                pair.end()?;
                rdn.push(Attribute { oid, tag, value });
            }
            if rdn.is_empty() || rdn.len() > MAX_ATTRIBUTES || all.len() == MAX_RDNS {
                return None;
            }
            all.push(rdn);
        }
        Some(Self(all))
    }

    /// Whether this name is in the subtree of `base`; `None` if that cannot be decided for certain.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-7.1
    //# A distinguished name DN1 is within the subtree defined by the
    //# distinguished name DN2 if DN1 contains at least as many RDNs as DN2,
    //# and DN1 and DN2 are a match when trailing RDNs in DN1 are ignored.
    pub fn is_within(&self, base: &Self) -> Option<bool> {
        if self.0.len() < base.0.len() {
            return Some(false);
        }
        all(base.0.iter().zip(&self.0).map(|(base, name)| is_same_rdn(base, name)))
    }

    /// The e-mail addresses in the name: the values of its attributes emailAddress, `None` for one that is not ASCII.
    pub fn emails(&self) -> impl Iterator<Item = Option<&'a str>> {
        let attributes = self.0.iter().flatten();
        let emails = attributes.filter(|attribute| attribute.oid == EMAIL_ADDRESS);
        emails.map(|email| match email.read() {
            Value::Text(Cow::Borrowed(text)) if text.is_ascii() => Some(text),
            Value::Text(_) | Value::Unclear | Value::NoText => None,
        })
    }
}

//= https://www.rfc-editor.org/rfc/rfc5280#section-7.1
//# Two relative distinguished names
//# RDN1 and RDN2 match if they have the same number of naming attributes
//# and for each naming attribute in RDN1 there is a matching naming
//# attribute in RDN2.
fn is_same_rdn(a: &[Attribute<'_>], b: &[Attribute<'_>]) -> Option<bool> {
    if a.len() != b.len() {
        return Some(false);
    }
    all(a.iter().map(|a| any(b.iter().map(|b| a.is_same(b)))))
}

impl<'a> Attribute<'a> {
    /// Whether both are the same; `None` if that cannot be decided.
    fn is_same(&self, other: &Self) -> Option<bool> {
        if self.oid != other.oid {
            return Some(false);
        }
        if self.tag == other.tag && self.value == other.value {
            return Some(true);
        }
        match (self.read(), other.read()) {
            (Value::Text(a), Value::Text(b)) => Some(folded(&a) == folded(&b)),
            (Value::Unclear, _) | (_, Value::Unclear) => None,
            _ => Some(false),
        }
    }

    /// The type, the kind of the value and the value: the same for attributes that match.
    fn prepared(&self) -> [Cow<'a, [u8]>; 3] {
        let (kind, value) = match self.read() {
            Value::Text(text) => (vec![], Cow::Owned(folded(&text).into_bytes())),
            Value::Unclear | Value::NoText => (vec![self.tag], Cow::Borrowed(self.value)),
        };
        [Cow::Borrowed(self.oid), Cow::Owned(kind), value]
    }

    fn read(&self) -> Value<'a> {
        let text = match self.tag {
            UTF8_STRING | NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => {
                std::str::from_utf8(self.value).ok().map(Cow::Borrowed)
            }
            // Latin-1, which is what certificates use in practice.
            TELETEX_STRING => Some(self.value.iter().copied().map(char::from).collect()),
            BMP_STRING => {
                let (units, rest) = self.value.as_chunks::<2>();
                let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
                let text: Result<String, _> = char::decode_utf16(units).collect();
                text.ok().filter(|_| rest.is_empty()).map(Cow::Owned)
            }
            UNIVERSAL_STRING => {
                let (units, rest) = self.value.as_chunks::<4>();
                let units = units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
                units.collect::<Option<String>>().filter(|_| rest.is_empty()).map(Cow::Owned)
            }
            _ => return Value::NoText,
        };
        text.map_or(Value::Unclear, Value::Text)
    }
}

/// Whether all are true: `Some(false)` if one is false for certain, else `None` if one cannot be decided.
fn all(facts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(facts.map(|fact| fact.map(|fact| !fact))).map(|any| !any)
}

/// Whether one is true: `Some(true)` if one is true for certain, else `None` if one cannot be decided.
fn any(facts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(false);
    for fact in facts {
        match fact {
            Some(true) => return fact,
            None => result = None,
            Some(false) => {}
        }
    }
    result
}

/// Text as caseIgnoreMatch compares it: case is ignored, a run of spaces counts as one, and spaces at the ends do
/// not count (RFC 4518 §2.6.1).
fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Most attributes of a relative distinguished name, and most of these in a name.
const MAX_ATTRIBUTES: usize = 32;
const MAX_RDNS: usize = 64;

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const VISIBLE_STRING: u8 = 0x1a;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;
/// 1.2.840.113549.1.9.1
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

#[cfg(test)]
mod tests {
    use super::*;
    use ike_proto::wire::der;

    #[test]
    fn names_compare_without_regard_to_case_spaces_and_string_type() {
        let attribute = |tag, value| Attribute { oid: &[0x55, 4, 10], tag, value };
        let one = attribute(UTF8_STRING, b"Acme  Corp ");
        let same = |other: &Attribute<'_>| one.is_same(other);
        assert_eq!(same(&attribute(PRINTABLE_STRING, b"ACME corp")), Some(true));
        let wide = b"\0a\0c\0m\0e\0 \0C\0o\0r\0p";
        assert_eq!(same(&attribute(BMP_STRING, wide)), Some(true));
        let wider: Vec<u8> = b"Acme Corp".iter().flat_map(|octet| [0, 0, 0, *octet]).collect();
        assert_eq!(same(&attribute(UNIVERSAL_STRING, &wider)), Some(true));
        assert_eq!(same(&attribute(UTF8_STRING, b"AcmeCorp")), Some(false));
        let other = Attribute { oid: &[0x55, 4, 3], ..attribute(UTF8_STRING, b"acme corp") };
        assert_eq!(same(&other), Some(false));
        // What is no text is the same octet by octet.
        assert_eq!(attribute(4, b"A").is_same(&attribute(4, b"A")), Some(true));
        assert_eq!(attribute(4, b"A").is_same(&attribute(4, b"a")), Some(false));
    }

    /// Fault: in `NameHash::of`, hash the DER; or leave out the lengths, the order or the kind.
    #[test]
    fn names_that_match_have_one_hash() {
        let attribute = |oid: &[u8], tag, value: &[u8]| {
            let (mut pair, mut out) = (Vec::new(), Vec::new());
            der::push(&mut pair, OBJECT_IDENTIFIER, &[oid]);
            der::push(&mut pair, tag, &[value]);
            der::push(&mut out, SEQUENCE, &[&pair]);
            out
        };
        let name = |rdns: &[&[&[u8]]]| {
            let (mut sets, mut out) = (Vec::new(), Vec::new());
            rdns.iter().for_each(|rdn| der::push(&mut sets, SET, rdn));
            der::push(&mut out, SEQUENCE, &[&sets]);
            NameHash::of(&out)
        };
        let (o, cn): (&[u8], &[u8]) = (&[0x55, 4, 10], &[0x55, 4, 3]);
        let acme = attribute(o, UTF8_STRING, b"Acme  Corp");
        let other = attribute(o, PRINTABLE_STRING, b"ACME corp ");
        let (a, b) = (attribute(cn, UTF8_STRING, b"a"), attribute(cn, UTF8_STRING, b"b"));
        assert_eq!(name(&[&[&acme], &[&a]]), name(&[&[&other], &[&a]]));
        assert_eq!(name(&[&[&a, &b]]), name(&[&[&b, &a]]));
        let raw = attribute(cn, UTF8_STRING, b"a\xff");
        let all = [
            name(&[]),
            name(&[&[&acme]]),
            name(&[&[&a]]),
            name(&[&[&a], &[&b]]),
            name(&[&[&b], &[&a]]),
            name(&[&[&a, &b]]),
            name(&[&[&attribute(cn, UTF8_STRING, b"ab")]]),
            name(&[&[&attribute(cn, 4, b"a")]]),
            name(&[&[&raw]]),
            name(&[&[&attribute(cn, UTF8_STRING, b"A\xff")]]),
            NameHash::of(b"no name"),
            NameHash::of(b""),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().skip(index + 1).all(|later| later != one), "{index}");
        }
        assert_eq!(name(&[&[&raw]]), name(&[&[&raw]]));
    }

    /// Fault: in `Attribute::is_same`, compare octets if a value is no text of its type.
    #[test]
    fn a_string_that_is_no_text_may_be_any_other_string() {
        let attribute = |tag, value| Attribute { oid: &[0x55, 4, 10], tag, value };
        let one = attribute(UTF8_STRING, b"Acme");
        for (tag, value) in [
            (UTF8_STRING, &b"Acme\xff"[..]),
            (BMP_STRING, b"\0A\0c\0m\0e\0"),
            (UNIVERSAL_STRING, b"\0\0\0A\xff\xff\xff\xff"),
        ] {
            assert_eq!(one.is_same(&attribute(tag, value)), None, "{tag} {value:?}");
            assert_eq!(attribute(tag, value).is_same(&attribute(tag, value)), Some(true));
        }
        assert_eq!(all([Some(true), None].into_iter()), None);
        assert_eq!(all([None, Some(false)].into_iter()), Some(false));
        assert_eq!(any([Some(false), None].into_iter()), None);
        assert_eq!(any([None, Some(true)].into_iter()), Some(true));
    }
}
