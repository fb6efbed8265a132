//! Sections that control clients have loaded, beside those of the configuration file.
//!
//! Every load is a section as it could be in the file, and the file's own reader reads it. A section that the
//! reader refuses in the file is refused here too. A connection, authority or pool replaces the file's section of the
//! same name until it is unloaded.
//!
//! A file in the format of swanctl.conf is also swanctl's. What it has counts as if swanctl had loaded it: clients may
//! unload it, and a loaded secret replaces the file's of the same name. The next reload is `swanctl --load-all --clear`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use crate::diagnostic::{ELSEWHERE, Report};
use crate::host::{Files, Host};
use crate::reading::{Document, Reading};
use crate::sections;
use crate::tree::{Entry, Layers, Section, same, same_value};

/// Sections that are loaded by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `connections.<name>`.
    Connection,
    /// `authorities.<name>`.
    Authority,
    /// `pools.<name>`.
    Pool,
}

impl Kind {
    /// All of them.
    const ALL: [Self; 3] = [Self::Connection, Self::Authority, Self::Pool];

    /// The offset that marks a value as loaded by a control client, and not read from a file.
    pub fn elsewhere() -> usize {
        ELSEWHERE
    }

    /// The section of the file that such sections are in.
    pub fn section(self) -> &'static str {
        match self {
            Self::Connection => "connections",
            Self::Authority => "authorities",
            Self::Pool => "pools",
        }
    }
}

/// A shared secret that was loaded. Wiped when it is dropped; never printed.
pub type LoadedSecret = Arc<Entry>;

/// All shared secrets at one time, to be put back.
#[derive(Debug)]
pub struct KeptSecrets {
    shared: BTreeMap<String, LoadedSecret>,
    hidden: BTreeSet<Named>,
}

/// Contents that a control client has sent instead of files, each with the name that refers to it in the section.
pub type Blobs = Vec<(String, Arc<[u8]>)>;

/// A section that was loaded.
#[derive(Debug)]
pub struct Item {
    entry: Entry,
    blobs: Blobs,
}

/// What an unloaded section was, to be put back.
#[derive(Debug)]
pub struct Unloaded<T> {
    loaded: Option<T>,
    /// The file has it as well.
    hides: bool,
}

/// The difference between a loaded section and the one in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Nothing.
    None,
    /// These children alone.
    Children(Vec<String>),
    /// More than children, so that all of them count as changed.
    All,
}

/// Sections over those of a file. Never prints a secret.
#[derive(Debug, Default)]
pub struct Overlay {
    sections: BTreeMap<(Kind, String), Item>,
    /// By the client's identifier, or one that no client can choose.
    shared: BTreeMap<String, LoadedSecret>,
    /// What the file has, and what it has had ([`remember`]), where its format is swanctl.conf's.
    of_file: BTreeSet<Named>,
    had: BTreeSet<Named>,
    /// What clients have unloaded of that.
    hidden: BTreeSet<Named>,
    count: usize,
}

