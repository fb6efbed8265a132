//! One X.509 certificate, parsed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use der::asn1::ObjectIdentifier;
use der::{Decode, oid::AssociatedOid};
use ike_proto::crypto::SignatureScheme;
use ike_proto::crypto::sign::{PssParameters, SubjectPublicKeyInfo};
use ike_proto::wire::der::{Der, INTEGER, SEQUENCE, context};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;
use rustls_pki_types::CertificateDer;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::crl::dp::DistributionPoint;
use x509_cert::ext::pkix::name::{self, DistributionPointName};
use x509_cert::ext::pkix::{
    AuthorityInfoAccessSyntax, AuthorityKeyIdentifier, BasicConstraints, CrlDistributionPoints,
    ExtendedKeyUsage, KeyUsage, SubjectAltName, SubjectKeyIdentifier,
};

use crate::address_blocks::AddressBlocks;
use crate::credential::ca_hash;
use crate::dn::NameHash;
use crate::error::{LoadError, PkiError};
use crate::general_name::GeneralName;
use crate::names::NameConstraints;
use crate::policy::Policies;
use crate::signed::{Schemes, Signature, Signed};
use crate::text;
use crate::time;

/// A certificate and its parts that IKE needs. Parsing does not establish trust.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    /// The same for names that match (RFC 5280 §7.1).
    subject_hash: NameHash,
    issuer_hash: NameHash,
    serial: Vec<u8>,
    spki: Vec<u8>,
    /// For a CA, the hash by which CERTREQ names it.
    ca_hash: Option<[u8; 20]>,
    not_before: SystemTime,
    not_after: SystemTime,
    form: Form,
    extensions: Extensions,
}

/// Requirements of RFC 5280 on the structure that old certificates do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    version_3: bool,
    /// The two statements of the signature algorithm are the same (§4.1.1.2).
    one_algorithm: bool,
}

/// The extensions that this crate examines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Extensions {
    basic_constraints: Option<BasicConstraints>,
    key_usage: Option<KeyUsage>,
    extended_key_usage: Option<ExtendedKeyUsage>,
    names: Vec<GeneralName>,
    crl_points: Vec<DistributionPoint>,
    ocsp: Vec<String>,
    key_identifier: Option<Vec<u8>>,
    authority_key_identifier: Option<Vec<u8>>,
    policies: Policies,
    name_constraints: Option<NameConstraints>,
    address_blocks: Option<AddressBlocks>,
    /// A critical extension that is not among these.
    not_understood: bool,
}

impl Certificate {
    /// Parses `octets`, which must be one DER certificate of at most [`MAX_CERTIFICATE`] octets and nothing more.
    ///
    /// # Errors
    /// Names the malformed part.
    pub fn from_der(octets: &[u8]) -> Result<Self, &'static str> {
        if octets.len() > MAX_CERTIFICATE {
            return Err("longer than 65,535 octets");
        }
        let mut outer = Der::new(octets);
        let mut certificate = outer.nested(SEQUENCE).ok_or("not a DER SEQUENCE")?;
        outer.end().ok_or("octets after its end")?;
        let mut tbs = certificate.nested(SEQUENCE).ok_or("tbsCertificate")?;
        let outer_algorithm = certificate.element(SEQUENCE).ok_or("signatureAlgorithm")?;
        certificate.bits().ok_or("signature")?;
        certificate.end().ok_or("octets after the signature")?;

