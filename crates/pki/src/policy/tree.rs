//! The valid policies of a path (RFC 5280 §6.1).
//!
//! The RFC builds a tree. Here each depth has one node for each policy, with all its parents, so that the work is
//! bounded by the number of policies: the tree of the RFC can grow exponentially with the length of the path.

use std::collections::BTreeSet;

use super::{ANY_POLICY, Policies};
use crate::certificate::Certificate;
use crate::error::PkiError;
use crate::path::Path;

/// The nodes of one depth. There is no valid policy if there are none.
#[derive(Debug, Default)]
struct Level<'a> {
    /// The node with anyPolicy, whose parent has anyPolicy too.
    any: bool,
    nodes: Vec<Node<'a>>,
}

/// A policy that is valid at this depth.
#[derive(Debug)]
struct Node<'a> {
    policy: &'a [u8],
    /// The policies of the next certificate that are this one.
    expected: Vec<&'a [u8]>,
    /// The policies of the connection, by index, from which it descends: those in the terms of the trust anchor.
    origins: BTreeSet<usize>,
}

/// How many certificates may still follow before a rule holds; `None` if there is no such rule.
#[derive(Debug, Clone, Copy, Default)]
struct Counter(Option<usize>);

impl Counter {
    fn holds(self) -> bool {
        self.0 == Some(0)
    }

    /// Sets the counter, if `count` is smaller. Yields true if it was.
    fn lower(&mut self, count: Option<usize>) -> bool {
        let lower = count.is_some_and(|count| self.0.is_none_or(|own| count < own));
        if lower {
            self.0 = count;
        }
        lower
    }

    fn decrement(&mut self) {
        self.0 = self.0.map(|count| count.saturating_sub(1));
    }
}

/// The state of the algorithm (RFC 5280 §6.1.2).
#[derive(Debug)]
struct Tree<'a> {
    wanted: &'a [&'a [u8]],
    level: Level<'a>,
    explicit_policy: Counter,
    policy_mapping: Counter,
    inhibit_any: Counter,
    /// The certificate that set `explicit_policy`.
    required_by: Option<&'a Certificate>,
}

/// Those of `wanted`, by index, that are valid in `path`.
///
/// # Errors
/// If a CA requires a valid policy and there is none, or if a CA maps anyPolicy.
pub(super) fn valid(path: &Path, wanted: &[&[u8]]) -> Result<BTreeSet<usize>, PkiError> {
    let mut tree = Tree {
        wanted,
        level: Level { any: true, nodes: Vec::new() },
        explicit_policy: Counter::default(),
        policy_mapping: Counter::default(),
        inhibit_any: Counter::default(),
        required_by: None,
    };
    // As other constraints of an anchor, its policies hold for the path. A root without any has no opinion.
    let anchor = &path.anchor;
    if !anchor.is_self_issued() || !anchor.policies().named.is_empty() {
        tree.process(anchor, false)?;
    }
    tree.prepare(anchor)?;
    for certificate in path.certificates.iter().skip(1).rev() {
        tree.process(certificate, false)?;
        tree.prepare(certificate)?;
    }
    match path.certificates.first() {
        Some(end_entity) => tree.wrap_up(end_entity),
        None => Ok(BTreeSet::new()),
    }
}

impl<'a> Tree<'a> {
    /// RFC 5280 §6.1.3 (d) to (f).
    fn process(&mut self, certificate: &'a Certificate, last: bool) -> Result<(), PkiError> {
        let own = certificate.policies();
        let before = std::mem::take(&mut self.level);
        for policy in own.named.iter().filter(|policy| !is_any(policy)) {
            self.add_child(&before, policy);
        }
        //= https://www.rfc-editor.org/rfc/rfc5280#section-6.1.3
        //# If the certificate policies extension includes the policy
        //# anyPolicy with the qualifier set AP-Q and either (a)
        //# inhibit_anyPolicy is greater than 0 or (b) i<n and the
        //# certificate is self-issued, then:
        let allowed = !self.inhibit_any.holds() || !last && certificate.is_self_issued();
        if allowed && own.named.iter().any(|policy| is_any(policy)) {
            for policy in before.nodes.iter().flat_map(|node| &node.expected) {
                self.add_child(&before, policy);
            }
            self.level.any = before.any;
        }
        //= https://www.rfc-editor.org/rfc/rfc5280#section-6.1.3
        //# (f)  Verify that either explicit_policy is greater than 0 or the
        //# valid_policy_tree is not equal to NULL;
        self.check(certificate)
    }

