//! Commands in the documents: the package, test, example, script, option or scenario that each names exists. Those of
//! the pages about measurements also run (benches/tests/documented).

use std::fs;
use std::path::{Path, PathBuf};

use super::{documents, read, root};

/// The commands of a document, from its code spans and its indented and fenced blocks.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block = String::new();
    for line in text.lines() {
        if let Some(code) = line.strip_prefix("    ") {
            block.push_str(code.trim_end());
            if block.ends_with('\\') {
                block.pop();
                continue;
            }
            found.push(std::mem::take(&mut block));
        }
        found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    let parts = found.iter().flat_map(|line| line.split(" && "));
    parts.map(|part| part.split(" #").next().unwrap_or_default().trim().to_owned()).collect()
}

/// Words of a command line, without quotes and without variables before the program.
fn words(command: &str) -> Vec<String> {
    let words = command.split_whitespace().map(|word| word.trim_matches('\'').to_owned());
    words
        .skip_while(|word| {
            word.split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        })
        .collect()
}

/// The folder of a package of this workspace.
fn package(name: &str) -> Option<PathBuf> {
    let inside = ["crates", "tests"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path())
    });
    let others = ["tests", "benches", "fuzz"].map(|folder| root().join(folder));
    let line = format!("name = \"{name}\"");
    inside.chain(others).find(|folder| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|written| written == line)
    })
}

/// All text of a test target: a file, or a folder with its modules.
fn test_text(folder: &Path, name: &str) -> Option<String> {
    let file = folder.join("tests").join(format!("{name}.rs"));
    if let Ok(text) = fs::read_to_string(file) {
        return Some(text);
    }
    let mut text = String::new();
    let mut folders = vec![folder.join("tests").join(name)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()? {
            let path = entry.ok()?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                text += &fs::read_to_string(path).ok()?;
            }
        }
    }
    Some(text)
}

/// What is wrong with a command of cargo.
fn cargo(words: &[String]) -> Option<String> {
    let after = |option: &str| {
        let at = words.iter().position(|word| word == option)?;
        words.get(at + 1).cloned()
    };
    let name = after("-p")?;
    let Some(folder) = package(&name) else {
        return Some(format!("there is no package {name}"));
    };
    if let Some(example) = after("--example") {
        let file = folder.join("examples").join(format!("{example}.rs"));
        if !file.exists() && !folder.join("examples").join(&example).join("main.rs").exists() {
            return Some(format!("{name} has no example {example}"));
        }
    }
    let test = after("--test")?;
    let Some(text) = test_text(&folder, &test) else {
        return Some(format!("{name} has no test {test}"));
    };
    let at = words.iter().position(|word| *word == test)?;
    let filter = words.get(at + 1).filter(|word| !word.starts_with('-'))?;
    let is_named = |part: &str| {
        text.lines().any(|line| {
            let line = line.trim_start();
            let item = line.strip_prefix("mod ").or_else(|| line.split("fn ").nth(1));
            item.is_some_and(|item| {
                let end = item.find(|c: char| !c.is_alphanumeric() && c != '_');
                item[..end.unwrap_or(item.len())].contains(part)
            })
        })
    };
    let unknown = filter.split("::").find(|part| !is_named(part))?;
    Some(format!("{name}, {test}: no test is called {unknown}"))
}

/// What is wrong with a run of the lab.
fn lab(words: &[String]) -> Option<String> {
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(root().join("tests/lab/scenarios")).expect("scenarios") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        scenarios.push(name.trim_end_matches(".sh").to_owned());
    }
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "-p" | "-k" | "-j") {
            words.next();
            continue;
        }
        if word.starts_with('-') || word.starts_with('…') || word.starts_with('[') {
            continue;
        }
        let pattern = word.split(['@', ':']).next().unwrap_or_default();
        let is_there = match pattern.strip_suffix('*') {
            Some(beginning) => scenarios.iter().any(|name| name.starts_with(beginning)),
            None => scenarios.iter().any(|name| name == pattern),
        };
        if !is_there {
            return Some(format!("the lab has no scenario {word}"));
        }
        // A case, if one is named, stands in the scenario's list of cases.
        if let Some(case) = word.split_once('@').map(|(_, case)| case) {
            let case = case.split(':').next().unwrap_or_default();
            let text = read(&format!("tests/lab/scenarios/{pattern}.sh"));
            let lists = text
                .lines()
                .filter(|line| line.starts_with("# CASES:") || line.starts_with("# MORE:"));
            if !lists.flat_map(str::split_whitespace).any(|word| word == case) {
                return Some(format!("{pattern} has no case {case}"));
            }
        }
    }
    None
}

/// Where scripts are.
const FOLDERS: [&str; 8] = [
    ".ci",
    "benches",
    "crates/ike-daemon/dist",
    "crates/pki/tests/fixtures",
    "docs/links",
    "tests",
    "tests/lab",
    "tests/vici-clients",
];

