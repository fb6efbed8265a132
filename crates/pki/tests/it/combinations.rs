//! Name constraints, all combinations of a few: what BetterTLS does for the web, made from RFC 5280 §4.2.1.10 for the
//! name forms of IKE.
//!
//! A leaf has, of each form, no name, one inside or one outside of a subtree. Its issuer and the issuer's issuer
//! permit or exclude that subtree, another one, or say nothing of the form.

use std::time::Duration;

use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::wire::der::{SEQUENCE, push};
use ike_proto::wire::payload::IdData;
use pki::issue::{self, Issuer, OtherExtension, Template};
use pki::{Certificate, PeerPolicy, TrustStore, verify_peer};
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::common::{id, now, x509};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A name form: the tag of its GeneralName, two subtrees, and a name in each.
struct Form {
    tag: u8,
    subtrees: [&'static [u8]; 2],
    names: [&'static str; 2],
}

const FORMS: [Form; 3] = [
    Form {
        tag: 0x82,
        subtrees: [b"inside.example", b"elsewhere.example"],
        names: ["gw.inside.example", "gw.elsewhere.example"],
    },
    Form {
        tag: 0x87,
        subtrees: [&[192, 0, 2, 0, 255, 255, 255, 0], &[198, 51, 100, 0, 255, 255, 255, 0]],
        names: ["192.0.2.7", "198.51.100.7"],
    },
    Form {
        tag: 0x81,
        subtrees: [b"inside.example", b"elsewhere.example"],
        names: ["carol@inside.example", "carol@elsewhere.example"],
    },
];

/// What a CA says of one form: the permitted subtrees and the excluded ones, by their numbers.
type Limits = (&'static [usize], &'static [usize]);

const LIMITS: [Limits; 8] = [
    (&[], &[]),
    (&[0], &[]),
    (&[1], &[]),
    (&[0, 1], &[]),
    (&[], &[0]),
    (&[], &[1]),
    (&[0], &[1]),
    (&[0, 1], &[0]),
];

/// The extension of a CA that limits each form.
fn constraints(limits: &[Limits]) -> Option<OtherExtension> {
    let mut parts = [Vec::new(), Vec::new()];
    for (form, (permitted, excluded)) in FORMS.iter().zip(limits) {
        for (part, subtrees) in parts.iter_mut().zip([permitted, excluded]) {
            for subtree in *subtrees {
                let mut name = Vec::new();
                push(&mut name, form.tag, &[form.subtrees[*subtree]]);
                push(part, SEQUENCE, &[&name]);
            }
        }
    }
    let mut content = Vec::new();
    for (tag, part) in [0xa0, 0xa1].into_iter().zip(&parts) {
        if !part.is_empty() {
            push(&mut content, tag, &[part]);
        }
    }
    let mut value = Vec::new();
    push(&mut value, SEQUENCE, &[&content]);
    let extension = OtherExtension { oid: "2.5.29.30".to_owned(), critical: true, value };
    (!content.is_empty()).then_some(extension)
}

/// What RFC 5280 §4.2.1.10 says of a name in the subtree with this number.
fn allows((permitted, excluded): Limits, name: usize) -> bool {
    (permitted.is_empty() || permitted.contains(&name)) && !excluded.contains(&name)
}

/// A CA, and all that it makes.
struct Ca {
    key: Box<dyn SigningKey>,
    name: Vec<u8>,
}

impl Ca {
    fn new(name: &str) -> Self {
        let scheme = KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);
        let key = load_private_key(&generate(scheme).unwrap()).unwrap();
        Self { key, name: issue::distinguished_name(name).unwrap() }
    }

    fn issue(&self, template: &Template, spki: &[u8]) -> Vec<u8> {
        let scheme = SignatureScheme::EcdsaP256Sha256;
        let issuer = Issuer { key: &*self.key, scheme, name: &self.name };
        issue::certificate(template, spki, &issuer).unwrap()
    }

    /// The certificate of another CA, or its own.
    fn certify(&self, other: &Self, limits: &[Limits]) -> Vec<u8> {
        let others = constraints(limits).into_iter().collect();
        self.issue(&Template { ca: true, others, ..template(&other.name) }, other.key.public_key())
    }
}

fn template(subject: &[u8]) -> Template {
    Template {
        subject: subject.to_vec(),
        not_before: now() - YEAR,
        not_after: now() + YEAR,
        ..Template::default()
    }
}

/// An end entity.
struct Leaf {
    der: Vec<u8>,
    ids: Vec<IdData>,
    /// The subtree of its name in each form, by its number.
    subtrees: [Option<usize>; 3],
}

/// A leaf of each combination of names.
fn leaves(by: &Ca) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let states = [None, Some(0), Some(1)];
    for dns in states {
        for address in states {
            for email in states {
                let subtrees = [dns, address, email];
                let names = FORMS.iter().zip(subtrees);
                let names: Vec<IdData> =
                    names.filter_map(|(form, which)| Some(id(form.names[which?]))).collect();
                let subject = issue::distinguished_name("CN=leaf").unwrap();
                let leaf = Template { names: names.clone(), ..template(&subject) };
                let ids = if names.is_empty() { vec![id("CN=leaf")] } else { names };
                let der = by.issue(&leaf, by.key.public_key());
                leaves.push(Leaf { der, ids, subtrees });
            }
        }
    }
    leaves
}

/// Fault: in `NameConstraints::allow`, leave the excluded subtrees out, or stop at the first name.
#[test]
fn every_combination_of_names_and_constraints_is_judged_by_the_rule() {
    let (root, inner) = (Ca::new("CN=root"), Ca::new("CN=inner"));
    let leaves = leaves(&inner);
    let (mut accepted, mut refused) = (0, 0);
    // The limits of both CAs on a form. Each pair of one form meets two pairs of each other form.
    let pairs: Vec<(Limits, Limits)> =
        LIMITS.iter().flat_map(|above| LIMITS.iter().map(|below| (*above, *below))).collect();
    for (number, dns) in pairs.iter().enumerate() {
        for step in [0, 27] {
            let address = pairs[(number + step) % pairs.len()];
            let email = pairs[(number * 5 + step) % pairs.len()];
            let limits = [*dns, address, email];
            let anchor = root.certify(&root, &limits.map(|(above, _)| above));
            let between = root.certify(&inner, &limits.map(|(_, below)| below));
            let mut trust = TrustStore::new();
            trust.add_ca(Certificate::from_der(&anchor).unwrap()).unwrap();
            for Leaf { der, ids, subtrees } in &leaves {
                let expected = limits.iter().zip(subtrees).all(|((above, below), name)| {
                    name.is_none_or(|name| allows(*above, name) && allows(*below, name))
                });
                let shown = [x509(der), x509(&between)];
                for id in ids {
                    let verdict = verify_peer(id, &shown, &PeerPolicy::default(), &trust, now());
                    assert_eq!(
                        verdict.is_ok(),
                        expected,
                        "{limits:?} {subtrees:?} {id:?} {verdict:?}"
                    );
                    if expected { accepted += 1 } else { refused += 1 }
                }
            }
        }
    }
    assert!(accepted > 1_000 && refused > 5_000, "{accepted} accepted, {refused} refused");
}
