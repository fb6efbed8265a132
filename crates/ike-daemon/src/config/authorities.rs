//! `[authorities.<name>]`: CAs, and the URLs for the status of their certificates.

use std::collections::BTreeMap;

use ::pki::{Authority, Certificate};

use super::credentials::{CA, Credentials, X509CA};
use super::diagnostic::Report;
use super::section::{Section, Unsupported, join};

/// Options of an authority that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[("handle", None), ("module", None), ("slot", None)];

/// Reads all authorities into `store`. Their CAs are trusted if they are self-signed, or named as trust anchors.
pub(crate) fn read(
    mut s: Section<'_>,
    store: &mut Credentials,
    report: &mut Report<'_>,
) -> BTreeMap<String, Authority> {
    let mut found = BTreeMap::new();
    for (name, section) in s.subsections(report) {
        let authority = authority(section, store, report);
        found.extend(authority.map(|authority| (name.text.to_owned(), authority)));
    }
    s.finish(&[], report);
    found
}

fn authority(
    mut s: Section<'_>,
    store: &mut Credentials,
    report: &mut Report<'_>,
) -> Option<Authority> {
    let mut found = None;
    let what = "a file in x509ca/ beside the configuration file, or an absolute path";
    let files =
        [("cacert", s.text("cacert", what, report)), ("file", s.text("file", what, report))];
    let crl_uris = uris(&mut s, "crl_uris", report);
    let ocsp_uris = uris(&mut s, "ocsp_uris", report);
    let base = cert_uri_base(&mut s, report);
    let anchor = s.switch("trust_anchor", report).unwrap_or(false);
    let mut given = files.into_iter().filter_map(|(key, file)| Some((key, file?)));
    match (given.next(), given.next()) {
        (Some((key, file)), None) => {
            let option = join(&s.path, key);
            let named = store.certificates_named(file, &option, X509CA, report);
            let ca = named.and_then(|chain| chain.into_iter().next());
            if let Some(ca) = ca {
                let taken = Certificate::clone(&ca);
                let added = match anchor {
                    true => store.trust.add_ca(taken),
                    false => store.add_ca(taken),
                };
                if let Err(why) = added {
                    let message = format!("`{option}`, {:?}: {why}", file.text);
                    report.expected(file.offset, message, CA);
                }
                // Only usable URLs are left, so that it cannot fail.
                let authority = Authority { ca, crl_uris, ocsp_uris, cert_uri_base: base };
                let _ = store.trust.revocation.add_authority(authority.clone());
                found = Some(authority);
            }
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
fn cert_uri_base(s: &mut Section<'_>, report: &mut Report<'_>) -> Option<String> {
    const KEY: &str = "cert_uri_base";
    let what = "the beginning of URLs, such as \"http://ca.example.org/certs/\"";
    s.parsed(KEY, what, report, |base| Authority::is_uri_base(base).then(|| base.to_owned()))
}

fn uris(s: &mut Section<'_>, key: &'static str, report: &mut Report<'_>) -> Vec<String> {
    let what = "URLs such as \"http://ca.example.org/ca.crl\"";
    let option = join(&s.path, key);
    let mut uris = Vec::new();
    for uri in s.list(key, what, report).unwrap_or_default() {
        if Authority::is_usable(uri.text) {
            uris.push(uri.text.to_owned());
        } else {
            // What is fetched is signed: TLS would only ask for further certificates to check.
            report.expected(uri.offset, format!("`{option}` cannot be {:?}", uri.text), what);
        }
    }
    uris
}
