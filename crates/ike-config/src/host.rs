//! The interface of the readers to the host.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ike_proto::config::{AuthConfig, AuthParseError, ProposalConfig};
use zeroize::Zeroizing;

/// What stands before the name of a credential of systemd (`LoadCredential=`).
const CREDENTIAL: &str = "credential:";

/// The variable with the folder of the credentials of systemd.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Octets that a configuration file may have.
const LARGEST: u64 = 16 << 20;

/// The content of a file. It may be a secret.
pub type Content = Zeroizing<Vec<u8>>;

/// Facts about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// True for a regular file, false for a folder, a device and the like.
    pub is_file: bool,
    /// True for a folder.
    pub is_folder: bool,
    /// Its octets.
    pub len: u64,
    /// The permission bits of its mode.
    pub mode: u32,
}

/// The host whose configuration is read. Readers get files, groups and processors through this trait only.
///
/// The default methods are those of a host without files, such as [`TextAlone`].
pub trait Host {
    /// The metadata of the file at `path`; of a link, those of its target.
    ///
    /// # Errors
    /// Those of the file system.
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let _ = path;
        Err(ErrorKind::NotFound.into())
    }

    /// The content of the file at `path`: at most `limit` octets and one more, which shows that the file is longer.
    ///
    /// # Errors
    /// Those of the file system.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Content> {
        let _ = (path, limit);
        Err(ErrorKind::NotFound.into())
    }

    /// The paths of everything in the folder at `path`.
    ///
    /// # Errors
    /// Those of the file system.
    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let _ = path;
        Err(ErrorKind::NotFound.into())
    }

    /// The files that match the `pattern` of an `include`, relative to `folder`, sorted by name. A pattern with
    /// wildcards may match no file.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the pattern.
    fn included(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        Ok(vec![folder.join(pattern)])
    }

    /// `path` without symbolic links, `.` and `..`. A path that does not exist stays as it is.
    fn real_path(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }

    /// The folder of the credentials of systemd, if there is one.
    fn credentials(&self) -> Option<PathBuf> {
        None
    }

    /// The number of the group `name`, if this system has it.
    fn group(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// The processors that this process may use.
    fn processors(&self) -> usize {
        1
    }

    /// The value `text` of `auth`, with the signature schemes of this host.
    ///
    /// # Errors
    /// Which part is not understood.
    fn auth(&self, text: &str) -> Result<AuthConfig, AuthParseError> {
        AuthConfig::parse(text)
    }

    /// The part of `proposal` that the cryptography of this host can do; `None` if that is no proposal.
    fn supported(&self, proposal: &ProposalConfig) -> Option<ProposalConfig> {
        Some(proposal.clone())
    }
}

/// A host without files and groups: the text is all there is. It can do every algorithm that has a name.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextAlone;

impl Host for TextAlone {}

/// The host, and the folder that relative names of files begin in.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) folder: &'a Path,
}

impl Files<'_> {
    /// The file that `text` means: a credential of systemd, or a path, which begins in the folder if it is relative.
    pub(crate) fn resolve(&self, text: &str) -> Result<PathBuf, String> {
        self.resolve_in(self.folder, text)
    }

    /// The same with paths that begin in `folder`.
    pub(crate) fn resolve_in(&self, folder: &Path, text: &str) -> Result<PathBuf, String> {
        resolve(folder, text, || self.host.credentials())
    }
}

fn resolve(
    folder: &Path,
    text: &str,
    credentials: impl FnOnce() -> Option<PathBuf>,
) -> Result<PathBuf, String> {
    let Some(name) = text.strip_prefix(CREDENTIAL) else { return Ok(folder.join(text)) };
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !plain {
        return Err(format!("{name:?} is not the name of a credential"));
    }
    match credentials() {
        Some(directory) => Ok(directory.join(name)),
        None => Err(format!(
            "{DIRECTORY} is not set: start the daemon from a unit with LoadCredential={name}:…"
        )),
    }
}

/// The content of a regular file of at most `limit` octets.
///
/// # Errors
/// A sentence that names the file.
pub fn load_file(host: &dyn Host, path: &Path, limit: usize) -> Result<Content, String> {
    let failed = |why: io::Error| format!("cannot read {path:?}: {why}");
    if !host.metadata(path).map_err(failed)?.is_file {
        return Err(format!("cannot read {path:?}: not a file"));
    }
    let content = host.read(path, limit as u64).map_err(failed)?;
    match content.len() {
        length if length > limit => Err(format!("{path:?} is longer than {limit} octets")),
        _ => Ok(content),
    }
}

/// The content of the file `name`, which holds a secret, of at most `limit` octets, without the ends of
/// lines behind it.
///
/// # Errors
/// A sentence that does not name the file: the name may be the secret itself, written to the wrong option.
pub(crate) fn load_secret(files: Files<'_>, name: &str, limit: usize) -> Result<Content, String> {
    let path = files.resolve(name)?;
    let mut content = load_file(files.host, &path, limit)
        .map_err(|why| why.replace(&format!("{path:?}"), "the file"))?;
    let end = content.iter().rposition(|c| !matches!(c, b'\r' | b'\n')).map_or(0, |at| at + 1);
    content.truncate(end);
    Ok(content)
}

/// The text of a configuration file.
pub(crate) fn read_text(host: &dyn Host, path: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |error: io::Error| format!("cannot read the file: {error}");
    let size = host.metadata(path).map_err(failed)?.len;
    if size > LARGEST {
        return Err(format!("the file has {size} bytes, more than {LARGEST}"));
    }
    let mut octets = host.read(path, LARGEST).map_err(failed)?;
    match String::from_utf8(std::mem::take(&mut *octets)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            drop(Zeroizing::new(error.into_bytes()));
            Err(format!("the file is not UTF-8 text from byte {at} on"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        let folder = Path::new("/etc/ike");
        let given = || Some(PathBuf::from("/run/credentials/ike-daemon.service"));
        let at = |text| resolve(folder, text, given);
        assert_eq!(at("psk"), Ok(PathBuf::from("/etc/ike/psk")));
        assert_eq!(at("/srv/psk"), Ok(PathBuf::from("/srv/psk")));
        let found = PathBuf::from("/run/credentials/ike-daemon.service/psk");
        assert_eq!(at("credential:psk"), Ok(found));
        for wrong in ["credential:", "credential:..", "credential:../../etc/shadow"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
        let none = resolve(folder, "credential:psk", || None);
        assert!(none.is_err_and(|why| why.contains("not set")));
    }
}
