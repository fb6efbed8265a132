//! Revocation lists (RFC 5280 §5).

use std::time::SystemTime;

use der::Encode;
use der::asn1::Uint;
use ike_proto::wire::der::{self as asn1, INTEGER, SEQUENCE, context};
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, CrlNumber, CrlReason};
use x509_cert::time::Time;

use super::{IssueError, Issuer, extension, key_id, wrap};

/// One revoked certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedEntry {
    /// Content octets of its serial number, an INTEGER.
    pub serial: Vec<u8>,
    /// Time of revocation.
    pub at: SystemTime,
    /// Reason of revocation; see [`RevokedEntry::reason`].
    pub reason: Option<CrlReason>,
}

impl RevokedEntry {
    /// The reason with this name, as `pki --signcrl --reason` spells it.
    pub fn reason(word: &str) -> Option<CrlReason> {
        Some(match word {
            "key-compromise" => CrlReason::KeyCompromise,
            "ca-compromise" => CrlReason::CaCompromise,
            "affiliation-changed" => CrlReason::AffiliationChanged,
            "superseded" => CrlReason::Superseded,
            "cessation-of-operation" => CrlReason::CessationOfOperation,
            "certificate-hold" => CrlReason::CertificateHold,
            _ => return None,
        })
    }
}

/// A revocation list of `issuer`, DER, with the given number (RFC 5280 §5.2.3).
///
/// # Errors
/// See [`IssueError`].
pub fn revocation_list(
    issuer: &Issuer<'_>,
    this_update: SystemTime,
    next_update: SystemTime,
    number: u64,
    revoked: &[RevokedEntry],
) -> Result<Vec<u8>, IssueError> {
    let mut entries = Vec::new();
    for entry in revoked {
        let extensions = match &entry.reason {
            Some(reason) => {
                vec![extension(false, reason)?].to_der().map_err(|_| IssueError::Value("reason"))?
            }
            None => Vec::new(),
        };
        let serial = wrap(INTEGER, &[&entry.serial]);
        let entry = [serial, date(entry.at)?, extensions].concat();
        asn1::push(&mut entries, SEQUENCE, &[&entry]);
    }
    // An empty list of entries must be absent (RFC 5280 §5.1.2.6).
    let entries = if revoked.is_empty() { Vec::new() } else { wrap(SEQUENCE, &[&entries]) };
    let authority = AuthorityKeyIdentifier {
        key_identifier: Some(key_id(issuer.key.public_key())?),
        ..AuthorityKeyIdentifier::default()
    };
    let number = Uint::new(&number.to_be_bytes()).map_err(|_| IssueError::Value("number"))?;
    let extensions = vec![extension(false, &authority)?, extension(false, &CrlNumber(number))?];
    let extensions = extensions.to_der().map_err(|_| IssueError::Value("extension"))?;
    let tbs = wrap(
        SEQUENCE,
        &[
            &[INTEGER, 1, VERSION_2],
            issuer.scheme.algorithm_identifier(),
            issuer.name,
            &date(this_update)?,
            &date(next_update)?,
            &entries,
            &wrap(context(0), &[&extensions]),
        ],
    );
    issuer.sign(&tbs)
}

fn date(time: SystemTime) -> Result<Vec<u8>, IssueError> {
    let time = Time::try_from(time).map_err(|_| IssueError::Value("date"))?;
    time.to_der().map_err(|_| IssueError::Value("date"))
}

const VERSION_2: u8 = 1;
