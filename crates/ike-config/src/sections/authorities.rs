//! `[authorities.<name>]`: CAs, and the URLs for the status of their certificates.

use crate::diagnostic::Report;
use crate::settings::{Authority, NamedFile, is_http_url, is_uri_base};
use crate::tree::{Section, Text, Unsupported, join};

/// Options of an authority that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[("handle", None), ("module", None), ("slot", None)];

/// Reads all authorities.
pub(crate) fn read(mut s: Section<'_>, report: &mut Report) -> Vec<Authority> {
    let mut found = Vec::new();
    for (name, section) in s.subsections(report) {
        found.extend(authority(name, section, report));
    }
    s.finish(&[], report);
    found
}

fn authority(name: Text<'_>, mut s: Section<'_>, report: &mut Report) -> Option<Authority> {
    let mut found = None;
    let what = "a file in x509ca/ beside the configuration file, or an absolute path";
    let files =
        [("cacert", s.text("cacert", what, report)), ("file", s.text("file", what, report))];
    let crl_uris = uris(&mut s, "crl_uris", report);
    let ocsp_uris = uris(&mut s, "ocsp_uris", report);
    let cert_uri_base = cert_uri_base(&mut s, report);
    let trust_anchor = s.switch("trust_anchor", report).unwrap_or(false);
    let mut given = files.into_iter().filter_map(|(key, file)| Some((key, file?)));
    match (given.next(), given.next()) {
        (Some((key, file)), None) => {
            let option = join(&s.path, key);
            let cacert = NamedFile { name: file.text.to_owned(), option, place: file.offset };
            let name = name.text.to_owned();
            found =
                Some(Authority { name, cacert, crl_uris, ocsp_uris, cert_uri_base, trust_anchor });
        }
        (Some(_), Some((key, file))) => {
            let message = format!("`{}` stands beside `cacert`", join(&s.path, key));
            report.expected(file.offset, message, "one of the two");
        }
        (None, _) => s.missing("cacert", what, report),
    }
    s.finish(UNSUPPORTED, report);
    found
}

/// To be sent to peers that fetch certificates (RFC 7296 §3.6).
fn cert_uri_base(s: &mut Section<'_>, report: &mut Report) -> Option<String> {
    const KEY: &str = "cert_uri_base";
    let what = "the beginning of URLs, such as \"http://ca.example.org/certs/\"";
    s.parsed(KEY, what, report, |base| is_uri_base(base).then(|| base.to_owned()))
}

fn uris(s: &mut Section<'_>, key: &'static str, report: &mut Report) -> Vec<String> {
    let what = "URLs such as \"http://ca.example.org/ca.crl\"";
    let option = join(&s.path, key);
    let mut uris = Vec::new();
    for uri in s.list(key, what, report).unwrap_or_default() {
        if is_http_url(uri.text) {
            uris.push(uri.text.to_owned());
        } else {
            // What is fetched is signed: TLS would only ask for further certificates to check.
            report.expected(uri.offset, format!("`{option}` cannot be {:?}", uri.text), what);
        }
    }
    uris
}