/// The path of the script that a command starts, `load.sh` as well as `tests/lab/load.sh`, or what is wrong with it.
fn script(program: &str) -> Option<Result<String, String>> {
    let is_script = [".sh", ".py", "/run"].iter().any(|end| program.ends_with(end));
    let (folder, name) = program.rsplit_once('/').unwrap_or(("", program));
    let mut folders =
        FOLDERS.iter().filter(|known| folder.is_empty() || folder == **known).peekable();
    // What is in other folders is no script of the repository.
    if !is_script || folders.peek().is_none() {
        return None;
    }
    let path =
        folders.map(|folder| format!("{folder}/{name}")).find(|path| root().join(path).exists());
    Some(path.ok_or_else(|| format!("there is no {program}")))
}

/// An option that a script does not have. A script has those of its `getopts`; others stand in it as words.
fn option(path: &str, words: &[String]) -> Option<String> {
    let text = read(path);
    let letters = text.split_once("while getopts ").and_then(|(_, rest)| rest.split(' ').next());
    let mut words = words.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let Some(name) = word.trim_matches(['[', ']']).strip_prefix('-') else { continue };
        let is_known = match letters {
            Some(letters) => {
                let at = letters.find(name).filter(|_| name.chars().count() == 1);
                if at.is_some_and(|at| letters[at + 1..].starts_with(':')) {
                    words.next();
                }
                at.is_some()
            }
            None => {
                let ends = |c: char| c.is_whitespace() || matches!(c, ')' | '"' | '[' | ']');
                text.split(ends).any(|known| known.strip_prefix('-') == Some(name))
            }
        };
        if !is_known {
            return Some(format!("{path} has no option -{name}"));
        }
    }
    None
}

/// What is wrong with a command; `None` as well if it is of a kind that is not looked at.
fn fault(command: &str) -> Option<String> {
    let words = words(command);
    let program = words.first()?;
    if program == "cargo" {
        return cargo(&words);
    }
    let path = match script(program)? {
        // It starts the other script, which has the options.
        Ok(path) if path == ".ci/run" && words.get(1).is_some_and(|word| word == "full") => {
            ".ci/full".to_owned()
        }
        Ok(path) => path,
        Err(fault) => return Some(fault),
    };
    let unknown = option(&path, &words);
    unknown.or_else(|| (program == "tests/lab/run.sh").then(|| lab(&words)).flatten())
}

/// Fault: rename a scenario of the lab, a test or an example that a document names.
#[test]
fn what_commands_name_exists() {
    let mut faults = Vec::new();
    let mut seen = 0;
    for document in documents() {
        for command in commands(&read(&document)) {
            seen += usize::from(command.starts_with("cargo ") || command.starts_with("tests/"));
            faults.extend(fault(&command).map(|fault| format!("{document}: `{command}`: {fault}")));
        }
    }
    assert!(seen > 100, "only {seen} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Fault: in `cargo`, return `None` where the package is missing.
#[test]
fn commands_that_cannot_work_are_found() {
    for (command, expected) in [
        ("cargo run -p ike-protocol --example handshake", "there is no package ike-protocol"),
        ("cargo run -p ike-proto --example hand", "ike-proto has no example hand"),
        ("cargo test -p ike-tests --test none", "ike-tests has no test none"),
        ("cargo test -p ike-tests --test it zebra", "ike-tests, it: no test is called zebra"),
        ("cargo test -p ike-tests --test it auth::zebra", "ike-tests, it: no test is called zebra"),
        ("IKE_X=1 tests/lab/nothing.sh", "there is no tests/lab/nothing.sh"),
        ("tests/lab/run.sh nat 'absent*'", "the lab has no scenario absent*"),
        ("tests/lab/run.sh -j 3 eap@nobody", "eap has no case nobody"),
        ("tests/lab/run.sh --lost nat", "tests/lab/run.sh has no option --lost"),
        ("tests/lab/links.sh -n 5 -z", "tests/lab/links.sh has no option -z"),
        ("load.sh -m 0.34 -x 1.3", "tests/lab/load.sh has no option -x"),
        ("nothing.sh -m 0.34", "there is no nothing.sh"),
    ] {
        assert_eq!(fault(command).as_deref(), Some(expected));
    }
    assert_eq!(fault("tests/lab/run.sh nat 'kernel-*' eap@radius-them:userspace"), None);
}

/// Fault: remove the command from a row of docs/status.md.
#[test]
fn every_row_of_the_status_has_a_command_that_shows_it() {
    let text = read("docs/status.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.contains("| state |"));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{row}");
        match cells[2] {
            "done" | "partial" => assert!(cells[4].contains('`'), "no command: {row}"),
            "never" | "not" => {}
            state => panic!("{state} is no state: {row}"),
        }
        seen += 1;
    }
    assert!(seen > 40, "only {seen} rows");
}
