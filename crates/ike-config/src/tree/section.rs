//! Reads one section (TOML table) key by key, so that every mistake in it is found and every unknown key is
//! reported.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::layers::{Layer, Layers};
use super::{Text, scalar};
use crate::diagnostic::{Place, Report};
use crate::nearest::nearest;
use crate::units;

/// An option of swanctl.conf(5) or strongswan.conf(5) that does nothing here yet, and the value of
/// it, if there is one, that asks for just what is done anyway.
pub(crate) type Unsupported = (&'static str, Option<&'static str>);

/// One table of the file while it is read.
pub(crate) struct Section<'t> {
    /// Full name, as messages show it.
    pub(crate) path: String,
    /// Where it begins.
    pub(crate) offset: Place,
    table: &'t DeTable<'t>,
    /// What lies over it.
    layer: Option<&'t Layer<'t>>,
    /// What lies over the sections in it.
    layers: Option<&'t Layers<'t>>,
    asked: BTreeSet<&'static str>,
    taken: BTreeSet<&'t str>,
}

impl<'t> Section<'t> {
    pub(crate) fn new(path: impl Into<String>, offset: Place, table: &'t DeTable<'t>) -> Self {
        let path = path.into();
        let (asked, taken) = (BTreeSet::new(), BTreeSet::new());
        Self { path, offset, table, layer: None, layers: None, asked, taken }
    }

    /// The section that all others are in.
    pub(crate) fn root(table: &'t DeTable<'t>) -> Self {
        Self::new("", Place(0), table)
    }

    /// The same with `layers` over the sections in it.
    pub(crate) fn under(self, layers: &'t Layers<'t>) -> Self {
        Self { layers: Some(layers), ..self }
    }

