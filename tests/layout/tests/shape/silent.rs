//! Returns that say nothing: a case ends, and neither a log line nor a caller learns which.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The silent returns of a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Silent {
    /// `let … else { return }`.
    pub(crate) plain: usize,
    /// The same in other words: `return Ok(())`, `continue` or `break` in place of `return`; `else { return }` of an
    /// `if`; `None => return` and the like in a `match`; `if x.is_none() { return }`.
    pub(crate) others: usize,
}

impl Silent {
    pub(crate) fn of(body: TokenStream) -> Self {
        let tokens: Vec<_> = body.into_iter().collect();
        let mut found = Self::default();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "else" => found.count_else(&tokens, at),
                TokenTree::Ident(word) if word == "if" => {
                    found.others += usize::from(is_silent_test(&tokens[at + 1..]));
                }
                TokenTree::Punct(punct) if punct.as_char() == '>' && at > 0 => {
                    let arm =
                        matches!(&tokens[at - 1], TokenTree::Punct(it) if it.as_char() == '=');
                    found.others +=
                        usize::from(arm && is_silent_arm(&tokens[..at - 1], &tokens[at + 1..]));
                }
                TokenTree::Group(group) => {
                    let inner = Self::of(group.stream());
                    found.plain += inner.plain;
                    found.others += inner.others;
                }
                _ => {}
            }
        }
        found
    }

    fn count_else(&mut self, tokens: &[TokenTree], at: usize) {
        let Some(body) = tokens.get(at + 1).and_then(braces) else { return };
        // The value before the `else` of a `let` cannot end with a brace.
        let of_let = at > 0 && braces(&tokens[at - 1]).is_none();
        match body.as_slice() {
            [word] if is(word, "return") && of_let => self.plain += 1,
            body if is_silent(body) => self.others += 1,
            _ => {}
        }
    }
}

/// `return`, `return Ok(())`, `continue` or `break`, with or without a label.
fn is_silent(body: &[TokenTree]) -> bool {
    match body {
        [word] => ["return", "continue", "break"].iter().any(|silent| is(word, silent)),
        [word, TokenTree::Punct(_), TokenTree::Ident(_)] => {
            is(word, "continue") || is(word, "break")
        }
        [word, ok, TokenTree::Group(unit)] => {
            is(word, "return") && is(ok, "Ok") && unit.stream().to_string() == "()"
        }
        [word, TokenTree::Group(unit)] => is(word, "return") && unit.stream().is_empty(),
        _ => false,
    }
}

/// An arm for what is missing or wrong: `None`, `Err(_)` or `_`, with a silent body.
fn is_silent_arm(before: &[TokenTree], after: &[TokenTree]) -> bool {
    let begin = before.iter().rposition(|token| {
        matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')
            || braces(token).is_some()
    });
    let pattern = &before[begin.map_or(0, |begin| begin + 1)..];
    let missing = match pattern {
        [word] => is(word, "None") || is(word, "_"),
        [word, TokenTree::Group(_)] => is(word, "Err"),
        _ => false,
    };
    let body = after.first().and_then(braces).unwrap_or_else(|| {
        let end = after
            .iter()
            .position(|token| matches!(token, TokenTree::Punct(it) if it.as_char() == ','));
        after[..end.unwrap_or(after.len())].to_vec()
    });
    missing && is_silent(&body)
}

/// What follows `if`: a look whether something is missing, and a silent body.
fn is_silent_test(after: &[TokenTree]) -> bool {
    let Some(end) = after.iter().position(|token| braces(token).is_some()) else { return false };
    let asks =
        |token: &TokenTree| ["is_none", "is_err", "None", "Err"].iter().any(|word| is(token, word));
    let body = after.get(end).and_then(braces).unwrap_or_default();
    after[..end].iter().any(asks) && is_silent(&body)
}

fn is(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

/// The tokens in braces, without a semicolon at the end.
fn braces(token: &TokenTree) -> Option<Vec<TokenTree>> {
    let TokenTree::Group(group) = token else { return None };
    if group.delimiter() != Delimiter::Brace {
        return None;
    }
    let mut tokens: Vec<_> = group.stream().into_iter().collect();
    if matches!(tokens.last(), Some(TokenTree::Punct(end)) if end.as_char() == ';') {
        tokens.pop();
    }
    Some(tokens)
}
