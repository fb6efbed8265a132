//! Certification requests (RFC 2986): "PKCS#10".

use der::asn1::ObjectIdentifier;
use der::oid::AssociatedOid;
use der::{Decode, Encode};
use ike_proto::crypto::SchemeRegister;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::der::{Der, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, context};
use ike_proto::wire::payload::IdData;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;

use super::{IssueError, Issuer, alternative_names, extension, wrap};
use crate::certificate::identity;
use crate::error::LoadError;
use crate::files;
use crate::general_name::GeneralName;
use crate::signed::{Schemes, Signed};
use crate::text;

/// A request that is signed by the key to be certified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The subject, a DER Name.
    pub subject: Vec<u8>,
    /// The public key, DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// FQDNs, e-mail and IP addresses of the requested subjectAltName. Other requested extensions are ignored.
    pub names: Vec<IdData>,
}

impl Request {
    /// Makes a request, DER: `requester` is the subject with its own key.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub fn make(requester: &Issuer<'_>, names: &[IdData]) -> Result<Vec<u8>, IssueError> {
        let mut attributes = Vec::new();
        if !names.is_empty() {
            let wanted = vec![extension(false, &alternative_names(names)?)?];
            let wanted = wanted.to_der().map_err(|_| IssueError::Value("extension"))?;
            let oid = wrap(OBJECT_IDENTIFIER, &[EXTENSION_REQUEST.as_bytes()]);
            attributes = wrap(SEQUENCE, &[&oid, &wrap(SET, &[&wanted])]);
        }
        let info = wrap(
            SEQUENCE,
            &[
                &[INTEGER, 1, 0],
                requester.name,
                requester.key.public_key(),
                &wrap(context(0), &[&attributes]),
            ],
        );
        requester.sign(&info)
    }

    /// Reads a request, PEM or DER, and verifies its signature, which may be by any scheme of `register`.
    ///
    /// # Errors
    /// If it is malformed, or not signed by the key in it.
    pub fn load(register: &SchemeRegister, octets: &[u8]) -> Result<Self, LoadError> {
        let der = files::one(octets, "CERTIFICATE REQUEST")
            .or_else(|_| files::one(octets, "NEW CERTIFICATE REQUEST"))?;
        let malformed = LoadError::Malformed("certification request");
        let signed = Signed::parse(&der).ok_or(malformed)?;
        let request = Self::parse(signed.message).ok_or(malformed)?;
        if signed.rest.is_empty() && signed.is_by(&request.spki, &Schemes::of(register)) {
            Ok(request)
        } else {
            Err(LoadError::Signature)
        }
    }

    /// The subject as text. Safe in a log line.
    pub fn subject_text(&self) -> String {
        text::name(&self.subject)
    }

    fn parse(info: &[u8]) -> Option<Self> {
        let mut info = Der::new(info).nested(SEQUENCE)?;
        if info.content(INTEGER)? != [0] {
            return None;
        }
        let subject = info.element(SEQUENCE)?.to_vec();
        let spki = info.element(SEQUENCE)?.to_vec();
        SubjectPublicKeyInfo::parse(&spki)?;
        let mut names = Vec::new();
        let mut attributes = match info.is_empty() {
            true => Der::new(&[]),
            false => info.nested(context(0))?,
        };
        while !attributes.is_empty() {
            let mut attribute = attributes.nested(SEQUENCE)?;
            let oid = attribute.content(OBJECT_IDENTIFIER)?;
            let mut values = attribute.nested(SET)?;
            if oid == EXTENSION_REQUEST.as_bytes() {
                names.extend(wanted_names(values.element(SEQUENCE)?)?);
            }
        }
        info.end()?;
        Some(Self { subject, spki, names })
    }
}

fn wanted_names(extensions: &[u8]) -> Option<Vec<IdData>> {
    let extensions = Vec::<Extension>::from_der(extensions).ok()?;
    let names = extensions.iter().find(|extension| extension.extn_id == SubjectAltName::OID);
    let Some(names) = names else { return Some(Vec::new()) };
    let names = GeneralName::read_all(names.extn_value.as_bytes())?;
    Some(names.iter().filter_map(identity).collect())
}

const SET: u8 = 0x31;
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
