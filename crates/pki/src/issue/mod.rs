//! Makes certificates (RFC 5280), certification requests (RFC 2986), revocation lists and OCSP responses, with
//! keys of every algorithm of a [`SigningKey`].
//!
//! This module encodes the structures itself, around the extensions of x509-cert. So issuer and subject stay bit
//! by bit as in the CA's certificate and in the request. ML-DSA, SLH-DSA and later algorithms need no support by a
//! library that makes certificates.

use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use der::asn1::{Ia5String, ObjectIdentifier, OctetString};
use der::oid::AssociatedOid;
use der::{Encode, flagset::FlagSet};
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::crypto::{CryptoError, SignatureScheme, SigningKey};
use ike_proto::wire::der::{self as asn1, BIT_STRING, INTEGER, SEQUENCE, context};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::crl::dp::DistributionPoint;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName, GeneralNames};
use x509_cert::ext::pkix::{
    AccessDescription, AuthorityInfoAccessSyntax, AuthorityKeyIdentifier, BasicConstraints,
    CrlDistributionPoints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::time::{Time, Validity};

use crate::certificate::Certificate;
use crate::text::Date;

mod crl;
mod ocsp;
mod request;

pub use crl::{RevokedEntry, revocation_list};
pub use ocsp::{CertificateStatus, ocsp_response};
pub use request::Request;

/// Why something could not be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IssueError {
    /// The key cannot sign, or not with the scheme.
    Sign(CryptoError),
    /// A name, date or URL that cannot be encoded; names it.
    Value(&'static str),
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(why) => write!(f, "signing: {why}"),
            Self::Value(what) => write!(f, "{what} cannot be encoded"),
        }
    }
}

impl std::error::Error for IssueError {}

/// The issuer that signs.
#[derive(Debug, Clone)]
pub struct Issuer<'a> {
    /// The private key.
    pub key: &'a dyn SigningKey,
    /// The signature scheme, which the key must support.
    pub scheme: SignatureScheme,
    /// The issuer's name, a DER Name.
    pub name: &'a [u8],
}

impl Issuer<'_> {
    /// A SIGNED structure around `message`.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, IssueError> {
        let signature = self.key.sign(&self.scheme, message).map_err(IssueError::Sign)?;
        let mut bits = Vec::with_capacity(signature.len() + 6);
        asn1::push(&mut bits, BIT_STRING, &[&[0], &signature]);
        Ok(wrap(SEQUENCE, &[message, self.scheme.algorithm_identifier(), &bits]))
    }
}

/// The scheme to sign certificates with. For RSA it is PKCS#1 padding, which every validator supports; other keys
/// have only one.
pub fn default_scheme(key: &dyn SigningKey) -> Option<SignatureScheme> {
    let schemes = key.schemes();
    let widespread = schemes.iter().find(|scheme| **scheme == SignatureScheme::RsaPkcs1Sha256);
    widespread.or_else(|| schemes.first()).cloned()
}

/// The content of a certificate. [`Template::default`] is an end entity without names.
#[derive(Debug, Clone)]
pub struct Template {
    /// The subject, a DER Name; empty is allowed if there are other names.
    pub subject: Vec<u8>,
    /// subjectAltName: FQDNs, e-mail and IP addresses.
    pub names: Vec<IdData>,
    /// Octets of the serial number, big-endian: 1 to 20, the first not zero.
    pub serial: Vec<u8>,
    /// Start of validity.
    pub not_before: SystemTime,
    /// Last second of validity.
    pub not_after: SystemTime,
    /// True for a CA certificate.
    pub ca: bool,
    /// For a CA, most CA certificates below it.
    pub path_len: Option<u8>,
    /// Dotted object identifiers of the extendedKeyUsage. RFC 4945 §5.1.3.12 recommends none.
    pub extended_key_usage: Vec<String>,
    /// URLs of revocation lists.
    pub crl: Vec<String>,
    /// URLs of OCSP responders.
    pub ocsp: Vec<String>,
    /// Further extensions.
    pub others: Vec<OtherExtension>,
}

/// An extension for which [`Template`] has no field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherExtension {
    /// Dotted object identifier.
    pub oid: String,
    /// A program that does not understand the extension must refuse the certificate.
    pub critical: bool,
    /// DER of its value.
    pub value: Vec<u8>,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            subject: vec![SEQUENCE, 0],
            names: Vec::new(),
            serial: vec![1],
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
            ca: false,
            path_len: None,
            extended_key_usage: Vec::new(),
            crl: Vec::new(),
            ocsp: Vec::new(),
            others: Vec::new(),
        }
    }
}

/// The DER Name of the distinguished name `text`.
///
/// # Errors
/// If `text` is no distinguished name.
pub fn distinguished_name(text: &str) -> Result<Vec<u8>, IssueError> {
    match IdData::parse(&format!("asn1dn:{text}")) {
        Ok(id) => Ok(id.data),
        Err(_) => Err(IssueError::Value("distinguished name")),
    }
}

/// A certificate for the public key `spki`, DER.
///
/// # Errors
/// See [`IssueError`].
pub fn certificate(
    template: &Template,
    spki: &[u8],
    issuer: &Issuer<'_>,
) -> Result<Vec<u8>, IssueError> {
    let time = |time: SystemTime| Time::try_from(time).map_err(|_| IssueError::Value("date"));
    let validity: Validity = Validity::new(time(template.not_before)?, time(template.not_after)?);
    let validity = validity.to_der().map_err(|_| IssueError::Value("date"))?;
    if !(1..=20).contains(&template.serial.len()) {
        return Err(IssueError::Value("serial number"));
    }
    let mut serial = Vec::new();
    asn1::push_unsigned(&mut serial, &template.serial);
    let extensions = template.extensions(spki, issuer)?;
    let tbs = wrap(
        SEQUENCE,
        &[
            &wrap(context(0), &[&[INTEGER, 1, VERSION_3]]),
            &serial,
            issuer.scheme.algorithm_identifier(),
            issuer.name,
            &validity,
            &template.subject,
            spki,
            &wrap(context(3), &[&extensions]),
        ],
    );
    issuer.sign(&tbs)
}

