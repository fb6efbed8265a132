//! Private keys: those of the folders, and those that `[secrets]` names.

use std::sync::Arc;

use ::pki::Certificate;
use ike_config::{Holds, KeyFile, Report, TokenKeyOption};

use super::folder::Entry;
use super::{Credentials, LoadedKey};
use crate::parts::{Part, Parts};
use crate::signer::{LoadRequest, Loaded, Refused};

/// Opens every key in a token for `store`.
pub(super) fn open(store: &mut Credentials, named: Vec<TokenKeyOption>, report: &mut Report) {
    for TokenKeyOption { key, pin, option, place } in named {
        let opened = store.keys_from.load(&LoadRequest::Token { key, pin: pin.as_ref() });
        let taken = opened.and_then(|loaded| store.add_keys(loaded, &option));
        if let Err(why) = taken {
            report.add(place, format!("`{option}`: {why}"));
        }
    }
}

/// Loads every private key into `store`.
pub(super) fn load(store: &mut Credentials, named: Vec<KeyFile>, report: &mut Report) {
    // `parts` has refused the files of others.
    let built = |holds| holds != Holds::Pkcs12 || Parts::BUILT.has(Part::Pkcs12);
    for (kind, holds) in KeyFile::FOLDERS.into_iter().filter(|(_, holds)| built(*holds)) {
        let mut files: Vec<(Entry, Option<&KeyFile>)> = Vec::new();
        let folder = store.folder.join(kind);
        let names = store.keys_from.names(&folder).unwrap_or_else(|why| {
            report.about_file(format!("cannot read the folder {kind}: {why}"));
            Vec::new()
        });
        for name in names {
            let (path, shown) = (folder.join(&name), format!("{kind}/{name}"));
            let entry = Entry { path, shown };
            let name = named.iter().find(|named| named.path == entry.path);
            files.push((entry, name));
        }
        for file in named.iter().filter(|file| file.folder == kind) {
            if !files.iter().any(|(entry, _)| entry.path == file.path) {
                let entry = Entry { path: file.path.clone(), shown: file.shown.clone() };
                files.push((entry, Some(file)));
            }
        }
        for (entry, file) in files {
            let place = Place { folder: kind, holds, entry: &entry, named: file };
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
    folder: &'static str,
    holds: Holds,
    entry: &'a Entry,
    named: Option<&'a KeyFile>,
}

impl Place<'_> {
    fn load(&self, store: &mut Credentials, report: &mut Report) {
        let taken = store.keys_from.load(&LoadRequest::File {
            path: &self.entry.path,
            holds: self.holds,
            passphrase: self.named.and_then(|named| named.passphrase.as_ref()),
        });
        if taken.as_ref().is_ok_and(|loaded| loaded.readable_by_others) {
            let warning = format!("{}: a private key, and others may read it", self.entry.shown);
            report.warn(self.named.map(|named| named.place), warning);
        }
        let taken = taken.and_then(|loaded| store.add_keys(loaded, &self.entry.shown));
        match taken {
            Ok(()) => {}
            Err(Refused::Unreadable(why)) => self.wrong(&why, None, report),
            Err(why @ Refused::PassphraseNeeded) if self.named.is_some() => {
                self.wrong(&why.to_string(), Some("`secret`, or `secret_file`".to_owned()), report);
            }
            Err(why @ Refused::PassphraseNeeded) => {
                let (folder, name) = (self.folder, self.entry.shown.rsplit('/').next());
                let expected = format!(
                    "[secrets.{folder}-<suffix>] with `file = {:?}` and `secret`",
                    name.unwrap_or_default()
                );
                self.wrong(&why.to_string(), Some(expected), report);
            }
            Err(why) => {
                let expected = match self.holds {
                    Holds::AnyKey => "a private key: PKCS#8, PKCS#1 or SEC1, PEM or DER",
                    Holds::Rsa => "an RSA private key, PEM or DER",
                    Holds::Ecdsa => "an ECDSA private key, PEM or DER",
                    Holds::Pkcs12 => "a PKCS#12 file with a MAC, and its passphrase",
                };
                self.wrong(&why.to_string(), Some(expected.to_owned()), report);
            }
        }
    }

    fn wrong(&self, why: &str, expected: Option<String>, report: &mut Report) {
        let diagnostic = match self.named {
            Some(named) => {
                report.add(named.place, format!("`{}`, {:?}: {why}", named.option, named.shown))
            }
            None => report.about_file(format!("{}: {why}", self.entry.shown)),
        };
        diagnostic.expected = expected;
    }
}
