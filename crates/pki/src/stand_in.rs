//! Questions about the certificate of a live IKE SA of which only a [`Record`] is kept.

use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::wire::der::{
    self as asn1, BIT_STRING, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, context,
};

use crate::answerer::Answerer;
use crate::certificate::Certificate;
use crate::path::same_ca;
use crate::record::{Example, Points, Record, RecordedKind};
use crate::revocation::{FetchRequest, ListsDue};
use crate::signed::Signed;
use crate::verify::PeerPolicy;

impl Answerer {
    /// When responders are due to be asked again about a certificate: when the response at hand is past its nextUpdate,
    /// or 24 hours after its thisUpdate without one. If there is none, at once, unless a list is at hand, which
    /// [`list_due`](Self::list_due) is about. `None` if no responder is known.
    pub fn status_due(&self, record: &Record, now: SystemTime) -> Option<ListsDue> {
        let example = self.example_of(record.kind)?;
        let (certificate, issuer) = example.link()?;
        let store = &self.trust().revocation;
        let list_due = || {
            let signers = self.signers(&example, &PeerPolicy::default(), now)?;
            store.list_due(certificate, issuer, &signers, now)
        };
        let has_list =
            || example.points != Points::Other && list_due().is_some_and(|due| !due.is_at_once());
        store.status_due((certificate, issuer), record.serial, &has_list, now)
    }

    /// True if a certificate of this kind was accepted at a login since the start.
    pub fn has_accepted(&self, kind: RecordedKind) -> bool {
        self.examples.of(kind).is_some_and(|example| example.is_exact())
    }

    /// An example of the certificates of this kind. If none was accepted yet, as for an SA that a ticket has resumed
    /// after a restart, it is one that this end has itself; or nothing more than the name of the CA, for which an
    /// authority may have URLs.
    pub(crate) fn example_of(&self, kind: RecordedKind) -> Option<Example> {
        let accepted = self.examples.of(kind);
        if accepted.as_ref().is_some_and(Example::is_exact) {
            return accepted;
        }
        self.own_example(kind).or(accepted)
    }

    fn own_example(&self, kind: RecordedKind) -> Option<Example> {
        let issuers = self.issuers_of(kind)?;
        let issuer = issuers.first()?;
        let pinned = self
            .all_policies()
            .flat_map(|policy| policy.certs.iter().chain(&policy.key_certificates));
        let mut own = self.chains().chain(pinned);
        let (certificate, points) = match own.find(|own| kind.is_like(own)) {
            Some(own) => (Arc::clone(own), Points::Same),
            None => {
                let points = if kind.has_no_points() { Points::Same } else { Points::Unknown };
                (Arc::new(stand_in(issuer.subject(), issuer.spki(), &[1])?), points)
            }
        };
        Some(Example { certificate, issuers, points })
    }

    /// The CA of these certificates, and those above it up to the anchor, if this end has all of them.
    fn issuers_of(&self, kind: RecordedKind) -> Option<Vec<Arc<Certificate>>> {
        let trust = self.trust();
        let listed = self.all_policies().flat_map(|policy| &policy.cacerts);
        let known =
            trust.cas().iter().chain(trust.intermediates()).chain(listed).chain(self.chains());
        let mut known: Vec<&Arc<Certificate>> = known.collect();
        // A root that another one has certified has two certificates. The self-signed one leads no further.
        known.sort_by_key(|ca| ca.names_as_issuer(ca) && !kind.ends_at(ca));
        let mut issuers = vec![Arc::clone(known.iter().find(|ca| kind.ca.is(ca))?)];
        while let Some(last) = issuers.last().filter(|last| !kind.ends_at(last)) {
            let signed = Signed::parse(last.der())?;
            let above = known.iter().find(|above| {
                last.names_as_issuer(above)
                    && !issuers.iter().any(|ca| same_ca(ca, above))
                    && signed.is_by(above.spki(), trust.verified().schemes())
            });
            issuers.push(Arc::clone(above?));
        }
        Some(issuers)
    }

    /// The certificates that this end sends.
    fn chains(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        let rounds = self.local.values().flat_map(|rounds| rounds.values());
        rounds.flatten().flat_map(|credential| credential.chain())
    }

    pub(crate) fn all_policies(&self) -> impl Iterator<Item = &PeerPolicy> {
        self.remote.values().flat_map(|rounds| rounds.values())
    }

    /// The question about such a certificate to a responder that has not failed lately and that is `free`.
    pub fn status_again(
        &self,
        record: &Record,
        free: &dyn Fn(&str) -> bool,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let example = self.example_of(record.kind)?;
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
