//! `ike-daemon` with Ed448.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut provider = pq_kem::provider();
    if let Err(why) = provider.schemes.add(ike_test_schemes::ed448()) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    ike_daemon::main_with(provider)
}
