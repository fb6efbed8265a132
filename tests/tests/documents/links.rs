//! Links between documents.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::{documents, read, root};

/// The lines of a document outside its fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim();
            let kept = heading.to_lowercase().replace(' ', "-");
            let kept: String =
                kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
            let count = seen.entry(kept.clone()).or_default();
            *count += 1;
            if *count == 1 { kept } else { format!("{kept}-{}", *count - 1) }
        })
        .collect()
}

/// The targets of the links in a document. Links may go over the end of a line.
fn targets(text: &str) -> Vec<String> {
    let lines: Vec<&str> = prose(text).filter(|line| !line.starts_with("    ")).collect();
    let text = lines.join("\n");
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let end = rest.find(')').expect("a link ends");
        found.push(rest[..end].trim().to_owned());
    }
    found
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the root", path.display()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Fault: rename a heading that another document links to, or move a file of docs/.
#[test]
fn every_relative_link_and_anchor_resolves() {
    let mut dead = Vec::new();
    let mut seen = 0;
    for document in documents() {
        let text = read(&document);
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = Path::new(&document).parent().unwrap_or(Path::new(""));
            let path =
                if path.is_empty() { PathBuf::from(&document) } else { plain(&folder.join(path)) };
            let there = root().join(&path).exists();
            let found = anchor.is_empty()
                || (there && anchors(&read(&path.to_string_lossy())).iter().any(|a| a == anchor));
            if !there || !found {
                dead.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(seen > 150, "only {seen} links were found");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Fault: take a page of docs/ out of the documents that lead to it.
#[test]
fn every_page_can_be_reached_from_the_readme() {
    let mut reached = vec!["README.md".to_owned()];
    let mut next = 0;
    while let Some(document) = reached.get(next).cloned() {
        next += 1;
        let folder = Path::new(&document).parent().unwrap_or(Path::new("")).to_owned();
        for target in targets(&read(&document)) {
            let path = target.split('#').next().unwrap_or_default();
            if path.ends_with(".md") && !path.contains("://") {
                let path = plain(&folder.join(path)).to_string_lossy().into_owned();
                if !reached.contains(&path) {
                    reached.push(path);
                }
            }
        }
    }
    let lost: Vec<String> = documents()
        .into_iter()
        .filter(|document| document.starts_with("docs/") || !document.contains('/'))
        .filter(|document| !reached.contains(document))
        .collect();
    assert!(lost.is_empty(), "no link leads to {lost:?}");
}

#[test]
fn anchors_are_made_like_githubs() {
    let text = "# A *b*: `c_d`!\n## Two words\n```\n# no heading\n```\n## Two words\n";
    assert_eq!(anchors(text), ["a-b-c_d", "two-words", "two-words-1"]);
}
