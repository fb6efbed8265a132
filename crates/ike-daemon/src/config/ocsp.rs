//! `ocsp` and `ocsp_max_age` of a connection: OCSP responses in CERT payloads (RFC 4806).

use std::time::Duration;

use ::pki::{Answerer, PeerPolicy};

use super::diagnostic::Report;
use super::section::{Section, join};

/// What a connection does with them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ocsp {
    replies: bool,
    requests: bool,
    max_age: Duration,
}

/// Reads both. The first is strongSwan's, the second ours.
pub(crate) fn read(s: &mut Section<'_>, report: &mut Report<'_>) -> Ocsp {
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
    Ocsp { replies, requests, max_age: max_age.unwrap_or_default() }
}

impl Ocsp {
    /// What this end does when it is asked. Who asks himself is taken to be asked.
    pub(crate) fn reply(self, answerer: &mut Answerer, connection: &str) {
        if self.replies {
            answerer.reply_by_ocsp(connection, self.requests);
        }
    }

    /// Whether it asks a peer that is judged by `policy`.
    pub(crate) fn ask(self, policy: &mut PeerPolicy) {
        policy.ocsp = self.requests;
        policy.ocsp_max_age = self.max_age;
    }
}
