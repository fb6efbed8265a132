//! Those who may sign revocation lists about the certificates of a CA, besides the key that signed the certificate
//! (RFC 5280 §6.3.3 (f)): the CA's other keys, and the makers of indirect lists.
//!
//! A name is no proof: any trusted CA can issue a CA of any name. A key is that of the same CA if its own path ends at
//! the anchor of the certificate in question. A self-issued anchor of the same name may be the CA with its next key, or
//! another CA that was made anew under the name. So its lists count only where the certificate, or the authority that
//! is configured for it, names their URL.

use std::sync::Arc;

use der::Encode;
use x509_cert::ext::pkix::name::GeneralName;

use super::search::Search;
use super::{Path, PathQuery, check_validity, same_ca};
use crate::certificate::Certificate;
use crate::dn::NameHash;
use crate::error::PkiError;
use crate::policy::{self, Wanted};

/// One that may sign lists about a certificate.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    /// The certificate with its key.
    pub certificate: Arc<Certificate>,
    /// True if only those of its lists count that come from a URL of the certificate, or of its CA's authority.
    pub only_named: bool,
    /// True if its lists may revoke, but call nothing good, and end no revocation by another key: the policy refuses what
    /// is not known, and the status of the signer is not known.
    pub only_revokes: bool,
}

impl Signer {
    /// The issuer of the certificate, whose status is that of the certificate's own path.
    pub fn of(issuer: Arc<Certificate>) -> Self {
        Self { certificate: issuer, only_named: false, only_revokes: false }
    }
}

impl PathQuery<'_> {
    /// Those besides `issuer` who may sign lists about `certificate`, whose path ends at `anchor`. `judge` says whether
    /// their own paths are strong enough, and without a revoked certificate: true if its status is known, as far as the
    /// policy asks. The path of an anchor has no certificates.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-6.3.3
    //# The trust anchor for the
    //# certification path MUST be the same as the trust anchor used
    //# to validate the target certificate.
    pub fn signers(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        anchor: &Arc<Certificate>,
        judge: &dyn Fn(&Path) -> Result<bool, PkiError>,
    ) -> Vec<Signer> {
        let names = names(certificate);
        let mut signers: Vec<Signer> = Vec::new();
        let is_other = |ca: &Certificate| {
            // Without a keyUsage only a CA's key may: any CA below the anchor can give an end entity this name.
            (ca.is_ca() || ca.key_usages().contains(&"cRLSign"))
                && ca.may_sign_crls()
                && ca.der() != issuer.der()
                && names.contains(&ca.subject_hash())
        };
        let alone = |anchor: &Arc<Certificate>| {
            judge(&Path { certificates: Vec::new(), anchor: Arc::clone(anchor) }).is_ok()
        };
        if is_other(anchor) && alone(anchor) {
            signers.push(Signer::of(Arc::clone(anchor)));
        }
        for candidate in self.intermediates.iter().filter(|ca| is_other(ca)) {
            let known = signers.iter().any(|known| same_ca(&known.certificate, candidate));
            let under = || self.is_under(candidate, anchor, judge);
            if !known && let Some(is_known) = under() {
                let only_revokes = !is_known;
                signers.push(Signer { only_revokes, ..Signer::of(Arc::clone(candidate)) });
            }
        }
        for root in self.anchors {
            let other = certificate.names_as_issuer(root)
                && root.spki() != issuer.spki()
                && root.is_self_issued()
                && root.may_sign_crls();
            let trusted = other && self.trusts(root) && check_validity(root, self.now).is_ok();
            if trusted && alone(root) {
                signers.push(Signer { only_named: true, ..Signer::of(Arc::clone(root)) });
            }
        }
        signers
    }

    /// `Some` if a valid path that this connection trusts leads from `candidate` to `anchor`; true if its status is known.
    fn is_under(
        &self,
        candidate: &Arc<Certificate>,
        anchor: &Certificate,
        judge: &dyn Fn(&Path) -> Result<bool, PkiError>,
    ) -> Option<bool> {
        let ends = self.anchors.iter().filter(|one| same_ca(one, anchor));
        let ends: Vec<_> = ends.map(Arc::clone).collect();
        let none = Wanted { ca: None, policies: &[] };
        let query = match self.trusts(candidate) {
            true => PathQuery { cacerts: &[], wanted: none, ..*self },
            false => PathQuery { wanted: Wanted { ca: self.wanted.ca, ..none }, ..*self },
        };
        // Its key is for lists, so no purpose of IKE is asked of it.
        if check_validity(candidate, self.now).is_err() || candidate.check_form().is_err() {
            return None;
        }
        let by = (self.verified, self.chain);
        let mut search = Search::new(candidate, &ends, self.intermediates, by);
        let found = search.first(|path| {
            query.check(path)?;
            judge(path)
        });
        found.ok().map(|(_, is_known)| is_known)
    }

    /// True if `ca` is one that the connection asks for, or it asks for none.
    fn trusts(&self, ca: &Certificate) -> bool {
        let any = self.cacerts.is_empty() && self.wanted.ca.is_none();
        any || self.cacerts.iter().any(|listed| same_ca(listed, ca))
            || self.wanted.ca.is_some_and(|id| policy::is_ca(ca, id))
    }
}

/// The names of those who may sign lists about `certificate`: its issuer, and each cRLIssuer that it names.
fn names(certificate: &Certificate) -> Vec<NameHash> {
    let cited = certificate.crl_points().iter().filter_map(|point| point.crl_issuer.as_ref());
    let cited = cited.flatten().filter_map(|name| match name {
        GeneralName::DirectoryName(name) => name.to_der().ok().map(|name| NameHash::of(&name)),
        _ => None,
    });
    [certificate.issuer_hash()].into_iter().chain(cited).collect()
}
