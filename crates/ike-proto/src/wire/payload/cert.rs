//! Certificate and Certificate Request payloads (RFC 7296 §3.6, §3.7).

/// The body of a CERT payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cert<'a> {
    /// Certificate encoding.
    pub encoding: u8,
    /// Certificate data.
    pub data: &'a [u8],
}

/// The body of a CERTREQ payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertReq<'a> {
    /// Certificate encoding.
    pub encoding: u8,
    /// Certification authority data.
    pub authorities: &'a [u8],
}
