//! `hash_and_url` and `hash_and_url_from` of `[charon]`: certificates that are fetched (RFC 7296 §3.6).

use ike_proto::config::EndpointConfig;

use crate::diagnostic::Report;
use crate::settings::UrlPrefix;
use crate::tree::Section;

/// Reads both. The first is strongSwan's, the second ours: a peer that nobody knows yet names the URL.
pub(crate) fn read(
    s: &mut Section<'_>,
    endpoint: &mut EndpointConfig,
    report: &mut Report,
) -> Option<Vec<UrlPrefix>> {
    const FROM: &str = "hash_and_url_from";
    let on = s.switch("hash_and_url", report).unwrap_or(endpoint.hash_and_url);
    let what = "beginnings of URLs with a whole host, such as \"http://ca.example.org/certs/\"";
    let mut from = Vec::new();
    for text in s.list(FROM, what, report).unwrap_or_default() {
        match UrlPrefix::parse(text.text) {
            Some(prefix) => from.push(prefix),
            None => {
                let message = format!("`charon.{FROM}` cannot be {:?}", text.text);
                report.expected(text.offset, message, what);
            }
        }
    }
    if s.has(FROM) && !on {
        let message = format!("`charon.{FROM}` without `hash_and_url`");
        report.expected(s.place(FROM), message, "`hash_and_url = true` beside it");
    }
    endpoint.hash_and_url = on;
    on.then_some(from)
}
