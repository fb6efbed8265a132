//! How many files the daemon may have open: every TCP connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process as far as it may go: it often starts at 1024.
pub fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files cannot be raised");
    }
}

/// The limit; without one, the largest number there is.
pub fn limit() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX))
}
