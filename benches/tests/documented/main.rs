//! Every command on the pages about measurements runs, at a small size: docs/performance, docs/links,
//! docs/benchmarks and benches/README.md. `rules.rs` says how small, and what stands in for the commands that
//! need a second host, root or the lab.

#![allow(clippy::unwrap_used, reason = "tests")]

mod commands;
mod place;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

use commands::Written;
use ike_test_namespace::{Lack, Need};
use place::Place;

ike_test_namespace::harness! {
    NOTHING => [
        commands_of_the_pages_about_performance_run,
        commands_of_the_pages_about_links_run,
        commands_of_the_pages_about_the_benchmarks_run,
        a_command_that_no_rule_is_for_is_an_error,
        commands_are_found_where_they_stand,
    ],
    LAB => [commands_of_the_lab_run],
}

/// Every machine can run it.
const NOTHING: Need = Need { met: || Ok(ike_test_namespace::Place::Here) };

/// Root and the lab. They are not looked for, because `tests/lab/setup.sh` may still be at work.
const LAB: Need = Need {
    met: || match std::env::var_os("IKE_LAB_TESTS") {
        Some(_) => Ok(ike_test_namespace::Place::Here),
        None => {
            let what = "no IKE_LAB_TESTS=1, which says that the lab is set up and this is root";
            Err(Lack { what: what.to_owned(), fails: false })
        }
    },
};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// A file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages of a folder.
fn pages(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<_> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")).collect();
    found.sort();
    found
}

/// Runs every command of `document`; what is wrong with each that failed.
fn run(document: &str, faults: &mut Vec<String>) -> usize {
    let (written, mut wrong) = commands::of(document, &read(document));
    faults.append(&mut wrong);
    let mut place: Option<(usize, Place)> = None;
    for command in &written {
        // What a section's commands write is there for the later ones of that section.
        let here = match &mut place {
            Some((section, here)) if *section == command.section => here,
            _ => &mut place.insert((command.section, Place::new(document, command.section))).1,
        };
        let begun = std::time::Instant::now();
        if let Err(why) = rules::run(command, here) {
            faults.push(format!("{command}: {why}"));
        }
        eprintln!("{:6} ms  {command}", begun.elapsed().as_millis());
    }
    written.len()
}

#[track_caller]
fn all_run(documents: &[String], least: usize) {
    let mut faults = Vec::new();
    let seen: usize = documents.iter().map(|document| run(document, &mut faults)).sum();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen >= least, "only {seen} commands were found in {documents:?}");
}

/// Fault: on a page, give `ike-bench memory` an option that it does not have.
fn commands_of_the_pages_about_performance_run() {
    let mut documents = pages("docs/performance");
    documents.push("docs/performance.md".to_owned());
    all_run(&documents, 30);
}

/// Fault: in docs/links/real.md, let `--from` name a file that no command of the page writes.
fn commands_of_the_pages_about_links_run() {
    all_run(&pages("docs/links"), 16);
}

/// Fault: in benches/README.md, leave out the line with `scp`.
fn commands_of_the_pages_about_the_benchmarks_run() {
    let mut documents = pages("docs/benchmarks");
    documents.push("benches/README.md".to_owned());
    all_run(&documents, 25);
}

/// Fault: in tests/lab/guest/links.sh, start `ike-bench links` with `--too` in the place of `--to`.
fn commands_of_the_lab_run() {
    let mut documents = [pages("docs/performance"), pages("docs/links")].concat();
    documents.push("benches/README.md".to_owned());
    let (mut faults, mut seen) = (Vec::new(), Vec::new());
    for document in documents {
        for command in commands::of(&document, &read(&document)).0 {
            let Some(small) = rules::in_the_lab(&command).unwrap() else { continue };
            // What differs in its size only runs once.
            if seen.contains(&small) {
                continue;
            }
            let begun = std::time::Instant::now();
            let place = Place::new(&document, command.line);
            if let Err(why) = place.in_the_lab(&small.words, &small.variables) {
                faults.push(format!("{command}: {why}"));
            }
            eprintln!("{:6} ms  {}", begun.elapsed().as_millis(), small.words.join(" "));
            seen.push(small);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen.len() > 5, "{seen:?}");
}

/// Fault: in `rules::run`, return `Ok(())` where no rule is for the command.
fn a_command_that_no_rule_is_for_is_an_error() {
    for (text, why) in [
        ("tests/lab/new.sh -n 5", "no rule"),
        ("ike-bench new", "no rule"),
        ("cargo install ike-bench", "no rule"),
        ("ike-bench kem --sas 5", "unexpected argument '--sas'"),
        ("tests/lab/links.sh -n 5 -z", "illegal option -- z"),
        ("tests/lab/setup.sh --heavy", "--heavy"),
        ("cargo build -p ike-bench --features backends", "no feature backends"),
        ("cargo bench -p ike-bench --bench new", "benches has no new"),
    ] {
        let command = Written::new("page.md", 7, text);
        let said = rules::run(&command, &mut Place::new("page.md", 0)).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
        assert!(command.to_string().starts_with("page.md:7: "), "{command}");
    }
}

/// Fault: in `commands::of`, take indented lines of no known program for output.
fn commands_are_found_where_they_stand() {
    let text = "# Page\n\n    cargo build -p a && benches/b.sh 1   # why\n    X=2 benches/b.sh\n\n\
                In `ike-bench\nlinks` and `perf`:\n\n    ike-bench load --to a \\\n        --csv b\n\
                \x20   nosuch thing\n\n## Next\n\n    host a$ ike-bench serve &\n";
    let (found, wrong) = commands::of("page.md", text);
    let found: Vec<_> = found.iter().map(|c| (c.section, c.line, c.text.as_str())).collect();
    let expected = [
        (0, 3, "cargo build -p a"),
        (0, 3, "benches/b.sh 1"),
        (0, 4, "X=2 benches/b.sh"),
        (0, 6, "ike-bench links"),
        (0, 9, "ike-bench load --to a --csv b"),
        (1, 15, "ike-bench serve &"),
    ];
    assert_eq!(found, expected);
    assert_eq!(wrong, ["page.md:11: `nosuch thing`: neither a command nor output that is known"]);
}
