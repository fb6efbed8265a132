//! Sections as written, and the result of following their references.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

/// Sections that references may make.
const MOST: usize = 1 << 17;

/// A section.
pub(super) struct Node {
    at: usize,
    /// `None` where `key =` unsets what a reference has.
    options: BTreeMap<String, Setting>,
    sections: BTreeMap<String, Node>,
    /// Names of sections, from the top, and where they are named. The first wins.
    pub(super) references: Vec<(String, usize)>,
}

#[derive(Clone)]
struct Setting {
    value: Option<Zeroizing<String>>,
    /// Where the name stands, and the value.
    at: (usize, usize),
}

impl Node {
    pub(super) fn new(at: usize) -> Self {
        let (options, sections) = (BTreeMap::new(), BTreeMap::new());
        Self { at, options, sections, references: Vec::new() }
    }

    /// Sets an option; the last that is said counts.
    pub(super) fn set(
        &mut self,
        name: String,
        value: Option<Zeroizing<String>>,
        at: (usize, usize),
    ) {
        self.options.insert(name, Setting { value, at });
    }

    /// The section of this name: a new one, or what there is of it already.
    pub(super) fn section(&mut self, name: String, at: usize) -> &mut Self {
        self.sections.entry(name).or_insert_with(|| Self::new(at))
    }

    fn find(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.sections.get(name))
    }
}

/// The sections, with all that they refer to. What is at the top to be referred to alone, and is not
/// `known`, falls away.
pub(super) fn resolved(
    root: Node,
    known: &[&str],
    mistakes: &mut Vec<(usize, String)>,
) -> DeTable<'static> {
    let mut resolver = Resolver {
        root: &root,
        mistakes,
        used: BTreeSet::new(),
        following: Vec::new(),
        made: 0,
        told: false,
    };
    resolver.look(&root);
    let mut merged = Merged::default();
    resolver.merge(&root, "", &mut merged);
    let used = resolver.used;
    merged.sections.retain(|name, _| known.contains(&name.as_str()) || !used.contains(name));
    merged.into_table()
}

/// A section with what it inherits.
#[derive(Default)]
struct Merged {
    at: usize,
    options: BTreeMap<String, Setting>,
    sections: BTreeMap<String, Merged>,
}

impl Merged {
    fn into_table(self) -> DeTable<'static> {
        let name = |name: String, at: usize| Spanned::new(at..at, Cow::Owned(name));
        let mut table = DeTable::new();
        for (key, Setting { value, at }) in self.options {
            if let Some(mut value) = value {
                let value = DeValue::String(Cow::Owned(std::mem::take(&mut *value)));
                table.insert(name(key, at.0), Spanned::new(at.1..at.1, value));
            }
        }
        for (key, section) in self.sections {
            let at = section.at;
            let value = DeValue::Table(section.into_table());
            table.insert(name(key, at), Spanned::new(at..at, value));
        }
        table
    }
}

struct Resolver<'a> {
    root: &'a Node,
    mistakes: &'a mut Vec<(usize, String)>,
    /// Sections at the top that something refers to.
    used: BTreeSet<String>,
    following: Vec<String>,
    made: usize,
    told: bool,
}

impl<'a> Resolver<'a> {
    /// Names the references to what is not there.
    fn look(&mut self, node: &'a Node) {
        for (path, at) in &node.references {
            if let Some(top) = path.split('.').next() {
                self.used.insert(top.to_owned());
            }
            if self.root.find(path).is_none() {
                self.mistakes.push((*at, format!("there is no section `{path}` to refer to")));
            }
        }
        for section in node.sections.values() {
            self.look(section);
        }
    }

    /// Adds to `into` what `node` has and it has not.
    fn merge(&mut self, node: &'a Node, path: &str, into: &mut Merged) {
        self.made += usize::from(!self.following.is_empty());
        if self.made > MOST {
            if self.made == MOST + 1 && !std::mem::replace(&mut self.told, true) {
                let what = format!("references make more than {MOST} sections");
                self.mistakes.push((node.at, what));
            }
            return;
        }
        for (name, setting) in &node.options {
            into.options.entry(name.clone()).or_insert_with(|| setting.clone());
        }
        for (name, section) in &node.sections {
            let new = || Merged { at: section.at, ..Merged::default() };
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.merge(section, &below, into.sections.entry(name.clone()).or_insert_with(new));
        }
        for (reference, at) in &node.references {
            let inside = path == reference
                || path.strip_prefix(reference.as_str()).is_some_and(|rest| rest.starts_with('.'));
            if inside || self.following.contains(reference) {
                let what =
                    format!("`{reference}` refers to itself, perhaps through other sections");
                self.mistakes.push((*at, what));
                continue;
            }
            if let Some(found) = self.root.find(reference) {
                self.following.push(reference.clone());
                self.merge(found, reference, into);
                self.following.pop();
            }
        }
    }
}
