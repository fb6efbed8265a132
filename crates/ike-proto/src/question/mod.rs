//! What the engine asks of whoever holds private keys and certificates, or has the time for a slow key
//! exchange, and the answers.
//!
//! No long-term private key is ever in the engine, and no certificate is read there. Signing, judging a
//! peer's certificates and key exchanges that take long leave as [`Output::Ask`](crate::Output::Ask) and come back, at any time, as
//! [`Input::Answered`](crate::Input::Answered); meanwhile the IKE SA waits, and everything else goes
//! on. Whether the peer's signature is right is for the engine itself to decide.

mod eap;
mod exchange;
mod lease;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::auth::{CertRequest, SchemeConstraints};
use crate::crypto::SignatureScheme;
use crate::event::Distrust;
use crate::keys::signed_octets::SignedOctets;
use crate::wire::payload::{Cert, IdData, TrafficSelector};
use crate::wire::registry::CertEncoding;
pub use eap::{Authorization, EapAnswer, EapMessage, EapState, EapSuccess};
pub(crate) use exchange::{Claim, Key};
pub use exchange::{Exchange, Exchanged};
pub use lease::{Assignment, Lease, LeaseRequest};

/// Something the engine cannot know by itself.
#[derive(Debug)]
pub enum Question {
    /// Sign for this end. Answered by [`Answer::Signed`] or [`Answer::Failed`].
    Sign(SignRequest),
    /// Which key does the peer have, and may it authenticate the identity? Answered by
    /// [`Answer::Key`], [`Answer::Untrusted`] or [`Answer::Failed`]. The peer has proven nothing yet: nothing may be fetched
    /// to find out, but for certificates that it sent by hash and URL, where
    /// [`hash_and_url`](crate::config::EndpointConfig::hash_and_url) has this end announce that. A stranger
    /// chooses the URL then: whoever fetches has to see to it where that leads.
    Judge(PeerCredentials),
    /// The peer has proven to have the key; what is left is whether its certificates were revoked.
    /// Fetch what has to be fetched and judge again: answered by [`Answer::Key`] with the same key and
    /// nothing pending, or by [`Answer::Failed`].
    Revocation(PeerCredentials),
    /// Do a key exchange that takes long ([`KeMethod::is_slow`](crate::crypto::KeMethod::is_slow)).
    /// Answered by what [`Exchange::perform`] makes, on whatever thread, or by [`Answer::Failed`].
    Exchange(Exchange),
    /// Which addresses does the peer get, and what is it told besides? Answered by [`Answer::Leased`] or
    /// [`Answer::Failed`]: there are none.
    Lease(LeaseRequest),
    /// What comes of an EAP packet? Answered by [`Answer::Eap`] or [`Answer::Failed`].
    Eap(Box<EapMessage>),
    /// Between which addresses is the connection to be started now? The driver resolves names and looks up routes anew
    /// for each start. It always answers, by [`Answer::Ends`], or by [`Answer::Failed`] if there are none. A failure is
    /// reported and the question asked again, as `keyingtries` says.
    Ends {
        /// Connection name.
        connection: String,
        /// This end and the peer, the last time: for a peer that the configuration does not name.
        last: Option<(IpAddr, IpAddr)>,
    },
}

/// What is to be signed, and how the peer can verify it.
#[derive(Debug)]
pub struct SignRequest {
    /// Connection name.
    pub connection: String,
    /// Name of the round: [`LocalAuth::name`](crate::config::LocalAuth::name).
    pub round: String,
    /// The identity that goes with the signature.
    pub id: IdData,
    /// The peer's CERTREQ payloads, in order.
    pub requests: Vec<CertRequest>,
    /// The peer has announced HTTP_CERT_LOOKUP_SUPPORTED: CERT payloads may be hashes and URLs
    /// (RFC 7296 §3.6).
    pub hash_and_url: bool,
    /// What the peer and the configuration accept, the best first.
    pub schemes: Vec<AcceptedScheme>,
    /// What to sign: each by itself, all by the same scheme and key.
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

/// What a peer showed of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Connection name.
    pub connection: String,
    /// Name of the round: [`RemoteAuth::name`](crate::config::RemoteAuth::name).
    pub round: String,
    /// The identity it asserts. The connection admits it.
    pub id: IdData,
    /// Its CERT payloads, in order.
    pub certs: Vec<OwnedCert>,
    /// What `auth` asks of the keys and signatures on the certificate path.
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
pub enum Answer {
    /// The signatures.
    Signed(Signed),
    /// The peer's key.
    Key(PeerKey),
    /// The key exchange is done, or the method refused what the peer sent.
    Exchanged(Exchanged),
    /// The peer's addresses, with the question that they answer: what nobody waits for any more comes back as
    /// [`Event::Unassigned`](crate::Event::Unassigned).
    Leased(LeaseRequest, Lease),
    /// What comes of the EAP packet.
    Eap(Box<EapAnswer>),
    /// The peer's certificates or key are refused, with the kind of reason and its text for the log. The peer gets
    /// AUTHENTICATION_FAILED and no reason.
    Untrusted(Distrust, String),
    /// The addresses to start a connection between.
    Ends {
        /// This host's address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// There is no answer; says why, for the log. The peer is told AUTHENTICATION_FAILED and no more; of a
    /// key exchange, that it may try again.
    Failed(String),
}

/// Signatures with what goes along.
#[derive(Debug)]
pub struct Signed {
    /// The CERT payloads to send, the own certificate first.
    pub certs: Vec<OwnedCert>,
    /// The scheme of all of them: one of [`SignRequest::schemes`].
    pub scheme: SignatureScheme,
    /// One for each of [`SignRequest::octets`], in the form an
    /// [`AlgorithmIdentifier`](SignatureScheme::algorithm_identifier) goes with.
    pub signatures: Vec<Vec<u8>>,
}

/// A key that may authenticate the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerKey {
    /// DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// True if something must be fetched before the peer can be trusted, or who answers wants to know that it has
    /// proven to have the key. After a good signature [`Question::Revocation`] follows.
    pub revocation_pending: bool,
    /// The subject of its certificate as text that is safe in a log line; `None` for a raw public key.
    pub certificate: Option<String>,
    /// The addresses that the peer's certificate authorizes (RFC 3779): its traffic selectors are narrowed to these.
    /// `None` for no limit.
    pub addresses: Option<Arc<[TrafficSelector]>>,
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