impl Template {
    fn extensions(&self, spki: &[u8], issuer: &Issuer<'_>) -> Result<Vec<u8>, IssueError> {
        let mut list = Vec::new();
        if self.ca {
            let constraints = BasicConstraints { ca: true, path_len_constraint: self.path_len };
            list.push(extension(true, &constraints)?);
        }
        let usages: FlagSet<KeyUsages> = match self.ca {
            true => KeyUsages::KeyCertSign | KeyUsages::CRLSign,
            false => KeyUsages::DigitalSignature.into(),
        };
        list.push(extension(true, &KeyUsage(usages))?);
        list.push(extension(false, &SubjectKeyIdentifier(key_id(spki)?))?);
        let authority = AuthorityKeyIdentifier {
            key_identifier: Some(key_id(issuer.key.public_key())?),
            ..AuthorityKeyIdentifier::default()
        };
        list.push(extension(false, &authority)?);
        if !self.names.is_empty() {
            // RFC 5280 §4.2.1.6: critical if there is no subject.
            let critical = self.subject == [SEQUENCE, 0];
            list.push(extension(critical, &alternative_names(&self.names)?)?);
        }
        if !self.extended_key_usage.is_empty() {
            let oids = self.extended_key_usage.iter().map(|oid| ObjectIdentifier::new(oid));
            let oids = oids.collect::<Result<_, _>>();
            let oids = oids.map_err(|_| IssueError::Value("extended key usage"))?;
            list.push(extension(false, &ExtendedKeyUsage(oids))?);
        }
        if !self.crl.is_empty() {
            let points = self.crl.iter().map(|url| crl_point(url)).collect::<Result<_, _>>()?;
            list.push(extension(false, &CrlDistributionPoints(points))?);
        }
        if !self.ocsp.is_empty() {
            let places = self.ocsp.iter().map(|url| {
                Ok(AccessDescription { access_method: ID_AD_OCSP, access_location: uri(url)? })
            });
            let places = places.collect::<Result<_, IssueError>>()?;
            list.push(extension(false, &AuthorityInfoAccessSyntax(places))?);
        }
        for other in &self.others {
            let wrong = |_| IssueError::Value("extension");
            let extn_id = ObjectIdentifier::new(&other.oid);
            let extn_id = extn_id.map_err(|_| IssueError::Value("extension"))?;
            let extn_value = OctetString::new(&*other.value).map_err(wrong)?;
            list.push(Extension { extn_id, critical: other.critical, extn_value });
        }
        list.to_der().map_err(|_| IssueError::Value("extension"))
    }
}

/// The subjectAltName for `names`.
fn alternative_names(names: &[IdData]) -> Result<SubjectAltName, IssueError> {
    let names: Result<GeneralNames, IssueError> = names
        .iter()
        .map(|id| {
            let text = || std::str::from_utf8(&id.data).map_err(|_| IssueError::Value("name"));
            let ia5 = || Ia5String::new(text()?).map_err(|_| IssueError::Value("name"));
            Ok(match (id.kind, id.address()) {
                (IdType::FQDN, _) => GeneralName::DnsName(ia5()?),
                (IdType::RFC822_ADDR, _) => GeneralName::Rfc822Name(ia5()?),
                (_, Some(IpAddr::V4(address))) => GeneralName::from(IpAddr::V4(address)),
                (_, Some(IpAddr::V6(address))) => GeneralName::from(IpAddr::V6(address)),
                _ => return Err(IssueError::Value("this type of subjectAltName")),
            })
        })
        .collect();
    Ok(SubjectAltName(names?))
}

fn crl_point(url: &str) -> Result<DistributionPoint, IssueError> {
    let name = DistributionPointName::FullName(vec![uri(url)?]);
    Ok(DistributionPoint { distribution_point: Some(name), reasons: None, crl_issuer: None })
}

fn uri(url: &str) -> Result<GeneralName, IssueError> {
    let url = Ia5String::new(url).map_err(|_| IssueError::Value("URL"))?;
    Ok(GeneralName::UniformResourceIdentifier(url))
}

/// The key identifier of a public key: the SHA-1 of its bits (RFC 5280 §4.2.1.2, method 1).
fn key_id(spki: &[u8]) -> Result<OctetString, IssueError> {
    let key = SubjectPublicKeyInfo::parse(spki).ok_or(IssueError::Value("public key"))?.key;
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, key);
    OctetString::new(hash.as_ref()).map_err(|_| IssueError::Value("key identifier"))
}

/// True if `certificate` is that of `issuer`: same name and key.
pub fn is_certificate_of(issuer: &Issuer<'_>, certificate: &Certificate) -> bool {
    certificate.subject() == issuer.name && certificate.spki() == issuer.key.public_key()
}

/// A point in time in readable form.
pub fn date_text(time: SystemTime) -> String {
    Date(time).to_string()
}

fn extension<T: Encode + AssociatedOid>(
    critical: bool,
    value: &T,
) -> Result<Extension, IssueError> {
    let encoded = value.to_der().and_then(OctetString::new);
    let extn_value = encoded.map_err(|_| IssueError::Value("extension"))?;
    Ok(Extension { extn_id: T::OID, critical, extn_value })
}

fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    asn1::push(&mut out, tag, parts);
    out
}

const VERSION_3: u8 = 2;
const ID_AD_OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
