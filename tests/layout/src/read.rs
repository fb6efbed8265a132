//! From source files to imports.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::graph::{Graph, Import, ROOT};

/// Why a crate cannot be read.
#[derive(Debug)]
pub struct ReadError {
    file: PathBuf,
    why: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for ReadError {}

/// Reads the crate whose sources are in the folder `src`: its library, or its program if it has none.
///
/// # Errors
///
/// A file cannot be read, is not Rust, or declares a module in a way that this reader does not know.
pub fn read(src: &Path) -> Result<Graph, ReadError> {
    let mut reader =
        Reader { src, graph: Graph::default(), exported: BTreeMap::new(), found: Vec::new() };
    let program = !src.join(ROOT).exists() && src.join(PROGRAM).exists();
    let file = PathBuf::from(if program { PROGRAM } else { ROOT });
    let root = Scope { file, folder: PathBuf::new(), module: Vec::new() };
    reader.file(&root)?;
    Ok(reader.finish())
}

/// The root file of a crate without a library.
const PROGRAM: &str = "main.rs";

/// Where tokens stand.
#[derive(Debug, Clone)]
struct Scope {
    /// Relative to `src`.
    file: PathBuf,
    /// The folder of this module's own modules, relative to `src`.
    folder: PathBuf,
    /// The module's path from the crate's root.
    module: Vec<String>,
}

struct Reader<'a> {
    src: &'a Path,
    graph: Graph,
    /// Names that the root re-exports, and the module of each.
    exported: BTreeMap<String, String>,
    /// Paths whose first name is looked up when all modules are known.
    found: Vec<Import>,
}

