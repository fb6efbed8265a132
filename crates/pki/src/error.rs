//! Errors about a peer's certificate, and about files.

use std::fmt;
use std::time::SystemTime;

use ike_proto::Distrust;
use ike_proto::crypto::sign::PssProperty;
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::CertEncoding;

use crate::text::Date;
use crate::time::wrong_clock;

/// Why a peer's certificate is not accepted. Names from certificates are printed in a form that is safe in a log
/// line.
///
/// On the wire every error is AUTHENTICATION_FAILED (RFC 7296 §2.21.2). The details are for the local
/// administrator only.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PkiError {
    /// This round of the connection has no policy for the peer.
    NoPolicy,
    /// The peer sent no certificate, and no configured one has its identity.
    NoCertificate,
    /// A CERT payload has an encoding that cannot be used; see [`EncodingProblem`].
    Encoding(CertEncoding, EncodingProblem),
    /// The peer sends more of something than is accepted.
    TooMuch {
        /// CERT payloads, or octets of them.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Not a well-formed X.509 certificate; names the defect.
    Malformed(&'static str),
    /// A certificate of the path has expired.
    Expired {
        /// Its subject.
        subject: String,
        /// Its last second of validity.
        not_after: SystemTime,
    },
    /// A certificate of the path is not valid yet.
    NotYetValid {
        /// Its subject.
        subject: String,
        /// Start of its validity.
        not_before: SystemTime,
        /// When it was judged.
        now: SystemTime,
    },
    /// No path to a trusted CA: the issuer is neither trusted nor among the certificates sent.
    UnknownCa {
        /// The missing issuer.
        issuer: String,
    },
    /// The path ends at a trusted CA that is not one of `cacerts`.
    CaNotAllowed {
        /// The CA the path ends at.
        anchor: String,
    },
    /// The path ends at a trusted CA, but no CA in it has the identity of `ca_id`.
    CaIdentity {
        /// The CA the path ends at.
        anchor: String,
    },
    /// A policy of `cert_policy` is not in the certificate, or not allowed by all of its CAs.
    CertificatePolicy {
        /// The certificate's subject.
        subject: String,
        /// The policy, in dotted form.
        policy: String,
    },
    /// A CA requires a valid policy (requireExplicitPolicy, RFC 5280 §4.2.1.11), and the path has none.
    PolicyRequired {
        /// The first certificate of the path, from the trusted CA, after which no policy is valid.
        subject: String,
        /// Subject of the certificate that requires a policy.
        ca: String,
    },
    /// A CA maps anyPolicy, or maps a policy to it (RFC 5280 §4.2.1.5).
    PolicyMapping {
        /// The CA's subject.
        ca: String,
    },
    /// `ca_id` or `cert_policy` is set, but a raw public key has neither a CA nor policies.
    RawKeyWithoutCa,
    /// The end-entity certificate is not one of `certs`.
    NotPinned {
        /// Its subject.
        subject: String,
    },
    /// The public key is not one of `pubkeys`, or not for this identity.
    UnknownRawKey,
    /// A key or a signature of the path is not of a type and strength that `auth` accepts.
    Strength {
        /// Subject of the certificate with the key or signature.
        subject: String,
    },
    /// A certificate of the path, or one that would speak for it, is signed by a scheme of the program that `auth` does not
    /// name.
    UnnamedScheme {
        /// Subject of the certificate.
        subject: String,
        /// The scheme.
        scheme: String,
    },
    /// In EAP, a certificate of the path is signed by a scheme of the program.
    SchemeInEap {
        /// Subject of the certificate.
        subject: String,
        /// The scheme.
        scheme: String,
    },
    /// The signature on a certificate of the path is wrong.
    BadSignature {
        /// Subject of the certificate.
        subject: String,
        /// The scheme of the signature.
        scheme: String,
    },
    /// The signature on a certificate of the path has an algorithm that is not accepted (SHA-1, short RSA keys, …).
    UnsupportedAlgorithm {
        /// Subject of the certificate.
        subject: String,
        /// The scheme of the signature; the OBJECT IDENTIFIER of one that is not known.
        algorithm: String,
        /// What is not accepted.
        why: Unaccepted,
    },
    /// The keyUsage of the end-entity certificate does not allow signatures (RFC 4945 §5.1.3.2), or
    /// that of a CA does not allow certificates.
    KeyUsage {
        /// Subject of the certificate.
        subject: String,
    },
    /// The extendedKeyUsage has none of the purposes that an
    /// [`ExtendedKeyUsagePolicy`](crate::ExtendedKeyUsagePolicy) accepts.
    ExtendedKeyUsage {
        /// Subject of the certificate.
        subject: String,
    },
    /// A name of the certificate is outside the name constraints of a CA (RFC 5280 §4.2.1.10).
    NameConstraints {
        /// Subject of the certificate.
        subject: String,
    },
    /// The address blocks of a certificate go beyond those of its issuer, or one of the two has none (RFC 3779 §2.3).
    AddressBlocks {
        /// Subject of the certificate.
        subject: String,
    },
    /// A certificate is used as a CA without being one, or for a longer path than it allows.
    BasicConstraints,
    /// A critical extension that is not understood (RFC 5280 §4.2).
    CriticalExtension {
        /// Subject of the certificate.
        subject: String,
    },
    /// The peer's certificate is a trust anchor, and no other one has issued it.
    TrustAnchor {
        /// Its subject.
        subject: String,
    },
    /// The identity that the peer asserts is not in its certificate.
    IdentityNotInCertificate {
        /// The identity.
        id: IdData,
        /// Identities that are in it.
        names: Vec<IdData>,
    },
    /// Identities of this type cannot be bound to a certificate (RFC 4945 §3.1).
    IdentityType(IdData),
    /// A certificate of the path has been revoked.
    Revoked {
        /// Its subject.
        subject: String,
    },
    /// A certificate that is trusted by itself is on a list at hand, and no CA that is known signed the list.
    ListUnverified {
        /// Its subject.
        subject: String,
        /// The issuer of the list.
        issuer: String,
    },
    /// The revocation status of a certificate of the path is unknown, and `revocation` requires that it is known.
    RevocationUnknown {
        /// Its subject.
        subject: String,
    },
    /// There may be a path, but it has more of something than is examined.
    Limits {
        /// Signatures, CAs and the like.
        what: &'static str,
        /// The limit.
        most: usize,
    },
}

/// What makes the algorithm of a signature unacceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unaccepted {
    /// The algorithm itself, or its hash.
    Algorithm,
    /// This property of the parameters of RSASSA-PSS (RFC 4055 §3.1).
    Pss(PssProperty),
    /// This property of RSASSA-PSS is not one that the parameters of the CA's key allow (RFC 4055 §3.3).
    PssKey(PssProperty),
    /// The length of the CA's RSA modulus, in bits.
    Modulus(u32),
}