    /// Adds the node `policy` below all nodes of `before` that expect it. If there are none, it is below anyPolicy.
    fn add_child(&mut self, before: &Level<'a>, policy: &'a [u8]) {
        if self.level.nodes.iter().any(|node| node.policy == policy) {
            return;
        }
        let parents = before.nodes.iter().filter(|node| node.expected.contains(&policy));
        let parents: Vec<_> = parents.collect();
        let origins = match parents.is_empty() {
            true if before.any => self.origin(policy),
            true => return,
            false => parents.iter().flat_map(|node| &node.origins).copied().collect(),
        };
        self.level.nodes.push(Node { policy, expected: vec![policy], origins });
    }

    /// The origins of a node below anyPolicy.
    fn origin(&self, policy: &[u8]) -> BTreeSet<usize> {
        let wanted = self.wanted.iter().enumerate();
        wanted.filter(|(_, wanted)| **wanted == policy).map(|(index, _)| index).collect()
    }

    /// RFC 5280 §6.1.4 (a), (b) and (h) to (j).
    fn prepare(&mut self, ca: &'a Certificate) -> Result<(), PkiError> {
        let own = ca.policies();
        //= https://www.rfc-editor.org/rfc/rfc5280#section-6.1.4
        //# If a policy mappings extension is present, verify that the
        //# special value anyPolicy does not appear as an
        //# issuerDomainPolicy or a subjectDomainPolicy.
        if own
            .mappings
            .iter()
            .any(|(of_issuer, of_subject)| is_any(of_issuer) || is_any(of_subject))
        {
            return Err(PkiError::PolicyMapping { ca: ca.subject_text() });
        }
        let mapped: BTreeSet<&[u8]> = own.mappings.iter().map(|(policy, _)| &**policy).collect();
        for policy in mapped {
            self.map(policy, own);
        }
        if !ca.is_self_issued() {
            self.explicit_policy.decrement();
            self.policy_mapping.decrement();
            self.inhibit_any.decrement();
        }
        if self.explicit_policy.lower(own.require_explicit) {
            self.required_by = Some(ca);
        }
        self.policy_mapping.lower(own.inhibit_mapping);
        self.inhibit_any.lower(own.inhibit_any);
        Ok(())
    }

    /// Has the mappings of `policy` apply to the next certificate, or deletes the policy if no mapping is allowed.
    fn map(&mut self, policy: &'a [u8], own: &'a Policies) {
        if self.policy_mapping.holds() {
            self.level.nodes.retain(|node| node.policy != policy);
            return;
        }
        let mappings = own.mappings.iter().filter(|(of_issuer, _)| of_issuer == policy);
        let expected = mappings.map(|(_, of_subject)| of_subject.as_slice()).collect();
        let origins = self.origin(policy);
        match self.level.nodes.iter_mut().find(|node| node.policy == policy) {
            Some(node) => node.expected = expected,
            None if self.level.any => self.level.nodes.push(Node { policy, expected, origins }),
            None => {}
        }
    }

    /// RFC 5280 §6.1.5 (a), (b) and (g), for the last certificate.
    fn wrap_up(mut self, end_entity: &'a Certificate) -> Result<BTreeSet<usize>, PkiError> {
        self.process(end_entity, true)?;
        self.explicit_policy.decrement();
        //= https://www.rfc-editor.org/rfc/rfc5280#section-6.1.5
        //# If a policy constraints extension is included in the
        //# certificate and requireExplicitPolicy is present and has a
        //# value of 0, set the explicit_policy state variable to 0.
        let own = end_entity.policies().require_explicit.filter(|count| *count == 0);
        if self.explicit_policy.lower(own) {
            self.required_by = Some(end_entity);
        }
        self.check(end_entity)?;
        let level = &self.level;
        let valid = |index: usize, wanted: &[u8]| {
            let named = level.nodes.iter().any(|node| node.origins.contains(&index));
            level.any || named || is_any(wanted) && !level.is_empty()
        };
        let wanted = self.wanted.iter().enumerate();
        Ok(wanted.filter(|(index, wanted)| valid(*index, wanted)).map(|(index, _)| index).collect())
    }

    /// Fails if a policy is required at this depth, and none is valid.
    fn check(&self, certificate: &Certificate) -> Result<(), PkiError> {
        match self.required_by.filter(|_| self.explicit_policy.holds() && self.level.is_empty()) {
            None => Ok(()),
            Some(ca) => {
                let (subject, ca) = (certificate.subject_text(), ca.subject_text());
                Err(PkiError::PolicyRequired { subject, ca })
            }
        }
    }
}

impl Level<'_> {
    fn is_empty(&self) -> bool {
        !self.any && self.nodes.is_empty()
    }
}

fn is_any(policy: &[u8]) -> bool {
    policy == ANY_POLICY.as_bytes()
}
