//! NIST's suite of certificate paths, PKITS.

use crate::suites::compare;

/// Fault: in `path/search.rs`, ignore a path length, or in `pkits.txt`, take a line out.
#[test]
fn each_path_of_nists_suite_is_judged_as_expected_or_as_its_exception_says() {
    let judged = compare(
        include_str!("../suites/pkits.cases"),
        include_bytes!("../suites/pkits.ders"),
        include_str!("../suites/pkits.txt"),
    );
    assert_eq!(judged, Ok(2 * 240), "{}", judged.clone().unwrap_err());
}
