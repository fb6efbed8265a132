//! Private keys in `[secrets]`: files with their passphrases, and keys in tokens.

use std::path::Path;

use ike_proto::crypto::Secret;
use toml::de::DeTable;

use crate::diagnostic::{ELSEWHERE, Place, Report};
use crate::host::{Files, Host, load_secret};
use crate::settings::{Holds, KeyFile, Modules, TokenKey, TokenKeyOption};
use crate::tree::{Section, join, wipe};

/// Reads the sections of `[secrets]` that are about keys in tokens. Nothing is opened yet.
pub(crate) fn read_tokens(
    s: &mut Section<'_>,
    modules: &Modules,
    files: Files<'_>,
    report: &mut Report,
) -> Vec<TokenKeyOption> {
    let mut found = Vec::new();
    for (name, value) in s.with_prefix("token") {
        if let Some(section) = s.sub(name.get_ref(), value, report) {
            found.extend(token(section, modules, files, report));
        }
    }
    found
}

/// Reads one such section that a control client gives, and wipes it.
///
/// # Errors
/// Its mistakes, as a sentence.
pub fn read_token(
    mut table: DeTable<'static>,
    modules: &Modules,
    folder: &Path,
    host: &dyn Host,
) -> Result<TokenKeyOption, String> {
    let mut report = Report::over(true);
    // Not the place of what stands in it, which tells what is missing from what is wrong.
    // Its options are the command's own, and named so.
    let section = Section::new("", Place(ELSEWHERE + 1), &table);
    let token = token(section, modules, Files { host, folder }, &mut report);
    wipe(&mut table);
    let mistakes: Vec<_> = report.finish().iter().map(ToString::to_string).collect();
    token.filter(|_| mistakes.is_empty()).ok_or_else(|| mistakes.join("; "))
}

fn token(
    mut s: Section<'_>,
    modules: &Modules,
    files: Files<'_>,
    report: &mut Report,
) -> Option<TokenKeyOption> {
    const HANDLE: &str = "the CKA_ID of the private key, in hexadecimal";
    const MODULE: &str = "a name of [charon.plugins.pkcs11.modules]";
    let (option, offset) = (s.path.clone(), s.offset);
    let handle = s.parsed("handle", HANDLE, report, hexadecimal);
    if handle.is_none() && s.place("handle") == s.offset {
        s.missing("handle", HANDLE, report);
    }
    let slot = s.number("slot", 0, u64::MAX, report);
    let module = match s.text("module", MODULE, report) {
        Some(module) => {
            let path = modules.get(module.text).cloned();
            if path.is_none() && modules.is_empty() {
                no_modules(&s, ": no such module, for", module.offset, report);
            } else if path.is_none() {
                let message = format!("`{}`: no such module", join(&s.path, "module"));
                report.expected(module.offset, message, MODULE);
            }
            path
        }
        None => {
            let only = modules.values().next().filter(|_| modules.len() == 1).cloned();
            if modules.is_empty() {
                no_modules(&s, " is missing, and", s.offset, report);
            } else if only.is_none() && s.place("module") == s.offset {
                s.missing("module", MODULE, report);
            }
            only
        }
    };
    let pin = secret_of(&mut s, ["pin", "pin_file"], "the PIN of the token's user", files, report);
    let unread = pin.is_none() && s.place("pin_file") != s.offset;
    s.finish(&[], report);
    if unread {
        return None;
    }
    let key = TokenKey { module: module?, slot, handle: handle? };
    Some(TokenKeyOption { key, pin, option, place: offset })
}

/// There is nothing that could reach a token.
fn no_modules(s: &Section<'_>, how: &str, offset: Place, report: &mut Report) {
    let option = join(&s.path, "module");
    let message = format!("`{option}`{how} no PKCS#11 module is configured");
    let expected = "a name of [charon.plugins.pkcs11.modules], and its `path` there";
    report.expected(offset, message, expected);
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return None;
    }
    let octet = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` takes a sign.
        pair.bytes().all(|c| c.is_ascii_hexdigit()).then(|| u8::from_str_radix(pair, 16).ok())?
    };
    text.chunks(2).map(octet).collect()
}

/// Reads the sections of `[secrets]` that are about private keys. Nothing is loaded yet.
pub(crate) fn read_files(
    s: &mut Section<'_>,
    files: Files<'_>,
    report: &mut Report,
) -> Vec<KeyFile> {
    let mut found = Vec::new();
    for kind in KeyFile::FOLDERS {
        for (name, value) in s.with_prefix(kind.0) {
            if let Some(section) = s.sub(name.get_ref(), value, report) {
                found.extend(key_file(kind, section, files, report));
            }
        }
    }
    found
}

fn key_file(
    (folder, holds): (&'static str, Holds),
    mut s: Section<'_>,
    files: Files<'_>,
    report: &mut Report,
) -> Option<KeyFile> {
    let what = format!("a file in {}/ beside the configuration file, or an absolute path", folder);
    let file = s.text("file", &what, report);
    let passphrase =
        secret_of(&mut s, ["secret", "secret_file"], "the passphrase of the file", files, report);
    if file.is_none() && s.place("file") == s.offset {
        s.missing("file", what, report);
    }
    let option = join(&s.path, "file");
    s.finish(&[("handle", None), ("slot", None), ("module", None)], report);
    let file = file?;
    let path = match files.resolve_in(&files.folder.join(folder), file.text) {
        Ok(path) => path,
        Err(why) => {
            report.add(file.offset, format!("`{option}`: {why}"));
            return None;
        }
    };
    let (shown, place) = (file.text.to_owned(), file.offset);
    Some(KeyFile { folder, holds, path, shown, option, place, passphrase })
}

/// The option `name`, which is taken as it stands, or the content of the file that `in_file` names.
fn secret_of(
    s: &mut Section<'_>,
    [name, in_file]: [&'static str; 2],
    what: &str,
    files: Files<'_>,
    report: &mut Report,
) -> Option<Secret> {
    let given = s.text(name, what, report);
    let file = s.text(in_file, "the path of a file", report);
    let option = join(&s.path, in_file);
    if let Some(given) = given {
        if let Some(file) = file {
            let message = format!("`{option}` stands beside `{name}`");
            report.expected(file.offset, message, "one of the two");
        }
        return Some(Secret::copy_from(given.text.as_bytes()));
    }
    let file = file?;
    match load_secret(files, file.text, LONGEST) {
        Ok(content) => Some(Secret::copy_from(&content)),
        Err(why) => {
            report.add(file.offset, format!("`{option}`: {why}"));
            None
        }
    }
}

/// Octets of a file with a passphrase.
const LONGEST: usize = 4096;
