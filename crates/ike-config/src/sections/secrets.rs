//! `[secrets]`: pre-shared keys and post-quantum ones here, private keys in `keys.rs`.

use std::sync::Arc;

use ike_proto::config::{PostQuantumKey, PpkId, PreSharedKey};
use ike_proto::crypto::Secret;
use zeroize::Zeroizing;

use super::values;
use super::{eap, keys};
use crate::diagnostic::{Place, Report};
use crate::host::{Files, load_secret};
use crate::settings::Settings;
use crate::tree::{Section, join, list};

/// Secrets of swanctl.conf(5) that are of no use here yet.
const UNSUPPORTED: [&str; 1] = ["ntlm"];

/// What a secret looks like, for messages.
const SECRET: &str = "a key: text, \"0x\" and hexadecimal digits, or \"0s\" and base64";

/// The sections there are, for messages.
const KINDS: &str = "[secrets.ike-<suffix>] for pre-shared keys, [secrets.ppk-<suffix>] for \
                     post-quantum ones, [secrets.private-<suffix>] for private keys";

/// Octets a pre-shared key may have at most.
const LONGEST: usize = 4096;

/// The longest file with one: as text it may have two digits for an octet.
const LONGEST_FILE: usize = 4 * LONGEST;

/// Octets a PPK identifier may have at most.
const LONGEST_PPK_ID: usize = 255;

/// Reads all secrets into `all`, and the names of files with private keys.
pub(crate) fn read(mut s: Section<'_>, files: Files<'_>, all: &mut Settings, report: &mut Report) {
    for (name, value) in s.with_prefix("ppk") {
        if let Some(section) = s.sub(name.get_ref(), value, report)
            && let Some(key) = ppk(section, files, report)
        {
            all.endpoint.ppks.push(Arc::new(key));
        }
    }
    for (name, value) in s.with_prefix("ike") {
        if let Some(section) = s.sub(name.get_ref(), value, report)
            && let Some(key) = key(section, files, report)
        {
            all.endpoint.secrets.push(Arc::new(key));
        }
    }
    all.eap.secrets = eap::secrets(&mut s, files, report);
    all.key_files = keys::read_files(&mut s, files, report);
    all.tokens = keys::read_tokens(&mut s, &all.modules, files, report);
    // Common words for secrets that are no names of sections.
    for (name, _) in s.with_prefix("psk") {
        let message = format!("unknown section `{}`", join(&s.path, name.get_ref()));
        report.expected(Place::of(name), message, KINDS);
    }
    for kind in UNSUPPORTED {
        for (name, _) in s.with_prefix(kind) {
            let message = format!("`{}` is not supported yet", join(&s.path, name.get_ref()));
            report.expected(
                Place::of(name),
                message,
                "[secrets.ike-<suffix>] for pre-shared keys, [secrets.private-<suffix>] for private ones",
            );
        }
    }
    s.finish(&[], report);
}

/// A PPK and its identifiers, of which it needs one.
fn ppk(mut s: Section<'_>, files: Files<'_>, report: &mut Report) -> Option<PostQuantumKey> {
    let mut ids = Vec::new();
    for (name, value) in s.with_prefix("id") {
        let path = join(&s.path, name.get_ref());
        for item in list(&path, value, values::PPK_ID, report).unwrap_or_default() {
            let id = values::identity(item, &path, report).map(|id| PpkId::new(id.data));
            match id {
                Some(id) if id.octets().len() > LONGEST_PPK_ID => {
                    let message = format!("`{path}` is longer than {LONGEST_PPK_ID} octets");
                    report.add(item.offset, message);
                }
                id => ids.extend(id),
            }
        }
    }
    if ids.is_empty() {
        s.missing("id", values::PPK_ID, report);
    }
    let secret = secret(&mut s, files, report);
    s.finish(&[], report);
    Some(PostQuantumKey { ids, secret: secret? })
}