        let mut version_3 = false;
        if tbs.peek() == Some(context(0)) {
            version_3 = tbs.content(context(0)).ok_or("version")? == [INTEGER, 1, 2];
        }
        let serial = tbs.content(INTEGER).ok_or("serialNumber")?.to_vec();
        let algorithm = tbs.element(SEQUENCE).ok_or("signature algorithm")?;
        let form = Form { version_3, one_algorithm: algorithm == outer_algorithm };
        let issuer = tbs.element(SEQUENCE).ok_or("issuer")?.to_vec();
        let mut validity = tbs.nested(SEQUENCE).ok_or("validity")?;
        let not_before = time::read(&mut validity).ok_or("validity")?;
        let not_after = time::read(&mut validity).ok_or("validity")?;
        validity.end().ok_or("validity")?;
        let subject = tbs.element(SEQUENCE).ok_or("subject")?.to_vec();
        let spki = tbs.element(SEQUENCE).ok_or("subjectPublicKeyInfo")?.to_vec();
        SubjectPublicKeyInfo::parse(&spki).ok_or("subjectPublicKeyInfo")?;
        for unique_id in [ISSUER_UNIQUE_ID, SUBJECT_UNIQUE_ID] {
            if tbs.peek() == Some(unique_id) {
                tbs.content(unique_id).ok_or("unique identifier")?;
            }
        }
        let mut extensions = Extensions::default();
        if tbs.peek() == Some(context(3)) {
            let list = tbs.content(context(3)).ok_or("extensions")?;
            let list = Vec::<Extension>::from_der(list).map_err(|_| "extensions")?;
            extensions = Extensions::parse(&list)?;
        }
        tbs.end().ok_or("octets after the extensions")?;
        let ca = extensions.basic_constraints.as_ref().is_some_and(|constraints| constraints.ca);
        let ca_hash = ca.then(|| ca_hash(&spki));
        Ok(Self {
            der: CertificateDer::from(octets.to_vec()),
            subject_hash: NameHash::of(&subject),
            issuer_hash: NameHash::of(&issuer),
            subject,
            issuer,
            serial,
            spki,
            ca_hash,
            not_before,
            not_after,
            form,
            extensions,
        })
    }

    /// The DER encoding.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The subject: a DER Name, bit by bit as in the certificate.
    pub fn subject(&self) -> &[u8] {
        &self.subject
    }

    /// The issuer: a DER Name, bit by bit as in the certificate.
    pub fn issuer(&self) -> &[u8] {
        &self.issuer
    }

    /// The content octets of the serial number, an INTEGER.
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// The public key: a DER SubjectPublicKeyInfo.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// The hash by which CERTREQ names the certificate, if it is a CA's.
    pub(crate) fn ca_hash(&self) -> Option<&[u8; 20]> {
        self.ca_hash.as_ref()
    }

    /// Start of validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Last second of validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The subject as text; the serial number if the subject is empty. Safe in a log line.
    pub fn subject_text(&self) -> String {
        if self.has_subject() {
            return text::name(&self.subject);
        }
        let serial = self.serial.iter().take(MAX_SERIAL);
        let serial: String = serial.map(|octet| format!("{octet:02x}")).collect();
        format!("certificate {serial} of {}", text::name(&self.issuer))
    }

    /// The issuer as text. Safe in a log line.
    pub fn issuer_text(&self) -> String {
        text::name(&self.issuer)
    }

    /// False if the subject is the empty name (RFC 4945 §5.1.2.1).
    pub fn has_subject(&self) -> bool {
        self.subject != EMPTY_NAME
    }

    /// True if basicConstraints say that it is a CA.
    pub fn is_ca(&self) -> bool {
        self.extensions.basic_constraints.as_ref().is_some_and(|constraints| constraints.ca)
    }

    /// Most CA certificates between this CA and an end entity, if the CA limits them.
    pub fn path_len(&self) -> Option<u8> {
        self.extensions
            .basic_constraints
            .as_ref()
            .and_then(|constraints| constraints.path_len_constraint)
    }

    /// True if issuer and subject are the same name (RFC 5280 §7.1).
    pub fn is_self_issued(&self) -> bool {
        self.subject_hash == self.issuer_hash
    }

    /// True if the issuer is the name of `ca`. The signature is not examined.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-6.1
    //# (a)  for all x in {1, ..., n-1}, the subject of certificate x is
    //# the issuer of certificate x+1;
    pub fn names_as_issuer(&self, ca: &Self) -> bool {
        self.issuer_hash == ca.subject_hash
    }

    /// The same for certificates whose subjects match (RFC 5280 §7.1).
    pub(crate) fn subject_hash(&self) -> NameHash {
        self.subject_hash
    }

    /// The [`subject_hash`](Self::subject_hash) of its issuer.
    pub(crate) fn issuer_hash(&self) -> NameHash {
        self.issuer_hash
    }

    /// True if the certificate is self-issued and signed by its own key: the end of a path (RFC 5280 §3.2).
    ///
    /// Old roots are signed by algorithms that are no longer accepted. Such a signature is not verified, and the
    /// key identifiers decide instead.
    ///
    /// A scheme of the program is unknown here, and is treated in the same way. A [`TrustStore`](crate::TrustStore) verifies
    /// its signatures.
    pub fn is_self_signed(&self) -> bool {
        self.is_self_signed_by(|signed| signed.check(&self.spki, &Schemes::default()))
    }

    /// As [`is_self_signed`](Self::is_self_signed). `check` verifies the signature by the key of the certificate.
    pub(crate) fn is_self_signed_by(&self, check: impl Fn(&Signed<'_>) -> Signature) -> bool {
        if !self.is_self_issued() {
            return false;
        }
        match Signed::parse(&self.der).map(|signed| check(&signed)) {
            Some(Signature::Good) => true,
            Some(Signature::Unsupported(_)) => {
                let (own, authority) = (self.key_identifier(), self.authority_key_identifier());
                authority.is_none() || own.is_none() || own == authority
            }
            Some(Signature::Wrong | Signature::Unnamed) | None => false,
        }
    }

    /// Checks that this can be the certificate of a CA, whatever its path: it is a CA's, its key may sign
    /// certificates, and its critical extensions are understood.
    ///
    /// # Errors
    /// [`LoadError::NotCa`], [`LoadError::CriticalExtension`].
    pub fn check_ca(&self) -> Result<(), LoadError> {
        match () {
            () if !self.is_ca() || !self.may_sign_certificates() => Err(LoadError::NotCa),
            () if self.asks_too_much() => Err(LoadError::CriticalExtension),
            () => Ok(()),
        }
    }

    /// Checks that this can be the certificate of a peer, whatever its path: its form (RFC 5280 §4.1), its critical
    /// extensions and its key usage. [`verify_peer`](crate::verify_peer) refuses any other one, pinned ones too.
    ///
    /// # Errors
    /// [`PkiError::Malformed`], [`PkiError::CriticalExtension`], [`PkiError::KeyUsage`].
    pub fn check_peer(&self) -> Result<(), PkiError> {
        self.check_form()?;
        if !self.may_sign() {
            return Err(PkiError::KeyUsage { subject: self.subject_text() });
        }
        Ok(())
    }

    /// Checks that the structure meets RFC 5280 §4.1, and that every critical extension is understood (§4.2).
    pub(crate) fn check_form(&self) -> Result<(), PkiError> {
        match self.form {
            Form { version_3: false, .. } => Err(PkiError::Malformed("not version 3")),
            Form { one_algorithm: false, .. } => {
                Err(PkiError::Malformed("two different signature algorithms"))
            }
            Form { version_3: true, one_algorithm: true } if self.asks_too_much() => {
                Err(PkiError::CriticalExtension { subject: self.subject_text() })
            }
            Form { version_3: true, one_algorithm: true } => Ok(()),
        }
    }

    /// True if an extension is critical and not understood (RFC 5280 §4.2).
    pub(crate) fn asks_too_much(&self) -> bool {
        self.extensions.not_understood
    }

    /// The constraints on the names of certificates below this CA.
    pub(crate) fn name_constraints(&self) -> Option<&NameConstraints> {
        self.extensions.name_constraints.as_ref()
    }

    /// The address blocks (RFC 3779), if there are any.
    pub(crate) fn address_blocks(&self) -> Option<&AddressBlocks> {
        self.extensions.address_blocks.as_ref()
    }

    /// True if the certificate has address blocks (RFC 3779).
    pub fn has_address_blocks(&self) -> bool {
        self.extensions.address_blocks.is_some()
    }

    /// All names of subjectAltName.
    pub(crate) fn alternative_names(&self) -> &[GeneralName] {
        &self.extensions.names
    }

    /// The purposes of extendedKeyUsage; `None` if there is no such extension.
    pub(crate) fn purposes(&self) -> Option<&[ObjectIdentifier]> {
        self.extensions.extended_key_usage.as_ref().map(|usage| &*usage.0)
    }

    fn authority_key_identifier(&self) -> Option<&[u8]> {
        self.extensions.authority_key_identifier.as_deref()
    }

    /// The subjectKeyIdentifier.
    pub fn key_identifier(&self) -> Option<&[u8]> {
        self.extensions.key_identifier.as_deref()
    }

    /// Names of the key usages, empty if there is no such extension.
    pub fn key_usages(&self) -> Vec<&'static str> {
        let Some(usage) = &self.extensions.key_usage else { return Vec::new() };
        [
            (usage.digital_signature(), "digitalSignature"),
            (usage.non_repudiation(), "nonRepudiation"),
            (usage.key_encipherment(), "keyEncipherment"),
            (usage.data_encipherment(), "dataEncipherment"),
            (usage.key_agreement(), "keyAgreement"),
            (usage.key_cert_sign(), "keyCertSign"),
            (usage.crl_sign(), "cRLSign"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
        .collect()
    }

    /// Object identifiers of the extendedKeyUsage in dotted form, empty if there is no such extension.
    pub fn extended_key_usages(&self) -> Vec<String> {
        let usages = self.extensions.extended_key_usage.iter().flat_map(|usage| &usage.0);
        usages.map(ToString::to_string).collect()
    }

    /// True if the key may make signatures: keyUsage is absent, or has digitalSignature or
    /// nonRepudiation.
    //= https://www.rfc-editor.org/rfc/rfc4945#section-5.1.3.2
    //# if the KeyUsage extension is present, then at least one of
    //# the digitalSignature or the nonRepudiation bits in the KeyUsage
    //# extension MUST be set (both can be set as well).
    pub fn may_sign(&self) -> bool {
        let usage = self.extensions.key_usage;
        usage.is_none_or(|usage| usage.digital_signature() || usage.non_repudiation())
    }

    /// True if the key may sign certificates: keyUsage is absent, or has keyCertSign.
    pub fn may_sign_certificates(&self) -> bool {
        self.extensions.key_usage.is_none_or(|usage| usage.key_cert_sign())
    }

    /// True if the key may sign revocation lists: keyUsage is absent, or has cRLSign.
    pub fn may_sign_crls(&self) -> bool {
        self.extensions.key_usage.is_none_or(|usage| usage.crl_sign())
    }

    /// True if the key may sign OCSP responses: extendedKeyUsage has OCSPSigning (RFC 6960 §4.2.2.2).
    pub fn may_sign_ocsp(&self) -> bool {
        let usage = self.extensions.extended_key_usage.as_ref();
        self.may_sign() && usage.is_some_and(|usage| usage.0.contains(&ID_KP_OCSP_SIGNING))
    }

    /// The DER `AlgorithmIdentifier` of the signature on the certificate.
    pub(crate) fn signature_algorithm(&self) -> &[u8] {
        Signed::parse(&self.der).map(|signed| signed.algorithm).unwrap_or_default()
    }

    /// The scheme of the signature on the certificate; `None` if `auth` has no name for it. For ECDSA, the hash
    /// alone decides, and for RSASSA-PSS the hash without the length of the salt.
    pub(crate) fn signature_scheme(&self) -> Option<SignatureScheme> {
        let algorithm = Signed::parse(&self.der)?.algorithm;
        SignatureScheme::from_built_in_identifier(algorithm)
            .or_else(|| PssParameters::from_algorithm_identifier(algorithm)?.scheme_of_hash())
    }

    /// The identities IKE can use: the subject, if it is not empty, and the dNSName, rfc822Name and
    /// iPAddress entries of subjectAltName (RFC 4945 §3.1).
    pub fn identities(&self) -> Vec<IdData> {
        let subject = IdData { kind: IdType::DER_ASN1_DN, data: self.subject.clone() };
        let subject = self.has_subject().then_some(subject);
        subject.into_iter().chain(self.extensions.names.iter().filter_map(identity)).collect()
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.extensions.policies
    }

    pub(crate) fn crl_points(&self) -> &[DistributionPoint] {
        &self.extensions.crl_points
    }

    /// `http` URLs of revocation lists (RFC 5280 §4.2.1.13).
    pub fn crl_urls(&self) -> Vec<String> {
        let points = self.extensions.crl_points.iter();
        points
            .filter(|point| point.crl_issuer.is_none() && point.reasons.is_none())
            .filter_map(|point| match &point.distribution_point {
                Some(DistributionPointName::FullName(names)) => Some(names),
                _ => None,
            })
            .flatten()
            .filter_map(http_url)
            .take(MAX_URLS)
            .collect()
    }

    /// `http` URLs of OCSP responders (RFC 5280 §4.2.2.1).
    pub fn ocsp_urls(&self) -> &[String] {
        &self.extensions.ocsp
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.subject_text()).finish()
    }
}

