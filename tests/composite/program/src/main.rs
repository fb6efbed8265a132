//! `ike-daemon` with the composite of ML-DSA-65 and Ed25519.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut provider = pq_kem::provider();
    if let Err(why) = provider.schemes.add(ike_test_composite::scheme()) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    ike_daemon::main_with(provider)
}
