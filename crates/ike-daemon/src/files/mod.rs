//! Reading files that may hold secrets.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

pub(crate) mod paths;

/// The content of a file; it may be a secret.
pub(crate) type Content = Zeroizing<Vec<u8>>;

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
    let failed = |why: io::Error| format!("cannot read {path:?}: {why}");
    let meta = fs::metadata(path).map_err(failed)?;
    if !meta.is_file() {
        return Err(format!("cannot read {path:?}: not a file"));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(meta.len().min(limit as u64) as usize + 1));
    let file = File::open(path).map_err(failed)?;
    file.take(limit as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    match content.len() {
        length if length > limit => Err(format!("{path:?} is longer than {limit} octets")),
        _ => Ok(content),
    }
}

/// True if every user of the system may read the file.
pub(crate) fn readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
}
