//! Sections that control clients have loaded, beside those of the configuration file.
//!
//! Every load is a section as it could be in the file, and the file's own parser reads it. A section that the
//! parser refuses in the file is refused here too. A connection, authority or pool replaces the file's of the same
//! name until it is unloaded.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pki::{Certificate, Crl, ca_hash, files};
use ike_proto::crypto::SigningKey;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use super::credentials::{Credentials, open_token};
use super::diagnostic::{Diagnostic, ELSEWHERE, Report};
use super::layers::{Entry, Layers, owned, same, same_value};
use super::section::Section;
use super::{Config, Origin, read, wipe};
use crate::signer::{self, KeySource, LoadRequest, Passphrase};

/// Sections that are loaded by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `connections.<name>`.
    Connection,
    /// `authorities.<name>`.
    Authority,
    /// `pools.<name>`.
    Pool,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Connection, Self::Authority, Self::Pool];

    /// Where values stand that are in no file.
    pub(crate) fn elsewhere() -> usize {
        ELSEWHERE
    }

    /// The section of the file that such sections are in.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Connection => "connections",
            Self::Authority => "authorities",
            Self::Pool => "pools",
        }
    }
}

/// A shared secret that was loaded.
pub(crate) type Secret = Entry;

/// What a section names instead of a file, and by which name.
pub(crate) type Blobs = Vec<(String, Arc<[u8]>)>;

/// A section that was loaded.
#[derive(Debug)]
pub(crate) struct Item {
    entry: Entry,
    blobs: Blobs,
}

/// What of a connection is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Nothing.
    None,
    /// These children alone.
    Children(Vec<String>),
    /// More than children, so that all of them count as changed.
    All,
}

/// All that was loaded. Never prints a secret.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    sections: BTreeMap<(Kind, String), Item>,
    /// By the client's identifier, or one that no client can choose.
    shared: BTreeMap<String, Entry>,
    keys: BTreeMap<String, Arc<dyn SigningKey>>,
    certificates: Vec<Arc<Certificate>>,
    cas: Vec<Arc<Certificate>>,
    crls: Vec<Arc<[u8]>>,
    count: usize,
}

/// What the file had, to be read again with what is loaded over it.
#[derive(Debug)]
pub(crate) struct Base {
    /// Everything, with the content of files in place of `secret_file`.
    pub(super) all: Entry,
    /// All but connections, authorities and secrets.
    pub(super) settings: Entry,
    /// Keys and certificates of the folders, without `authorities`.
    pub(crate) credentials: Credentials,
    pub(super) folder: PathBuf,
    /// The file is in this daemon's own format.
    pub(super) own: bool,
}

