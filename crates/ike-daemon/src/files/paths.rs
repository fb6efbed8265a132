//! The folders that systemd gives to a service.

use std::path::PathBuf;

/// The variable with the folder of the credentials of a service.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The variable with the folders of the state of a service, with colons between them.
const STATE: &str = "STATE_DIRECTORY";

/// The folder as systemd gives it.
pub(super) fn given_credentials() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// The folder, if its path is absolute.
pub(crate) fn credentials() -> Option<PathBuf> {
    given_credentials().filter(|path| path.is_absolute())
}

/// The first folder for what is kept from one run to the next, if it is there.
pub(crate) fn state() -> Option<PathBuf> {
    let all = std::env::var_os(STATE)?;
    let first = std::env::split_paths(&all).next()?;
    (first.is_absolute() && first.is_dir()).then_some(first)
}
