//! OCSP responses (RFC 6960 §4.2).

use std::time::SystemTime;

use der::Encode;
use der::asn1::GeneralizedTime;
use ike_proto::wire::der::{self as asn1, Der, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, context};

use super::{IssueError, Issuer, key_id, wrap};
use crate::certificate::Certificate;
use crate::revocation::{ENUMERATED, ID_PKIX_OCSP_BASIC, cert_id};

/// The status of one certificate in a response.
#[derive(Debug, Clone, Copy)]
pub struct CertificateStatus<'a> {
    /// The certificate.
    pub certificate: &'a Certificate,
    /// The certificate of its CA.
    pub issuer: &'a Certificate,
    /// Time of revocation; `None` if it is not revoked.
    pub revoked: Option<SystemTime>,
}

/// An OCSPResponse about `statuses`, DER. `responder` is the CA, or a responder whose certificate `delegate` the
/// CA has issued.
///
/// # Errors
/// See [`IssueError`].
pub fn ocsp_response(
    responder: &Issuer<'_>,
    delegate: Option<&Certificate>,
    statuses: &[CertificateStatus<'_>],
    this_update: SystemTime,
    next_update: Option<SystemTime>,
) -> Result<Vec<u8>, IssueError> {
    let mut singles = Vec::new();
    for one in statuses {
        let status = match one.revoked {
            Some(at) => wrap(context(1), &[&date(at)?]),
            None => vec![GOOD, 0],
        };
        let next = match next_update {
            Some(next) => wrap(context(0), &[&date(next)?]),
            None => Vec::new(),
        };
        let id = cert_id(one.certificate, one.issuer);
        asn1::push(&mut singles, SEQUENCE, &[&id, &status, &date(this_update)?, &next]);
    }
    let key = key_id(responder.key.public_key())?;
    let by_key = wrap(context(2), &[&wrap(OCTET_STRING, &[key.as_bytes()])]);
    let singles = wrap(SEQUENCE, &[&singles]);
    let mut basic = responder.sign(&wrap(SEQUENCE, &[&by_key, &date(this_update)?, &singles]))?;
    if let Some(delegate) = delegate {
        let signed = Der::new(&basic).content(SEQUENCE).unwrap_or_default();
        let certificates = wrap(context(0), &[&wrap(SEQUENCE, &[delegate.der()])]);
        basic = wrap(SEQUENCE, &[signed, &certificates]);
    }
    let kind = wrap(OBJECT_IDENTIFIER, &[ID_PKIX_OCSP_BASIC]);
    let bytes = wrap(SEQUENCE, &[&kind, &wrap(OCTET_STRING, &[&basic])]);
    Ok(wrap(SEQUENCE, &[&[ENUMERATED, 1, SUCCESSFUL], &wrap(context(0), &[&bytes])]))
}

fn date(time: SystemTime) -> Result<Vec<u8>, IssueError> {
    let time = GeneralizedTime::from_system_time(time).map_err(|_| IssueError::Value("date"))?;
    time.to_der().map_err(|_| IssueError::Value("date"))
}

const SUCCESSFUL: u8 = 0;
/// CertStatus good: \[0\] NULL.
const GOOD: u8 = 0x80;
