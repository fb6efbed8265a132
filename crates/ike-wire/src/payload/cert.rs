//! Certificate and Certificate Request payloads (RFC 7296 §3.6, §3.7).

use crate::codec::{DecodeError, Reader};
use crate::registry::CertEncoding;

/// The body of a CERT payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cert<'a> {
    /// Certificate encoding.
    pub encoding: CertEncoding,
    /// Certificate data.
    pub data: &'a [u8],
}

/// The body of a CERTREQ payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertReq<'a> {
    /// Certificate encoding.
    pub encoding: CertEncoding,
    /// Certification authority data.
    pub authorities: &'a [u8],
}

impl<'a> Cert<'a> {
    /// Decodes the body of a CERT payload.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let encoding = CertEncoding(r.u8("CERT payload")?);
        Ok(Self { encoding, data: r.take_rest() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.encoding.0);
        out.extend_from_slice(self.data);
    }
}

impl<'a> CertReq<'a> {
    /// Decodes the body of a CERTREQ payload.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let encoding = CertEncoding(r.u8("CERTREQ payload")?);
        Ok(Self { encoding, authorities: r.take_rest() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.encoding.0);
        out.extend_from_slice(self.authorities);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let cert = Cert { encoding: CertEncoding::X509_SIGNATURE, data: &[0x30, 0] };
        assert_round_trip(&Payload::Cert(cert), &[4, 0x30, 0]);
        let request = CertReq { encoding: CertEncoding::X509_SIGNATURE, authorities: &[7; 20] };
        assert_round_trip(&Payload::CertReq(request), &[&[4][..], &[7; 20]].concat());
    }

    #[test]
    fn empty_body_is_refused() {
        assert_eq!(Cert::decode(&[]), Err(DecodeError::Truncated("CERT payload")));
        assert_eq!(CertReq::decode(&[]), Err(DecodeError::Truncated("CERTREQ payload")));
    }
}
