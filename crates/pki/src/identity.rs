//! Checks that the identity a peer asserts is in its certificate (RFC 4945 §3.1).

use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;

use crate::certificate::Certificate;
use crate::error::PkiError;

/// Checks that `id`, from an ID payload, is an identity of `certificate`. A DN must be the whole subject. An FQDN,
/// an e-mail address or an IP address must be in subjectAltName.
///
/// Names compare without regard to ASCII case. There are no wildcards here, neither in `id` nor in the
/// certificate: patterns belong to the policy that is looked up by the identity.
//= https://www.rfc-editor.org/rfc/rfc4945#section-3.1.2
//# Substring, wildcard, or regular expression matching MUST NOT be
//# performed for this comparison.
//= https://www.rfc-editor.org/rfc/rfc4945#section-3.1.9
//# such entries MUST
//# NOT be interpreted as identity information for the purposes of
//# matching with ID or for policy lookup.
pub(crate) fn check(id: &IdData, certificate: &Certificate) -> Result<(), PkiError> {
    match id.kind {
        IdType::DER_ASN1_DN
        | IdType::FQDN
        | IdType::RFC822_ADDR
        | IdType::IPV4_ADDR
        | IdType::IPV6_ADDR => {}
        _ => return Err(PkiError::IdentityType(id.clone())),
    }
    let names = certificate.identities();
    if names.iter().any(|name| id.matches(name.as_id())) {
        return Ok(());
    }
    Err(PkiError::IdentityNotInCertificate { id: id.clone(), names })
}

/// The identity to send for `configured`: a DN exactly as it is in the certificate.
//= https://www.rfc-editor.org/rfc/rfc4945#section-3.1.5
//# When generating this type, implementations MUST
//# populate the contents of ID with the Subject field from the end-
//# entity certificate, and MUST do so such that a binary comparison of
//# the two will succeed.
pub(crate) fn as_certified(configured: &IdData, certificate: &Certificate) -> Option<IdData> {
    check(configured, certificate).ok()?;
    Some(match configured.kind {
        IdType::DER_ASN1_DN => {
            IdData { kind: IdType::DER_ASN1_DN, data: certificate.subject().to_vec() }
        }
        _ => configured.clone(),
    })
}
