//! Mistakes in a configuration file, and where they are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use zeroize::Zeroizing;

/// One mistake: its place, its description, and the expected value. `Display` writes no place; that of [`ConfigError`]
/// does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The included file that has the mistake; `None` for the main file.
    pub file: Option<PathBuf>,
    /// Line, from 1; 0 if the mistake is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 if the mistake is about the file as a whole.
    pub column: usize,
    /// The description. Never repeats a secret.
    pub message: String,
    /// The expected value.
    pub expected: Option<String>,
    /// The nearest known name.
    pub suggestion: Option<String>,
    /// True if something is absent. [`Report::finish`] leaves such a mistake out if the file has a syntax error.
    pub missing: bool,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(expected) = &self.expected {
            write!(f, ": expected {expected}")?;
        }
        if let Some(name) = &self.suggestion {
            write!(f, "; did you mean `{name}`?")?;
        }
        Ok(())
    }
}

/// All mistakes of a configuration file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Its mistakes; never empty.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigError {
    /// An error about the file as a whole.
    pub fn whole(file: &Path, message: impl Into<String>) -> Self {
        let diagnostic = Diagnostic {
            file: None,
            line: 0,
            column: 0,
            message: message.into(),
            expected: None,
            suggestion: None,
            missing: false,
        };
        Self { file: file.to_path_buf(), diagnostics: vec![diagnostic] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let file = diagnostic.file.as_ref().unwrap_or(&self.file).display();
            match diagnostic.line {
                0 => write!(f, "{file}: {diagnostic}")?,
                line => write!(f, "{file}:{line}:{}: {diagnostic}", diagnostic.column)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Where the text of an included file begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) start: usize,
    pub(crate) file: PathBuf,
}

/// Offsets from here on are of no file: what they are about came another way.
pub(crate) const ELSEWHERE: usize = usize::MAX / 2;

/// The place of an option. A [`Report`] translates it to a line.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub(crate) usize);

impl Place {
    /// Where `value` begins.
    pub(crate) fn of<T>(value: &Spanned<T>) -> Self {
        Self(value.span().start)
    }
}

/// Settings that are equal are printed equally, wherever they stand.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

/// Collects mistakes and warnings with their lines. Both passes add to it.
pub struct Report {
    text: Arc<Zeroizing<String>>,
    /// The files that the text is of, one behind the other; none if it is one file.
    sources: Vec<Source>,
    /// The text is in this project's own format, which has defaults of its own.
    own: bool,
    /// Mistakes of the syntax, and where.
    syntax: Vec<(usize, String)>,
    found: Vec<(usize, Diagnostic)>,
    warnings: Vec<String>,
    /// Warnings about places in the file have been told.
    told: bool,
}

/// The text may have secrets in it.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { syntax, found, warnings, .. } = self;
        f.debug_struct("Report")
            .field("syntax", syntax)
            .field("found", found)
            .field("warnings", warnings)
            .finish_non_exhaustive()
    }
}

impl Report {
    /// Of a file in this project's own format.
    pub(crate) fn new(text: Arc<Zeroizing<String>>) -> Self {
        Self { own: true, ..Self::of_files(text, Vec::new()) }
    }

    /// Of what is not in a file, over a file of this project's own format or another. What is to be warned of in the
    /// file itself was told when the file was read.
    pub(crate) fn over(own: bool) -> Self {
        Self { own, told: true, ..Self::of_files(Arc::default(), Vec::new()) }
    }

    /// True if what stands at `place` has the defaults of this project's own format; what control clients load has those
    /// of swanctl.conf(5).
    pub(crate) fn has_own_defaults(&self, place: Place) -> bool {
        self.own && place.0 < ELSEWHERE
    }

    /// Of a text that is of several files, one behind the other.
    pub(crate) fn of_files(text: Arc<Zeroizing<String>>, sources: Vec<Source>) -> Self {
        let (syntax, found, warnings) = (Vec::new(), Vec::new(), Vec::new());
        Self { text, sources, own: false, syntax, found, warnings, told: false }
    }

    /// The file's text, to look at what a span covers.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Takes in the mistakes of the syntax.
    pub(crate) fn add_syntax(&mut self, mistakes: impl IntoIterator<Item = (usize, String)>) {
        self.syntax.extend(mistakes);
    }