impl fmt::Display for Unaccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm => f.write_str("signature algorithm not accepted"),
            Self::Pss(property) => {
                write!(
                    f,
                    "RSASSA-PSS signature: {property} not accepted; use SHA-2, and MGF1 with the same hash"
                )
            }
            Self::PssKey(property) => {
                write!(
                    f,
                    "RSASSA-PSS signature: {property} not allowed by the parameters of the CA's key"
                )
            }
            Self::Modulus(bits) => {
                write!(f, "RSA key of the CA not accepted: {bits} bits; 2048 to 8192 are accepted")
            }
        }
    }
}

/// Defects of a certificate encoding (RFC 7296 §3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodingProblem {
    /// Hash and URL, and the content was not fetched. Fetching before the peer is authenticated lets anyone point
    /// the daemon at any URL, so it must be enabled.
    HashAndUrl,
    /// Not a hash and an `http` URL.
    Malformed,
    /// The content at the URL has another hash.
    Hash,
    /// The content at the URL is no bundle.
    Bundle,
    /// Not implemented.
    Unsupported,
}

/// Most names of a certificate in a text. A certificate may have thousands, and its CA may never have checked
/// them.
const SHOWN_NAMES: usize = 8;
/// Most characters of each name.
const SHOWN_CHARS: usize = 100;

impl PkiError {
    /// The kind of this error.
    pub fn kind(&self) -> Distrust {
        match self {
            Self::Revoked { .. } | Self::ListUnverified { .. } => Distrust::Revoked,
            Self::RevocationUnknown { .. } => Distrust::RevocationUnknown,
            Self::Expired { .. } => Distrust::Expired,
            _ => Distrust::Other,
        }
    }
}

