//! Questions of the engine to the holder of private keys and certificates, or to a thread for slow key exchanges,
//! and their answers.
//!
//! The engine has no long-term private key and reads no certificate. Signing, judging a peer's certificates, and
//! slow key exchanges leave as [`Output::Ask`](crate::Output::Ask) and come back, at any time, as
//! [`Input::Answered`](crate::Input::Answered). Meanwhile the IKE SA waits, and everything else continues. The
//! engine itself verifies the peer's signature.

mod eap;
mod exchange;
mod lease;
mod resume;
mod used;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::auth::{CertRequest, SchemeConstraints};
use crate::crypto::SignatureScheme;
use crate::keys::signed_octets::SignedOctets;
use crate::reason::Distrust;
use crate::wire::payload::{Cert, IdData, TrafficSelector};
use crate::wire::registry::CertEncoding;
pub use eap::{Authorization, EapAnswer, EapMessage, EapState, EapSuccess};
pub(crate) use exchange::{Claim, Key};
pub use exchange::{Exchange, Exchanged};
pub use lease::{Assignment, Lease, LeaseRequest};
pub use resume::{PeerCertificate, ResumeClaim};
pub use used::{UsedAuth, UsedEap};

/// A question that the engine cannot answer by itself.
#[derive(Debug)]
pub enum Question {
    /// Sign for this end. Answered by [`Answer::Signed`] or [`Answer::Failed`].
    Sign(SignRequest),
    /// Which key does the peer have, and may it authenticate the identity? Answered by [`Answer::Key`],
    /// [`Answer::Untrusted`] or [`Answer::Failed`]. The peer has proven nothing yet, so nothing may be fetched for
    /// the answer. The exception is certificates that the peer has sent by hash and URL, if
    /// [`hash_and_url`](crate::config::EndpointConfig::hash_and_url) has this end announce that. Then an
    /// unauthenticated peer chooses the URL, and the fetching side must check where it leads.
    Judge(PeerCredentials),
    /// The peer has proven that it has the key. What remains is whether its certificates were revoked. Fetch the
    /// lists and judge again. Answered by [`Answer::Key`] with the same key and nothing pending, or by
    /// [`Answer::Failed`].
    Revocation(PeerCredentials),
    /// The peer has proven that a ticket is its own (RFC 5723). Would the peer still be trusted: was a certificate
    /// revoked since, or a key, a trust anchor or a password removed? Answered by [`Answer::Resumable`], or by
    /// [`Answer::Untrusted`] or [`Answer::Failed`]. Then the ticket is void, and the peer begins in full. Nothing need be
    /// fetched for the answer.
    Resume(ResumeClaim),
    /// Do a slow key exchange ([`KeMethod::is_slow`](crate::crypto::KeMethod::is_slow)). Answered by the result of
    /// [`Exchange::perform`], on any thread, or by [`Answer::Failed`].
    Exchange(Exchange),
    /// Which addresses and attributes does the peer get? Answered by [`Answer::Leased`], or by [`Answer::Failed`]
    /// if there are none.
    Lease(LeaseRequest),
    /// What follows an EAP packet? Answered by [`Answer::Eap`] or [`Answer::Failed`].
    Eap(Box<EapMessage>),
    /// Between which addresses is the connection to be started now? The driver resolves names and looks up routes
    /// again for each start. It always answers, by [`Answer::Ends`], or by [`Answer::Failed`] if there are none. A
    /// failure is reported, and the question is asked again, as `keyingtries` says.
    Ends {
        /// Connection name.
        connection: String,
        /// The last addresses of this end and the peer, for a peer that the configuration does not name.
        last: Option<(IpAddr, IpAddr)>,
    },
}

/// The octets to be signed, and how the peer can verify the signature.
#[derive(Debug)]
pub struct SignRequest {
    /// Connection name.
    pub connection: String,
    /// Name of the round: [`LocalAuth::name`](crate::config::LocalAuth::name).
    pub round: String,
    /// The identity of the signer.
    pub id: IdData,
    /// The peer's CERTREQ payloads, in order.
    pub requests: Vec<CertRequest>,
    /// The peer has announced HTTP_CERT_LOOKUP_SUPPORTED: CERT payloads may be hashes and URLs
    /// (RFC 7296 §3.6).
    pub hash_and_url: bool,
    /// The schemes that the peer and the configuration accept, the best first.
    pub schemes: Vec<AcceptedScheme>,
    /// The peer has announced these schemes, in this order of preference (RFC 9593). Otherwise the order is that of
    /// this end, and it is not known that the peer has all of them.
    pub announced: bool,
    /// The octets to sign: each by itself, all by the same scheme and key.
    pub octets: Vec<SignedOctets>,
}

