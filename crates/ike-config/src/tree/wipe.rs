//! Wipes the memory that was used to read a configuration file.
//!
//! The text is in a buffer of ours, and most strings of the TOML tree are parts of it. Strings with escapes are
//! copies, which [`wipe`] overwrites. Two remains are inside the `toml` crate and cannot be reached: the old
//! memory of its buffer for such a string when that grows, and, if the file is not valid TOML, a copy of the text
//! in its errors. `secret_file` avoids both.

use std::borrow::Cow;

use toml::de::{DeTable, DeValue};
use zeroize::Zeroize;

/// Overwrites every string of `table` that is a copy, and leaves it empty.
pub(crate) fn wipe(table: &mut DeTable<'_>) {
    for (_, value) in table.iter_mut() {
        wipe_value(value.get_mut());
    }
}

pub(crate) fn wipe_value(value: &mut DeValue<'_>) {
    match value {
        DeValue::String(Cow::Owned(copy)) => copy.zeroize(),
        DeValue::Array(items) => items.iter_mut().for_each(|item| wipe_value(item.get_mut())),
        DeValue::Table(table) => wipe(table),
        DeValue::String(Cow::Borrowed(_))
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_overwritten_and_parts_of_the_text_are_not_copies() {
        let text =
            "[a]\nplain = 'key'\nescaped = \"k\\u0065y\"\nlist = [\"k\\u0065y\", 'key', 1]\n";
        let (document, errors) = DeTable::parse_recoverable(text);
        assert!(errors.is_empty());
        let mut table = document.into_inner();
        wipe(&mut table);
        let Some(DeValue::Table(a)) = table.get("a").map(|value| value.get_ref()) else { panic!() };
        let string = |value: &DeValue<'_>| match value {
            DeValue::String(text) => text.to_string(),
            _ => String::new(),
        };
        let inner = |name: &str| string(a.get(name).unwrap().get_ref());
        assert_eq!((inner("plain").as_str(), inner("escaped").as_str()), ("key", ""));
        let Some(DeValue::Array(list)) = a.get("list").map(|list| list.get_ref()) else { panic!() };
        let items: Vec<_> = list.iter().map(|item| string(item.get_ref())).collect();
        assert_eq!(items, ["", "key", ""]);
        assert!(matches!(a.get("plain").unwrap().get_ref(), DeValue::String(Cow::Borrowed(_))));
    }
}
