//! The requirements that comments quote stand in the RFCs, word for word.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ike_test_layout::{Mistake, Quote, Text};

/// The texts, each at its host and path with `.txt` at the end.
const TEXTS: &str = "tests/specifications";

/// A check that finds no quotes holds nothing. There are 258 at the time of writing.
const LEAST: usize = 250;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below `folder` whose names end with `end`, except what is built.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, end));
        } else if path.to_str().unwrap().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Fault: in a comment that begins with `//#`, change a word, or in the line above it a section's number.
#[test]
fn every_quote_stands_in_its_section() {
    let root = workspace();
    let folder = root.join(TEXTS);
    let mut texts = BTreeMap::new();
    for path in files(&folder, ".txt") {
        let name = path.strip_prefix(&folder).unwrap().with_extension("");
        let text = Text::read(&fs::read_to_string(&path).unwrap());
        // How often it is quoted.
        texts.insert(name.to_str().unwrap().to_owned(), (text, 0));
    }
    let mut mistakes = Vec::new();
    for part in ["crates", "tests", "benches", "fuzz"] {
        for path in files(&root.join(part), ".rs") {
            let name = path.strip_prefix(&root).unwrap();
            let quotes = Quote::read(name, &fs::read_to_string(&path).unwrap());
            let quotes = quotes.unwrap_or_else(|mistake| {
                mistakes.push(mistake.to_string());
                Vec::new()
            });
            for quote in quotes {
                let checked = match texts.get_mut(&quote.document) {
                    Some((text, quoted)) => {
                        *quoted += 1;
                        text.check(&quote)
                    }
                    None => Err(Mistake {
                        file: quote.file,
                        line: quote.line,
                        what: format!("{TEXTS} has no {}.txt", quote.document),
                    }),
                };
                mistakes.extend(checked.err().map(|mistake| mistake.to_string()));
            }
        }
    }
    for (name, (_, quoted)) in &texts {
        if *quoted == 0 {
            mistakes.push(format!("{TEXTS}/{name}.txt: nothing quotes it; delete it"));
        }
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
    let found: usize = texts.values().map(|(_, quoted)| quoted).sum();
    assert!(found >= LEAST, "{found} quotes");
}
