//! The commands of a page, from its indented and fenced blocks and from its code spans.

use std::fmt;

/// A command, as a page has it.
pub struct Written {
    /// Path from the root of the repository.
    pub document: String,
    pub line: usize,
    /// Number of the section, from 0.
    pub section: usize,
    /// Without comment and without the host's prompt.
    pub text: String,
}

impl Written {
    pub fn new(document: &str, line: usize, text: &str) -> Self {
        Self { document: document.to_owned(), line, section: 0, text: text.to_owned() }
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: `{}`", self.document, self.line, self.text)
    }
}

/// Programs whose commands run. Others in code spans (`perf record`) are named and not shown.
const PROGRAMS: [&str; 5] = ["ike-bench", "ike-daemon", "cargo", "taskset", "scp"];

/// What programs print: the page, and how the block begins.
const OUTPUT: [(&str, &str); 2] =
    [("docs/links/real.md", "normal  "), ("docs/benchmarks/README.md", "TSC ticks at ")];

/// The commands of a page in their order, and its blocks that are neither commands nor known output.
pub fn of(document: &str, text: &str) -> (Vec<Written>, Vec<String>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    let (mut section, mut is_fenced, mut is_output) = (0, false, false);
    let mut in_block = false;
    let mut prose = Prose::default();
    let mut begun: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let mut add = |line, text: &str| found.extend(steps(document, line, section, text));
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            in_block = false;
            continue;
        }
        let code = if is_fenced { Some(line) } else { line.strip_prefix("    ") };
        let Some(code) = code.filter(|code| !code.trim().is_empty()) else {
            in_block &= line.trim().is_empty();
            prose.read(at, line, &mut add);
            section += usize::from(line.starts_with("## "));
            continue;
        };
        if !in_block {
            is_output =
                OUTPUT.iter().any(|(page, start)| *page == document && code.starts_with(start));
            in_block = true;
        }
        if is_output {
            continue;
        }
        let (first, mut whole) = begun.take().unwrap_or((at, String::new()));
        whole.push_str(code.trim());
        if whole.ends_with('\\') {
            whole.pop();
            begun = Some((first, whole));
        } else if program(&whole).is_some() {
            add(first, &whole);
        } else {
            let code = code.trim();
            wrong.push(format!(
                "{document}:{at}: `{code}`: neither a command nor output that is known"
            ));
        }
    }
    (found, wrong)
}

/// The code span that is open, across the lines of a paragraph.
#[derive(Default)]
struct Prose {
    span: Option<(usize, String)>,
}

impl Prose {
    fn read(&mut self, at: usize, line: &str, add: &mut impl FnMut(usize, &str)) {
        if line.trim().is_empty() {
            self.span = None;
            return;
        }
        let mut parts = line.split('`').peekable();
        while let Some(part) = parts.next() {
            if let Some((_, text)) = &mut self.span {
                text.push_str(part);
            }
            match (parts.peek().is_some(), self.span.take()) {
                // The line ends within the span.
                (false, Some((first, text))) => self.span = Some((first, text + " ")),
                (true, Some((first, text))) if program(&text).is_some() => add(first, &text),
                (true, None) => self.span = Some((at, String::new())),
                _ => {}
            }
        }
    }
}

/// The program that a command starts, if it is one of those that run.
fn program(text: &str) -> Option<&str> {
    let words = without_prompt(text).split_whitespace();
    let program = words.into_iter().find(|word| !is_variable(word))?;
    let name = program.rsplit('/').next()?;
    let is_script = name.len() > 3 && (name.ends_with(".sh") || name.ends_with(".py"));
    (is_script || PROGRAMS.contains(&name)).then_some(program)
}

/// `NAME=value`, before a program.
pub fn is_variable(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The two hosts of a page are the same one here.
fn without_prompt(text: &str) -> &str {
    let after = text.strip_prefix("host ").and_then(|text| text.split_once("$ "));
    after.map_or(text, |(_, text)| text)
}

/// The commands of a line.
fn steps(document: &str, line: usize, section: usize, text: &str) -> Vec<Written> {
    let text = text.split(" #").next().unwrap_or_default();
    let steps = without_prompt(text).split(" && ");
    let words = steps.map(|step| step.split_whitespace().collect::<Vec<_>>().join(" "));
    words.map(|text| Written { section, ..Written::new(document, line, &text) }).collect()
}
