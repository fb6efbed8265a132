//! `ike-daemon` with the composite of ML-DSA-65 and Ed25519, and with a key exchange method of its own.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use ike_test_composite::exchange::Joined;

fn main() -> ExitCode {
    let mut provider = pq_kem::provider();
    if let Err(why) = provider.schemes.add(ike_test_composite::scheme()) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    provider.ke.extend(Joined::of(&provider));
    ike_daemon::main_with(provider)
}
