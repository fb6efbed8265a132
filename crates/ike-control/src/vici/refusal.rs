//! Why a request of a client is refused.

use std::fmt;
use std::time::Duration;

use crate::error::OperatorError;

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The operator's reason.
    Operator(OperatorError),
    /// A key of the request is missing.
    Missing(&'static str),
    /// A key of the request has a value that is none of this form.
    Form(&'static str, &'static str),
    /// Text that is not UTF-8, at this place of the request.
    NotUtf8(String),
    /// A value that is not text, at this place of the request.
    NotText(String),
    /// A key that the request has twice.
    Twice(String),
    /// The request is not one section with a name.
    NotOneSection,
    /// Certificates of this type.
    CertificateType(String),
    /// Certificates with this flag.
    CertificateFlag(String),
    /// Shared secrets of this type.
    SecretType(String),
    /// A connection in which this child has an `updown` program.
    Updown(String),
    /// There are no counters of this connection.
    NoCounters(String),
    /// The command has had no outcome in the time of the client. It continues.
    Continues(Duration),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(error) => error.fmt(f),
            Self::Missing(key) => write!(f, "`{key}` is missing"),
            Self::Form(keys, form) => write!(f, "{keys}: expected {form}"),
            Self::NotUtf8(place) => write!(f, "`{place}` is not UTF-8 text"),
            Self::NotText(place) => write!(f, "`{place}`: expected a text"),
            Self::Twice(place) => write!(f, "`{place}` is given twice"),
            Self::NotOneSection => {
                f.write_str("expected one section, with the name of what is to be loaded")
            }
            Self::CertificateType(kind) => {
                write!(f, "certificates of type {kind} are not supported")
            }
            Self::CertificateFlag(flag) => {
                write!(f, "certificates with the flag {flag} are not supported")
            }
            Self::SecretType(kind) => write!(f, "secrets of type {kind} are not supported"),
            Self::Updown(child) => write!(
                f,
                "`children.{child}.updown` is not accepted from VICI clients, because it runs a program: \
                 set `allow_updown = true` in [charon.plugins.vici] and restart the daemon, or put the connection into the file"
            ),
            Self::NoCounters(name) => write!(f, "no counters found for connection {name:?}"),
            Self::Continues(limit) => {
                write!(f, "no outcome after {} ms; the command continues", limit.as_millis())
            }
        }
    }
}

impl From<OperatorError> for Refusal {
    fn from(error: OperatorError) -> Self {
        Self::Operator(error)
    }
}
