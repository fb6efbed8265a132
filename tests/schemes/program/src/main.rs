//! `ike-daemon` with Ed448, and with ECDSA on brainpoolP256r1.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut provider = pq_kem::provider();
    for scheme in [ike_test_schemes::ed448(), ike_test_schemes::brainpool()] {
        if let Err(why) = provider.schemes.add(scheme) {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    }
    ike_daemon::main_with(provider)
}
