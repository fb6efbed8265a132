//! The reader, on a small crate that is written for it.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A folder with `files`, which are relative paths and their texts.
struct Crate(PathBuf);

impl Crate {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("ike-layout-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn arrows(&self) -> Vec<String> {
        let graph = read(&self.0).unwrap();
        graph.imports.iter().map(|import| import.to_string().replace("  ", " ")).collect()
    }
}

impl Drop for Crate {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn every_form_of_path_counts() {
    let forms = "use crate::{b, c::{self, d::{E, F}}};
pub(crate) use super::d::E;
fn f() -> crate::e::Value {
    println!(\"{}\", crate::f::value());
    self::inner::g()
}
mod inner { use super::super::g::Value; pub(in crate::a) fn g() {} }
";
    let names = "pub mod a; pub mod b; pub mod c; mod d; mod e; mod f; mod g;";
    let empty: Vec<_> = ["b", "c", "d", "e", "f", "g"].map(|name| format!("{name}.rs")).into();
    let mut files = vec![("lib.rs", names), ("a/mod.rs", forms)];
    files.extend(empty.iter().map(|file| (file.as_str(), "")));
    let made = Crate::new("forms", &files);
    let expected = [("b", 1), ("c", 1), ("d", 2), ("e", 3), ("f", 4), ("g", 7)];
    let expected = expected.map(|(to, line)| format!("a -> {to} a/mod.rs:{line}"));
    assert_eq!(made.arrows(), expected);
}

#[test]
fn tests_comments_and_strings_do_not_count() {
    let text = "//! [`crate::b`]
/// See crate::b::X.
const TEXT: &str = \"crate::b\";
#[cfg(test)]
use crate::b::X;
#[cfg(all(test, unix))]
#[allow(dead_code)]
pub(crate) fn f<A, B>() { crate::b::g() }
struct S { #[cfg(test)] b: crate::b::X, c: u8 }
#[cfg(test)]
mod tests;
#[cfg(not(test))]
use crate::c::X;
";
    let tests = "use crate::b::X;";
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", text),
        ("a/tests.rs", tests),
        ("b.rs", "#![cfg(test)]\nuse crate::a::X;"),
        ("c.rs", ""),
    ];
    assert_eq!(Crate::new("tests", &files).arrows(), ["a -> c a.rs:13"]);
}

#[test]
fn a_name_that_the_root_re_exports_belongs_to_its_module() {
    let root = "mod a; mod b; pub use b::{X, deep::Y as Z}; use a::f; pub fn own() { b::g() }";
    let files =
        [("lib.rs", root), ("a.rs", "use crate::X;\nuse crate::Z;\n"), ("b.rs", "use crate::own;")];
    let expected = ["a -> b a.rs:1", "a -> b a.rs:2", "b -> lib.rs b.rs:1", "lib.rs -> a lib.rs:1"];
    let made = Crate::new("root", &files);
    assert_eq!(made.arrows(), [&expected[..], &["lib.rs -> b lib.rs:1"]].concat());
}

#[test]
fn a_circle_is_found_however_long() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;"),
        ("c.rs", "\nuse crate::a; use crate::d;"),
        ("d.rs", ""),
    ];
    let made = Crate::new("circle", &files);
    let graph = read(&made.0).unwrap();
    let circular: Vec<_> = graph.circular().into_keys().collect();
    assert_eq!(circular, [("a", "b"), ("b", "c"), ("c", "a")]);
}

#[test]
fn a_missing_file_is_an_error() {
    let made = Crate::new("missing", &[("lib.rs", "mod a;")]);
    assert!(read(&made.0).unwrap_err().to_string().contains("a/mod.rs"));
}
