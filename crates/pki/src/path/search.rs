//! Which paths lead from a certificate to a trust anchor.
//!
//! There may be several: CAs certify one another and renew their certificates. They are tried one after the other.
//! What strangers send costs little: no signature is verified but by the key of a certificate that an anchor
//! vouches for, and names have to fit before.

use std::collections::HashMap;
use std::sync::Arc;

use rustls_pki_types::SignatureVerificationAlgorithm;

use super::{Path, same_ca};
use crate::certificate::Certificate;
use crate::error::PkiError;
use crate::signed::{Signature, Signed};

/// The certificates around one end entity, and whose signatures they bear.
pub(super) struct Search<'a> {
    end_entity: &'a Arc<Certificate>,
    anchors: Vec<&'a Arc<Certificate>>,
    /// Those that an anchor vouches for, in order of distance from it.
    links: Vec<&'a Arc<Certificate>>,
    /// Those whose names lead from the end entity upwards.
    named: Vec<&'a Arc<Certificate>>,
    algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
    /// By the places of the certificate and its issuer in memory.
    known: HashMap<(*const Certificate, *const Certificate), Signature>,
    signatures: usize,
    steps: usize,
    paths: usize,
}

impl<'a> Search<'a> {
    /// `anchors` are trusted, `others` may be of use.
    pub fn new(
        end_entity: &'a Arc<Certificate>,
        anchors: &'a [Arc<Certificate>],
        others: &'a [Arc<Certificate>],
        algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
    ) -> Self {
        let mut named: Vec<&Arc<Certificate>> = Vec::new();
        let mut left: Vec<&Arc<Certificate>> = Vec::new();
        for other in others {
            let again = left.iter().any(|earlier| earlier.der() == other.der());
            // A root that is trusted ends paths, and one that is not leads nowhere.
            let leads = !other.is_self_issued() || other.is_ca() && !is_among(anchors, other);
            if leads && !again && other.der() != end_entity.der() {
                left.push(other);
            }
        }
        let mut names = vec![end_entity.issuer()];
        loop {
            let (fit, rest): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|other| names.contains(&other.subject()));
            left = rest;
            if fit.is_empty() || named.len() >= MAX_LINKS {
                break;
            }
            names = fit.iter().map(|other| other.issuer()).collect();
            named.extend(fit);
        }
        named.truncate(MAX_LINKS);
        Self {
            end_entity,
            anchors: anchors.iter().collect(),
            links: Vec::new(),
            named,
            algorithms,
            known: HashMap::new(),
            signatures: MAX_SIGNATURES,
            steps: MAX_STEPS,
            paths: MAX_PATHS,
        }
    }

    /// The first path that `accept` takes, and what it makes of it.
    ///
    /// # Errors
    /// What `accept` said of the first path, or why there is none. That something is revoked comes first, whichever
    /// path says so: who trusts a certificate without a path has to know.
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
            (None, None) if self.steps == 0 || self.signatures == 0 => Err(PkiError::Limits),
            (None, None) => Err(self.dead_end()),
        }
    }

    /// Finds the certificates whose signature leads to an anchor.
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

    /// Follows issuers upwards from the last of `chain`, or from the end entity; true once it is enough, because
    /// `take` was content or too many paths were tried.
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
            return false;
        }
        for link in self.links.clone() {
            // RFC 4158 §5.2: no CA twice.
            let before = [self.end_entity].into_iter().chain(chain.iter().copied());
            if before.into_iter().any(|certificate| same_ca(certificate, link))
                || link.subject() != last.issuer()
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
        issuer.subject() == certificate.issuer()
            && self.signature(issuer, certificate) == Signature::Good
    }

    /// The signature on `certificate`, if `issuer` made it. Each is verified once.
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
            Some(signed) => signed.check(issuer.spki(), self.algorithms),
            None => Signature::Wrong,
        };
        self.known.insert(pair, signature);
        signature
    }

    /// Why there is no path: an issuer that is missing, or a signature that is none.
    fn dead_end(&mut self) -> PkiError {
        let mut last = self.end_entity;
        for _ in 0..=self.named.len() {
            let anchors = self.anchors.clone();
            let mut named = anchors.iter().filter(|ca| ca.subject() == last.issuer()).peekable();
            if named.peek().is_some() {
                let unsupported =
                    named.any(|ca| self.signature(ca, last) == Signature::Unsupported);
                return match unsupported {
                    true => PkiError::UnsupportedAlgorithm,
                    false => PkiError::BadSignature { subject: self.end_entity.subject_text() },
                };
            }
            match self.named.iter().find(|ca| ca.subject() == last.issuer()) {
                Some(ca) if ca.der() != last.der() => last = ca,
                _ => break,
            }
        }
        PkiError::UnknownCa { issuer: last.issuer_text() }
    }
}

fn is_among(anchors: &[Arc<Certificate>], certificate: &Certificate) -> bool {
    anchors.iter().any(|anchor| anchor.der() == certificate.der())
}

/// Most CAs between a certificate and its anchor.
const MAX_DEPTH: usize = 7;
/// Most certificates looked at besides the end entity and anchors.
const MAX_LINKS: usize = 64;
/// Most signatures verified for one end entity.
const MAX_SIGNATURES: usize = 100;
/// Most whole paths tried.
const MAX_PATHS: usize = 16;
/// Most pairs of a certificate and a possible issuer on the way to a path.
const MAX_STEPS: usize = 2000;