    /// Names and values, those of a layer in place of its own.
    fn entries(
        &self,
    ) -> impl Iterator<Item = (&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>)> + use<'t> {
        let layer = self.layer;
        let own = self.table.iter();
        let own = own.filter(move |(name, _)| !layer.is_some_and(|l| l.has(name.get_ref())));
        own.chain(layer.into_iter().flat_map(Layer::entries))
    }

    /// The value of `key`, if the section has it.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.asked.insert(key);
        let (name, value) = self.entries().find(|(name, _)| name.get_ref() == key)?;
        self.taken.insert(name.get_ref());
        Some(value)
    }

    /// True if the section has `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries().any(|(name, _)| name.get_ref() == key)
    }

    /// Where the value of `key` stands, or else the section.
    pub(crate) fn place(&self, key: &str) -> Place {
        let entry = self.entries().find(|(name, _)| name.get_ref() == key);
        entry.map_or(self.offset, |(_, value)| Place::of(value))
    }

    /// Every key that begins with `prefix`, in the order of the file.
    pub(crate) fn with_prefix(
        &mut self,
        prefix: &'static str,
    ) -> Vec<(&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>)> {
        self.asked.insert(prefix);
        let mut found: Vec<_> =
            self.entries().filter(|(name, _)| name.get_ref().starts_with(prefix)).collect();
        found.sort_by_key(|(name, _)| name.span().start);
        self.taken.extend(found.iter().map(|(name, _)| name.get_ref().as_ref()));
        found
    }

    /// The authentication rounds: the keys that begin with `side` and hold a table.
    pub(crate) fn rounds(
        &mut self,
        side: &'static str,
    ) -> Vec<(&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>)> {
        self.asked.insert(side);
        let mut found: Vec<_> = self.entries().collect();
        found.retain(|(name, value)| {
            let table = matches!(value.get_ref(), DeValue::Table(_));
            name.get_ref() == side || (table && name.get_ref().starts_with(side))
        });
        found.sort_by_key(|(name, _)| name.span().start);
        self.taken.extend(found.iter().map(|(name, _)| name.get_ref().as_ref()));
        found
    }

    /// The tables whose names begin with `prefix`.
    pub(crate) fn tables(
        &mut self,
        prefix: &'static str,
    ) -> Vec<(&'t Spanned<DeString<'t>>, &'t Spanned<DeValue<'t>>)> {
        self.asked.insert(prefix);
        let is_table = |value: &Spanned<DeValue<'t>>| matches!(value.get_ref(), DeValue::Table(_));
        let mut found: Vec<_> = self.entries().collect();
        found.retain(|(name, value)| is_table(value) && name.get_ref().starts_with(prefix));
        found.sort_by_key(|(name, _)| name.span().start);
        self.taken.extend(found.iter().map(|(name, _)| name.get_ref().as_ref()));
        found
    }

    /// The table called `key`.
    pub(crate) fn section(
        &mut self,
        key: &'static str,
        report: &mut Report,
    ) -> Option<Section<'t>> {
        let layer = self.layers.and_then(|layers| layers.over(key));
        let Some(value) = self.value(key) else {
            let path = join(&self.path, key);
            let (layer, none) = (layer?, self.layers?.nothing());
            return Some(Section { layer: Some(layer), ..Section::new(path, self.offset, none) });
        };
        Some(Section { layer, ..self.sub(key, value, report)? })
    }

    /// `value` as the section `name` below this one.
    pub(crate) fn sub(
        &self,
        name: &str,
        value: &'t Spanned<DeValue<'t>>,
        report: &mut Report,
    ) -> Option<Section<'t>> {
        let path = join(&self.path, name);
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(path, Place::of(value), table)),
            other => {
                wrong_type(report, &path, value, other, &format!("a section [{path}]"));
                None
            }
        }
    }

    /// All sections below this one, in the order of the file.
    pub(crate) fn subsections(&mut self, report: &mut Report) -> Vec<(Text<'t>, Section<'t>)> {
        let all = self.with_prefix("");
        self.asked.remove("");
        let sections = all.into_iter().filter_map(|(name, value)| {
            let text = Text { text: name.get_ref(), offset: Place::of(name) };
            self.sub(name.get_ref(), value, report).map(|section| (text, section))
        });
        sections.collect()
    }

    /// A string; numbers and switches are taken as they are spelt.
    pub(crate) fn text(
        &mut self,
        key: &'static str,
        what: &str,
        report: &mut Report,
    ) -> Option<Text<'t>> {
        let value = self.value(key)?;
        let text = scalar(value);
        if text.is_none() {
            wrong_type(report, &join(&self.path, key), value, value.get_ref(), what);
        }
        text
    }

    /// A value that `parse` understands; `what` describes the expected value.
    pub(crate) fn parsed<T>(
        &mut self,
        key: &'static str,
        what: &str,
        report: &mut Report,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(key, what, report)?;
        let parsed = parse(text.text);
        if parsed.is_none() {
            let message = cannot_be(&join(&self.path, key), text.text);
            report.expected(text.offset, message, what);
        }
        parsed
    }

    pub(crate) fn duration(&mut self, key: &'static str, report: &mut Report) -> Option<Duration> {
        self.parsed(key, units::DURATION, report, units::duration)
    }

    pub(crate) fn size(&mut self, key: &'static str, report: &mut Report) -> Option<u64> {
        self.parsed(key, units::SIZE, report, units::size)
    }

    pub(crate) fn switch(&mut self, key: &'static str, report: &mut Report) -> Option<bool> {
        self.parsed(key, "true or false (\"yes\" or \"no\")", report, units::switch)
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn number<T>(
        &mut self,
        key: &'static str,
        min: T,
        max: T,
        report: &mut Report,
    ) -> Option<T>
    where
        T: Copy + PartialOrd + Display + TryFrom<u64>,
    {
        let what = format!("a whole number from {min} to {max}");
        self.parsed(key, &what, report, |text| {
            let number = T::try_from(text.parse::<u64>().ok()?).ok()?;
            (min <= number && number <= max).then_some(number)
        })
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        report: &mut Report,
    ) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let what = one_of(&words);
        let text = self.text(key, &what, report)?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text.text) {
            return Some(*choice);
        }
        let message = cannot_be(&join(&self.path, key), text.text);
        report.expected(text.offset, message, what).suggestion =
            nearest(text.text, words).map(str::to_owned);
        None
    }

    /// A list: an array of strings, or one string with commas.
    pub(crate) fn list(
        &mut self,
        key: &'static str,
        what: &str,
        report: &mut Report,
    ) -> Option<Vec<Text<'t>>> {
        let value = self.value(key)?;
        let path = join(&self.path, key);
        list(&path, value, what, report)
    }

    /// A mistake: `key` is needed.
    pub(crate) fn missing(&self, key: &str, what: impl Into<String>, report: &mut Report) {
        let message = format!("`{}` is missing", join(&self.path, key));
        report.expected(self.offset, message, what).missing = true;
    }

    /// Takes the option `name` if it is `value`.
    pub(crate) fn value_if(&mut self, name: &str, value: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        let (key, found) = self.entries().find(|(key, _)| key.get_ref() == name)?;
        let wanted = same(found, value);
        if wanted {
            self.taken.insert(key.get_ref());
        }
        wanted.then_some(found)
    }

    /// Takes options that only IKEv1 knows, and says that they change nothing.
    pub(crate) fn for_ikev1(&mut self, names: &[&'static str], report: &mut Report) {
        for name in names {
            if let Some((key, _)) = self.entries().find(|(key, _)| key.get_ref() == name) {
                let path = join(&self.path, name);
                let warning = format!("`{path}` is for IKEv1 alone and changes nothing");
                report.warn(Some(Place::of(key)), warning);
                self.taken.insert(key.get_ref());
            }
        }
    }

    /// Ends the reading: reports options that no reader has asked for.
    pub(crate) fn finish(self, unsupported: &[Unsupported], report: &mut Report) {
        #[cfg(test)]
        tests::record(&self.path, &self.asked);
        for (name, value) in self.entries() {
            let name_text: &str = name.get_ref();
            if self.taken.contains(name_text) {
                continue;
            }
            let path = join(&self.path, name_text);
            if let Some((_, harmless)) = unsupported.iter().find(|(known, _)| *known == name_text) {
                if !harmless.is_some_and(|harmless| same(value, harmless)) {
                    let diagnostic =
                        report.add(Place::of(name), format!("`{path}` is not supported yet"));
                    diagnostic.expected =
                        harmless.map(|value| format!("{value:?}, or no such option"));
                }
                continue;
            }
            // A section of that name may be known where an option is not.
            let known =
                self.asked.iter().copied().chain(unsupported.iter().map(|(known, _)| *known));
            let known = known.filter(|known| *known != name_text);
            let kind =
                if matches!(value.get_ref(), DeValue::Table(_)) { "section" } else { "option" };
            let near = nearest(name_text, known);
            // Among secrets a name that resembles none may be a secret without its `secret =`.
            let secrets = self.path.split('.').next() == Some("secrets");
            let message = match near {
                None if secrets => format!("unknown {kind} in `{}`", self.path),
                _ => format!("unknown {kind} `{path}`"),
            };
            report.add(Place::of(name), message).suggestion = near.map(str::to_owned);
        }
    }
}