fn key(mut s: Section<'_>, files: Files<'_>, report: &mut Report) -> Option<PreSharedKey> {
    let mut ids = Vec::new();
    let mut any = false;
    for (name, value) in s.with_prefix("id") {
        let path = join(&s.path, name.get_ref());
        for item in list(&path, value, values::IDENTITY, report).unwrap_or_default() {
            if item.text == "%any" {
                any = true;
            } else {
                ids.extend(values::identity(item, &path, report));
            }
        }
    }
    if any {
        ids.clear();
    }
    let secret = secret(&mut s, files, report);
    s.finish(&[], report);
    Some(PreSharedKey { ids, secret: secret? })
}

pub(crate) fn secret(s: &mut Section<'_>, files: Files<'_>, report: &mut Report) -> Option<Secret> {
    let given = s.text("secret", SECRET, report);
    let file = s.text("secret_file", "the path of a file", report);
    let path = join(&s.path, "secret");
    let octets = match (given, file) {
        (Some(_), Some(file)) => {
            let message = format!("`{}_file` stands beside `secret`", path);
            report.expected(file.offset, message, "one of the two");
            return None;
        }
        (None, None) => {
            if s.place("secret") == s.offset && s.place("secret_file") == s.offset {
                s.missing("secret", format!("{SECRET}; or `secret_file`"), report);
            }
            return None;
        }
        (Some(text), None) => match decode(text.text) {
            Ok(octets) => octets,
            Err(why) => {
                report.expected(text.offset, format!("`{path}` {why}"), SECRET);
                return None;
            }
        },
        (None, Some(file)) => {
            let octets = load_secret(files, file.text, LONGEST_FILE).and_then(|content| {
                let text =
                    std::str::from_utf8(&content).map_err(|_| "the file is not UTF-8 text")?;
                decode(text).map_err(|why| format!("the content of the file {why}"))
            });
            match octets {
                Ok(octets) => octets,
                Err(why) => {
                    report.add(file.offset, format!("`{path}_file`: {why}"));
                    return None;
                }
            }
        }
    };
    Some(Secret::copy_from(&octets))
}

/// The octets of a secret. The error names the fault and contains no part of the secret.
fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    let octets = match text.get(..2) {
        Some("0x" | "0X") => hex(text.get(2..).unwrap_or_default()).ok_or("is not hexadecimal")?,
        Some("0s" | "0S") => base64(text.get(2..).unwrap_or_default()).ok_or("is not base64")?,
        _ => Zeroizing::new(text.as_bytes().to_vec()),
    };
    match octets.len() {
        0 => Err("is empty"),
        n if n > LONGEST => Err("is longer than 4096 octets"),
        _ => Ok(octets),
    }
}

/// The octets of so many pairs of digits.
pub fn hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut octets = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.as_bytes().chunks(2) {
        let [high, low] = pair else { return None };
        let digit = |c: u8| char::from(c).to_digit(16);
        octets.push(u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?);
    }
    Some(octets)
}

/// RFC 4648 §4; padding may be left out.
fn base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_end_matches('=');
    let mut octets = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for &c in group {
            let value = match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let whole = match group.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bits <<= 6 * (4 - group.len());
        octets.extend(bits.to_be_bytes().into_iter().skip(1).take(whole));
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let table: [(&str, Result<&[u8], &str>); 14] = [
            ("plain text", Ok(b"plain text")),
            ("0x00ff10", Ok(&[0, 255, 16])),
            ("0xfF", Ok(&[255])),
            ("0x123", Err("is not hexadecimal")),
            ("0xzz", Err("is not hexadecimal")),
            ("0x", Err("is empty")),
            ("0sAAEC", Ok(&[0, 1, 2])),
            ("0sAAE=", Ok(&[0, 1])),
            ("0sAA", Ok(&[0])),
            ("0sA", Err("is not base64")),
            ("0s!!!!", Err("is not base64")),
            ("0s", Err("is empty")),
            ("", Err("is empty")),
            ("ü", Ok("ü".as_bytes())),
        ];
        for (text, expected) in table {
            let decoded = decode(text);
            assert_eq!(
                decoded.as_ref().map(|octets| octets.as_slice()),
                expected.as_ref().copied(),
                "{text:?}"
            );
        }
        assert!(decode(&"x".repeat(4097)).is_err());
    }
}
