//! Logs: one line per event, through `tracing`, to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Starts logging. `IKE_LOG` (or else `RUST_LOG`) has the filter, `info` by default.
pub fn init() {
    init_at("info");
}

/// The same with another filter by default.
pub fn init_at(default: &str) {
    let filter = EnvFilter::try_from_env("IKE_LOG").or_else(|_| EnvFilter::try_from_default_env());
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(default));
    // A second call, as tests make, leaves the first subscriber in place.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_writer(io::stderr)
        .try_init();
}