impl Extensions {
    fn parse(list: &[Extension]) -> Result<Self, &'static str> {
        // Each extension is compared with all before it.
        if list.len() > MAX_EXTENSIONS {
            return Err("more than 64 extensions");
        }
        let mut parsed = Self::default();
        for (index, extension) in list.iter().enumerate() {
            if list.iter().take(index).any(|earlier| earlier.extn_id == extension.extn_id) {
                return Err("an extension twice");
            }
            parsed.add(extension)?;
        }
        Ok(parsed)
    }

    fn add(&mut self, extension: &Extension) -> Result<(), &'static str> {
        let value = extension.extn_value.as_bytes();
        let mut understood = UNDERSTOOD.contains(&extension.extn_id);
        match extension.extn_id {
            BasicConstraints::OID => {
                self.basic_constraints = Some(read(value, "basicConstraints")?);
            }
            KeyUsage::OID => self.key_usage = Some(read(value, "keyUsage")?),
            ExtendedKeyUsage::OID => {
                self.extended_key_usage = Some(read(value, "extendedKeyUsage")?);
            }
            SubjectAltName::OID => {
                self.names = GeneralName::read_all(value).ok_or("subjectAltName")?;
            }
            CrlDistributionPoints::OID => {
                self.crl_points = read::<CrlDistributionPoints>(value, "cRLDistributionPoints")?.0;
            }
            AuthorityInfoAccessSyntax::OID => {
                let access: AuthorityInfoAccessSyntax = read(value, "authorityInfoAccess")?;
                let ocsp = access.0.iter().filter(|access| access.access_method == ID_AD_OCSP);
                let urls = ocsp.filter_map(|access| http_url(&access.access_location));
                self.ocsp = urls.take(MAX_URLS).collect();
            }
            SubjectKeyIdentifier::OID => {
                let identifier: SubjectKeyIdentifier = read(value, "subjectKeyIdentifier")?;
                self.key_identifier = Some(identifier.0.into_bytes().into());
            }
            AuthorityKeyIdentifier::OID => {
                let identifier: AuthorityKeyIdentifier = read(value, "authorityKeyIdentifier")?;
                let key = identifier.key_identifier;
                self.authority_key_identifier = key.map(|key| key.into_bytes().into());
            }
            NameConstraints::OID => {
                let constraints = NameConstraints::parse(value).ok_or("nameConstraints")?;
                self.name_constraints = Some(constraints);
            }
            AddressBlocks::OID => {
                let blocks = AddressBlocks::parse(value).ok_or("ipAddrBlocks")?;
                self.address_blocks = Some(blocks);
            }
            other => understood |= self.policies.add(other, value)?,
        }
        self.not_understood |= extension.critical && !understood;
        Ok(())
    }
}

