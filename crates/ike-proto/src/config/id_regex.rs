//! Regular expressions as identities: `id = "fqdn:^vpn[0-9]+\.example\.org$"` in a `remote` section of swanctl.conf(5).
//!
//! They are extended regular expressions of POSIX. An expression is translated to the syntax of the crate that
//! matches, in time linear in the text. Syntax that POSIX leaves undefined is refused, so that no expression
//! admits an identity that another implementation would refuse.

use std::fmt;
use std::iter::Peekable;
use std::str::Bytes;

use regex::bytes::{Regex, RegexBuilder};

use crate::wire::payload::IdData;
use crate::wire::registry::IdType;

/// A regular expression for identities of one type. It is matched, without regard to case, against the text of a
/// peer's identity.
#[derive(Clone)]
pub struct IdRegex {
    kind: IdType,
    pattern: String,
    regex: Regex,
}

/// Why a string is no regular expression for identities.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdRegexError {
    /// No type before it, or one whose identities have no text.
    Type,
    /// It does not begin with `^` and end with `$`.
    Anchors,
    /// Over 1,024 octets, or it would take too much memory.
    TooLong,
    /// The mistake.
    Syntax(String),
}

impl fmt::Display for IdRegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type => {
                f.write_str("a regular expression follows `email:`, `fqdn:` or `asn1dn:`")
            }
            Self::Anchors => f.write_str("a regular expression begins with `^` and ends with `$`"),
            Self::TooLong => f.write_str("a regular expression that is too long"),
            Self::Syntax(what) => write!(f, "no regular expression: {what}"),
        }
    }
}

impl std::error::Error for IdRegexError {}

impl IdRegex {
    /// True if `text` is meant as regular expression: it begins with `^`, after the type if there is one.
    pub fn is_meant_by(text: &str) -> bool {
        text.split_once(':').map_or(text, |(_, rest)| rest).starts_with('^')
    }

    /// Takes `type:^…$`, the type being `rfc822`, `email`, `userfqdn`, `fqdn`, `dns` or `asn1dn`.
    ///
    /// # Errors
    /// [`IdRegexError`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, IdRegexError> {
        let (prefix, pattern) = text.split_once(':').ok_or(IdRegexError::Type)?;
        let known = TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(prefix));
        let kind = known.map(|(_, kind)| *kind).ok_or(IdRegexError::Type)?;
        if !pattern.starts_with('^') || !pattern.ends_with('$') {
            return Err(IdRegexError::Anchors);
        }
        if pattern.len() > MAX_PATTERN {
            return Err(IdRegexError::TooLong);
        }
        let translated =
            translate(pattern).map_err(|what| IdRegexError::Syntax(what.to_owned()))?;
        let regex = RegexBuilder::new(&translated)
            .unicode(false)
            .case_insensitive(true)
            .dot_matches_new_line(true)
            .size_limit(MAX_COMPILED)
            .build()
            .map_err(explain)?;
        Ok(Self { kind, pattern: pattern.to_owned(), regex })
    }

    /// The expression without its type.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// True if `id` has the type and its text matches. The text of a name is the name, with `?` for octets that
    /// are not printable; that of a distinguished name is its displayed form. Texts of more than 510 octets match
    /// nothing, as in charon.
    pub fn admits(&self, id: &IdData) -> bool {
        if id.kind != self.kind || id.data.is_empty() {
            return false;
        }
        let text: Vec<u8> = match id.kind {
            IdType::DER_ASN1_DN => id.distinguished_name().into_bytes(),
            _ => {
                let printed = |octet: &u8| if matches!(octet, b' '..=b'~') { *octet } else { b'?' };
                id.data.iter().map(printed).collect()
            }
        };
        (1..=MAX_TEXT).contains(&text.len()) && self.regex.is_match(&text)
    }
}

impl fmt::Debug for IdRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.kind, self.pattern)
    }
}

impl PartialEq for IdRegex {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.pattern) == (other.kind, &other.pattern)
    }
}

impl Eq for IdRegex {}

/// The last line of the crate's message. The lines before it show the crate's own syntax.
fn explain(why: regex::Error) -> IdRegexError {
    match why {
        regex::Error::CompiledTooBig(_) => IdRegexError::TooLong,
        why => {
            let all = why.to_string();
            let last = all.lines().last().unwrap_or_default();
            IdRegexError::Syntax(last.trim_start_matches("error: ").to_owned())
        }
    }
}

/// The octets of an expression that are left.
type Rest<'a> = Peekable<Bytes<'a>>;

