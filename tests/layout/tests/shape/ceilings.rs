//! `shape.txt`: a ceiling for each figure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::figures::Places;

/// Why the figures of one version of the file are not those of the version before.
const VERSIONS: &[&str] = &["the first: what stood in the tree"];

/// The ceilings of one state of the file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ceilings {
    version: usize,
    figures: BTreeMap<String, usize>,
}

impl Ceilings {
    /// # Panics
    ///
    /// If a line is none of the file.
    pub(crate) fn parse(text: &str) -> Self {
        let mut ceilings = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parts = line.rsplit_once(' ').and_then(|(name, number)| {
                let number = number.parse().ok()?;
                Some((name, number))
            });
            match parts {
                Some(("version", number)) => ceilings.version = number,
                Some((name, number)) => {
                    let before = ceilings.figures.insert(name.to_owned(), number);
                    assert_eq!(before, None, "{name} is there twice");
                }
                None => panic!("neither a figure nor a comment: {line}"),
            }
        }
        ceilings
    }

    pub(crate) fn of(places: &Places, listed: &Self) -> Self {
        let mut figures = BTreeMap::new();
        for (figure, places) in places {
            // Sums say how large the crate is, and may rise.
            let sum = figure.ends_with(": methods") || figure.ends_with(": methods and functions");
            let of_type = figure.contains(" of ");
            if !sum && (!of_type || listed.figures.contains_key(figure)) {
                figures.insert(figure.clone(), places.len());
            }
        }
        for figure in listed.figures.keys() {
            figures.entry(figure.clone()).or_insert(0);
        }
        Self { version: listed.version, figures }
    }

    /// The lower of these and of what is now.
    pub(crate) fn lowered_to(&self, now: &Self) -> Self {
        let mut lowered = self.clone();
        for (figure, ceiling) in &mut lowered.figures {
            *ceiling = now.figures.get(figure).map_or(0, |now| *now.min(ceiling));
        }
        lowered
    }

    /// The file with these figures, below the comment of `text`.
    pub(crate) fn write(&self, text: &str) -> String {
        let mut lines: Vec<_> = text.lines().take_while(|line| line.starts_with('#')).collect();
        lines.extend(["", ""]);
        let mut written = lines.join("\n");
        writeln!(written, "version {}", self.version).expect("a string takes all");
        for (figure, number) in &self.figures {
            writeln!(written, "{figure} {number}").expect("a string takes all");
        }
        written
    }

    /// How `now` differs from these: what has risen, and what has fallen.
    pub(crate) fn compare(&self, now: &Self) -> (Vec<String>, Vec<String>) {
        let (mut risen, mut fallen) = (Vec::new(), Vec::new());
        for (figure, &number) in &now.figures {
            let ceiling = self.figures.get(figure).copied().unwrap_or_default();
            match number.cmp(&ceiling) {
                std::cmp::Ordering::Greater => {
                    risen.push(format!("{figure} {number}, above {ceiling}"))
                }
                std::cmp::Ordering::Less => {
                    fallen.push(format!("{figure} {number}, below {ceiling}"))
                }
                std::cmp::Ordering::Equal => {}
            }
        }
        (risen, fallen)
    }

    /// The faults of a state of the file that came after this one.
    fn follow(&self, next: &Self) -> Vec<String> {
        if next.version != self.version {
            let known = next.version == self.version + 1 && next.version <= VERSIONS.len();
            return if known {
                Vec::new()
            } else {
                vec![format!("version {} has no reason", next.version)]
            };
        }
        let mut faults = Vec::new();
        for (figure, &number) in &next.figures {
            match self.figures.get(figure) {
                Some(&before) if before < number => {
                    faults.push(format!("{figure} rises from {before} to {number}"))
                }
                // A type that was not listed by its name.
                None if !figure.contains(" of ") => {
                    faults.push(format!("{figure} {number} is new"))
                }
                _ => {}
            }
        }
        let names = |of: &Self| of.figures.keys().cloned().collect::<BTreeSet<_>>();
        faults
            .extend(names(self).difference(&names(next)).map(|figure| format!("{figure} is gone")));
        faults
    }
}

/// What the history of a file of ceilings does that it may not: raise one, or lose one.
pub(crate) fn faults_of_history(tree: &Path, file: &str) -> Vec<String> {
    let shallow = git(tree, &["rev-parse", "--is-shallow-repository"]);
    if shallow.trim() == "true" {
        return vec!["this clone is shallow: run git fetch --unshallow".to_owned()];
    }
    let log = git(
        tree,
        &["log", "--reverse", "--topo-order", "--full-history", "--format=%h", "--", file],
    );
    let mut faults = Vec::new();
    let mut before: Option<Ceilings> = None;
    let states =
        log.lines().map(|commit| (commit, git(tree, &["show", &format!("{commit}:./{file}")])));
    let now = std::fs::read_to_string(tree.join(file)).unwrap_or_default();
    for (commit, text) in states.chain([("the changed file", now)]) {
        let state = Ceilings::parse(&text);
        let found = before.map(|before| before.follow(&state)).unwrap_or_default();
        faults.extend(found.into_iter().map(|fault| format!("{commit}: {fault}")));
        before = Some(state);
    }
    faults
}

/// What git prints.
fn git(tree: &Path, arguments: &[&str]) -> String {
    let done = Command::new("git").args(arguments).current_dir(tree).output().expect("git runs");
    assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}