fn read<'a, T: Decode<'a>>(value: &'a [u8], what: &'static str) -> Result<T, &'static str> {
    T::from_der(value).map_err(|_| what)
}

/// A subjectAltName entry as IKE identity. A name with a wildcard gives none (RFC 4945 §5.1.3.6.1), and neither
/// does a name that does not fit an ID payload.
pub(crate) fn identity(name: &GeneralName) -> Option<IdData> {
    let id = match name {
        GeneralName::Dns(name) if !name.contains('*') => IdData::fqdn(name),
        GeneralName::Email(name) => IdData::email(name),
        GeneralName::Address(octets) => IdData::ip(address(octets)?),
        _ => return None,
    };
    let body = [&[id.kind.0, 0, 0, 0], &*id.data].concat();
    ike_proto::wire::payload::Id::decode(&body).is_ok().then_some(id)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(|a| Ipv4Addr::from(a).into());
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(|a| Ipv6Addr::from(a).into())).ok()
}

/// A URL that may be fetched: `http`, printable ASCII, of limited length. The content is signed; `https` would
/// need certificates to check certificates.
fn http_url(name: &name::GeneralName) -> Option<String> {
    let name::GeneralName::UniformResourceIdentifier(url) = name else { return None };
    is_http_url(url.as_str()).then(|| url.as_str().to_owned())
}

