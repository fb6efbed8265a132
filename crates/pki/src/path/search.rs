//! Finds the paths from a certificate to a trust anchor.
//!
//! There may be several, because CAs certify one another and renew their certificates. The search tries one after
//! the other. Certificates from strangers cost little: a signature is verified only with the key of a certificate
//! that an anchor vouches for, and only after the names match.

use std::collections::HashMap;
use std::sync::Arc;

use ike_proto::config::SchemeConstraints;

use super::{Path, same_ca};
use crate::certificate::Certificate;
use crate::error::PkiError;
use crate::signed::{Schemes, Signature, Signed};
use crate::text;
use crate::verified::Verified;

/// The certificates around one end entity, and the results of verifying their signatures.
pub(super) struct Search<'a> {
    end_entity: &'a Arc<Certificate>,
    anchors: Vec<&'a Arc<Certificate>>,
    /// Certificates that an anchor vouches for, in order of distance from it.
    links: Vec<&'a Arc<Certificate>>,
    /// Certificates whose names lead upwards from the end entity.
    named: Vec<&'a Arc<Certificate>>,
    verified: &'a Verified,
    /// Names the schemes of the program that are verified.
    chain: &'a SchemeConstraints,
    /// By the addresses in memory of the certificate and its issuer.
    known: HashMap<(*const Certificate, *const Certificate), Signature>,
    signatures: usize,
    steps: usize,
    paths: usize,
    /// A path would have gone on above [`MAX_DEPTH`] CAs.
    too_deep: bool,
}

