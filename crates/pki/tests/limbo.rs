//! x509-limbo, a suite of certificate paths for the web, judged as for IKE. The suite is not in this repository:
//! `tests/suites/pack.py limbo limbo.json NAME` packs it, and `IKE_X509_LIMBO=NAME` lets this test run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod suites;

use std::fs;

use ike_test_namespace::{Lack, Need, Place, harness};

const FILES: &str = "IKE_X509_LIMBO";

const LIMBO: Need = Need {
    met: || match std::env::var_os(FILES) {
        Some(_) => Ok(Place::Here),
        None => Err(Lack { what: format!("{FILES} does not name the packed suite"), fails: false }),
    },
};

/// Fault: in `names.rs`, let a constraint on DNS names allow every name.
fn each_path_of_x509_limbo_is_judged_as_expected_or_as_its_exception_says() {
    let name = std::env::var(FILES).unwrap();
    let text = fs::read_to_string(format!("{name}.cases")).unwrap();
    let ders = fs::read(format!("{name}.ders")).unwrap();
    let judged = suites::compare(&text, &ders, include_str!("suites/limbo.txt"));
    println!("{} verdicts", judged.unwrap_or_else(|differences| panic!("{differences}")));
}

harness! {
    LIMBO => [each_path_of_x509_limbo_is_judged_as_expected_or_as_its_exception_says],
}
