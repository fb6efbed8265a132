//! Requirements of a `remote` section on the path from the peer's certificate to its CA: `ca_id` and
//! `cert_policy`.

use const_oid::ObjectIdentifier;
use ike_proto::config::IdMatch;

use crate::diagnostic::Report;
use crate::tree::{Section, join};

use super::super::values;

/// What `cert_policy` takes, for messages.
const POLICIES: &str = "object identifiers such as \"1.3.6.1.4.1.36906.1\"";

/// `ca_id` and `cert_policy`.
pub(crate) fn read(s: &mut Section<'_>, report: &mut Report) -> (Option<IdMatch>, Vec<String>) {
    let option = join(&s.path, "ca_id");
    let text = s.text("ca_id", values::IDENTITY, report);
    let ca_id = text.and_then(|text| values::id_match(text, &option, report));
    let option = join(&s.path, "cert_policy");
    let mut policies = Vec::new();
    for item in s.list("cert_policy", POLICIES, report).unwrap_or_default() {
        match ObjectIdentifier::new(item.text) {
            Ok(_) => policies.push(item.text.to_owned()),
            Err(_) => {
                let message = format!("`{option}` cannot be {:?}", item.text);
                report.expected(item.offset, message, POLICIES);
            }
        }
    }
    (ca_id, policies)
}

/// Reports those that there are where the peer shows no certificate.
pub(crate) fn refuse(s: &Section<'_>, report: &mut Report) {
    for key in given(s) {
        let message = format!("`{}` is of no use with this `{}.auth`", join(&s.path, key), s.path);
        report.expected(s.place(key), message, "`auth = \"pubkey\"`");
    }
}

/// Reports those that there are beside `pubkeys`, if there are `any`.
pub(crate) fn refuse_raw_keys(s: &Section<'_>, any: bool, report: &mut Report) {
    for key in given(s).filter(|_| any) {
        let message = format!("`{}`: raw public keys have no CA", join(&s.path, key));
        report.expected(s.place(key), message, "no `pubkeys` beside it");
    }
}

fn given<'a>(s: &'a Section<'_>) -> impl Iterator<Item = &'static str> + 'a {
    ["ca_id", "cert_policy"].into_iter().filter(|key| s.has(key))
}
