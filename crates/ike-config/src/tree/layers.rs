//! Layers over the configuration file: sections from other sources, such as VICI. A section of a layer replaces
//! the file's section of the same name. The same code reads both.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::scalar;
use super::wipe;
use crate::diagnostic::ELSEWHERE;

/// A named value that is in no file. Wiped when dropped; never printed.
pub struct Entry {
    name: Spanned<DeString<'static>>,
    value: Spanned<DeValue<'static>>,
}

impl Entry {
    /// The section `name`. Entries are read in the order of `number`.
    pub(crate) fn section(name: &str, number: usize, table: DeTable<'static>) -> Self {
        let at = ELSEWHERE.saturating_add(number);
        let name = Spanned::new(at..at, Cow::Owned(name.to_owned()));
        Self { name, value: Spanned::new(at..at, DeValue::Table(table)) }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// What is in it.
    pub(crate) fn table(&self) -> Option<&DeTable<'static>> {
        self.value.get_ref().as_table()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        wipe::wipe_value(self.value.get_mut());
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.name())
    }
}

/// What lies over one section.
#[derive(Debug, Default)]
pub(crate) struct Layer<'t> {
    entries: Vec<&'t Entry>,
    names: HashSet<&'t str>,
}

impl<'t> Layer<'t> {
    /// True if it has something of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Names and values.
    pub(crate) fn entries(
        &self,
    ) -> impl Iterator<Item = (&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>)> {
        self.entries.iter().map(|entry| {
            let Entry { name, value } = *entry;
            (name as &Spanned<DeString<'t>>, value as &Spanned<DeValue<'t>>)
        })
    }
}

/// Layers, by the name of the section each lies over.
#[derive(Debug, Default)]
pub(crate) struct Layers<'t> {
    layers: BTreeMap<&'static str, Layer<'t>>,
    nothing: DeTable<'static>,
}

impl<'t> Layers<'t> {
    /// Lays `entries` over `section`.
    pub(crate) fn add(&mut self, section: &'static str, entries: impl Iterator<Item = &'t Entry>) {
        for entry in entries {
            let layer = self.layers.entry(section).or_default();
            layer.names.insert(entry.name());
            layer.entries.push(entry);
        }
    }

    /// Hides what the file has of these names, each in a section.
    pub(crate) fn hide(&mut self, names: impl Iterator<Item = &'t (&'static str, String)>) {
        for (section, name) in names {
            self.layers.entry(section).or_default().names.insert(name);
        }
    }

    /// What lies over `section`.
    pub(crate) fn over(&self, section: &str) -> Option<&Layer<'t>> {
        self.layers.get(section)
    }

    /// A section without anything in it.
    pub(crate) fn nothing(&self) -> &DeTable<'static> {
        &self.nothing
    }
}

/// A table that keeps what it says without the text it was read from. Numbers and switches become the
/// strings they are spelt by, which every option takes as well.
pub(crate) fn owned(table: &DeTable<'_>) -> DeTable<'static> {
    let entry = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        let name = Spanned::new(name.span(), Cow::Owned(name.get_ref().to_string()));
        Some((name, owned_value(value)?))
    };
    table.iter().filter_map(entry).collect()
}

fn owned_value(value: &Spanned<DeValue<'_>>) -> Option<Spanned<DeValue<'static>>> {
    let copy = match value.get_ref() {
        DeValue::Table(table) => DeValue::Table(owned(table)),
        DeValue::Array(items) => DeValue::Array(items.iter().filter_map(owned_value).collect()),
        _ => DeValue::String(Cow::Owned(scalar(value)?.text.to_owned())),
    };
    Some(Spanned::new(value.span(), copy))
}

/// True if both say the same, wherever they stand.
pub(crate) fn same(one: &DeTable<'_>, other: &DeTable<'_>, but: &str) -> bool {
    let named = |table: &DeTable<'_>| table.keys().filter(|name| name.get_ref() != but).count();
    let equal = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        other
            .get(&**name.get_ref())
            .is_some_and(|found| same_value(value.get_ref(), found.get_ref()))
    };
    named(one) == named(other) && one.iter().filter(|(name, _)| name.get_ref() != but).all(equal)
}

/// True if both values say the same.
pub(crate) fn same_value(one: &DeValue<'_>, other: &DeValue<'_>) -> bool {
    match (one, other) {
        (DeValue::Table(one), DeValue::Table(other)) => same(one, other, ""),
        (DeValue::Array(one), DeValue::Array(other)) => {
            let pairs = || one.iter().zip(other.iter());
            one.len() == other.len() && pairs().all(|(a, b)| same_value(a.get_ref(), b.get_ref()))
        }
        (DeValue::String(one), DeValue::String(other)) => one == other,
        // A list is one value with commas in swanctl.conf; swanctl sends its elements.
        (DeValue::Array(list), DeValue::String(text))
        | (DeValue::String(text), DeValue::Array(list)) => {
            let elements = list.iter().map(|element| element.get_ref().as_str());
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(Some).eq(elements)
        }
        _ => false,
    }
}