    /// True if no mistake was found so far.
    pub fn is_clean(&self) -> bool {
        self.syntax.is_empty() && self.found.is_empty()
    }

    /// Adds a mistake at `place`.
    pub fn add(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        let (line, column) = self.position(place.0);
        let diagnostic = Diagnostic {
            file: self.source(place.0).map(|source| source.file.clone()),
            line,
            column,
            message: message.into(),
            expected: None,
            suggestion: None,
            missing: false,
        };
        self.found.push((place.0, diagnostic));
        let (_, diagnostic) = self.found.last_mut().expect("just pushed");
        diagnostic
    }

    /// Adds a mistake of another file, without a line. `message` names that file.
    pub fn about_file(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        let diagnostic = self.add(Place(self.text.len()), message);
        (diagnostic.file, diagnostic.line, diagnostic.column) = (None, 0, 0);
        diagnostic
    }

    /// Adds a warning, with the line of `place` if it is about this file.
    pub fn warn(&mut self, place: Option<Place>, message: impl fmt::Display) {
        self.warnings.push(match place {
            Some(Place(offset)) if offset < ELSEWHERE => {
                if self.told {
                    return;
                }
                let file = self.source(offset).map(|source| format!("{}, ", source.file.display()));
                format!("{}line {}: {message}", file.unwrap_or_default(), self.position(offset).0)
            }
            _ => message.to_string(),
        });
    }

    /// Takes the warnings out.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Adds a mistake with the expected value.
    pub fn expected(
        &mut self,
        place: Place,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> &mut Diagnostic {
        let diagnostic = self.add(place, message);
        diagnostic.expected = Some(expected.into());
        diagnostic
    }

    /// Adds a mistake about a key or certificate that is absent. In a section that a control client has loaded it is a
    /// warning, because the client may load the key or certificate later. So it is in the file's, if that is swanctl's as
    /// well: the client may have unloaded it.
    pub fn lack(&mut self, place: Place, message: String, expected: &str) {
        if self.may_lack(place) {
            self.warn(None, format!("{message}: expected {expected}"));
        } else {
            self.expected(place, message, expected);
        }
    }

    /// True if [`Self::lack`] only warns of what is absent at `place`.
    pub fn may_lack(&self, place: Place) -> bool {
        place.0 >= ELSEWHERE || (self.told && !self.own)
    }

    /// Ends the collecting: all mistakes, in the order of the file. After a mistake of the syntax, what is missing or
    /// stands on the same line is not reported, because that mistake may be its cause.
    pub fn finish(self) -> Vec<Diagnostic> {
        let mut syntax = Self::of_files(Arc::clone(&self.text), self.sources);
        for (offset, message) in self.syntax {
            syntax.add(Place(offset), message);
        }
        let place = |d: &Diagnostic| (d.file.clone(), d.line);
        let lines: Vec<_> = syntax.found.iter().map(|(_, d)| place(d)).collect();
        let ours = self.found.into_iter().filter(|(_, diagnostic)| {
            lines.is_empty() || !(diagnostic.missing || lines.contains(&place(diagnostic)))
        });
        let mut all: Vec<_> = syntax.found.into_iter().chain(ours).collect();
        all.sort_by_key(|(offset, _)| *offset);
        let mut all: Vec<_> = all.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        all.dedup();
        all
    }

    /// The included file that `offset` is in.
    fn source(&self, offset: usize) -> Option<&Source> {
        let sources = if offset < ELSEWHERE { &self.sources[..] } else { &[] };
        sources.iter().rev().find(|source| source.start <= offset)
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        if offset >= ELSEWHERE {
            return (0, 0);
        }
        let from = self.source(offset).map_or(0, |source| source.start);
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = self.text.get(from..end).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (line, before.get(start..).unwrap_or_default().chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let report = Report::new(Arc::new(Zeroizing::new("a\nbü = 1\n".to_owned())));
        assert_eq!(report.position(0), (1, 1));
        assert_eq!(report.position(2), (2, 1));
        assert_eq!(report.position(5), (2, 3));
        assert_eq!(report.position(4), (2, 2));
        assert_eq!(report.position(999), (3, 1));
    }
}