impl fmt::Display for PkiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy => f.write_str("nothing is configured to judge the peer by any more"),
            Self::NoCertificate => f.write_str("the peer sent no certificate"),
            Self::Encoding(encoding, problem) => write!(f, "{encoding}: {problem}"),
            Self::TooMuch { what, most } => write!(f, "the peer sends more than {most} {what}"),
            Self::Malformed(what) => write!(f, "malformed certificate: {what}"),
            Self::Expired { subject, not_after } => {
                write!(f, "certificate {subject:?} expired on {}", Date(*not_after))
            }
            Self::NotYetValid { subject, not_before, now } => {
                write!(f, "certificate {subject:?} is valid from {} on", Date(*not_before))?;
                wrong_clock(*now).map_or(Ok(()), |clock| write!(f, "; {clock}"))
            }
            Self::UnknownCa { issuer } => write!(f, "no trusted CA {issuer:?}"),
            Self::CaNotAllowed { anchor } => {
                write!(f, "issued under {anchor:?}, which is not one of `cacerts`")
            }
            Self::CaIdentity { anchor } => {
                write!(f, "issued under {anchor:?}: no CA has the identity of `ca_id`")
            }
            Self::CertificatePolicy { subject, policy } => {
                write!(
                    f,
                    "certificate {subject:?} does not have the policy {policy}, or not by its CAs"
                )
            }
            Self::PolicyRequired { subject, ca } => {
                write!(
                    f,
                    "certificate {subject:?} has no policy that its CAs allow, and {ca:?} requires one \
                     (requireExplicitPolicy)"
                )
            }
            Self::PolicyMapping { ca } => {
                write!(f, "the policyMappings of the CA {ca:?} name anyPolicy")
            }
            Self::RawKeyWithoutCa => {
                f.write_str("a raw public key is not what `ca_id` and `cert_policy` ask for")
            }
            Self::NotPinned { subject } => {
                write!(f, "certificate {subject:?} is not one of `certs`")
            }
            Self::UnknownRawKey => f.write_str("the public key is not one of `pubkeys`"),
            Self::Strength { subject } => {
                write!(f, "key or signature of {subject:?} not accepted by `auth`")
            }
            Self::UnnamedScheme { subject, scheme } => write!(
                f,
                "certificate {subject:?} has signature scheme {scheme}, which `auth` does not name for certificates: name {scheme} before `ike:`, or without it, to accept it"
            ),
            Self::SchemeInEap { subject, scheme } => write!(
                f,
                "certificate {subject:?} has signature scheme {scheme}, which EAP does not take: use a path of built-in schemes"
            ),
            Self::BadSignature { subject, scheme } => write!(
                f,
                "certificate {subject:?} has a signature by {scheme} that does not verify by the key of its CA"
            ),
            Self::UnsupportedAlgorithm { subject, algorithm, why: Unaccepted::Algorithm } => {
                write!(
                    f,
                    "certificate {subject:?} has a signature by algorithm {algorithm}, which is not accepted"
                )
            }
            Self::UnsupportedAlgorithm { subject, why, .. } => {
                write!(f, "certificate {subject:?}: {why}")
            }
            Self::KeyUsage { subject } => {
                write!(f, "the keyUsage of {subject:?} does not allow this use")
            }
            Self::ExtendedKeyUsage { subject } => {
                write!(f, "the extendedKeyUsage of {subject:?} does not allow this use")
            }
            Self::NameConstraints { subject } => {
                write!(f, "a name of {subject:?} is outside the name constraints of its CAs")
            }
            Self::AddressBlocks { subject } => {
                write!(
                    f,
                    "the address blocks (RFC 3779) of {subject:?} are missing or not within those of its issuer"
                )
            }
            Self::BasicConstraints => f.write_str("the basicConstraints do not allow this path"),
            Self::CriticalExtension { subject } => {
                write!(f, "certificate {subject:?} has a critical extension that is not understood")
            }
            Self::TrustAnchor { subject } => {
                write!(
                    f,
                    "certificate {subject:?} is a trusted CA, which cannot vouch for itself; to accept it as the \
                     peer's, name it in `certs` of `remote`"
                )
            }
            Self::IdentityNotInCertificate { id, names } => {
                write!(f, "the certificate does not have the identity {:?}", id.to_string())?;
                for (index, name) in names.iter().take(SHOWN_NAMES).enumerate() {
                    let before = if index == 0 { "; it has" } else { "," };
                    let name: String = name.to_string().chars().take(SHOWN_CHARS).collect();
                    write!(f, "{before} {name:?}")?;
                }
                match names.len().saturating_sub(SHOWN_NAMES) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::IdentityType(id) => {
                write!(f, "identity {:?} cannot be bound to a certificate", id.to_string())
            }
            Self::Revoked { subject } => write!(f, "certificate {subject:?} has been revoked"),
            Self::ListUnverified { subject, issuer } => write!(
                f,
                "certificate {subject:?} is on a revocation list of {issuer:?} that cannot be verified: put the \
                 certificate of this CA into x509ca/, or take the list away"
            ),
            Self::RevocationUnknown { subject } => {
                write!(f, "not known whether certificate {subject:?} has been revoked")
            }
            Self::Limits { what, most } => {
                write!(f, "the certificate path needs more than {most} {what}")
            }
        }
    }
}

