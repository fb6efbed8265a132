//! Private keys: the folders they are in, and the `[secrets]` that open them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pki::Certificate;
use ike_proto::crypto::Secret;
use toml::de::DeTable;

use super::folder::Entry;
use super::{Credentials, LoadedKey};
use crate::config::diagnostic::{ELSEWHERE, Report};
use crate::config::section::{Section, join};
use crate::files::{load_file, paths};
use crate::signer::{Holds, KeySource, LoadRequest, Loaded, Refused, TokenKey};

/// A private key that `[secrets]` names: `secrets.private<suffix>` and the like.
#[derive(Debug)]
pub(crate) struct KeyFile {
    kind: &'static Kind,
    path: PathBuf,
    /// The file as the configuration names it.
    shown: String,
    /// Name of the option, for messages.
    option: String,
    offset: usize,
    passphrase: Option<Secret>,
}

/// A kind of file, with its folder, which is also the beginning of its sections' names.
#[derive(Debug)]
struct Kind {
    folder: &'static str,
    holds: Holds,
}

const KINDS: [Kind; 5] = [
    Kind { folder: "private", holds: Holds::AnyKey },
    Kind { folder: "rsa", holds: Holds::Rsa },
    Kind { folder: "ecdsa", holds: Holds::Ecdsa },
    Kind { folder: "pkcs8", holds: Holds::AnyKey },
    Kind { folder: "pkcs12", holds: Holds::Pkcs12 },
];

/// A private key in a token that `[secrets]` names: `secrets.token<suffix>`.
#[derive(Debug)]
pub(crate) struct KeyInToken {
    key: TokenKey,
    pin: Option<Secret>,
    /// Name of the section, for messages.
    option: String,
    offset: usize,
}

/// Where PKCS#11 modules are, by the names they have in `[charon.plugins.pkcs11.modules]`.
pub(crate) type Modules = BTreeMap<String, PathBuf>;

/// Reads the sections of `[secrets]` that are about keys in tokens. Nothing is opened yet.
pub(crate) fn read_tokens(
    s: &mut Section<'_>,
    modules: &Modules,
    folder: &Path,
    report: &mut Report<'_>,
) -> Vec<KeyInToken> {
    let mut found = Vec::new();
    for (name, value) in s.with_prefix("token") {
        if let Some(section) = s.sub(name.get_ref(), value, report) {
            found.extend(token(section, modules, folder, report));
        }
    }
    found
}

/// Reads one such section that a control client gives, and opens the key. The error says what is wrong.
pub(crate) fn open_token(
    table: &DeTable<'_>,
    modules: &Modules,
    folder: &Path,
    keys: &dyn KeySource,
) -> Result<Loaded, String> {
    let mut report = Report::new("");
    // Not the place of what stands in it, which tells what is missing from what is wrong.
    // Its options are the command's own, and named so.
    let section = Section::new("", ELSEWHERE + 1, table);
    let token = token(section, modules, folder, &mut report);
    let mistakes: Vec<_> = report.finish(&[]).iter().map(ToString::to_string).collect();
    match token {
        Some(KeyInToken { key, pin, .. }) if mistakes.is_empty() => {
            let request = LoadRequest::Token { key, pin: pin.as_ref() };
            keys.load(&request).map_err(|why| why.to_string())
        }
        _ => Err(mistakes.join("; ")),
    }
}

fn token(
    mut s: Section<'_>,
    modules: &Modules,
    folder: &Path,
    report: &mut Report<'_>,
) -> Option<KeyInToken> {
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
                let how = format!(": no module {:?}, for", module.text);
                no_modules(&s, &how, module.offset, report);
            } else if path.is_none() {
                let message = format!("`{}`: no module {:?}", join(&s.path, "module"), module.text);
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
    let pin = secret_of(&mut s, ["pin", "pin_file"], "the PIN of the token's user", folder, report);
    let unread = pin.is_none() && s.place("pin_file") != s.offset;
    s.finish(&[], report);
    if unread {
        return None;
    }
    Some(KeyInToken {
        key: TokenKey { module: module?, slot, handle: handle? },
        pin,
        option,
        offset,
    })
}

