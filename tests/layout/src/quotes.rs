//! Quotes of RFCs and drafts in comments, and the texts that they come from.
//!
//! A quote is a run of comments: `//= URL#section-x.y` names its place, and `//# text` stands on one line or more
//! after that. Between them `//= type=test` marks a quote that a test stands for, and `//= type=exception` with
//! `//= reason=…` a requirement that is not met.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong with a quote, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The source file.
    pub file: PathBuf,
    /// Its line, counted from one.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// A quote in a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// The source file.
    pub file: PathBuf,
    /// The line of its URL, counted from one.
    pub line: usize,
    /// Where the document stands, without scheme and fragment.
    pub document: String,
    /// The number of the section, as `2.25.1`.
    pub section: String,
    /// The quoted words, with one space between them.
    pub words: String,
}

impl Quote {
    /// The quotes in `source`, the text of `file`, in their order.
    ///
    /// # Errors
    ///
    /// The first comment that begins like a quote and is none.
    pub fn read(file: &Path, source: &str) -> Result<Vec<Self>, Mistake> {
        let mut quotes = Vec::new();
        let mut block = Vec::new();
        for (line, text) in source.lines().chain([""]).zip(1..).map(|(text, line)| (line, text)) {
            let comment = text.trim_start().strip_prefix("//").and_then(|rest| {
                let text = rest.strip_prefix('=').map(|text| (true, text));
                text.or_else(|| rest.strip_prefix('#').map(|text| (false, text)))
            });
            let ends = match (&comment, block.last()) {
                // A new head begins after a quote, and after anything else.
                (Some((true, _)), Some((_, false, _))) | (None, Some(_)) => true,
                _ => false,
            };
            if ends {
                quotes.push(Self::of(file, &block)?);
                block.clear();
            }
            block.extend(comment.map(|(head, text)| (line, head, text.trim())));
        }
        Ok(quotes)
    }

    /// One quote: its lines with their numbers, and whether they belong to its head.
    fn of(file: &Path, block: &[(usize, bool, &str)]) -> Result<Self, Mistake> {
        let (line, ..) = block[0];
        let bad = |what: &str| Mistake { file: file.into(), line, what: what.to_owned() };
        let mut head = block.iter().filter(|(_, head, _)| *head).map(|(.., text)| *text);
        let place = head.next().and_then(|url| url.strip_prefix("https://"));
        let (document, section) = place
            .and_then(|place| place.split_once("#section-"))
            .ok_or_else(|| bad("a quote begins with `//= https://…#section-x`"))?;
        match (head.next(), head.next(), head.next()) {
            (None | Some("type=test"), None, None) => {}
            (Some("type=exception"), Some(reason), None)
                if reason.strip_prefix("reason=").is_some_and(|reason| !reason.is_empty()) => {}
            _ => {
                return Err(bad(
                    "only `type=test`, or `type=exception` and `reason=…`, may follow",
                ));
            }
        }
        let text = block.iter().filter(|(_, head, _)| !head).map(|(.., text)| *text);
        let words = words(&text.collect::<Vec<_>>().join("\n"));
        if words.is_empty() {
            return Err(bad("nothing is quoted: `//# text` is missing"));
        }
        Ok(Self {
            file: file.into(),
            line,
            document: document.to_owned(),
            section: section.to_owned(),
            words,
        })
    }
}

/// The sections of an RFC or draft.
#[derive(Debug)]
pub struct Text {
    /// The words of each section without those below it, by its number.
    sections: BTreeMap<String, String>,
}

impl Text {
    /// Reads a document in the form that the RFC Editor publishes as plain text.
    pub fn read(text: &str) -> Self {
        let mut sections: BTreeMap<String, String> = BTreeMap::new();
        let (mut last, mut open) = (Vec::new(), None);
        let mut new_page = false;
        for line in text.lines() {
            let (line, breaks) =
                line.strip_prefix('\x0c').map_or((line, false), |line| (line, true));
            new_page |= breaks;
            // The foot of a page, and the head of the next.
            let foot = line.ends_with(']') && line.contains("[Page ");
            if line.trim().is_empty() || foot || std::mem::take(&mut new_page) {
                continue;
            }
            // The text itself is indented.
            if !line.starts_with(' ') {
                let next = heading(line).filter(|number| follows(&last, number));
                open = next.as_ref().map(|number| {
                    let parts: Vec<_> = number.iter().map(u32::to_string).collect();
                    parts.join(".")
                });
                last = next.unwrap_or(last);
            }
            if let Some(open) = &open {
                let section = sections.entry(open.clone()).or_default();
                section.push_str(line);
                section.push('\n');
            }
        }
        sections.values_mut().for_each(|text| *text = words(text));
        Self { sections }
    }

    /// Looks for `quote` in its section.
    ///
    /// # Errors
    ///
    /// There is no such section, or it has other words.
    pub fn check(&self, quote: &Quote) -> Result<(), Mistake> {
        let bad = |what| Mistake { file: quote.file.clone(), line: quote.line, what };
        let Quote { document, section, .. } = quote;
        let text = self
            .sections
            .get(section)
            .ok_or_else(|| bad(format!("{document} has no section {section}")))?;
        // A quote neither begins nor ends within a word.
        let joined = |left: &str, right: &str| {
            let ends = [left.chars().next_back(), right.chars().next()];
            ends.iter().all(|char| char.is_some_and(char::is_alphanumeric))
        };
        let whole = text.match_indices(&quote.words).any(|(at, found)| {
            !joined(&text[..at], found) && !joined(found, &text[at + found.len()..])
        });
        let missing =
            || bad(format!("{document} does not say in section {section}: {}", quote.words));
        if whole { Ok(()) } else { Err(missing()) }
    }
}

/// The words of a text with one space between them. A line may end after a hyphen.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("- ", "-")
}

/// The number of a section, if `line` is its heading and not its line in the table of contents.
fn heading(line: &str) -> Option<Vec<u32>> {
    let (number, title) = line.split_once(' ')?;
    let contents = title.ends_with(|char: char| char.is_ascii_digit())
        && (title.contains("...") || title.contains(". . "));
    if contents || title.trim().is_empty() {
        return None;
    }
    let number = number.strip_suffix('.').unwrap_or(number);
    number.split('.').map(|part| part.parse().ok()).collect()
}

/// True if a section `next` may follow the section `last`: its first subsection, or the next one at any level.
fn follows(last: &[u32], next: &[u32]) -> bool {
    let Some((end, above)) = next.split_last() else { return false };
    if above == last {
        return *end == 1;
    }
    last.get(..above.len()) == Some(above) && last.get(above.len()).is_some_and(|at| at + 1 == *end)
}

#[cfg(test)]
mod tests;
