//! Which files an `include` means.

use std::path::{Path, PathBuf};

/// The files that `pattern` means, seen from `folder`, in the order of their names. A pattern with wildcards
/// may mean none.
pub(super) fn files(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    if pattern.is_empty() {
        return Err("expected a file, or a pattern of files".to_owned());
    }
    let wild = pattern.contains(['*', '?', '[']);
    let full = folder.join(pattern);
    if !wild {
        return Ok(vec![full]);
    }
    // What is in the name of the folder is no wildcard.
    let full = match Path::new(pattern).is_absolute() {
        true => pattern.to_owned(),
        false => {
            let folder = folder.to_str().ok_or("the folder's name is not UTF-8 text")?;
            let folder = if folder.is_empty() { "." } else { folder };
            format!("{}/{pattern}", glob::Pattern::escape(folder))
        }
    };
    let options =
        glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let found = glob::glob_with(&full, options).map_err(|why| why.msg.to_owned())?;
    let files = found.map(|file| file.map_err(|why| why.to_string()));
    let files = files.filter(|file| file.as_ref().map_or(true, |file| file.is_file()));
    files.collect()
}