impl Reader<'_> {
    fn finish(self) -> Graph {
        let Self { mut graph, exported, found, .. } = self;
        for mut import in found {
            let is_root = import.from == ROOT;
            if !graph.modules.contains(&import.to) {
                match exported.get(&import.to) {
                    Some(module) => import.to.clone_from(module),
                    // A path in the root may begin with a name of another crate.
                    None if is_root => continue,
                    None => ROOT.clone_into(&mut import.to),
                }
            }
            if import.from != import.to {
                graph.imports.push(import);
            }
        }
        graph.modules.insert(ROOT.to_owned());
        graph.imports.sort();
        graph
    }

    fn file(&mut self, scope: &Scope) -> Result<(), ReadError> {
        let fail = |why: String| ReadError { file: scope.file.clone(), why };
        let text = fs::read_to_string(self.src.join(&scope.file))
            .map_err(|error| fail(error.to_string()))?;
        let tokens: TokenStream =
            text.parse().map_err(|error: proc_macro2::LexError| fail(error.to_string()))?;
        self.tokens(tokens, scope)
    }

    fn tokens(&mut self, tokens: TokenStream, scope: &Scope) -> Result<(), ReadError> {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if let Some((inner, attribute)) = attribute(&tokens[at..]) {
                if is_for_tests(&attribute) {
                    if inner {
                        return Ok(());
                    }
                    at += item_length(&tokens[at..]);
                    continue;
                }
                if attribute.stream().to_string().starts_with("path") {
                    let why = "this reader does not know #[path]".to_owned();
                    return Err(ReadError { file: scope.file.clone(), why });
                }
            }
            match token {
                TokenTree::Ident(ident) if ident == "mod" => self.module(&tokens[at..], scope)?,
                TokenTree::Ident(ident) if ident == "use" && scope.module.is_empty() => {
                    let public = at > 0 && is_visibility(&tokens, at);
                    let end = tokens[at..].iter().position(|token| is(token, ';'));
                    let end = at + end.unwrap_or(tokens.len() - at);
                    self.use_of_root(&tokens[at + 1..end], public, scope);
                    at = end;
                    continue;
                }
                TokenTree::Ident(ident) if begins_path(&tokens, at) => {
                    self.path(ident, &tokens[at + 1..], scope);
                }
                TokenTree::Group(group) if !after_module(&tokens, at) => {
                    self.tokens(group.stream(), scope)?;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(())
    }

    /// `mod name;` or `mod name { … }`.
    fn module(&mut self, tokens: &[TokenTree], scope: &Scope) -> Result<(), ReadError> {
        let [_, TokenTree::Ident(name), after, ..] = tokens else { return Ok(()) };
        let name = name.to_string();
        let name = name.trim_start_matches("r#");
        let mut inner = scope.clone();
        inner.module.push(name.to_owned());
        inner.folder.push(name);
        if inner.module.len() == 1 {
            self.graph.modules.insert(name.to_owned());
        }
        match after {
            TokenTree::Group(group) => self.tokens(group.stream(), &inner),
            _ => {
                inner.file = inner.folder.with_extension("rs");
                if !self.src.join(&inner.file).exists() {
                    inner.file = inner.folder.join("mod.rs");
                }
                self.file(&inner)
            }
        }
    }

    /// A `use` in the root: a re-export says where a name lives, another one is an import by the root itself.
    fn use_of_root(&mut self, tree: &[TokenTree], public: bool, scope: &Scope) {
        let mut leaves = Vec::new();
        leaves_of(tree, &mut Vec::new(), &mut leaves);
        for (path, name, span) in leaves {
            let path = path.into_iter().filter(|part| part != "crate" && part != "self");
            let Some(first) = path.into_iter().next() else { continue };
            if public {
                self.exported.insert(name, first);
            } else {
                self.found(first, span, scope);
            }
        }
    }

    /// A path that begins with `start`: `crate`, `super` or `self`, or in the root any name.
    fn path(&mut self, start: &Ident, rest: &[TokenTree], scope: &Scope) {
        let mut base = scope.module.clone();
        match start.to_string().as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            name if base.is_empty() => return self.found(name.to_owned(), start.span(), scope),
            _ => return,
        }
        self.tree(base, rest.get(2..).unwrap_or_default(), scope);
    }

    /// What follows `base::`.
    fn tree(&mut self, mut base: Vec<String>, tokens: &[TokenTree], scope: &Scope) {
        match tokens {
            [TokenTree::Ident(super_), rest @ ..] if super_ == "super" => {
                base.pop();
                self.tree(base, rest.get(2..).unwrap_or_default(), scope);
            }
            [TokenTree::Ident(name), ..] if base.is_empty() => {
                self.found(name.to_string(), name.span(), scope);
            }
            [TokenTree::Punct(star), ..] if base.is_empty() && star.as_char() == '*' => {
                self.found(ROOT.to_owned(), star.span(), scope);
            }
            [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
                let tokens: Vec<_> = group.stream().into_iter().collect();
                for part in tokens.split(|token| is(token, ',')) {
                    self.tree(base.clone(), part, scope);
                }
            }
            _ => {}
        }
    }

    fn found(&mut self, to: String, span: Span, scope: &Scope) {
        let from = scope.module.first().map_or(ROOT, |module| module).to_owned();
        let to = to.trim_start_matches("r#").to_owned();
        if to != from {
            let line = span.start().line;
            self.found.push(Import { from, to, file: scope.file.clone(), line });
        }
    }
}

/// The attribute that `tokens` begin with, and whether it is an inner one.
fn attribute(tokens: &[TokenTree]) -> Option<(bool, Group)> {
    match tokens {
        [hash, TokenTree::Group(group), ..] if is(hash, '#') && is_list(group) => {
            Some((false, group.clone()))
        }
        [hash, bang, TokenTree::Group(group), ..]
            if is(hash, '#') && is(bang, '!') && is_list(group) =>
        {
            Some((true, group.clone()))
        }
        _ => None,
    }
}

fn is_list(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
}

fn is(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == punct)
}

/// True for `cfg(…)` that only tests meet.
fn is_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<_> = attribute.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(cfg), TokenTree::Group(condition)] if cfg == "cfg" => {
            needs_test(&condition.stream().into_iter().collect::<Vec<_>>())
        }
        _ => false,
    }
}

