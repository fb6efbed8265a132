//! Names, values, references and patterns in a text.

use zeroize::Zeroizing;

/// Octets of a value.
const LONGEST: usize = 1 << 20;

/// A mistake, and where.
type Mistake = (usize, String);

/// A text, and how far it is read.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Where the text stands among all.
    start: usize,
}

/// True for what may be in the name of a section or option.
pub(super) fn in_name(c: char) -> bool {
    !matches!(c, '#' | '{' | '}' | ':' | '.' | ',' | '=' | '"' | '\r' | '\n' | '\t' | ' ')
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str, start: usize) -> Self {
        Self { text, at: 0, start }
    }

    /// Where the next character stands.
    pub(super) fn at(&self) -> usize {
        self.start + self.at
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Skips white space, ends of lines, and comments.
    pub(super) fn skip_space(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            if self.peek() != Some('#') {
                return;
            }
            self.skip_line();
        }
    }

    /// Skips spaces and tabs.
    pub(super) fn skip_blanks(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t'));
    }

    /// Skips what is left of the line.
    pub(super) fn skip_line(&mut self) {
        self.take_while(|c| c != '\n');
    }

    /// Skips what is left of a section, whatever is in it.
    pub(super) fn skip_section(&mut self) {
        let mut depth = 1_usize;
        while let Some(c) = self.next() {
            match c {
                '#' => self.skip_line(),
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// A name; empty if there is none.
    pub(super) fn name(&mut self) -> &'a str {
        self.take_while(in_name)
    }

    /// True if a space or tab follows.
    pub(super) fn is_blank(&self) -> bool {
        matches!(self.peek(), Some(' ' | '\t'))
    }

    /// True if nothing but blanks is before a `=`.
    pub(super) fn assigns(&self) -> bool {
        self.rest().trim_start_matches([' ', '\t']).starts_with('=')
    }

    /// What stands behind a `=` up to the end of the line, and where; `None` if there is nothing.
    /// Parts are put together with single spaces between them.
    pub(super) fn value(&mut self) -> Result<(Option<Zeroizing<String>>, usize), Mistake> {
        // With room for all of it from the start, for a buffer that grows leaves copies behind.
        let line = self.rest().len().min(LONGEST);
        let mut value: Option<Zeroizing<String>> = None;
        let mut from = self.at();
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r'));
            let at = self.at();
            let part = match self.peek() {
                None | Some('\n' | '#' | '}') => return Ok((value, from)),
                Some('"') => {
                    self.next();
                    self.string(at)?
                }
                Some(_) => {
                    let fits = |c| !matches!(c, '#' | '}' | '"' | '\r' | '\n' | '\t' | ' ');
                    Zeroizing::new(self.take_while(fits).to_owned())
                }
            };
            match &mut value {
                Some(value) => {
                    value.push(' ');
                    value.push_str(&part);
                }
                None => {
                    // A value's place is the octet before its first, as with the quotes of a string.
                    let quoted = self.text.as_bytes().get(at - self.start) == Some(&b'"');
                    from = if quoted { at } else { at.saturating_sub(1) };
                    let length = line.min(self.line_length(at) + part.len());
                    let mut first = Zeroizing::new(String::with_capacity(length));
                    first.push_str(&part);
                    value = Some(first);
                }
            }
            if value.as_ref().is_some_and(|value| value.len() > LONGEST) {
                return Err((at, format!("a value of more than {LONGEST} octets")));
            }
        }
    }

    fn line_length(&self, at: usize) -> usize {
        let rest = self.text.get(at - self.start..).unwrap_or_default();
        rest.find('\n').unwrap_or(rest.len())
    }

    /// What is in quotes, the first of which stood at `open`.
    fn string(&mut self, open: usize) -> Result<Zeroizing<String>, Mistake> {
        let room = self.rest().find('"').unwrap_or_default();
        let mut string = Zeroizing::new(String::with_capacity(room));
        loop {
            match self.next() {
                None => return Err((open, "this string is not closed: expected `\"`".to_owned())),
                Some('"') => return Ok(string),
                Some('\r') => {}
                Some('\\') => match self.next() {
                    Some('n') => string.push('\n'),
                    Some('r') => string.push('\r'),
                    Some('t') => string.push('\t'),
                    // The line goes on.
                    Some('\n') => {}
                    Some('\r') if self.peek() == Some('\n') => {
                        self.next();
                    }
                    Some(c) => string.push(c),
                    None => {}
                },
                Some(c) => string.push(c),
            }
        }
    }

    /// Names with dots, with commas between them, and where each stands.
    pub(super) fn references(&mut self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        loop {
            self.skip_space();
            let at = self.at();
            let name = self.take_while(|c| in_name(c) || c == '.');
            if name.is_empty() {
                return found;
            }
            found.push((name.to_owned(), at));
            self.skip_space();
            if self.peek() != Some(',') {
                return found;
            }
            self.next();
        }
    }

    /// What stands behind `include`.
    pub(super) fn pattern(&mut self) -> Result<String, Mistake> {
        let at = self.at();
        if self.peek() == Some('"') {
            self.next();
            return self.string(at).map(|string| String::clone(&string));
        }
        let mut pattern = String::new();
        loop {
            match self.peek() {
                None | Some('#' | '}' | '\n' | '\r' | '\t' | ' ') => return Ok(pattern),
                Some('\\') => {
                    self.next();
                    match self.peek() {
                        Some(c @ ('"' | '#' | '}' | ' ')) => {
                            self.next();
                            pattern.push(c);
                        }
                        _ => pattern.push('\\'),
                    }
                }
                Some('"') => return Err((self.at(), "a quote within a pattern".to_owned())),
                Some(c) => {
                    self.next();
                    pattern.push(c);
                }
            }
        }
    }
}