/// A signature scheme that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedScheme {
    /// The scheme.
    pub scheme: SignatureScheme,
    /// The CAs under which a certificate for it may be issued, as SHA-1 hashes of their
    /// SubjectPublicKeyInfo (RFC 9593 §3.2.2); empty: any.
    pub authorities: Vec<[u8; 20]>,
}

/// The credentials that a peer has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Connection name.
    pub connection: String,
    /// Name of the round: [`RemoteAuth::name`](crate::config::RemoteAuth::name).
    pub round: String,
    /// The identity that it claims. The connection admits it.
    pub id: IdData,
    /// Its CERT payloads, in order.
    pub certs: Vec<OwnedCert>,
    /// The requirements of `auth` on the keys and signatures of the certificate path.
    pub chain: SchemeConstraints,
}

/// The body of a CERT payload that owns its data (RFC 7296 §3.6).
#[derive(Clone, PartialEq, Eq)]
pub struct OwnedCert {
    /// Certificate encoding.
    pub encoding: CertEncoding,
    /// Certificate data.
    pub data: Vec<u8>,
}

/// The answer to a [`Question`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an answer is handed over once, and kept nowhere")]
pub enum Answer {
    /// The signatures.
    Signed(Signed),
    /// The peer's key.
    Key(PeerKey),
    /// What has authenticated the peer still does, as far as is known.
    Resumable,
    /// The key exchange is done, or the method refused what the peer sent.
    Exchanged(Exchanged),
    /// The peer's addresses, with the question that they answer. If no SA waits for them any more, they come back
    /// as [`Event::Unassigned`](crate::Event::Unassigned).
    Leased(LeaseRequest, Lease),
    /// The result of the EAP packet.
    Eap(Box<EapAnswer>),
    /// The peer's certificates or key are refused, with the kind of reason and its text for the log. The peer gets
    /// AUTHENTICATION_FAILED and no reason.
    Untrusted(Distrust, String),
    /// The addresses between which to start a connection.
    Ends {
        /// This host's address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// There is no answer. The text says why, for the log. The peer gets AUTHENTICATION_FAILED and no reason.
    /// After a failed key exchange it may try again.
    Failed(String),
}

/// Signatures and certificates.
#[derive(Debug)]
pub struct Signed {
    /// The CERT payloads to send, the own certificate first.
    pub certs: Vec<OwnedCert>,
    /// The scheme of all signatures: one of [`SignRequest::schemes`].
    pub scheme: SignatureScheme,
    /// One signature for each of [`SignRequest::octets`], in the form that belongs to an
    /// [`AlgorithmIdentifier`](SignatureScheme::algorithm_identifier).
    pub signatures: Vec<Vec<u8>>,
}

/// A key that may authenticate the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerKey {
    /// DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// True if something must be fetched before the peer can be trusted, or if the answering side wants to know
    /// that the peer has proven that it has the key. [`Question::Revocation`] follows after a valid signature.
    pub revocation_pending: bool,
    /// Its certificate or its raw public key, as far as the answering side keeps it.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The addresses that the peer's certificate authorizes (RFC 3779): its traffic selectors are narrowed to these.
    /// `None` for no limit.
    pub addresses: Option<Arc<Vec<TrafficSelector>>>,
}

impl OwnedCert {
    /// The same as a payload body.
    pub fn as_cert(&self) -> Cert<'_> {
        Cert { encoding: self.encoding, data: &self.data }
    }
}

impl From<Cert<'_>> for OwnedCert {
    fn from(cert: Cert<'_>) -> Self {
        Self { encoding: cert.encoding, data: cert.data.to_vec() }
    }
}

impl fmt::Debug for OwnedCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedCert({}, {} octets)", self.encoding, self.data.len())
    }
}
