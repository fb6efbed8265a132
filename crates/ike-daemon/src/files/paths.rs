//! The folder of the credentials of systemd.

use std::path::PathBuf;

/// The variable with the folder of the credentials of a service.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The folder as systemd gives it.
pub(super) fn given_credentials() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// The folder, if its path is absolute.
pub(crate) fn credentials() -> Option<PathBuf> {
    given_credentials().filter(|path| path.is_absolute())
}
