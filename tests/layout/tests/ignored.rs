//! A test that the machine cannot run is reported as ignored (`ike_test_namespace`), and never as passed.

use std::fs;
use std::path::{Path, PathBuf};

/// How tests said that they had shown nothing, and passed.
const SAYINGS: [&str; 5] =
    ["return eprintln!", "return println!", "not shown", "for lack of", "skipping"];

/// Every file of a program of tests.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("tests/tests"), root.join("benches/tests")];
    for entry in fs::read_dir(root.join("crates")).expect("crates") {
        folders.push(entry.expect("an entry").path().join("tests"));
    }
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        // A crate may have no tests of its own.
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The lines of a file in which a test passes with nothing shown, with their numbers.
fn faults(text: &str) -> Vec<usize> {
    let told = |line: &str| SAYINGS.iter().any(|saying| line.contains(saying));
    let silent = |line: &str| {
        // `let Ok(output) = Command::new("ip")… else { return };`: the program is not there.
        line.contains("Command::new(")
            && (line.contains("else { return") || line.ends_with("else {"))
    };
    let lines = text.lines().enumerate();
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let lines = lines.filter(|(_, line)| !is_comment(line) && (told(line) || silent(line)));
    lines.map(|(number, _)| number + 1).collect()
}

/// Fault: in crates/xfrm/tests/guest/policies.rs, begin a test with
/// `if true { return eprintln!("no kernel"); }`.
#[test]
fn no_test_passes_when_it_has_shown_nothing() {
    let files = files();
    assert!(files.len() > 200, "only {} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        found.extend(faults(&text).iter().map(|line| format!("{}:{line}", file.display())));
    }
    assert!(found.is_empty(), "use ike_test_namespace::harness! at {}", found.join(", "));
}

#[test]
fn sayings_and_silence_are_found() {
    let text = "    return eprintln!(\"no TUN\");\n    println!(\"not shown: BEET\");\n    \
                let Ok(o) = Command::new(\"ip\").output() else { return };\n    // What is not shown.\n";
    assert_eq!(faults(text), [1, 2, 3]);
}
