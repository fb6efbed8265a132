//! Target `configuration`: the text of a configuration file, in either syntax. Every mistake stands inside the text, the
//! same text has the same meaning, and a file without a mistake is read again from its own sections.

use std::path::Path;

use ike_config::{Diagnostic, Overlay, Reading, TextAlone, read_conf, read_toml};

/// Runs one input: an even first octet is for TOML, an odd one for the syntax of swanctl.conf(5). Returns the number of
/// connections, if there is no mistake.
pub fn run(octets: &[u8]) -> Option<usize> {
    let [kind, text @ ..] = octets else { return None };
    let text = std::str::from_utf8(text).ok()?;
    let read = || match kind % 2 {
        0 => read_toml(text, Path::new("/"), &TextAlone),
        _ => read_conf(text, Path::new("/"), &TextAlone),
    };
    let Reading { settings, report, document } = read();
    let mistakes = report.finish();
    assert_eq!(mistakes, read().report.finish(), "read twice");
    for mistake in &mistakes {
        assert!(is_inside(mistake, text), "{mistake:?}");
    }
    if !mistakes.is_empty() {
        return None;
    }
    let document = document.expect("a file without a mistake has its sections");
    let (again, _) = Overlay::default().read(&document, &TextAlone);
    assert_eq!(again.report.finish(), [], "read from its sections");
    assert_eq!(again.settings.connections.len(), settings.connections.len());
    Some(settings.connections.len())
}

/// True if there is such a line, and such a column in it. A mistake about the whole file has neither.
fn is_inside(mistake: &Diagnostic, text: &str) -> bool {
    let Some(before) = mistake.line.checked_sub(1) else { return mistake.column == 0 };
    let line = text.split('\n').nth(before);
    line.is_some_and(|line| mistake.column <= line.chars().count() + 1)
}
