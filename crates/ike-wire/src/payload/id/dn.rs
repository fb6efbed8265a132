//! Distinguished names: between strongSwan's string form and DER, and compared.
//!
//! The name is a SEQUENCE of relative distinguished names, each a SET of attributes (RFC 5280
//! §4.1.2.4). Nothing here trusts the octets: a name that is not well-formed is not printed as a name
//! and equals nothing.

use std::borrow::Cow;
use std::fmt;

use crate::der::{self, Der, OBJECT_IDENTIFIER, SEQUENCE};

/// Why a string is not a distinguished name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnError {
    /// No `=` between a type and its value.
    NoValue,
    /// A type that is neither a known keyword nor an object identifier.
    UnknownType,
    /// A value without characters.
    EmptyValue,
    /// A `\` or `#` that nothing sensible follows, or octets that are not text.
    Escape,
    /// More attributes than `MAX_ATTRIBUTES` or a value over `MAX_VALUE` octets.
    TooLong,
}

impl fmt::Display for DnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoValue => "distinguished name: expected `TYPE=value`",
            Self::UnknownType => "distinguished name with an attribute type that is not known",
            Self::EmptyValue => "distinguished name with an empty value",
            Self::Escape => "distinguished name with a wrong escape",
            Self::TooLong => "distinguished name that is too long",
        })
    }
}

/// One attribute of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attribute<'a> {
    /// True for the first attribute of a relative distinguished name.
    first: bool,
    /// Content of the OBJECT IDENTIFIER.
    oid: &'a [u8],
    /// Tag and content of the value.
    tag: u8,
    value: &'a [u8],
}

/// The DER encoding of `text`: `C=CH, O=strongSwan, CN=moon` or `/C=CH/O=strongSwan/CN=moon`.
///
/// `+` joins the attributes of one relative distinguished name. In a value, `\` takes the next
/// character literally or gives an octet as two hexadecimal digits; a value that begins with `#` is
/// the whole DER encoding in hexadecimal (RFC 4514 §2.4).
pub(super) fn encode(text: &str) -> Result<Vec<u8>, DnError> {
    let (text, separator) = match text.strip_prefix('/') {
        Some(rest) => (rest, '/'),
        None => (text, ','),
    };
    let mut sets: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut joins = false;
    let mut rest = Some(text);
    while let Some(text) = rest {
        if sets.iter().map(Vec::len).sum::<usize>() >= MAX_ATTRIBUTES {
            return Err(DnError::TooLong);
        }
        let (item, end, after) = split(text, separator);
        let attribute = attribute(item)?;
        match sets.last_mut() {
            Some(set) if joins => set.push(attribute),
            _ => sets.push(vec![attribute]),
        }
        joins = end == Some('+');
        rest = end.map(|_| after);
    }
    let sets: Vec<u8> = sets
        .into_iter()
        .flat_map(|mut set| {
            set.sort(); // DER: SET OF is ordered by encoding (X.690 §11.6).
            tlv(SET, &set.concat())
        })
        .collect();
    Ok(tlv(SEQUENCE, &sets))
}

/// Prints `der` so that [`encode`] takes it back; `None` if it is not a well-formed, non-empty name.
/// Only printable ASCII comes out, and no character that a shell or a log line gives a meaning.
pub(super) fn display(der: &[u8], f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
    let attributes = attributes(der).filter(|attributes| !attributes.is_empty())?;
    Some(attributes.iter().enumerate().try_for_each(|(index, attribute)| {
        match (index, attribute.first) {
            (0, _) => {}
            (_, true) => f.write_str(", ")?,
            (_, false) => f.write_str("+")?,
        }
        match KEYWORDS.iter().find(|(_, oid, _)| *oid == attribute.oid) {
            Some((keyword, ..)) => f.write_str(keyword)?,
            None => der::write_dotted(f, attribute.oid)?,
        }
        f.write_str("=")?;
        display_value(f, attribute)
    }))
}

/// True if both are the same name: as many relative distinguished names in the same order, with
/// values that are the same text. String types do not matter, ASCII case does not either (RFC 5280
/// §7.1); values that are not text are the same octet by octet.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    compare(a, b, false)
}

/// As [`equal`], and a value `*` in `pattern` stands for every value of its type.
pub(super) fn covers(pattern: &[u8], name: &[u8]) -> bool {
    compare(pattern, name, true)
}

/// True if a value is `*`.
pub(super) fn has_wildcard(der: &[u8]) -> bool {
    attributes(der).is_some_and(|attributes| attributes.iter().any(is_wildcard))
}

fn compare(pattern: &[u8], name: &[u8], wildcards: bool) -> bool {
    let (Some(pattern), Some(name)) = (attributes(pattern), attributes(name)) else {
        return false;
    };
    pattern.len() == name.len()
        && pattern.iter().zip(&name).all(|(pattern, name)| {
            pattern.first == name.first
                && pattern.oid == name.oid
                && (wildcards && is_wildcard(pattern) || same_value(pattern, name))
        })
}

