//! What is asked about the certificate of a live IKE SA of which nothing but a [`Record`] is kept.

use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::wire::der::{
    self as asn1, BIT_STRING, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, context,
};

use crate::answerer::Answerer;
use crate::certificate::Certificate;
use crate::record::Record;
use crate::revocation::{FetchRequest, ListsDue};

impl Answerer {
    /// When responders are due to be asked again about a certificate: when the response at hand is past its nextUpdate,
    /// or 24 hours after its thisUpdate without one. If there is none, at once, unless URLs of lists are known, which
    /// [`list_due`](Self::list_due) is about. `None` if no responder is known.
    pub fn status_due(&self, record: &Record, now: SystemTime) -> Option<ListsDue> {
        let example = self.examples.of(record.kind)?;
        let (certificate, issuer) = example.link()?;
        self.trust().revocation.status_due((certificate, issuer), record.serial, now)
    }

    /// The question about such a certificate to a responder that has not failed lately and that is `free`.
    pub fn status_again(
        &self,
        record: &Record,
        free: &dyn Fn(&str) -> bool,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let example = self.examples.of(record.kind)?;
        let (certificate, issuer) = example.link()?;
        let asked = stand_in(certificate.issuer(), issuer.spki(), record.serial.number()?)?;
        let links = (&Arc::new(asked), issuer);
        self.trust().revocation.status_again(certificate, links, free, now)
    }
}

/// Something that `issuer`, a DER Name, might have issued with this serial number. It says nothing else, and nobody has
/// signed it: it is good for questions about revocation alone.
pub(crate) fn stand_in(issuer: &[u8], spki: &[u8], serial: &[u8]) -> Option<Certificate> {
    let wrap = |tag: u8, parts: &[&[u8]]| {
        let mut out = Vec::new();
        asn1::push(&mut out, tag, parts);
        out
    };
    let algorithm = wrap(SEQUENCE, &[&wrap(OBJECT_IDENTIFIER, &[NO_ALGORITHM])]);
    let time = wrap(UTC_TIME, &[b"700101000000Z"]);
    let tbs = wrap(
        SEQUENCE,
        &[
            &wrap(context(0), &[&[INTEGER, 1, 2]]),
            &wrap(INTEGER, &[serial]),
            &algorithm,
            issuer,
            &wrap(SEQUENCE, &[&time, &time]),
            &wrap(SEQUENCE, &[]),
            spki,
        ],
    );
    let whole = wrap(SEQUENCE, &[&tbs, &algorithm, &wrap(BIT_STRING, &[&[0]])]);
    Certificate::from_der(&whole).ok()
}

/// An arc that names no algorithm.
const NO_ALGORITHM: &[u8] = &[0];
const UTC_TIME: u8 = 0x17;
