use super::*;
use crate::host::TextAlone;
use crate::tree::same;
use proptest::prelude::*;
use toml::de::{DeTable, DeValue};

fn table(text: &str) -> DeTable<'static> {
    let read = parse(text, Path::new("/nonexistent"), &TextAlone);
    assert!(read.mistakes.is_empty(), "{:?} in {text}", read.mistakes);
    read.table
}

fn value(table: &DeTable<'_>, path: &str) -> Option<String> {
    let mut at = table;
    let (sections, key) = path.rsplit_once('.').unwrap_or(("", path));
    for name in sections.split('.').filter(|name| !name.is_empty()) {
        at = match at.get(name)?.get_ref() {
            DeValue::Table(table) => table,
            _ => return None,
        };
    }
    match at.get(key)?.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    }
}

#[test]
fn values_are_put_together_and_quoted() {
    let read = table(
        "charon {
            one = a  b\t c # not this
            two = \"a  b\" c
            three = \"tab\\t quote\\\" end\\\\ line\\
goes on\"
            four = x=y:z,{ q
            five = \"\"
            six = last }
        charon { six = later\n seven=7 }",
    );
    for (key, expected) in [
        ("one", "a b c"),
        ("two", "a  b c"),
        ("three", "tab\t quote\" end\\ linegoes on"),
        ("four", "x=y:z,{ q"),
        ("five", ""),
        ("six", "later"),
        ("seven", "7"),
    ] {
        assert_eq!(value(&read, &format!("charon.{key}")).as_deref(), Some(expected), "{key}");
    }
}

#[test]
fn references_add_what_is_not_there() {
    let read = table(
        "base { a = 1\n b = 1\n c = 1\n sub { x = 1\n y = 1 } }
        more : base { b = 2\n d = 2 }
        other { c = 3\n e = 3 }
        charon : more, other { a = 4\n c =\n sub { x = 4 } }
        pools : charon.sub { z = 5 }",
    );
    for (key, expected) in [
        ("charon.a", Some("4")),
        ("charon.b", Some("2")),
        ("charon.c", None),
        ("charon.d", Some("2")),
        ("charon.e", Some("3")),
        ("charon.sub.x", Some("4")),
        ("charon.sub.y", Some("1")),
        ("pools.x", Some("4")),
        // There to be referred to, and nothing else.
        ("base.a", None),
        ("more.b", None),
    ] {
        assert_eq!(value(&read, key).as_deref(), expected, "{key}");
    }
}

#[test]
fn references_cannot_make_it_endless() {
    let mut text = String::from("s0 { a { x = 1 } }\n");
    for n in 1..40 {
        text.push_str(&format!("s{n} {{ l : s{} {{ }}\n r : s{} {{ }} }}\n", n - 1, n - 1));
    }
    text.push_str("charon : s39 { }\n");
    let read = parse(&text, Path::new("/nonexistent"), &TextAlone);
    assert!(read.mistakes.iter().any(|(_, what)| what.contains("references make more than")));
    let deep = "a {".repeat(100_000);
    let read = parse(&deep, Path::new("/nonexistent"), &TextAlone);
    assert!(read.mistakes.iter().any(|(_, what)| what.contains("within each other")));
}

/// A value as it may be written, quoted.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\r', "\\r").replace('\n', "\\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_upsets_it(text in "[a-c{}=:,.#\"\\\\ \n\t\u{e9}]{0,200}") {
        let read = parse(&text, Path::new("/nonexistent"), &TextAlone);
        for (at, _) in read.mistakes {
            prop_assert!(at <= text.len());
        }
    }

    #[test]
    fn what_is_written_is_read(
        values in proptest::collection::btree_map("[a-z_*%-]{1,8}", "\\PC{0,30}", 0..8),
        inner in proptest::collection::btree_map("[a-z]{1,8}", "[ -~\n\r\t]{0,30}", 0..4),
    ) {
        let mut text = String::from("charon {\n");
        for (key, value) in &values {
            text.push_str(&format!("{key}={}\n", quoted(value)));
        }
        text.push_str("  plugins {");
        for (key, value) in &inner {
            text.push_str(&format!("\n{key} = {} # comment", quoted(value)));
        }
        text.push_str("\n} }\n");
        let read = table(&text);
        for (key, expected) in &values {
            let found = value(&read, &format!("charon.{key}"));
            prop_assert_eq!(found.as_ref(), Some(expected), "{}", key);
        }
        for (key, expected) in &inner {
            let found = value(&read, &format!("charon.plugins.{key}"));
            prop_assert_eq!(found.as_ref(), Some(expected), "{}", key);
        }
        prop_assert!(same(&read, &table(&text), ""));
    }
}