fn is_wildcard(attribute: &Attribute<'_>) -> bool {
    attribute.text().is_some_and(|text| text == "*")
}

fn same_value(a: &Attribute<'_>, b: &Attribute<'_>) -> bool {
    match (a.text(), b.text()) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(&b),
        (None, None) => a.tag == b.tag && a.value == b.value,
        _ => false,
    }
}

impl<'a> Attribute<'a> {
    /// The value as text, if its type is a string type whose characters are beyond doubt.
    fn text(&self) -> Option<Cow<'a, str>> {
        match self.tag {
            UTF8_STRING => std::str::from_utf8(self.value).ok().map(Cow::Borrowed),
            PRINTABLE_STRING | IA5_STRING | NUMERIC_STRING | VISIBLE_STRING => {
                let ascii = self.value.is_ascii();
                ascii.then(|| std::str::from_utf8(self.value).ok()).flatten().map(Cow::Borrowed)
            }
            BMP_STRING => {
                let units = self.value.chunks_exact(2);
                let whole = units.remainder().is_empty();
                let units = units.map(|unit| unit.iter().fold(0, |u, o| u << 8 | u16::from(*o)));
                let text: Result<String, _> = char::decode_utf16(units).collect();
                text.ok().filter(|_| whole).map(Cow::Owned)
            }
            _ => None,
        }
    }
}

/// All attributes of a name; `None` if it is not exactly one well-formed name.
fn attributes(der: &[u8]) -> Option<Vec<Attribute<'_>>> {
    let mut attributes = Vec::new();
    let mut outer = Der::new(der);
    let mut name = outer.nested(SEQUENCE)?;
    outer.end()?;
    while !name.is_empty() {
        let mut set = name.nested(SET)?;
        let mut first = true;
        while first || !set.is_empty() {
            let mut pair = set.nested(SEQUENCE)?;
            let oid = pair.content(OBJECT_IDENTIFIER)?;
            let tag = pair.peek()?;
            let value = pair.content(tag)?;
            pair.end()?;
            if attributes.len() == MAX_ATTRIBUTES {
                return None;
            }
            attributes.push(Attribute { first, oid, tag, value });
            first = false;
        }
    }
    Some(attributes)
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 4);
    der::push(&mut out, tag, &[content]);
    out
}

/// The first attribute of `text`, the character that ends it, and the rest.
fn split(text: &str, separator: char) -> (&str, Option<char>, &str) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == separator || c == '+' {
            return (&text[..at], Some(c), &text[at + 1..]);
        }
    }
    (text, None, "")
}

/// One `TYPE=value` as an AttributeTypeAndValue.
fn attribute(item: &str) -> Result<Vec<u8>, DnError> {
    let (keyword, value) = item.split_once('=').ok_or(DnError::NoValue)?;
    let keyword = keyword.trim();
    let known = KEYWORDS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(keyword));
    let (oid, kind) = match known {
        Some((_, oid, kind)) => (oid.to_vec(), *kind),
        None => (parse_dotted(keyword).ok_or(DnError::UnknownType)?, Kind::Directory),
    };
    let value = trim(value);
    let value = match value.strip_prefix('#') {
        Some(digits) => der_value(digits).ok_or(DnError::Escape)?,
        None => string(unescape(value)?, kind)?,
    };
    if value.len() > MAX_VALUE {
        return Err(DnError::TooLong);
    }
    Ok(tlv(SEQUENCE, &[tlv(OBJECT_IDENTIFIER, &oid), value].concat()))
}

/// Without the spaces around; one that `\` escapes stays.
fn trim(value: &str) -> &str {
    let value = value.trim_start();
    let trimmed = value.trim_end();
    let escapes = trimmed.bytes().rev().take_while(|c| *c == b'\\').count();
    if escapes % 2 == 1 && trimmed.len() < value.len() { &value[..=trimmed.len()] } else { trimmed }
}

fn unescape(value: &str) -> Result<String, DnError> {
    let mut octets = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(c) = rest.next() {
        if c != b'\\' {
            octets.push(c);
            continue;
        }
        let next = rest.next().ok_or(DnError::Escape)?;
        match digit(next) {
            Some(high) => {
                let low = rest.next().and_then(digit).ok_or(DnError::Escape)?;
                octets.push(high << 4 | low);
            }
            None => octets.push(next),
        }
    }
    String::from_utf8(octets).map_err(|_| DnError::Escape)
}

fn digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn string(text: String, kind: Kind) -> Result<Vec<u8>, DnError> {
    if text.is_empty() {
        return Err(DnError::EmptyValue);
    }
    let tag = match kind {
        Kind::Ia5 if text.is_ascii() => IA5_STRING,
        _ if text.bytes().all(is_printable_string) => PRINTABLE_STRING,
        _ => UTF8_STRING,
    };
    Ok(tlv(tag, text.as_bytes()))
}

