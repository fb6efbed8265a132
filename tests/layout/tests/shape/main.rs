//! The shape of each crate: how much of it stands where it belongs. `shape.txt` has a ceiling for each figure, which
//! may only fall.
//!
//! Where a figure has fallen, `IKE_SHAPE=write cargo test -p ike-test-layout --test shape` lowers its ceiling. With
//! another word it prints the figures that have this word in their names, and the places that they count.
//!
//! What is counted is in `figures.rs`. It does not see: what macros make; a second argument that a function works on; a
//! type behind an alias, in a `Box` or in another wrapper; an array of parameters; a structure that is only a list of
//! parameters; a case that is dropped by `?` from an `Option` with a value, by `.ok()` or by `if let` without `else`.
//! Two types of one name are told apart by how near they stand to their use.
//!
//! At 9e767b6 a parser of another make counted 1,638 methods, 808 of them outside their type's file and 383 outside its
//! folder, 86 functions with six parameters (97 with members of tuples), and 126 silent returns. This one counts 1,636,
//! 807, 382, 86 (97) and 126: it leaves out two methods for tests, and one of two types of one name is another.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod ceilings;
mod figures;
mod samples;
mod silent;
mod source;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ceilings::Ceilings;
use figures::Places;
use ike_test_namespace::{Lack, MUST, Need, Place};

ike_test_namespace::harness! {
    NOTHING => [
        no_figure_is_above_its_ceiling,
        samples::each_figure_counts_what_it_names,
        samples::silent_returns_count_in_all_spellings,
        samples::a_figure_that_rises_or_falls_is_told,
    ],
    GIT => [no_ceiling_was_raised, samples::a_raised_ceiling_is_found],
}

const NOTHING: Need = Need { met: || Ok(Place::Here) };

const GIT: Need = Need {
    met: || match Command::new("git").arg("--version").output() {
        Ok(_) => Ok(Place::Here),
        Err(_) => Err(Lack::of("no git", MUST)),
    },
};

/// The crates that are measured, the engine first.
const CRATES: &[&str] = &[
    "ike-proto",
    "eap",
    "esp",
    "ike-aaa",
    "ike-config",
    "ike-control",
    "ike-daemon",
    "ike-tokio",
    "ike-wire",
    "ipsec-types",
    "pki",
    "pq-kem",
    "routes",
    "vici",
    "xfrm",
];

/// The file of ceilings, from the root of the workspace.
const FILE: &str = "tests/layout/tests/shape/shape.txt";

fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every figure of every crate, as `crate: figure`, with its places. `IKE_SHAPE_TREE` names another work tree.
fn places() -> Places {
    let tree = std::env::var_os("IKE_SHAPE_TREE").map_or_else(workspace, PathBuf::from);
    let of = |name: &str| {
        let src = tree.join("crates").join(name).join("src");
        let engine = name == CRATES[0];
        let of = if engine { figures::of_engine(&src) } else { figures::of_other(&src) };
        let named = of.into_iter().map(|(figure, places)| (format!("{name}: {figure}"), places));
        named.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let crates: Vec<_> = CRATES.iter().map(|name| scope.spawn(|| of(name))).collect();
        crates.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    })
    .into_iter()
    .collect()
}

/// Fault: in the engine, move a method of a type into another file; or make a field of `channel/window` public; or import `crate::exchange` in `channel`.
fn no_figure_is_above_its_ceiling() {
    let places = places();
    let file = workspace().join(FILE);
    let text = fs::read_to_string(&file).unwrap();
    let listed = Ceilings::parse(&text);
    let now = Ceilings::of(&places, &listed);
    let asked = std::env::var("IKE_SHAPE").unwrap_or_default();
    if asked == "write" {
        fs::write(&file, listed.lowered_to(&now).write(&text)).unwrap();
        return;
    }
    if !asked.is_empty() {
        for (figure, places) in places.iter().filter(|(figure, _)| figure.contains(&asked)) {
            println!("{figure} {}", places.len());
            places.iter().for_each(|place| println!("    {place}"));
        }
        return;
    }
    let (risen, fallen) = listed.compare(&now);
    let why = "IKE_SHAPE=FIGURE cargo test -p ike-test-layout --test shape prints the places";
    assert!(risen.is_empty(), "above the ceilings of {FILE}: {risen:#?}\n{why}");
    let how = "lower them: IKE_SHAPE=write cargo test -p ike-test-layout --test shape";
    assert!(fallen.is_empty(), "below the ceilings of {FILE}: {fallen:#?}\n{how}");
}

/// Fault: in `shape.txt`, raise a number, or take a line out.
fn no_ceiling_was_raised() {
    let faults = ceilings::faults_of_history(&workspace(), FILE);
    assert!(faults.is_empty(), "{faults:#?}");
}
