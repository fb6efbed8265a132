//! Names of files: a path, or a credential of systemd.

use std::path::{Path, PathBuf};

/// What stands before the name of a credential of systemd's (`LoadCredential=`).
const CREDENTIAL: &str = "credential:";

/// Where systemd puts the credentials of a service.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The file that `text` means: a credential, or a path that begins in `folder` if it is relative.
pub(crate) fn resolve(folder: &Path, text: &str) -> Result<PathBuf, String> {
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
    resolve_in(folder, text, directory.as_deref())
}

/// The folder of systemd's credentials, if there are any.
pub(crate) fn credentials() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn resolve_in(folder: &Path, text: &str, directory: Option<&Path>) -> Result<PathBuf, String> {
    let Some(name) = text.strip_prefix(CREDENTIAL) else { return Ok(folder.join(text)) };
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !plain {
        return Err(format!("{name:?} is not the name of a credential"));
    }
    match directory {
        Some(directory) => Ok(directory.join(name)),
        None => Err(format!(
            "{DIRECTORY} is not set: credentials are there in a unit with LoadCredential={name}:…"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        let folder = Path::new("/etc/ike");
        let given = Some(Path::new("/run/credentials/ike-daemon.service"));
        let at = |text| resolve_in(folder, text, given);
        assert_eq!(at("psk"), Ok(PathBuf::from("/etc/ike/psk")));
        assert_eq!(at("/srv/psk"), Ok(PathBuf::from("/srv/psk")));
        let found = PathBuf::from("/run/credentials/ike-daemon.service/psk");
        assert_eq!(at("credential:psk"), Ok(found));
        for wrong in ["credential:", "credential:..", "credential:../../etc/shadow"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
        assert!(
            resolve_in(folder, "credential:psk", None).is_err_and(|why| why.contains("not set"))
        );
    }
}