/// True if the condition of a `cfg` cannot be met without `test`: `test` itself, or `all(test, …)`.
pub fn is_test_condition(condition: TokenStream) -> bool {
    needs_test(&condition.into_iter().collect::<Vec<_>>())
}

/// True if the condition of a `cfg` cannot be met without `test`.
fn needs_test(condition: &[TokenTree]) -> bool {
    match condition {
        [TokenTree::Ident(test)] => test == "test",
        [TokenTree::Ident(how), TokenTree::Group(list)] => {
            let list: Vec<_> = list.stream().into_iter().collect();
            let mut parts = list.split(|token| is(token, ',')).filter(|part| !part.is_empty());
            match how.to_string().as_str() {
                "all" => parts.any(needs_test),
                "any" => parts.all(needs_test),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The number of tokens of what stands at the beginning, with its attributes: an item, a statement, a field or
/// an arm.
fn item_length(tokens: &[TokenTree]) -> usize {
    const ITEMS: &str =
        "pub fn mod use struct enum union impl const static type trait unsafe async extern let";
    let mut at = 0;
    while attribute(&tokens[at..]).is_some() {
        at += 2;
    }
    let is_item = match tokens.get(at) {
        // A field may be public, too.
        Some(TokenTree::Ident(public)) if public == "pub" => {
            let next = tokens[at + 1..].iter().find_map(|token| match token {
                TokenTree::Ident(ident) => Some(ident.to_string()),
                _ => None,
            });
            next.is_some_and(|next| ITEMS.split(' ').any(|item| item == next))
        }
        Some(TokenTree::Ident(first)) => ITEMS.split(' ').any(|item| first == item),
        _ => false,
    };
    for (index, token) in tokens.iter().enumerate().skip(at) {
        let ends = match token {
            TokenTree::Group(group) => is_item && group.delimiter() == Delimiter::Brace,
            other => is(other, ';') || !is_item && is(other, ','),
        };
        if ends {
            return index + 1;
        }
    }
    tokens.len()
}

/// True if a visibility stands before the token at `at`.
fn is_visibility(tokens: &[TokenTree], at: usize) -> bool {
    let word = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == "pub");
    let limited = matches!(&tokens[at - 1], TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
    word(&tokens[at - 1]) || limited && at > 1 && word(&tokens[at - 2])
}

/// True if the token at `at` is the first name of a path with more than one.
fn begins_path(tokens: &[TokenTree], at: usize) -> bool {
    let colons = |range: std::ops::Range<usize>| {
        tokens.get(range).is_some_and(|two| two.iter().all(|token| is(token, ':')))
    };
    // `pub(in crate::module)` imports nothing.
    let visibility = at == 1 && matches!(&tokens[0], TokenTree::Ident(word) if word == "in");
    let inside = at >= 2 && colons(at - 2..at);
    colons(at + 1..at + 3) && !inside && !visibility
}

/// True if the group at `at` is the body of a module, which [`Reader::module`] has read.
fn after_module(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2
        && matches!(&tokens[at - 2], TokenTree::Ident(word) if word == "mod")
        && matches!(&tokens[at - 1], TokenTree::Ident(_))
}

/// The leaves of a use tree: the path of each, the name that it gives, and where it stands.
fn leaves_of(
    tree: &[TokenTree],
    path: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, String, Span)>,
) {
    let depth = path.len();
    let mut last: Option<(String, Span)> = None;
    for token in tree {
        match token {
            TokenTree::Ident(ident) if ident == "as" => {}
            TokenTree::Ident(ident) => {
                path.push(ident.to_string());
                last = Some((ident.to_string(), ident.span()));
            }
            TokenTree::Group(group) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                for part in inner.split(|token| is(token, ',')).filter(|part| !part.is_empty()) {
                    leaves_of(part, path, leaves);
                }
                last = None;
            }
            TokenTree::Punct(star) if star.as_char() == '*' => {
                last = Some(("*".to_owned(), star.span()));
            }
            _ => {}
        }
    }
    if let Some((name, span)) = last {
        leaves.push((path.clone(), name, span));
    }
    path.truncate(depth);
}
