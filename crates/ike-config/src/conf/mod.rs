//! strongSwan's settings syntax, as in swanctl.conf(5) and strongswan.conf(5): sections in braces, `key =
//! value`, comments, quotes, `include` and references. It becomes the same tree of sections as a TOML file.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::diagnostic::Source;
use crate::host::{Host, read_text};

mod node;
mod scan;

use node::Node;
use scan::Scanner;

/// Files within files.
const DEEPEST_INCLUDE: usize = 10;
/// Sections within sections.
const DEEPEST_SECTION: usize = 32;
/// Files in all.
const MOST_FILES: usize = 4096;

/// Sections that the program reads; others at the top are there to be referred to.
const KNOWN: [&str; 5] = ["authorities", "charon", "connections", "pools", "secrets"];

/// A file and all that it includes, read.
pub(crate) struct Sections {
    /// The texts, one behind the other.
    pub(crate) text: Zeroizing<String>,
    /// Where each of the files begins; none if there is but one.
    pub(crate) sources: Vec<Source>,
    /// The sections.
    pub(crate) table: toml::de::DeTable<'static>,
    /// What is wrong with the syntax, and where.
    pub(crate) mistakes: Vec<(usize, String)>,
}

/// Reads the file at `path`, whose text is `text`.
pub(crate) fn read(path: &Path, text: Zeroizing<String>, host: &dyn Host) -> Sections {
    let mut reader = Reader::new(host);
    let mut root = Node::new(0);
    reader.file(path, text, &mut root, 0);
    let mut mistakes = reader.mistakes;
    let table = node::resolved(root, &KNOWN, &mut mistakes);
    let mut all = Zeroizing::new(String::with_capacity(reader.length));
    for text in &reader.texts {
        all.push_str(text);
    }
    let several = reader.sources.len() > 1;
    let sources = if several { reader.sources } else { Vec::new() };
    mistakes.sort();
    Sections { text: all, sources, table, mistakes }
}

/// Reads `text` as if it stood in a file of `folder`: its mistakes, and the sections that there are.
pub(crate) fn parse(text: &str, folder: &Path, host: &dyn Host) -> Sections {
    read(&folder.join("swanctl.conf"), Zeroizing::new(text.to_owned()), host)
}

struct Reader<'h> {
    host: &'h dyn Host,
    texts: Vec<Zeroizing<String>>,
    sources: Vec<Source>,
    length: usize,
    mistakes: Vec<(usize, String)>,
    /// The files that are being read, as they are named and as they are really called, to notice one that
    /// includes itself.
    open: Vec<(PathBuf, PathBuf)>,
}

impl<'h> Reader<'h> {
    fn new(host: &'h dyn Host) -> Self {
        Self {
            host,
            texts: Vec::new(),
            sources: Vec::new(),
            length: 0,
            mistakes: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Adds what a file says to `into`, at this many sections from the top.
    fn file(&mut self, path: &Path, text: Zeroizing<String>, into: &mut Node, depth: usize) {
        let start = self.length;
        self.sources.push(Source { start, file: path.to_path_buf() });
        self.length += text.len();
        self.texts.push(Zeroizing::new(String::clone(&text)));
        self.open.push((path.to_path_buf(), self.host.real_path(path)));
        let mut scanner = Scanner::new(&text, start);
        self.statements(&mut scanner, into, depth, None);
        self.open.pop();
    }

    fn mistake(&mut self, at: usize, what: impl Into<String>) {
        self.mistakes.push((at, what.into()));
    }

    /// Reads up to the brace that ends the section, which began at `open`, or to the end of the file.
    fn statements(
        &mut self,
        scanner: &mut Scanner<'_>,
        into: &mut Node,
        depth: usize,
        open: Option<usize>,
    ) {
        loop {
            scanner.skip_space();
            let at = scanner.at();
            match scanner.peek() {
                None => {
                    if let Some(open) = open {
                        self.mistake(open, "this section is not closed: expected `}`");
                    }
                    return;
                }
                Some('}') => {
                    scanner.next();
                    if open.is_some() {
                        return;
                    }
                    self.mistake(at, "`}` closes no section");
                }
                Some(c) if scan::in_name(c) => self.statement(scanner, into, depth),
                Some(c) => {
                    self.mistake(at, format!("{c:?} begins neither a section nor an option"));
                    scanner.skip_line();
                }
            }
        }
    }

    /// No mistake here repeats the name: it may be a secret without its `secret =`.
    fn statement(&mut self, scanner: &mut Scanner<'_>, into: &mut Node, depth: usize) {
        let at = scanner.at();
        let name = scanner.name().to_owned();
        // With a `=` behind it, it is an option of that name.
        if name == "include" && scanner.is_blank() && !scanner.assigns() {
            return self.include(scanner, into, depth);
        }
        scanner.skip_space();
        match scanner.peek() {
            Some('=') => {
                scanner.next();
                match scanner.value() {
                    Ok((value, from)) => into.set(name, value, (at, from)),
                    Err((at, what)) => {
                        self.mistake(at, what);
                        scanner.skip_line();
                    }
                }
            }
            Some('{') => self.section(scanner, into, depth, name, at, Vec::new()),
            Some(':') => {
                scanner.next();
                let references = scanner.references();
                scanner.skip_space();
                match (scanner.peek(), references.is_empty()) {
                    (Some('{'), false) => {
                        self.section(scanner, into, depth, name, at, references);
                    }
                    _ => {
                        self.mistake(at, "`:` needs names of sections, and then `{`");
                        scanner.skip_line();
                    }
                }
            }
            Some(c @ ('.' | ',')) => {
                self.mistake(at, format!("{c:?} cannot be in the name of a section or option"));
                scanner.skip_line();
            }
            _ => {
                self.mistake(at, "a name alone: expected `=` and a value, or `{`");
            }
        }
    }

    fn section(
        &mut self,
        scanner: &mut Scanner<'_>,
        into: &mut Node,
        depth: usize,
        name: String,
        at: usize,
        references: Vec<(String, usize)>,
    ) {
        scanner.next();
        if depth == DEEPEST_SECTION {
            self.mistake(at, format!("more than {DEEPEST_SECTION} sections within each other"));
            return scanner.skip_section();
        }
        let section = into.section(name, at);
        section.references.extend(references);
        self.statements(scanner, section, depth + 1, Some(at));
    }

    fn include(&mut self, scanner: &mut Scanner<'_>, into: &mut Node, depth: usize) {
        scanner.skip_blanks();
        let at = scanner.at();
        let pattern = match scanner.pattern() {
            Ok(pattern) => pattern,
            Err((at, what)) => return self.mistake(at, what),
        };
        if self.open.len() > DEEPEST_INCLUDE {
            let what = format!("`include`: more than {DEEPEST_INCLUDE} files within each other");
            return self.mistake(at, what);
        }
        let folder = self.open.last().and_then(|(file, _)| file.parent()).map(Path::to_path_buf);
        let files = match self.host.included(&folder.unwrap_or_default(), &pattern) {
            Ok(files) => files,
            Err(why) => return self.mistake(at, format!("`include {pattern}`: {why}")),
        };
        for file in files {
            if self.open.iter().any(|(_, open)| *open == self.host.real_path(&file)) {
                let what = format!("`include`: {} includes itself", file.display());
                self.mistake(at, what);
            } else if self.sources.len() >= MOST_FILES {
                return self.mistake(at, format!("`include`: more than {MOST_FILES} files"));
            } else {
                match read_text(self.host, &file) {
                    Ok(text) => self.file(&file, text, into, depth),
                    Err(why) => self.mistake(at, format!("`include`: {}: {why}", file.display())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