impl<'a> Search<'a> {
    /// `anchors` are trusted, `others` may help.
    pub fn new(
        end_entity: &'a Arc<Certificate>,
        anchors: &'a [Arc<Certificate>],
        others: &'a [Arc<Certificate>],
        (verified, chain): (&'a Verified, &'a SchemeConstraints),
    ) -> Self {
        let mut named: Vec<&Arc<Certificate>> = Vec::new();
        let mut left: Vec<&Arc<Certificate>> = Vec::new();
        for other in others {
            let again = left.iter().any(|earlier| earlier.der() == other.der());
            // A trusted root ends paths, and any other root leads nowhere.
            let leads = !other.is_self_issued() || other.is_ca() && !is_among(anchors, other);
            if leads && !again && other.der() != end_entity.der() {
                left.push(other);
            }
        }
        let mut names = vec![end_entity.issuer_hash()];
        loop {
            let (fit, rest): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|other| names.contains(&other.subject_hash()));
            left = rest;
            if fit.is_empty() || named.len() >= MAX_LINKS {
                break;
            }
            names = fit.iter().map(|other| other.issuer_hash()).collect();
            named.extend(fit);
        }
        named.truncate(MAX_LINKS);
        Self {
            end_entity,
            anchors: anchors.iter().collect(),
            links: Vec::new(),
            named,
            verified,
            chain,
            known: HashMap::new(),
            signatures: MAX_SIGNATURES,
            steps: MAX_STEPS,
            paths: MAX_PATHS,
            too_deep: false,
        }
    }

    /// The first path that `accept` takes, and the result of `accept`.
    ///
    /// # Errors
    /// The error of `accept` for the first path, or why there is none. A revocation takes precedence, whichever
    /// path shows it: a caller that trusts a certificate without a path must know about it.
    pub fn first<T>(
        &mut self,
        mut accept: impl FnMut(&Path) -> Result<T, PkiError>,
    ) -> Result<(Path, T), PkiError> {
        self.vouch();
        let mut refusal = None;
        let mut found = None;
        self.extend(&mut Vec::new(), &mut |path| match accept(&path) {
            Ok(made) => {
                found = Some((path, made));
                true
            }
            Err(why) => {
                let revoked = |why: &PkiError| matches!(why, PkiError::Revoked { .. });
                if refusal.is_none() || revoked(&why) && !refusal.as_ref().is_some_and(revoked) {
                    refusal = Some(why);
                }
                false
            }
        });
        match (found, refusal) {
            (Some(found), _) => Ok(found),
            (None, Some(why)) => Err(why),
            (None, None) => Err(self.dead_end()),
        }
    }

    /// Finds the certificates with a chain of signatures to an anchor.
    fn vouch(&mut self) {
        let mut left = self.named.clone();
        loop {
            let before = self.links.len();
            let mut still = Vec::new();
            for certificate in left {
                let issuers: Vec<_> = self.anchors.iter().chain(&self.links).copied().collect();
                match issuers.into_iter().any(|issuer| self.has_issued(issuer, certificate)) {
                    true => self.links.push(certificate),
                    false => still.push(certificate),
                }
            }
            left = still;
            if self.links.len() == before {
                return;
            }
        }
    }

    /// Follows issuers upwards from the last of `chain`, or from the end entity. Returns true to stop: `take`
    /// accepted a path, or too many paths were tried.
    fn extend(
        &mut self,
        chain: &mut Vec<&'a Arc<Certificate>>,
        take: &mut dyn FnMut(Path) -> bool,
    ) -> bool {
        let last = chain.last().copied().unwrap_or(self.end_entity);
        for anchor in self.anchors.clone() {
            if anchor.der() == last.der() || !self.step() || !self.has_issued(anchor, last) {
                continue;
            }
            let certificates = [self.end_entity].into_iter().chain(chain.iter().copied());
            let certificates = certificates.map(Arc::clone).collect();
            if self.paths == 0 {
                return true;
            }
            self.paths -= 1;
            if take(Path { certificates, anchor: Arc::clone(anchor) }) {
                return true;
            }
        }
        if chain.len() == MAX_DEPTH {
            self.too_deep |= self.links.iter().any(|link| last.names_as_issuer(link));
            return false;
        }
        for link in self.links.clone() {
            // RFC 4158 §5.2: no CA twice.
            let before = [self.end_entity].into_iter().chain(chain.iter().copied());
            if before.into_iter().any(|certificate| same_ca(certificate, link))
                || !last.names_as_issuer(link)
                || !self.step()
                || !self.has_issued(link, last)
            {
                continue;
            }
            chain.push(link);
            let done = self.extend(chain, take);
            chain.pop();
            if done {
                return true;
            }
        }
        false
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    fn has_issued(&mut self, issuer: &Certificate, certificate: &Certificate) -> bool {
        certificate.names_as_issuer(issuer)
            && self.signature(issuer, certificate) == Signature::Good
    }

    /// The signature on `certificate`, if `issuer` made it. Each signature is verified once.
    fn signature(&mut self, issuer: &Certificate, certificate: &Certificate) -> Signature {
        let pair = (std::ptr::from_ref(certificate), std::ptr::from_ref(issuer));
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        if self.signatures == 0 {
            return Signature::Wrong;
        }
        self.signatures -= 1;
        let signature = match Signed::parse(certificate.der()) {
            // Nobody is authenticated yet, and the scheme may be slow.
            Some(signed)
                if self
                    .schemes()
                    .unnamed(signed.algorithm, issuer.spki(), self.chain)
                    .is_some() =>
            {
                Signature::Unnamed
            }
            Some(signed) => self.verified.check(&signed, issuer.spki()),
            None => Signature::Wrong,
        };
        self.known.insert(pair, signature);
        signature
    }

    /// Why no CA has issued `certificate`, `issuer` among them.
    fn refusal(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        refused: Option<Signature>,
    ) -> PkiError {
        let subject = certificate.subject_text();
        let named = self.schemes().of_certificate(certificate.der(), issuer.spki());
        let scheme = match named.or_else(|| certificate.signature_scheme()) {
            Some(scheme) => scheme.to_string(),
            None => text::algorithm(certificate.signature_algorithm()),
        };
        match refused {
            Some(Signature::Unsupported(why)) => {
                PkiError::UnsupportedAlgorithm { subject, algorithm: scheme, why }
            }
            Some(Signature::Unnamed) => PkiError::UnnamedScheme { subject, scheme },
            Some(Signature::Good | Signature::Wrong) | None => {
                PkiError::BadSignature { subject, scheme }
            }
        }
    }

    fn schemes(&self) -> &'a Schemes {
        self.verified.schemes()
    }

    /// Why there is no path: a limit, a missing issuer, or a wrong signature.
    fn dead_end(&mut self) -> PkiError {
        if is_among(&self.anchors, self.end_entity) {
            return PkiError::TrustAnchor { subject: self.end_entity.subject_text() };
        }
        for (reached, what, most) in [
            (self.signatures == 0, "signatures", MAX_SIGNATURES),
            (self.steps == 0, "comparisons of issuers", MAX_STEPS),
            (self.too_deep, "CAs below the trusted one", MAX_DEPTH),
        ] {
            if reached {
                return PkiError::Limits { what, most };
            }
        }
        let mut last = self.end_entity;
        for _ in 0..=self.named.len() {
            // The CAs that an anchor vouches for, and none of them has issued it.
            let issuers: Vec<_> = self.anchors.iter().chain(&self.links).copied().collect();
            let mut named = issuers.into_iter().filter(|ca| last.names_as_issuer(ca)).peekable();
            if let Some(&first) = named.peek() {
                let refused = named.find_map(|ca| match self.signature(ca, last) {
                    Signature::Good | Signature::Wrong => None,
                    refused => Some((ca, Some(refused))),
                });
                let (issuer, refused) = refused.unwrap_or((first, None));
                return self.refusal(last, issuer, refused);
            }
            match self.named.iter().find(|ca| last.names_as_issuer(ca)) {
                Some(ca) if ca.der() != last.der() => last = ca,
                _ => break,
            }
        }
        PkiError::UnknownCa { issuer: last.issuer_text() }
    }
}

fn is_among<A: AsRef<Certificate>>(anchors: &[A], certificate: &Certificate) -> bool {
    anchors.iter().map(AsRef::as_ref).any(|anchor| anchor.der() == certificate.der())
}

/// Most CAs between a certificate and its anchor.
const MAX_DEPTH: usize = 7;
/// Most certificates examined besides the end entity and anchors.
const MAX_LINKS: usize = 64;
/// Most signatures verified for one end entity.
const MAX_SIGNATURES: usize = 100;
/// Most whole paths tried.
const MAX_PATHS: usize = 16;
/// Most pairs of a certificate and a possible issuer on the way to a path.
const MAX_STEPS: usize = 2000;