/// `value` as a list: an array of strings, or one string with commas.
pub(crate) fn list<'t>(
    path: &str,
    value: &'t Spanned<DeValue<'t>>,
    what: &str,
    report: &mut Report,
) -> Option<Vec<Text<'t>>> {
    let DeValue::Array(array) = value.get_ref() else {
        let Some(text) = scalar(value) else {
            wrong_type(report, path, value, value.get_ref(), &format!("a list of strings: {what}"));
            return None;
        };
        return Some(split(text, report.text()));
    };
    let mut items = Vec::new();
    for item in array.iter() {
        match scalar(item) {
            Some(text) => items.push(text),
            None => wrong_type(report, path, item, item.get_ref(), what),
        }
    }
    Some(items)
}

/// Splits at commas outside of square brackets; empty items fall away.
fn split<'t>(text: Text<'t>, file: &str) -> Vec<Text<'t>> {
    // Where the value is written as it is read, an item's place is known; else it is the value's.
    let verbatim = file.get(text.offset.0..).is_some_and(|rest| rest.starts_with(text.text));
    let mut items = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    let ends = text.text.char_indices().filter_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (c == ',' && depth == 0).then_some(at)
    });
    for end in ends.collect::<Vec<_>>().into_iter().chain([text.text.len()]) {
        let item = text.text.get(start..end).unwrap_or_default();
        let lead = item.len() - item.trim_start().len();
        if !item.trim().is_empty() {
            let offset = if verbatim { text.offset.0 + start + lead } else { text.offset.0 };
            items.push(Text { text: item.trim(), offset: Place(offset) });
        }
        start = end + 1;
    }
    items
}

/// `"a", "b" or "c"`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The message that the option `path` cannot have `value`. It quotes the value, except in sections with secrets: there the
/// value may be a secret that was written to the wrong option, or contain one.
pub(crate) fn cannot_be(path: &str, value: &str) -> String {
    if path.starts_with("secrets.") || path.starts_with("charon.plugins.eap-radius.") {
        return format!(
            "`{path}` has a value that is not accepted (its section has secrets: no value is quoted)"
        );
    }
    format!("`{path}` cannot be {value:?}")
}

fn wrong_type(
    report: &mut Report,
    path: &str,
    at: &Spanned<DeValue<'_>>,
    value: &DeValue<'_>,
    what: &str,
) {
    let message = format!("`{path}` cannot be {}", type_name(value));
    report.expected(Place::of(at), message, what);
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "such a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

/// True if `value` says the same as `harmless`.
fn same(value: &Spanned<DeValue<'_>>, harmless: &str) -> bool {
    let Some(text) = scalar(value) else { return false };
    text.text == harmless
        || units::switch(text.text).is_some_and(|given| units::switch(harmless) == Some(given))
        || units::duration(text.text).is_some_and(|given| units::duration(harmless) == Some(given))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static ASKED: RefCell<BTreeSet<(String, &'static str)>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Keeps what was asked of the section at `path`.
    pub(super) fn record(path: &str, keys: &BTreeSet<&'static str>) {
        ASKED.with_borrow_mut(|all| all.extend(keys.iter().map(|key| (path.to_owned(), *key))));
    }

    /// Sections and keys that this thread has asked for since it was asked last.
    pub(crate) fn asked() -> BTreeSet<(String, &'static str)> {
        ASKED.take()
    }
}