impl Loaded {
    /// True if there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty()
            && self.shared.is_empty()
            && self.keys.is_empty()
            && self.certificates.is_empty()
            && self.cas.is_empty()
            && self.crls.is_empty()
    }

    /// Puts a section in place, and gives back what was there.
    pub(crate) fn put(
        &mut self,
        kind: Kind,
        name: &str,
        table: DeTable<'static>,
        blobs: Blobs,
    ) -> Option<Item> {
        self.count += 1;
        let entry = Entry::section(name, self.count, table);
        self.restore(kind, name, Item { entry, blobs })
    }

    /// Puts back what was there.
    pub(crate) fn restore(&mut self, kind: Kind, name: &str, item: Item) -> Option<Item> {
        self.sections.insert((kind, name.to_owned()), item)
    }

    /// Takes a section away.
    pub(crate) fn remove(&mut self, kind: Kind, name: &str) -> Option<Item> {
        self.sections.remove(&(kind, name.to_owned()))
    }

    /// The names of what is loaded.
    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.of_kind(kind).map(|(name, _)| name)
    }

    /// How many sections are loaded.
    pub(crate) fn sections(&self) -> usize {
        self.sections.len()
    }

    /// True if a section of this name is loaded.
    pub(crate) fn has(&self, kind: Kind, name: &str) -> bool {
        self.sections.contains_key(&(kind, name.to_owned()))
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&str, &Item)> {
        let from = self.sections.range((kind, String::new())..);
        let all = from.take_while(move |((of, _), _)| *of == kind);
        all.map(|((_, name), item)| (name.as_str(), item))
    }

    /// Wherein `table` differs from the connection or other section of this name that is in force.
    pub(crate) fn difference(
        &self,
        base: &Base,
        kind: Kind,
        name: &str,
        table: &DeTable<'_>,
    ) -> Option<Difference> {
        let loaded = self.sections.get(&(kind, name.to_owned())).and_then(|i| i.entry.table());
        let before = match loaded {
            Some(loaded) => loaded,
            None => sub(sub(base.all.table()?, kind.section())?, name)?,
        };
        if !same(before, table, "children") {
            return Some(Difference::All);
        }
        let none = DeTable::new();
        let (old, new) = (sub(before, "children"), sub(table, "children"));
        let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
        let equal = |name: &str| match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => same_value(old.get_ref(), new.get_ref()),
            _ => false,
        };
        let names = old.keys().chain(new.keys()).map(|name| name.get_ref().to_string());
        let mut changed: Vec<_> = names.filter(|name| !equal(name)).collect();
        changed.sort();
        changed.dedup();
        Some(if changed.is_empty() { Difference::None } else { Difference::Children(changed) })
    }

    /// Adds a shared secret as a section of `[secrets]`; what had its identifier before.
    pub(crate) fn put_shared(
        &mut self,
        id: Option<&str>,
        kind: &str,
        table: DeTable<'static>,
    ) -> (String, Option<Entry>) {
        self.count += 1;
        // A client's identifier has no line feed in front.
        let key = id.map_or_else(|| format!("\n{}", self.count), str::to_owned);
        let name = format!("{kind}-vici-{}", id.map_or(self.count.to_string(), str::to_owned));
        let entry = Entry::section(&name, self.count, table);
        let before = self.shared.insert(key.clone(), entry);
        (key, before)
    }

    /// Puts back a secret.
    pub(crate) fn restore_shared(&mut self, key: String, entry: Entry) {
        self.shared.insert(key, entry);
    }

    /// Takes a secret away.
    pub(crate) fn remove_shared(&mut self, key: &str) -> Option<Entry> {
        self.shared.remove(key)
    }

    /// The identifiers that clients have chosen.
    pub(crate) fn shared_ids(&self) -> impl Iterator<Item = &str> {
        self.shared.keys().map(String::as_str).filter(|key| !key.starts_with('\n'))
    }

    /// Adds a private key. The error says what is wrong with it.
    pub(crate) fn add_key(
        &mut self,
        keys: &dyn KeySource,
        octets: &[u8],
        kind: &str,
    ) -> Result<String, String> {
        let octets = Passphrase::copy_from(octets);
        let loaded = keys.load(&LoadRequest::Octets(&octets)).map_err(|why| why.to_string())?;
        let key = loaded.keys.into_iter().next().ok_or("no private key")?;
        if !signer::is_of_kind(&*key, kind) {
            return Err(format!("this is no key of type {kind}"));
        }
        let id = key_id(key.public_key());
        self.keys.insert(id.clone(), key);
        Ok(id)
    }

    /// Adds a private key in a token, by what `[secrets.token]` would say of it. The error says what is wrong.
    pub(crate) fn add_token(
        &mut self,
        base: &Base,
        mut table: DeTable<'static>,
    ) -> Result<String, String> {
        let keys = &*base.credentials.keys_from;
        let loaded = open_token(&table, &base.credentials.modules, &base.folder, keys);
        wipe::wipe(&mut table);
        let key = loaded?.keys.into_iter().next().ok_or("no private key")?;
        let id = key_id(key.public_key());
        self.keys.insert(id.clone(), key);
        Ok(id)
    }

    /// Takes a private key away; false if there is none.
    pub(crate) fn remove_key(&mut self, id: &str) -> bool {
        self.keys.remove(id).is_some()
    }

    /// The identifiers of private keys.
    pub(crate) fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Adds certificates, of CAs or not. The error says what is wrong with them.
    pub(crate) fn add_certificates(&mut self, octets: &[u8], ca: bool) -> Result<(), String> {
        let found = files::load_certificates(octets).map_err(|why| why.to_string())?;
        if ca && let Some(other) = found.iter().find(|certificate| !certificate.is_ca()) {
            return Err(format!("{} is no CA", other.subject_text()));
        }
        let place = if ca { &mut self.cas } else { &mut self.certificates };
        for certificate in found {
            if !place.iter().any(|known| known.der() == certificate.der()) {
                place.push(Arc::new(certificate));
            }
        }
        Ok(())
    }

    /// Adds a revocation list. The error says what is wrong with it.
    pub(crate) fn add_crl(&mut self, octets: &[u8]) -> Result<(), String> {
        let crl = Crl::load(octets).map_err(|why| why.to_string())?;
        if !self.crls.iter().any(|known| **known == *crl.der()) {
            self.crls.push(Arc::from(crl.der()));
        }
        Ok(())
    }

    /// Takes away all keys, secrets, certificates and revocation lists.
    pub(crate) fn clear_credentials(&mut self) {
        self.shared.clear();
        self.keys.clear();
        self.certificates.clear();
        self.cas.clear();
        self.crls.clear();
    }

    /// What one section is by itself: its mistakes, as a sentence.
    pub(crate) fn check(&self, base: &Base, kind: Kind, name: &str) -> Result<Config, String> {
        let Some(item) = self.sections.get(&(kind, name.to_owned())) else {
            return Err(format!("there is no {name}"));
        };
        let mut layers = Layers::default();
        layers.add(kind.section(), std::iter::once(&item.entry));
        if kind != Kind::Pool {
            layers.add(Kind::Pool.section(), self.entries(Kind::Pool));
        }
        let blobs = item.blobs.iter().cloned().collect();
        Self::over(&base.settings, &layers, &self.store(base, blobs), (&base.folder, base.own))
    }

    /// The same for a secret.
    pub(crate) fn check_shared(&self, base: &Base, key: &str) -> Result<(), String> {
        let mut layers = Layers::default();
        layers.add("secrets", self.shared.get(key).into_iter());
        Self::over(&base.settings, &layers, &base.credentials, (&base.folder, base.own)).map(drop)
    }

    /// The configuration of `base` with all that is loaded.
    pub(crate) fn merged(&self, base: &Arc<Base>) -> Result<Config, String> {
        let mut layers = Layers::default();
        for kind in Kind::ALL {
            layers.add(kind.section(), self.entries(kind));
        }
        layers.add("secrets", self.shared.values());
        let blobs = self.sections.values().flat_map(|item| item.blobs.iter().cloned()).collect();
        let store = self.store(base, blobs);
        let mut config = Self::over(&base.all, &layers, &store, (&base.folder, base.own))?;
        config.base = Some(Arc::clone(base));
        Ok(config)
    }

    fn over(
        entry: &Entry,
        layers: &Layers<'_>,
        store: &Credentials,
        (folder, own): (&Path, bool),
    ) -> Result<Config, String> {
        let none = DeTable::new();
        let mut report = Report::over(own);
        let root = Section::new("", 0, entry.table().unwrap_or(&none)).under(layers);
        let (config, _) = read(root, folder, Origin::Kept(store), &mut report);
        let mistakes = report.finish(&[]);
        if mistakes.is_empty() { Ok(config) } else { Err(sentence(&mistakes)) }
    }

    fn entries(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.of_kind(kind).map(|(_, item)| &item.entry)
    }

    /// The file's credentials and those that were loaded.
    fn store(&self, base: &Base, blobs: HashMap<String, Arc<[u8]>>) -> Credentials {
        let mut store = base.credentials.clone();
        for ca in &self.cas {
            // It was looked at when it came.
            let _ = store.add_ca(Certificate::clone(ca));
        }
        for crl in &self.crls {
            let _ = store.trust.revocation.add_crl(crl);
        }
        let keys = self.keys.iter().map(|(id, key)| (format!("key {id}"), Arc::clone(key)));
        store.add_loaded(keys, self.certificates.iter().cloned(), blobs);
        store
    }
}

