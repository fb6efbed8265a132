//! Private keys: the folders they are in, and the `[secrets]` that open them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pki::{LoadError, files};
use ike_proto::crypto::SignatureScheme;
use ike_proto::crypto::{Secret, SigningKey};

use super::folder::{Content, Entry, entries, load_file};
use super::{Credentials, LoadedKey};
use crate::config::diagnostic::Report;
use crate::config::readable_by_others;
use crate::config::section::{Section, join};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    AnyKey,
    Rsa,
    Ecdsa,
    Pkcs12,
}

const KINDS: [Kind; 5] = [
    Kind { folder: "private", holds: Holds::AnyKey },
    Kind { folder: "rsa", holds: Holds::Rsa },
    Kind { folder: "ecdsa", holds: Holds::Ecdsa },
    Kind { folder: "pkcs8", holds: Holds::AnyKey },
    Kind { folder: "pkcs12", holds: Holds::Pkcs12 },
];

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
    let passphrase = passphrase(&mut s, folder, report);
    if file.is_none() && s.place("file") == s.offset {
        s.missing("file", what, report);
    }
    let option = join(&s.path, "file");
    s.finish(&[("handle", None), ("slot", None), ("module", None)], report);
    let file = file?;
    Some(KeyFile {
        kind,
        path: folder.join(kind.folder).join(file.text),
        shown: file.text.to_owned(),
        option,
        offset: file.offset,
        passphrase,
    })
}

/// `secret`, which is taken as it stands, or the content of `secret_file`.
fn passphrase(s: &mut Section<'_>, folder: &Path, report: &mut Report<'_>) -> Option<Secret> {
    let what = "the passphrase of the file";
    let given = s.text("secret", what, report);
    let file = s.text("secret_file", "the path of a file", report);
    let option = join(&s.path, "secret_file");
    if let Some(given) = given {
        if let Some(file) = file {
            let message = format!("`{option}` stands beside `secret`");
            report.expected(file.offset, message, "one of the two");
        }
        return Some(Secret::copy_from(given.text.as_bytes()));
    }
    let file = file?;
    match load_file(&folder.join(file.text), LONGEST) {
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
        for entry in entries(&store.folder, kind.folder, report) {
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

/// A file to load, and what the configuration says about it.
struct Place<'a> {
    kind: &'static Kind,
    entry: &'a Entry,
    named: Option<&'a KeyFile>,
}

impl Place<'_> {
    fn load(&self, store: &mut Credentials, report: &mut Report<'_>) {
        let content = match load_file(&self.entry.path, super::folder::LARGEST) {
            Ok(content) => content,
            Err(why) => return self.wrong(&why, None, report),
        };
        if readable_by_others(&self.entry.path) {
            let warning = format!("{}: a private key, and others may read it", self.entry.shown);
            report.warn(self.named.map(|named| named.offset), warning);
        }
        let taken = match self.kind.holds {
            Holds::Pkcs12 => self.pkcs12(&content, store),
            _ => self.key(&content, store),
        };
        match taken {
            Ok(()) => {}
            Err(why @ LoadError::PassphraseNeeded) if self.named.is_some() => {
                self.wrong(&why.to_string(), Some("`secret`, or `secret_file`".to_owned()), report);
            }
            Err(why @ LoadError::PassphraseNeeded) => {
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

    fn passphrase(&self) -> Option<&[u8]> {
        self.named.and_then(|named| named.passphrase.as_ref()).map(Secret::expose)
    }

    fn key(&self, content: &Content, store: &mut Credentials) -> Result<(), LoadError> {
        let key = files::load_private_key(content, self.passphrase())?;
        let fits = match self.kind.holds {
            Holds::Rsa => is_rsa(&*key),
            Holds::Ecdsa => is_ecdsa(&*key),
            Holds::AnyKey | Holds::Pkcs12 => true,
        };
        if !fits {
            return Err(LoadError::Nothing(match self.kind.holds {
                Holds::Rsa => "RSA key",
                _ => "ECDSA key",
            }));
        }
        store.keys.push(LoadedKey { key, shown: self.entry.shown.clone() });
        Ok(())
    }

    /// The CA certificates in it link, and are not trusted: what is trusted is in `x509ca`.
    fn pkcs12(&self, content: &Content, store: &mut Credentials) -> Result<(), LoadError> {
        let passphrase = self.passphrase().ok_or(LoadError::PassphraseNeeded)?;
        let opened = files::load_pkcs12(content, passphrase)?;
        let (cas, own): (Vec<_>, Vec<_>) = opened
            .certificates
            .into_iter()
            .map(Arc::new)
            .partition(|certificate| certificate.is_ca());
        for key in opened.keys {
            store.keys.push(LoadedKey { key, shown: self.entry.shown.clone() });
        }
        for certificate in own {
            store.add_certificates([vec![certificate], cas.clone()].concat());
        }
        Ok(())
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

fn is_rsa(key: &dyn SigningKey) -> bool {
    use SignatureScheme::{RsaPkcs1Sha256, RsaPssSha256};
    key.schemes().iter().any(|scheme| matches!(scheme, RsaPkcs1Sha256 | RsaPssSha256))
}

fn is_ecdsa(key: &dyn SigningKey) -> bool {
    use SignatureScheme::{EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512};
    let curves = [EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512];
    key.schemes().iter().any(|scheme| curves.contains(scheme))
}

/// Octets of a file with a passphrase.
const LONGEST: usize = 4096;
