//! Reading files that may hold secrets.

use std::fs;
use std::io;
use std::path::Path;

use ike_config::Content;

mod host;
pub(crate) mod paths;

pub(crate) use host::{ThisHost, built_in};

/// The names of the files at `path`, in order.
pub(crate) fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Of a link, what it points to.
        let is_file = fs::metadata(entry.path()).is_ok_and(|meta| meta.is_file());
        if is_file && !name.starts_with('.') && !name.ends_with('~') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The content of a regular file of at most `limit` octets.
pub(crate) fn load_file(path: &Path, limit: usize) -> Result<Content, String> {
    ike_config::load_file(&ThisHost { crypto: built_in() }, path, limit)
}

/// True if every user of the system may read the file.
pub(crate) fn readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
}