/// A section of the file and the name of one in it.
type Named = (&'static str, String);

/// The section of shared secrets.
const SECRETS: &str = "secrets";
/// The sections in it that swanctl loads as shared secrets begin with one of these.
const SHARED: [&str; 5] = ["eap", "ike", "ntlm", "ppk", "xauth"];

/// The sections of `document` that clients may load and unload, where its format is swanctl.conf's.
fn named_in(document: &Document) -> BTreeSet<Named> {
    let Some(all) = document.all.table().filter(|_| !document.own) else { return BTreeSet::new() };
    let sections = Kind::ALL.map(Kind::section).into_iter().chain([SECRETS]);
    let names = sections.flat_map(|section| {
        let inner = sub(all, section).into_iter().flat_map(|inner| inner.keys());
        let names = inner.map(|name| name.get_ref().to_string());
        names
            .filter(move |name| section != SECRETS || is_shared(name))
            .map(move |name| (section, name))
    });
    names.collect()
}

/// How many names that the file has no more are known at most.
const FORMER: usize = 10_000;

/// Adds what a file has, `present`, to what files have had, `had`. If `had` has more than `FORMER` others,
/// these are forgotten.
pub fn remember<T: Ord + Clone>(had: &mut BTreeSet<T>, present: &BTreeSet<T>) {
    had.extend(present.iter().cloned());
    if had.len() > present.len() + FORMER {
        had.clone_from(present);
    }
}

fn is_shared(name: &str) -> bool {
    SHARED.iter().any(|kind| name.starts_with(kind))
}

impl Overlay {
    /// True if nothing is loaded or unloaded.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.shared.is_empty() && self.hidden.is_empty()
    }

    /// The sections of `document` are in force: what was unloaded of an earlier file is there again, and what was loaded
    /// under the name of something that a file has had is gone.
    pub fn adopt(&mut self, document: &Document) {
        self.of_file = named_in(document);
        remember(&mut self.had, &self.of_file);
        self.hidden.clear();
        let had = &self.had;
        let outlives = |section, name: &str| !had.contains(&(section, name.to_owned()));
        self.sections.retain(|(kind, name), _| outlives(kind.section(), name));
        self.shared.retain(|key, _| outlives(SECRETS, key));
    }

    /// True if the file has this, and no client has unloaded it.
    fn shows(&self, named: &Named) -> bool {
        self.of_file.contains(named) && !self.hidden.contains(named)
    }

    /// Inserts or replaces a section, and returns the former one.
    pub fn put(
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

    /// Takes back what [`Self::put`] has done; `before` is what that has returned.
    pub fn take_back(&mut self, kind: Kind, name: &str, before: Option<Item>) {
        match before {
            Some(before) => _ = self.restore(kind, name, before),
            None => _ = self.sections.remove(&(kind, name.to_owned())),
        }
    }

    fn restore(&mut self, kind: Kind, name: &str, item: Item) -> Option<Item> {
        self.sections.insert((kind, name.to_owned()), item)
    }

    /// Unloads a section. `None` if there is none that clients may unload.
    pub fn remove(&mut self, kind: Kind, name: &str) -> Option<Unloaded<Item>> {
        let loaded = self.sections.remove(&(kind, name.to_owned()));
        self.hide((kind.section(), name.to_owned()), loaded)
    }

    fn hide<T>(&mut self, named: Named, loaded: Option<T>) -> Option<Unloaded<T>> {
        let hides = self.of_file.contains(&named) && self.hidden.insert(named);
        (hides || loaded.is_some()).then_some(Unloaded { loaded, hides })
    }

    /// Puts back what [`Self::remove`] has unloaded.
    pub fn put_back(&mut self, kind: Kind, name: &str, unloaded: Unloaded<Item>) {
        if unloaded.hides {
            self.hidden.remove(&(kind.section(), name.to_owned()));
        }
        if let Some(item) = unloaded.loaded {
            self.restore(kind, name, item);
        }
    }

    /// The names of the sections of this kind that clients may unload.
    pub fn names(&self, kind: Kind) -> BTreeSet<&str> {
        let loaded = self.of_kind(kind).map(|(name, _)| name);
        loaded.chain(self.of_file(kind.section())).collect()
    }

    /// What the file has in `section`, and no client has unloaded.
    fn of_file(&self, section: &'static str) -> impl Iterator<Item = &str> {
        let all = self.of_file.iter().filter(move |named| named.0 == section && self.shows(named));
        all.map(|(_, name)| name.as_str())
    }

    /// The number of loaded sections.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// True if there is a section of this name that clients may unload.
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        self.sections.contains_key(&(kind, name.to_owned()))
            || self.shows(&(kind.section(), name.to_owned()))
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&str, &Item)> {
        let from = self.sections.range((kind, String::new())..);
        let all = from.take_while(move |((of, _), _)| *of == kind);
        all.map(|((_, name), item)| (name.as_str(), item))
    }

    fn entries(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.of_kind(kind).map(|(_, item)| &item.entry)
    }

    /// The difference between `table` and the section of this name that is in force. `None` if there is no such
    /// section.
    pub fn difference(
        &self,
        document: &Document,
        kind: Kind,
        name: &str,
        table: &DeTable<'_>,
    ) -> Option<Difference> {
        let loaded = self.sections.get(&(kind, name.to_owned())).and_then(|i| i.entry.table());
        let before = match loaded {
            Some(loaded) => loaded,
            None if self.hidden.contains(&(kind.section(), name.to_owned())) => return None,
            None => sub(sub(document.all.table()?, kind.section())?, name)?,
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

    /// True if this very secret is loaded.
    pub fn has_shared(&self, id: &str, kind: &str, table: &DeTable<'_>) -> bool {
        self.shared.get(id).is_some_and(|entry| {
            let is_same = |there| same(there, table, "");
            entry.name() == format!("{kind}-vici-{id}") && entry.table().is_some_and(is_same)
        })
    }

    /// Inserts or replaces a shared secret as a section of `[secrets]`. Returns its key, and the former secret with the
    /// same identifier.
    pub fn put_shared(
        &mut self,
        id: Option<&str>,
        kind: &str,
        table: DeTable<'static>,
    ) -> (String, Option<LoadedSecret>) {
        self.count += 1;
        // A client's identifier has no line feed in front.
        let key = id.map_or_else(|| format!("\n{}", self.count), str::to_owned);
        let name = format!("{kind}-vici-{}", id.map_or(self.count.to_string(), str::to_owned));
        let entry = Arc::new(Entry::section(&name, self.count, table));
        let before = self.shared.insert(key.clone(), entry);
        (key, before)
    }

    /// Takes back what [`Self::put_shared`] has done; `before` is the former secret.
    pub fn take_back_shared(&mut self, key: &str, before: Option<LoadedSecret>) {
        match before {
            Some(before) => _ = self.shared.insert(key.to_owned(), before),
            None => _ = self.shared.remove(key),
        }
    }

    /// Unloads a secret. `None` if there is none that clients may unload.
    pub fn remove_shared(&mut self, key: &str) -> Option<Unloaded<LoadedSecret>> {
        let loaded = self.shared.remove(key);
        self.hide((SECRETS, key.to_owned()), loaded)
    }

    /// Puts back what [`Self::remove_shared`] has unloaded.
    pub fn put_back_shared(&mut self, key: &str, unloaded: Unloaded<LoadedSecret>) {
        if unloaded.hides {
            self.hidden.remove(&(SECRETS, key.to_owned()));
        }
        if let Some(secret) = unloaded.loaded {
            self.shared.insert(key.to_owned(), secret);
        }
    }

    /// The secrets as they are, for [`Self::put_back_secrets`].
    pub fn keep_secrets(&self) -> KeptSecrets {
        KeptSecrets { shared: self.shared.clone(), hidden: self.hidden.clone() }
    }

    /// Secrets are again as they were, and so is what of the file is unloaded.
    pub fn put_back_secrets(&mut self, kept: KeptSecrets) {
        (self.shared, self.hidden) = (kept.shared, kept.hidden);
    }

    /// Unloads all secrets.
    pub fn clear_shared(&mut self) {
        self.shared.clear();
        let of_file = self.of_file.iter().filter(|(section, _)| *section == SECRETS);
        self.hidden.extend(of_file.cloned());
    }

    /// The identifiers of the secrets that clients may unload.
    pub fn shared_ids(&self) -> BTreeSet<&str> {
        let loaded = self.shared.keys().map(String::as_str).filter(|key| !key.starts_with('\n'));
        loaded.chain(self.of_file(SECRETS)).collect()
    }

    /// Reads one section by itself, and the content that it has in place of files. `None` if it is not loaded.
    pub fn read_section(
        &self,
        document: &Document,
        kind: Kind,
        name: &str,
        host: &dyn Host,
    ) -> Option<(Reading, Blobs)> {
        let item = self.sections.get(&(kind, name.to_owned()))?;
        let mut layers = Layers::default();
        if kind != Kind::Pool {
            layers.add(kind.section(), std::iter::once(&item.entry));
        }
        // Two pools must not have an address in common.
        layers.add(Kind::Pool.section(), self.entries(Kind::Pool));
        layers.hide(self.hidden.iter());
        Some((over(&document.common, &layers, document, host), item.blobs.clone()))
    }

    /// Reads one secret by itself.
    pub fn read_shared(&self, document: &Document, key: &str, host: &dyn Host) -> Reading {
        let mut layers = Layers::default();
        layers.add("secrets", self.shared.get(key).map(Arc::as_ref).into_iter());
        over(&document.common, &layers, document, host)
    }

    /// Reads `document`, which is in force, with all that is loaded, and the content that the sections have in place of
    /// files.
    pub fn read(&self, document: &Document, host: &dyn Host) -> (Reading, Blobs) {
        let replaced: BTreeSet<_> = self.shared.keys().map(|key| (SECRETS, key.clone())).collect();
        let hidden = self.hidden.iter().chain(self.of_file.intersection(&replaced));
        self.laid_over(document, host, hidden, |_, _| true)
    }

    /// Reads `document` as it is to be in force, as [`Self::adopt`] says.
    pub fn read_anew(&self, document: &Document, host: &dyn Host) -> (Reading, Blobs) {
        let new = named_in(document);
        self.laid_over(document, host, std::iter::empty(), |section, name| {
            let named = (section, name.to_owned());
            !self.had.contains(&named) && !new.contains(&named)
        })
    }

    /// Reads `document` without what is `hidden`, and with what of the loaded sections `stays`.
    fn laid_over<'t>(
        &'t self,
        document: &Document,
        host: &dyn Host,
        hidden: impl Iterator<Item = &'t Named>,
        stays: impl Fn(&'static str, &str) -> bool,
    ) -> (Reading, Blobs) {
        let mut layers = Layers::default();
        let mut blobs = Blobs::new();
        for ((kind, name), item) in &self.sections {
            if stays(kind.section(), name) {
                layers.add(kind.section(), std::iter::once(&item.entry));
                blobs.extend(item.blobs.iter().cloned());
            }
        }
        let secrets = self.shared.iter().filter(|(key, _)| stays(SECRETS, key));
        layers.add(SECRETS, secrets.map(|(_, entry)| &**entry));
        layers.hide(hidden);
        (over(&document.all, &layers, document, host), blobs)
    }
}

fn over(entry: &Entry, layers: &Layers<'_>, document: &Document, host: &dyn Host) -> Reading {
    let none = DeTable::new();
    let mut report = Report::over(document.own);
    let root = Section::root(entry.table().unwrap_or(&none)).under(layers);
    let files = Files { host, folder: &document.folder };
    let settings = sections::read(root, files, &mut report);
    Reading { settings, report, document: None }
}

/// The section `name` of `table`.
fn sub<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    match table.get(name)?.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose names are others with each reload.
    ///
    /// Faults: in [`remember`], forget nothing; forget what is gone at once; forget what is there.
    #[test]
    fn what_files_have_had_is_known_up_to_a_bound() {
        let (mut had, mut most) = (BTreeSet::new(), 0);
        for reload in 0..15 {
            let present: BTreeSet<_> = (reload * 1000..(reload + 1) * 1000).collect();
            remember(&mut had, &present);
            assert!(present.is_subset(&had), "{reload}");
            most = most.max(had.len());
        }
        assert_eq!(most, FORMER + 1000);
    }

    /// A list is one value in swanctl.conf, but swanctl sends its elements. The connection that swanctl sends is still the
    /// same.
    ///
    /// Fault: in `same_value`, compare no array with a string.
    #[test]
    fn a_list_and_its_elements_are_the_same() {
        fn value(text: &str) -> DeTable<'_> {
            DeTable::parse(text).unwrap().into_inner()
        }
        let file = value("a = '192.0.2.1, 192.0.2.2'");
        assert!(same(&file, &value("a = ['192.0.2.1', '192.0.2.2']"), ""));
        assert!(same(&value("a = ['192.0.2.1', '192.0.2.2']"), &file, ""));
        let loose = value("a = '192.0.2.1,, 192.0.2.2,'");
        assert!(same(&loose, &value("a = ['192.0.2.1', '192.0.2.2']"), ""));
        for other in ["['192.0.2.1']", "['192.0.2.2', '192.0.2.1']", "[]", "[[]]"] {
            let text = format!("a = {other}");
            assert!(!same(&file, &value(&text), ""), "{other}");
        }
    }
}