/// The character set of PrintableString (X.680 §41.4).
fn is_printable_string(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&c)
}

/// One whole DER value from hexadecimal digits.
fn der_value(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.bytes().map(digit).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    let even = pairs.remainder().is_empty();
    let value: Vec<u8> = pairs.map(|pair| pair.iter().fold(0, |o, d| o << 4 | d)).collect();
    let mut r = Der::new(&value);
    let one = r.peek().is_some_and(|tag| r.content(tag).is_some() && r.is_empty());
    (even && one).then_some(value)
}

fn parse_dotted(text: &str) -> Option<Vec<u8>> {
    let arcs: Vec<u32> =
        text.split('.').map(|arc| arc.parse().ok()).collect::<Option<Vec<u32>>>()?;
    let (&[root, second], rest) = arcs.split_first_chunk()?;
    if root > 2 || root < 2 && second > 39 {
        return None;
    }
    let first = second.checked_add(root * 40)?;
    let mut oid = Vec::new();
    for arc in std::iter::once(first).chain(rest.iter().copied()) {
        let groups = (32 - arc.leading_zeros()).div_ceil(7).max(1);
        for group in (0..groups).rev() {
            let more = if group > 0 { 0x80 } else { 0 };
            oid.push((arc >> (7 * group) & 0x7f) as u8 | more);
        }
    }
    Some(oid)
}

fn display_value(f: &mut fmt::Formatter<'_>, attribute: &Attribute<'_>) -> fmt::Result {
    let Some(text) = attribute.text().filter(|text| !text.is_empty()) else {
        f.write_str("#")?;
        let der = tlv(attribute.tag, attribute.value);
        return der.iter().try_for_each(|octet| write!(f, "{octet:02x}"));
    };
    let last = text.len() - 1;
    text.bytes().enumerate().try_for_each(|(at, c)| match c {
        b' ' if at == 0 || at == last => write!(f, "\\{c:02x}"),
        b'#' if at == 0 => write!(f, "\\{c:02x}"),
        b',' | b'+' | b'/' | b'\\' | b'"' | b'\'' | b'`' | b'$' | b';' | b'<' | b'>' | b'=' => {
            write!(f, "\\{c:02x}")
        }
        0x20..=0x7e => write!(f, "{}", char::from(c)),
        _ => write!(f, "\\{c:02x}"),
    })
}

/// String type a keyword's values have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// PrintableString where the characters allow, else UTF8String.
    Directory,
    /// IA5String.
    Ia5,
}

/// Most attributes of a name.
const MAX_ATTRIBUTES: usize = 32;
/// Longest value, in octets of DER.
const MAX_VALUE: usize = 512;

const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const VISIBLE_STRING: u8 = 0x1a;
const BMP_STRING: u8 = 0x1e;
const SET: u8 = 0x31;

/// Keywords, the one that is printed first, with their object identifiers.
const KEYWORDS: &[(&str, &[u8], Kind)] = &[
    ("CN", &[0x55, 4, 3], Kind::Directory),
    ("S", &[0x55, 4, 4], Kind::Directory),
    ("serialNumber", &[0x55, 4, 5], Kind::Directory),
    ("SN", &[0x55, 4, 5], Kind::Directory),
    ("C", &[0x55, 4, 6], Kind::Directory),
    ("L", &[0x55, 4, 7], Kind::Directory),
    ("ST", &[0x55, 4, 8], Kind::Directory),
    ("STREET", &[0x55, 4, 9], Kind::Directory),
    ("O", &[0x55, 4, 10], Kind::Directory),
    ("OU", &[0x55, 4, 11], Kind::Directory),
    ("T", &[0x55, 4, 12], Kind::Directory),
    ("D", &[0x55, 4, 13], Kind::Directory),
    ("postalCode", &[0x55, 4, 17], Kind::Directory),
    ("N", &[0x55, 4, 41], Kind::Directory),
    ("G", &[0x55, 4, 42], Kind::Directory),
    ("I", &[0x55, 4, 43], Kind::Directory),
    ("dnQualifier", &[0x55, 4, 46], Kind::Directory),
    ("dmdName", &[0x55, 4, 54], Kind::Directory),
    ("pseudonym", &[0x55, 4, 65], Kind::Directory),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], Kind::Directory),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], Kind::Ia5),
    ("E", EMAIL, Kind::Ia5),
    ("Email", EMAIL, Kind::Ia5),
    ("emailAddress", EMAIL, Kind::Ia5),
    ("UN", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2], Kind::Ia5),
    ("unstructuredName", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2], Kind::Ia5),
    ("UA", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 8], Kind::Directory),
    ("EN", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 3, 1, 3], Kind::Directory),
    ("employeeNumber", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 3, 1, 3], Kind::Directory),
];

const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

#[cfg(test)]
mod tests;
