//! `ocsp` and `ocsp_max_age` of a connection: OCSP responses in CERT payloads (RFC 4806).

use crate::diagnostic::Report;
use crate::settings::OcspOptions;
use crate::tree::{Section, join};

/// Reads both. The first is strongSwan's, the second ours.
pub(crate) fn read(s: &mut Section<'_>, report: &mut Report) -> OcspOptions {
    const AGE: &str = "ocsp_max_age";
    let words = [
        ("never", (false, false)),
        ("reply", (true, false)),
        ("request", (false, true)),
        ("both", (true, true)),
    ];
    let (replies, requests) = s.choice("ocsp", &words, report).unwrap_or((true, false));
    let max_age = s.duration(AGE, report);
    if max_age.is_some_and(|age| !age.is_zero()) && !requests {
        let option = join(&s.path, AGE);
        let message = format!("`{option}` is about responses that are not asked for");
        report.expected(s.place(AGE), message, "`ocsp = \"request\"` or `\"both\"` beside it");
    }
    OcspOptions { replies, requests, max_age: max_age.unwrap_or_default() }
}
