//! Sections that control clients have loaded, beside those of the configuration file.
//!
//! Every load is a section as it could be in the file, and the file's own reader reads it. A section that the
//! reader refuses in the file is refused here too. A connection, authority or pool replaces the file's section of the
//! same name until it is unloaded.

use std::collections::BTreeMap;
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
pub type LoadedSecret = Entry;

/// Contents that a control client has sent instead of files, each with the name that refers to it in the section.
pub type Blobs = Vec<(String, Arc<[u8]>)>;

/// A section that was loaded.
#[derive(Debug)]
pub struct Item {
    entry: Entry,
    blobs: Blobs,
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
    shared: BTreeMap<String, Entry>,
    count: usize,
}

impl Overlay {
    /// True if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.shared.is_empty()
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

    /// Inserts a section that [`Self::put`] or [`Self::remove`] has returned, and returns the present one.
    pub fn restore(&mut self, kind: Kind, name: &str, item: Item) -> Option<Item> {
        self.sections.insert((kind, name.to_owned()), item)
    }

    /// Removes a section.
    pub fn remove(&mut self, kind: Kind, name: &str) -> Option<Item> {
        self.sections.remove(&(kind, name.to_owned()))
    }

    /// The names of the loaded sections of this kind.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.of_kind(kind).map(|(name, _)| name)
    }

    /// The number of loaded sections.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// True if a section of this name is loaded.
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        self.sections.contains_key(&(kind, name.to_owned()))
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
        let entry = Entry::section(&name, self.count, table);
        let before = self.shared.insert(key.clone(), entry);
        (key, before)
    }

    /// Puts back a secret.
    pub fn restore_shared(&mut self, key: String, entry: LoadedSecret) {
        self.shared.insert(key, entry);
    }

    /// Removes a secret.
    pub fn remove_shared(&mut self, key: &str) -> Option<LoadedSecret> {
        self.shared.remove(key)
    }

    /// Removes all secrets.
    pub fn clear_shared(&mut self) {
        self.shared.clear();
    }

    /// The identifiers that clients have chosen.
    pub fn shared_ids(&self) -> impl Iterator<Item = &str> {
        self.shared.keys().map(String::as_str).filter(|key| !key.starts_with('\n'))
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
        layers.add(kind.section(), std::iter::once(&item.entry));
        if kind != Kind::Pool {
            layers.add(Kind::Pool.section(), self.entries(Kind::Pool));
        }
        Some((over(&document.common, &layers, document, host), item.blobs.clone()))
    }

    /// Reads one secret by itself.
    pub fn read_shared(&self, document: &Document, key: &str, host: &dyn Host) -> Reading {
        let mut layers = Layers::default();
        layers.add("secrets", self.shared.get(key).into_iter());
        over(&document.common, &layers, document, host)
    }

    /// Reads `document` with all that is loaded, and the content that the sections have in place of files.
    pub fn read(&self, document: &Document, host: &dyn Host) -> (Reading, Blobs) {
        let mut layers = Layers::default();
        for kind in Kind::ALL {
            layers.add(kind.section(), self.entries(kind));
        }
        layers.add("secrets", self.shared.values());
        let blobs = self.sections.values().flat_map(|item| item.blobs.iter().cloned()).collect();
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
