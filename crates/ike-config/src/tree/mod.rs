//! The tree of sections that either format becomes, and how it is read: section by section, key by key.

use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::Place;

mod layers;
mod section;
mod wipe;

pub(crate) use layers::{Entry, Layers, owned, same, same_value};
pub(crate) use section::{Section, Unsupported, cannot_be, join, list};
pub(crate) use wipe::{wipe, wipe_value};

#[cfg(test)]
pub(crate) use section::tests::asked;

/// A text value and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'t> {
    pub(crate) text: &'t str,
    pub(crate) offset: Place,
}

/// A string, number or switch as text. The offset of a string is inside its quotes.
pub(crate) fn scalar<'t>(value: &'t Spanned<DeValue<'t>>) -> Option<Text<'t>> {
    let offset = value.span().start;
    match value.get_ref() {
        DeValue::String(text) => Some(Text { text, offset: Place(offset + 1) }),
        DeValue::Integer(number) if number.radix() == 10 => {
            Some(Text { text: number.as_str(), offset: Place(offset) })
        }
        DeValue::Float(number) => Some(Text { text: number.as_str(), offset: Place(offset) }),
        DeValue::Boolean(true) => Some(Text { text: "true", offset: Place(offset) }),
        DeValue::Boolean(false) => Some(Text { text: "false", offset: Place(offset) }),
        _ => None,
    }
}
