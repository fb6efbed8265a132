//! The top-level modules of every crate import each other in one direction only.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use ike_test_layout::{Graph, read};

/// The folders of all crates of the workspace.
const CRATES: &[&str] = &[
    "benches",
    "crates/eap",
    "crates/esp",
    "crates/ike-aaa",
    "crates/ike-config",
    "crates/ike-control",
    "crates/ike-daemon",
    "crates/ike-proto",
    "crates/ike-tokio",
    "crates/ike-wire",
    "crates/ipsec-types",
    "crates/pki",
    "crates/pq-kem",
    "crates/routes",
    "crates/vici",
    "crates/xfrm",
    "tests",
    "tests/composite",
    "tests/composite/program",
    "tests/features",
    "tests/layout",
    "tests/lives",
    "tests/namespace",
    "tests/schemes",
    "tests/schemes/program",
];

/// Arrows on circles that crates still have, one a line: `crate: from -> to`. The list only becomes shorter.
const KNOWN: &str = include_str!("known_circles.txt");

fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn graph(folder: &str) -> Graph {
    read(&workspace().join(folder).join("src")).unwrap_or_else(|error| panic!("{folder}: {error}"))
}

fn known() -> BTreeSet<&'static str> {
    KNOWN.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Fault: in `CRATES`, leave out a crate.
#[test]
fn no_crate_is_left_out() {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let members: BTreeSet<_> = members.split('"').skip(1).step_by(2).collect();
    assert_eq!(members, CRATES.iter().copied().collect());
}

/// Fault: in `crates/vici/src/message.rs`, import something of `packet.rs`, which imports `message.rs`.
#[test]
fn no_circle_is_new_and_none_is_forgotten() {
    let mut report = String::new();
    let mut met = BTreeSet::new();
    for folder in CRATES {
        let graph = graph(folder);
        for ((from, to), imports) in graph.circular() {
            let arrow = format!("{folder}: {from} -> {to}");
            if !known().contains(arrow.as_str()) {
                writeln!(report, "new arrow on a circle: {arrow}").unwrap();
                for import in imports {
                    writeln!(report, "    {folder}/src/{}:{}", import.file.display(), import.line)
                        .unwrap();
                }
            }
            met.insert(arrow);
        }
    }
    for line in known() {
        if !met.contains(line) {
            writeln!(report, "no longer on a circle: strike it from known_circles.txt: {line}")
                .unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// The list stands in order, so that changes of it are easy to read.
///
/// Fault: in `known_circles.txt`, exchange two lines.
#[test]
fn the_list_of_known_circles_is_sorted() {
    let lines: Vec<_> = KNOWN.lines().filter(|line| !line.starts_with('#')).collect();
    let sorted: Vec<_> = known().into_iter().collect();
    assert_eq!(lines, sorted);
}
