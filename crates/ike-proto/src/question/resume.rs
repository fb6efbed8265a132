//! Certificates by which a peer has authenticated, and the question whether they still hold.

use std::fmt;

use super::UsedAuth;

/// The certificate or the raw public key by which a peer has authenticated. The answering side makes it, and shares it with
/// the IKE SA and its successors: while the SA lives, so does this.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Its subject, safe in a log line; empty for a raw public key without a known certificate.
    pub subject: Box<str>,
    /// What the answering side needs to judge the key and the path of the certificate again, in a form of its own. The
    /// engine does not read it. Tickets carry it, and must not become too long because of it.
    pub path: Box<[u8]>,
    /// True if the peer was accepted although the status of a certificate of the path was not known and URLs were
    /// asked.
    pub unchecked: bool,
}

/// The claim of a peer whose ticket is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeClaim {
    /// Connection name.
    pub connection: String,
    /// How it has authenticated, round by round, from the ticket, with the names that the connection has for the rounds
    /// ([`RemoteAuth::name`](crate::config::RemoteAuth::name)). At least one round has a certificate, a key or
    /// [the number of a password](super::UsedEap::password).
    pub rounds: Vec<(String, UsedAuth)>,
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerCertificate({:?}, {} octets)", self.subject, self.path.len())
    }
}
