//! Wiping what reading a configuration file leaves in memory.
//!
//! The text is in a buffer of ours, and most strings of the TOML tree are parts of it. Strings with
//! escapes are copies, which [`wipe`] overwrites. Two things the `toml` crate keeps to itself: what its
//! buffer for such a string leaves behind when it grows, and, where the file is not valid TOML, a copy of
//! the text in its errors. `secret_file` avoids both.

use std::borrow::Cow;

use toml::de::{DeTable, DeValue};
use zeroize::Zeroize;

/// Overwrites every string of `table` that is a copy.
pub(super) fn wipe(table: DeTable<'_>) {
    for (_, value) in table {
        wipe_value(value.into_inner());
    }
}

fn wipe_value(value: DeValue<'_>) {
    match value {
        DeValue::String(text) => wipe_text(text),
        DeValue::Array(items) => {
            for item in items {
                wipe_value(item.into_inner());
            }
        }
        DeValue::Table(table) => wipe(table),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

fn wipe_text(text: Cow<'_, str>) {
    if let Cow::Owned(mut copy) = text {
        copy.zeroize();
    }
}