/// `ere` in the syntax of the crate `regex` (POSIX.1-2017 §9.4).
fn translate(ere: &str) -> Result<String, &'static str> {
    if !ere.bytes().all(|octet| matches!(octet, b' '..=b'~')) {
        return Err("only printable ASCII is taken");
    }
    let mut out = String::with_capacity(2 * ere.len());
    let mut rest = ere.bytes().peekable();
    // Whether a repetition may follow.
    let mut repeatable = false;
    while let Some(octet) = rest.next() {
        let repeats = matches!(octet, b'*' | b'+' | b'?' | b'{');
        if repeats && !repeatable {
            return Err("a repetition of nothing, or of a repetition");
        }
        repeatable = !repeats && !matches!(octet, b'(' | b'|' | b'^' | b'$');
        match octet {
            b'\\' => escape(&mut rest, &mut out)?,
            b'[' => bracket(&mut rest, &mut out)?,
            b'{' => interval(&mut rest, &mut out)?,
            // Not special where POSIX has them, and no harm in saying so.
            b']' | b'}' => {
                out.push('\\');
                out.push(char::from(octet));
            }
            _ => out.push(char::from(octet)),
        }
    }
    Ok(out)
}

/// The part after a `\`.
fn escape(rest: &mut Rest<'_>, out: &mut String) -> Result<(), &'static str> {
    let octet = rest.next().ok_or("a `\\` at the end")?;
    match octet {
        // As glibc has them.
        b'w' | b'W' | b's' | b'S' | b'b' | b'B' => {}
        b'0'..=b'9' => return Err("back-references are not supported"),
        b'<' | b'>' | b'`' | b'\'' => return Err("this `\\` is not supported"),
        octet if octet.is_ascii_punctuation() => {}
        b' ' => {
            out.push(' ');
            return Ok(());
        }
        _ => return Err("a `\\` before a character that needs none"),
    }
    out.push('\\');
    out.push(char::from(octet));
    Ok(())
}

/// The part after a `{`: `n}`, `n,}` or `n,m}`.
fn interval(rest: &mut Rest<'_>, out: &mut String) -> Result<(), &'static str> {
    out.push('{');
    loop {
        match rest.next() {
            Some(octet @ (b'0'..=b'9' | b',')) => out.push(char::from(octet)),
            Some(b'}') => break,
            _ => return Err("`{` without a number of times and `}`"),
        }
    }
    out.push('}');
    Ok(())
}

/// The part after a `[` (§9.3.5), in which `\` is an ordinary character.
fn bracket(rest: &mut Rest<'_>, out: &mut String) -> Result<(), &'static str> {
    out.push('[');
    if rest.next_if_eq(&b'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let octet = rest.next().ok_or(UNCLOSED)?;
        if octet == b']' && !first {
            break;
        }
        first = false;
        if octet == b'[' {
            match rest.peek() {
                Some(b':') => {
                    class(rest, out)?;
                    continue;
                }
                Some(b'.' | b'=') => return Err("`[.` and `[=` are not supported"),
                _ => {}
            }
        }
        push(octet, out);
        let mut after = rest.clone();
        if after.next() == Some(b'-') && after.next().is_some_and(|octet| octet != b']') {
            rest.next();
            let end = rest.next().ok_or(UNCLOSED)?;
            if end == b'[' && matches!(rest.peek(), Some(b'.' | b'=' | b':')) {
                return Err("a range ends with one character");
            }
            out.push('-');
            push(end, out);
        }
    }
    out.push(']');
    Ok(())
}

/// The part after a `[` in a bracket that begins with `:`.
fn class(rest: &mut Rest<'_>, out: &mut String) -> Result<(), &'static str> {
    rest.next();
    let mut name = String::new();
    while let Some(octet) = rest.next_if(u8::is_ascii_lowercase) {
        name.push(char::from(octet));
    }
    let ends = rest.next() == Some(b':') && rest.next() == Some(b']');
    if !ends || !CLASSES.contains(&&*name) {
        return Err("`[:` without the name of a class and `:]`");
    }
    out.push_str("[:");
    out.push_str(&name);
    out.push_str(":]");
    Ok(())
}

/// Nothing that means anything to the crate.
fn push(octet: u8, out: &mut String) {
    out.push_str(&format!("\\x{octet:02x}"));
}

const UNCLOSED: &str = "a `[` without its `]`";

const TYPES: &[(&str, IdType)] = &[
    ("rfc822", IdType::RFC822_ADDR),
    ("email", IdType::RFC822_ADDR),
    ("userfqdn", IdType::RFC822_ADDR),
    ("fqdn", IdType::FQDN),
    ("dns", IdType::FQDN),
    ("asn1dn", IdType::DER_ASN1_DN),
];

const CLASSES: &[&str] = &[
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// Longest expression, in octets.
const MAX_PATTERN: usize = 1024;
/// The most octets of a compiled expression.
const MAX_COMPILED: usize = 256 * 1024;
/// Longest text that is matched, in octets: charon prints identities into a buffer of 512.
const MAX_TEXT: usize = 510;

#[cfg(test)]
mod tests;