/// What charon names a key by: the SHA-1 of the public key, in hexadecimal digits.
pub(crate) fn key_id(spki: &[u8]) -> String {
    let key = SubjectPublicKeyInfo::parse(spki).map_or(spki, |parsed| parsed.key);
    ca_hash(key).iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The section `name` of `table`.
fn sub<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    match table.get(name)?.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Mistakes in one line.
fn sentence(mistakes: &[Diagnostic]) -> String {
    let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    mistakes.join("; ")
}

impl Base {
    /// What the file had: `table`, and the content of its folders.
    pub(super) fn new(
        table: &DeTable<'_>,
        credentials: Credentials,
        folder: &Path,
        own: bool,
    ) -> Self {
        let mut all = owned(table);
        let mut settings = owned(table);
        for section in ["connections", "authorities", "secrets"] {
            let removed = settings.remove(section);
            if let Some(mut removed) = removed {
                wipe::wipe_value(removed.get_mut());
            }
        }
        if let Some(DeValue::Table(secrets)) = all.get_mut("secrets").map(|s| s.get_mut()) {
            for (_, secret) in secrets.iter_mut() {
                if let DeValue::Table(secret) = secret.get_mut() {
                    take_file(secret, folder);
                }
            }
        }
        let entry = |table| Entry::section("", 0, table);
        Self { all: entry(all), settings: entry(settings), credentials, folder: folder.into(), own }
    }
}

/// Puts the content of `secret_file` in its place: the file may be gone when it is read again.
fn take_file(secret: &mut DeTable<'static>, folder: &Path) {
    let Some(DeValue::String(file)) = secret.get("secret_file").map(|file| file.get_ref()) else {
        return;
    };
    let Ok(octets) = std::fs::read(folder.join(file.as_ref())) else { return };
    let octets = Zeroizing::new(octets);
    let Ok(text) = std::str::from_utf8(&octets) else { return };
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    if let Some((name, _)) = secret.remove_entry("secret_file") {
        let span = name.span();
        let name = Spanned::new(span.clone(), Cow::Borrowed("secret"));
        secret.insert(name, Spanned::new(span, DeValue::String(Cow::Owned(text))));
    }
}