/// There is nothing that could reach a token.
fn no_modules(s: &Section<'_>, how: &str, offset: usize, report: &mut Report<'_>) {
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

/// Opens every key in a token for `store`.
pub(super) fn open(store: &mut Credentials, named: Vec<KeyInToken>, report: &mut Report<'_>) {
    for KeyInToken { key, pin, option, offset } in named {
        let opened = store.keys_from.load(&LoadRequest::Token { key, pin: pin.as_ref() });
        let taken = opened.and_then(|loaded| store.add_keys(loaded, &option));
        if let Err(why) = taken {
            report.add(offset, format!("`{option}`: {why}"));
        }
    }
}

/// Reads the sections of `[secrets]` that are about private keys. Nothing is loaded yet.
pub(crate) fn read_key_files(
    s: &mut Section<'_>,
    folder: &Path,
    report: &mut Report<'_>,
) -> Vec<KeyFile> {
    let mut found = Vec::new();
    for kind in &KINDS {
        for (name, value) in s.with_prefix(kind.folder) {
            if let Some(section) = s.sub(name.get_ref(), value, report) {
                found.extend(key_file(kind, section, folder, report));
            }
        }
    }
    found
}

fn key_file(
    kind: &'static Kind,
    mut s: Section<'_>,
    folder: &Path,
    report: &mut Report<'_>,
) -> Option<KeyFile> {
    let what =
        format!("a file in {}/ beside the configuration file, or an absolute path", kind.folder);
    let file = s.text("file", &what, report);
    let passphrase =
        secret_of(&mut s, ["secret", "secret_file"], "the passphrase of the file", folder, report);
    if file.is_none() && s.place("file") == s.offset {
        s.missing("file", what, report);
    }
    let option = join(&s.path, "file");
    s.finish(&[("handle", None), ("slot", None), ("module", None)], report);
    let file = file?;
    let path = match paths::resolve(&folder.join(kind.folder), file.text) {
        Ok(path) => path,
        Err(why) => {
            report.add(file.offset, format!("`{option}`: {why}"));
            return None;
        }
    };
    Some(KeyFile {
        kind,
        path,
        shown: file.text.to_owned(),
        option,
        offset: file.offset,
        passphrase,
    })
}

/// The option `name`, which is taken as it stands, or the content of the file that `in_file` names.
fn secret_of(
    s: &mut Section<'_>,
    [name, in_file]: [&'static str; 2],
    what: &str,
    folder: &Path,
    report: &mut Report<'_>,
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
    match paths::resolve(folder, file.text).and_then(|path| load_file(&path, LONGEST)) {
        Ok(content) => {
            let end =
                content.iter().rposition(|c| !matches!(c, b'\r' | b'\n')).map_or(0, |at| at + 1);
            Some(Secret::copy_from(content.get(..end).unwrap_or_default()))
        }
        Err(why) => {
            report.add(file.offset, format!("`{option}`: {why}"));
            None
        }
    }
}

/// Loads every private key into `store`.
pub(super) fn load(store: &mut Credentials, named: Vec<KeyFile>, report: &mut Report<'_>) {
    for kind in &KINDS {
        let mut files: Vec<(Entry, Option<&KeyFile>)> = Vec::new();
        let folder = store.folder.join(kind.folder);
        let names = store.keys_from.names(&folder).unwrap_or_else(|why| {
            report.about_file(format!("cannot read the folder {}: {why}", kind.folder));
            Vec::new()
        });
        for name in names {
            let (path, shown) = (folder.join(&name), format!("{}/{name}", kind.folder));
            let entry = Entry { path, shown };
            let name = named.iter().find(|named| named.path == entry.path);
            files.push((entry, name));
        }
        for file in named.iter().filter(|file| std::ptr::eq(file.kind, kind)) {
            if !files.iter().any(|(entry, _)| entry.path == file.path) {
                let entry = Entry { path: file.path.clone(), shown: file.shown.clone() };
                files.push((entry, Some(file)));
            }
        }
        for (entry, file) in files {
            let place = Place { kind, entry: &entry, named: file };
            place.load(store, report);
        }
    }
}

impl Credentials {
    /// Takes what `shown` holds. The CA certificates in it link, and are not trusted: what is trusted is in
    /// `x509ca`.
    fn add_keys(&mut self, loaded: Loaded, shown: &str) -> Result<(), Refused> {
        let mut certificates = Vec::new();
        for der in &loaded.certificates {
            let malformed = |_| Refused::Content("malformed certificate".to_owned());
            certificates.push(Arc::new(Certificate::from_der(der).map_err(malformed)?));
        }
        let (cas, own): (Vec<_>, Vec<_>) =
            certificates.into_iter().partition(|certificate| certificate.is_ca());
        for key in loaded.keys {
            self.keys.push(LoadedKey { key, shown: shown.to_owned() });
        }
        for certificate in own {
            self.add_certificates([vec![certificate], cas.clone()].concat());
        }
        Ok(())
    }
}

/// A file to load, and what the configuration says about it.
struct Place<'a> {
    kind: &'static Kind,
    entry: &'a Entry,
    named: Option<&'a KeyFile>,
}

impl Place<'_> {
    fn load(&self, store: &mut Credentials, report: &mut Report<'_>) {
        let taken = store.keys_from.load(&LoadRequest::File {
            path: &self.entry.path,
            holds: self.kind.holds,
            passphrase: self.named.and_then(|named| named.passphrase.as_ref()),
        });
        if taken.as_ref().is_ok_and(|loaded| loaded.readable_by_others) {
            let warning = format!("{}: a private key, and others may read it", self.entry.shown);
            report.warn(self.named.map(|named| named.offset), warning);
        }
        let taken = taken.and_then(|loaded| store.add_keys(loaded, &self.entry.shown));
        match taken {
            Ok(()) => {}
            Err(Refused::Unreadable(why)) => self.wrong(&why, None, report),
            Err(why @ Refused::PassphraseNeeded) if self.named.is_some() => {
                self.wrong(&why.to_string(), Some("`secret`, or `secret_file`".to_owned()), report);
            }
            Err(why @ Refused::PassphraseNeeded) => {
                let (folder, name) = (self.kind.folder, self.entry.shown.rsplit('/').next());
                let expected = format!(
                    "[secrets.{folder}-<suffix>] with `file = {:?}` and `secret`",
                    name.unwrap_or_default()
                );
                self.wrong(&why.to_string(), Some(expected), report);
            }
            Err(why) => {
                let expected = match self.kind.holds {
                    Holds::AnyKey => "a private key: PKCS#8, PKCS#1 or SEC1, PEM or DER",
                    Holds::Rsa => "an RSA private key, PEM or DER",
                    Holds::Ecdsa => "an ECDSA private key, PEM or DER",
                    Holds::Pkcs12 => "a PKCS#12 file with a MAC, and its passphrase",
                };
                self.wrong(&why.to_string(), Some(expected.to_owned()), report);
            }
        }
    }

    fn wrong(&self, why: &str, expected: Option<String>, report: &mut Report<'_>) {
        let diagnostic = match self.named {
            Some(named) => {
                report.add(named.offset, format!("`{}`, {:?}: {why}", named.option, named.shown))
            }
            None => report.about_file(format!("{}: {why}", self.entry.shown)),
        };
        diagnostic.expected = expected;
    }
}

/// Octets of a file with a passphrase.
const LONGEST: usize = 4096;