impl fmt::Display for EncodingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HashAndUrl => "refused, HTTP_CERT_LOOKUP_SUPPORTED was not announced",
            Self::Malformed => "no hash and http URL",
            Self::Hash => "what was fetched has another hash",
            Self::Bundle => "what was fetched is no bundle of certificates",
            Self::Unsupported => "not supported",
        })
    }
}

impl std::error::Error for PkiError {}

/// Why a file or a fetched body cannot be used. It never contains octets of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// Neither PEM nor DER of the named kind.
    Nothing(&'static str),
    /// Malformed; names the part.
    Malformed(&'static str),
    /// A certificate that is malformed; names its defect.
    Certificate(&'static str),
    /// Encrypted, and no passphrase was given.
    PassphraseNeeded,
    /// The passphrase is wrong, or the file damaged.
    Passphrase,
    /// The empty passphrase is wrong for a PKCS#12 file. Some programs write files with no passphrase at all, which is
    /// another one.
    NullPassphrase,
    /// An unsupported encryption, key type or form; names it.
    Unsupported(&'static str),
    /// Longer than is read.
    TooLong {
        /// What it is.
        what: &'static str,
        /// Most octets.
        most: usize,
    },
    /// Not a CA certificate.
    NotCa,
    /// A trust anchor with a critical extension that is not understood (RFC 5280 §4.2).
    CriticalExtension,
    /// Not a certificate of an OCSP responder.
    NotResponder,
    /// The key does not belong to the certificate.
    KeyMismatch,
    /// The identity is not in the certificate.
    Identity,
    /// The signature is not by the expected issuer.
    Signature,
    /// The CA has revoked the certificate of the OCSP responder that signed the response.
    RevokedResponder,
    /// The content is about something else than requested.
    Irrelevant,
    /// Outdated, or dated in the future.
    Stale,
    /// Older than a list of the same CA and scope that this end has.
    Older,
    /// A list for some reasons of revocation, without lists for the others.
    Partial,
    /// A delta list without the list that it brings up to date.
    Base,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(what) => write!(f, "no {what} in it"),
            Self::Malformed(what) => write!(f, "malformed {what}"),
            Self::Certificate(part) => write!(f, "malformed certificate: {part}"),
            Self::PassphraseNeeded => f.write_str("encrypted; a passphrase is needed"),
            Self::Passphrase => f.write_str("wrong passphrase, or damaged"),
            Self::NullPassphrase => f.write_str(
                "wrong passphrase, or a file with a NULL passphrase, which is not read: export it with a passphrase",
            ),
            Self::Unsupported(what) => write!(f, "{what} not supported"),
            Self::TooLong { what, most } => write!(f, "{what} has more than {most} octets"),
            Self::NotCa => f.write_str("not a CA certificate"),
            Self::CriticalExtension => f.write_str("a critical extension is not understood"),
            Self::NotResponder => f.write_str("not a certificate for OCSP signing"),
            Self::KeyMismatch => f.write_str("the private key is not that of the certificate"),
            Self::Identity => f.write_str("the identity is not in the certificate"),
            Self::Signature => f.write_str("signature is not by the CA of the certificate"),
            Self::RevokedResponder => {
                f.write_str("signed by a responder whose certificate is revoked")
            }
            Self::Irrelevant => f.write_str("not about this certificate"),
            Self::Stale => f.write_str("outdated, or dated in the future"),
            Self::Older => f.write_str("list is older than the one at hand"),
            Self::Partial => {
                f.write_str("list is about some reasons of revocation only: a list about the others is missing")
            }
            Self::Base => {
                f.write_str("list is a delta list: the complete list that it brings up to date is missing")
            }
        }
    }
}

impl std::error::Error for LoadError {}
