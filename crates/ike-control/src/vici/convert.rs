//! Sections of messages as sections of the configuration file.

use std::borrow::Cow;
use std::sync::Arc;

use ike_config::{Blobs, Kind};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use vici::{Section, Value};

use super::refusal::Refusal;
use crate::program::Loader;

/// `section` as the file could have it. Certificates and keys that stand in it get names.
pub(super) fn table(
    kind: Kind,
    section: &Section,
    loader: &dyn Loader,
) -> Result<(DeTable<'static>, Blobs), Refusal> {
    let mut convert = Convert { kind, loader, blobs: Blobs::new() };
    let table = convert.section(section, &mut Vec::new())?;
    Ok((table, convert.blobs))
}

/// A table of texts and lists.
pub(super) fn of_texts<'a>(
    texts: impl IntoIterator<Item = (&'a str, String)>,
    lists: impl IntoIterator<Item = (&'a str, Vec<String>)>,
) -> DeTable<'static> {
    let texts = texts.into_iter().map(|(name, text)| (key(name), value(string(text))));
    let lists = lists.into_iter().map(|(name, items)| {
        let items = items.into_iter().map(|item| value(string(item))).collect();
        (key(name), value(DeValue::Array(items)))
    });
    texts.chain(lists).collect()
}

struct Convert<'a> {
    kind: Kind,
    loader: &'a dyn Loader,
    blobs: Blobs,
}

impl Convert<'_> {
    fn section(
        &mut self,
        section: &Section,
        path: &mut Vec<String>,
    ) -> Result<DeTable<'static>, Refusal> {
        let mut table = DeTable::new();
        for (name, given) in section.iter() {
            path.push(name.to_owned());
            let converted = match given {
                Value::Section(section) => DeValue::Table(self.section(section, path)?),
                Value::Text(octets) if self.names_file(path) => self.blob(octets),
                Value::Text(octets) => string(text(octets, path)?),
                Value::List(items) => {
                    let files = self.names_file(path);
                    let mut converted = Vec::with_capacity(items.len());
                    for item in items {
                        converted.push(value(match files {
                            true => self.blob(item),
                            false => string(text(item, path)?),
                        }));
                    }
                    DeValue::Array(converted.into_iter().collect())
                }
            };
            if table.insert(key(name), value(converted)).is_some() {
                return Err(Refusal::Twice(path.join(".")));
            }
            path.pop();
        }
        Ok(table)
    }

    /// True for options that name files in the configuration file, and have their content here.
    fn names_file(&self, path: &[String]) -> bool {
        let last = path.last().map(String::as_str).unwrap_or_default();
        match (self.kind, path) {
            (Kind::Connection, [round, _]) => {
                (round.starts_with("local") || round.starts_with("remote"))
                    && ["certs", "cacerts", "pubkeys"].contains(&last)
            }
            (Kind::Authority, [_]) => last == "cacert",
            _ => false,
        }
    }

    fn blob(&mut self, octets: &[u8]) -> DeValue<'static> {
        let mut name = self.loader.content_name(octets);
        // One name is never to stand for two contents.
        while self.blobs.iter().any(|(known, blob)| *known == name && **blob != *octets) {
            name.push('-');
        }
        self.blobs.push((name.clone(), Arc::from(octets)));
        string(name)
    }
}

fn text(octets: &[u8], path: &[String]) -> Result<String, Refusal> {
    let text = String::from_utf8(octets.to_vec());
    text.map_err(|_| Refusal::NotUtf8(path.join(".")))
}

fn key(name: &str) -> Spanned<DeString<'static>> {
    let at = Kind::elsewhere();
    Spanned::new(at..at, Cow::Owned(name.to_owned()))
}

fn string(text: String) -> DeValue<'static> {
    DeValue::String(Cow::Owned(text))
}

fn value(value: DeValue<'static>) -> Spanned<DeValue<'static>> {
    let at = Kind::elsewhere();
    Spanned::new(at..at, value)
}
