//! Mistakes in a configuration file, and where they are.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake: where it is, what is wrong, what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, if it is another than the one that was asked for: one that was included.
    pub file: Option<PathBuf>,
    /// Line, from 1; 0 if the mistake is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 if the mistake is about the file as a whole.
    pub column: usize,
    /// What is wrong. Never repeats a secret.
    pub message: String,
    /// What would have been right.
    pub expected: Option<String>,
    /// The nearest name that would have been right here.
    pub suggestion: Option<String>,
    /// True if something is absent; behind a syntax error that is no news.
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

/// Why a configuration could not be taken: every mistake of the file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Its mistakes; never empty.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigError {
    /// An error about the file as a whole.
    pub(crate) fn whole(file: &Path, message: impl Into<String>) -> Self {
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

/// Turns octet offsets into lines and columns, and collects the mistakes.
#[derive(Debug)]
pub(crate) struct Report<'t> {
    text: &'t str,
    /// The files that the text is of, one behind the other; none if it is one file.
    sources: &'t [Source],
    /// The text is in this daemon's own format, which has defaults of its own.
    own: bool,
    found: Vec<(usize, Diagnostic)>,
    warnings: Vec<String>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { own: true, ..Self::of_files(text, &[]) }
    }

    /// Of what is not in a file, over a file of this daemon's own format or another.
    pub(crate) fn over(own: bool) -> Self {
        Self { own, ..Self::of_files("", &[]) }
    }

    /// True if what stands at `offset` has the defaults of this daemon's own format; what control clients load has those
    /// of swanctl.conf(5).
    pub(crate) fn has_own_defaults(&self, offset: usize) -> bool {
        self.own && offset < ELSEWHERE
    }

    /// Of a text that is of several files, one behind the other.
    pub(crate) fn of_files(text: &'t str, sources: &'t [Source]) -> Self {
        Self { text, sources, own: false, found: Vec::new(), warnings: Vec::new() }
    }

    /// The file's text, to look at what a span covers.
    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    /// Adds a mistake at octet `offset`.
    pub(crate) fn add(&mut self, offset: usize, message: impl Into<String>) -> &mut Diagnostic {
        let (line, column) = self.position(offset);
        let diagnostic = Diagnostic {
            file: self.source(offset).map(|source| source.file.clone()),
            line,
            column,
            message: message.into(),
            expected: None,
            suggestion: None,
            missing: false,
        };
        self.found.push((offset, diagnostic));
        let (_, diagnostic) = self.found.last_mut().expect("just pushed");
        diagnostic
    }

    /// Adds a mistake that is in another file than this one.
    pub(crate) fn about_file(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        let diagnostic = self.add(self.text.len(), message);
        (diagnostic.file, diagnostic.line, diagnostic.column) = (None, 0, 0);
        diagnostic
    }

    /// Adds a warning, about what stands at `offset` if it is about this file.
    pub(crate) fn warn(&mut self, offset: Option<usize>, message: impl fmt::Display) {
        self.warnings.push(match offset {
            Some(offset) if offset < ELSEWHERE => {
                let file = self.source(offset).map(|source| format!("{}, ", source.file.display()));
                format!("{}line {}: {message}", file.unwrap_or_default(), self.position(offset).0)
            }
            _ => message.to_string(),
        });
    }

    /// Takes the warnings out.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Adds a mistake with what was expected.
    pub(crate) fn expected(
        &mut self,
        offset: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> &mut Diagnostic {
        let diagnostic = self.add(offset, message);
        diagnostic.expected = Some(expected.into());
        diagnostic
    }

    /// Adds a mistake about a key or certificate that is not there. What is loaded piece by piece may get it
    /// later, so that it is a warning there.
    pub(crate) fn lack(&mut self, offset: usize, message: String, expected: &str) {
        if offset >= ELSEWHERE {
            self.warn(None, format!("{message}: expected {expected}"));
        } else {
            self.expected(offset, message, expected);
        }
    }

    /// Ends the collecting. `syntax` are the mistakes of the TOML reader: with any of them, what is
    /// missing or stands on the same line is not reported, for it may be their consequence.
    pub(crate) fn finish(self, syntax: &[toml::de::Error]) -> Vec<Diagnostic> {
        let syntax = syntax.iter().map(|error| {
            let offset = error.span().map_or(self.text.len(), |span| span.start);
            (offset, format!("not valid TOML: {}", error.message()))
        });
        let syntax = syntax.collect();
        self.finish_with(syntax)
    }

    /// As [`finish`](Self::finish), with mistakes of any syntax and where they are.
    pub(crate) fn finish_with(self, syntax: Vec<(usize, String)>) -> Vec<Diagnostic> {
        let mut syntax_report = Report::of_files(self.text, self.sources);
        for (offset, message) in syntax {
            syntax_report.add(offset, message);
        }
        let place = |d: &Diagnostic| (d.file.clone(), d.line);
        let lines: Vec<_> = syntax_report.found.iter().map(|(_, d)| place(d)).collect();
        let ours = self.found.into_iter().filter(|(_, diagnostic)| {
            lines.is_empty() || !(diagnostic.missing || lines.contains(&place(diagnostic)))
        });
        let mut all: Vec<_> = syntax_report.found.into_iter().chain(ours).collect();
        all.sort_by_key(|(offset, _)| *offset);
        let mut all: Vec<_> = all.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        all.dedup();
        all
    }

    /// The included file that `offset` is in.
    fn source(&self, offset: usize) -> Option<&'t Source> {
        let sources = if offset < ELSEWHERE { self.sources } else { &[] };
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
        let report = Report::new("a\nbü = 1\n");
        assert_eq!(report.position(0), (1, 1));
        assert_eq!(report.position(2), (2, 1));
        assert_eq!(report.position(5), (2, 3));
        assert_eq!(report.position(4), (2, 2));
        assert_eq!(report.position(999), (3, 1));
    }
}
