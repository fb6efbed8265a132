//! Certificates for IKEv2.
//!
//! Every function here depends on its arguments only: it fetches nothing and reads no file, and the time is an
//! argument. Maintained libraries (x509-cert, rustls-webpki) read extensions and verify signatures. This crate reads
//! revocation lists and validates paths (RFC 5280 §6), with the further requirements of IKE (RFC 4945).
//!
//! * [`files`]: certificates and private keys from the content of files, PKCS#12 with the feature `pkcs12`.
//! * [`TrustStore`]: trusted CAs, further CA certificates, revocation information.
//! * [`verify_peer`]: may the key in these CERT payloads authenticate this identity? A
//!   [`TrustedPeer`] is the evidence that it may.
//! * [`RevocationStore`] and [`FetchRequest`]: the caller is asked to fetch revocation information, and only for
//!   a peer whose path ends at a trusted CA.
//! * [`Credential`], [`choose`] and [`certificate_request`]: this end's certificates and CERTREQ.
//! * [`HashAndUrl`]: certificates that the caller may fetch before all this.
//! * [`OwnStatus`]: OCSP responses about this end's certificates, for peers that ask for them (RFC 4806).
//! * [`Answerer`]: all of it as the answers to the engine's questions.
//! * [`issue`]: makes certificates, requests and revocation lists.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod files;
pub mod issue;

mod address_blocks;
mod answerer;
mod certificate;
mod credential;
mod dn;
mod error;
mod general_name;
mod hash_and_url;
mod identity;
mod names;
mod own_status;
mod path;
mod policy;
mod record;
mod revocation;
mod signed;
mod stand_in;
mod standing;
mod text;
mod time;
mod trust;
mod verified;
mod verify;

pub use address_blocks::Addresses;
pub use answerer::Answerer;
pub use certificate::{Certificate, MAX_CERTIFICATE};
pub use credential::{Credential, ca_hash, certificate_request, choose, requested_cas};
pub use error::{EncodingProblem, LoadError, PkiError, Unaccepted};
pub use hash_and_url::{HashAndUrl, bundle, sha1};
pub use path::ExtendedKeyUsagePolicy;
pub use policy::CertificatePolicy;
pub use record::{Record, RecordedKind};
pub use revocation::{
    Authority, Crl, FetchKind, FetchRequest, ListsDue, MAX_BODY, MAX_LIST, OwnStatus,
    RevocationPolicy, RevocationStore, StatusFetch, StatusFetches,
};
pub use standing::{RevokedCertificate, Standing, Standings, TrustNow};
pub use time::wrong_clock;
pub use trust::TrustStore;
pub use verify::{
    MAX_CERTS, MAX_CERTS_LEN, MAX_INTERMEDIATES, PeerPolicy, RawKey, Revocation, TrustedPeer,
    verify_peer,
};