pub(crate) fn is_http_url(url: &str) -> bool {
    let scheme = url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    scheme && url.bytes().all(|c| c.is_ascii_graphic()) && (8..=MAX_URL).contains(&url.len())
}

/// Extensions that may be critical, besides those about policies.
const UNDERSTOOD: [ObjectIdentifier; 7] = [
    BasicConstraints::OID,
    KeyUsage::OID,
    ExtendedKeyUsage::OID,
    SubjectAltName::OID,
    CrlDistributionPoints::OID,
    NameConstraints::OID,
    AddressBlocks::OID,
];
/// Most octets of a certificate. An SLH-DSA certificate has 50,000.
pub const MAX_CERTIFICATE: usize = 65_535;
/// Most extensions of a certificate; usual ones have about ten.
const MAX_EXTENSIONS: usize = 64;
/// Most octets of a serial number that are shown; RFC 5280 §4.1.2.2 allows no more.
const MAX_SERIAL: usize = 20;
/// Most URLs of one kind taken from a certificate.
const MAX_URLS: usize = 4;
/// Longest URL taken.
const MAX_URL: usize = 512;
/// The Name without any attribute.
const EMPTY_NAME: [u8; 2] = [SEQUENCE, 0];
const ISSUER_UNIQUE_ID: u8 = 0x81;
const SUBJECT_UNIQUE_ID: u8 = 0x82;
/// id-ad-ocsp (RFC 5280 §4.2.2.1).
const ID_KP_OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");
const ID_AD_OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
