//! The documents: links lead somewhere, commands exist, and figures are those of the page that measured them.

mod commands;
mod figures;
mod limits;
mod links;
mod quantum;

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the repository.
fn read(path: &str) -> String {
    let whole = root().join(path);
    fs::read_to_string(&whole).unwrap_or_else(|error| panic!("{}: {error}", whole.display()))
}

/// Every Markdown file of the repository, by its path from the root.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name == "target" || name == "node_modules" || name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") {
                let path = path.strip_prefix(root()).expect("below the root");
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    assert!(found.len() > 30, "{found:?}");
    found
}

/// Fault: add forty lines to README.md, or make one of its lines longer.
#[test]
fn the_readme_is_short() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; 150 are the limit");
    for (number, line) in readme.lines().enumerate() {
        let columns = line.chars().count();
        assert!(columns <= 120, "README.md:{}: {columns} columns", number + 1);
    }
}

/// The value of a line `key = "value"`.
fn value<'a>(manifest: &'a str, key: &str) -> &'a str {
    let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
    line.and_then(|line| line.split('"').next()).expect("the key")
}

/// Fault: change `rust-version` in Cargo.toml and nothing else.
#[test]
fn one_place_has_the_oldest_rust() {
    let manifest = read("Cargo.toml");
    let oldest = value(&manifest, "rust-version");
    assert!(read("README.md").contains(&format!("Rust {oldest} or later")), "README.md: {oldest}");
    // A version would have to be installed first where rustup does not do that by itself.
    assert_eq!(value(&read("rust-toolchain.toml"), "channel"), "stable");
}

/// The names of the crates that a manifest takes from outside the workspace.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if inside && line.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let end = line.find(['.', ' ', '=']).expect("a key and its value");
            if !line.contains("path = ") {
                found.push(line[..end].to_owned());
            }
        }
    }
    found
}

/// Fault: remove a row of docs/dependencies.md.
#[test]
fn each_dependency_has_a_reason() {
    let table = read("docs/dependencies.md");
    let rows = table.lines().filter(|line| line.starts_with("| ")).map(|line| {
        let name = line.split('|').nth(1).unwrap_or_default();
        name.split([',', '(', ')']).map(|name| name.trim().to_owned()).collect::<Vec<_>>()
    });
    let named: Vec<String> = rows.flatten().collect();
    let root_manifest = read("Cargo.toml");
    let own: Vec<&str> = root_manifest.lines().filter(|line| line.contains("path = ")).collect();
    let (_, members) = root_manifest.split_once("members = [").expect("members");
    let members = members.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2);
    let mut manifests = vec!["Cargo.toml".to_owned()];
    manifests.extend(members.map(|member| format!("{member}/Cargo.toml")));
    assert!(manifests.len() > 10, "{manifests:?}");
    let mut missing = Vec::new();
    for manifest in &manifests {
        for name in dependencies(&read(manifest)) {
            let ours = own.iter().any(|line| line.starts_with(&format!("{name} = ")));
            if !ours && !named.contains(&name) && !missing.contains(&name) {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "docs/dependencies.md says nothing about {missing:?}");
}
