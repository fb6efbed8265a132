//! Where paths end, and what holds over the whole of them: certificates of CAs made here, as in strongSwan's
//! scenarios of several CAs.

use std::time::{Duration, Instant};

use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::wire::der::{self, BIT_STRING, NULL, OCTET_STRING, SEQUENCE, context};
use pki::issue::{self, Issuer, OtherExtension, RevokedEntry, Template};
use pki::{
    Certificate, ExtendedKeyUsagePolicy, LoadError, PeerPolicy, PkiError, Revocation,
    RevocationPolicy, TrustStore, TrustedPeer, verify_peer,
};
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::common::{id, now, x509};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const LEAF: &str = "leaf.example.org";

/// A CA with its key.
pub struct Ca {
    pub certificate: Certificate,
    pub key: Box<dyn SigningKey>,
}

pub fn new_key() -> Box<dyn SigningKey> {
    let pkcs8 = generate(KeyType::Scheme(SignatureScheme::Ed25519)).unwrap();
    load_private_key(&pkcs8).unwrap()
}

pub fn ca_template(name: &str) -> Template {
    Template {
        subject: issue::distinguished_name(&format!("O=Acme, CN={name}")).unwrap(),
        ca: true,
        serial: name.as_bytes().iter().copied().take(20).collect(),
        crl: vec![format!("http://crl.example.org/of-{}", name.to_lowercase())],
        not_before: now() - YEAR,
        not_after: now() + YEAR,
        ..Template::default()
    }
}

pub fn leaf_template() -> Template {
    Template {
        subject: issue::distinguished_name("O=Acme, OU=Lab, CN=leaf").unwrap(),
        names: vec![id(LEAF)],
        ca: false,
        crl: Vec::new(),
        ..ca_template("leaf")
    }
}

impl Ca {
    pub fn root(template: Template) -> Self {
        let key = new_key();
        let issuer =
            Issuer { key: &*key, scheme: SignatureScheme::Ed25519, name: &template.subject };
        let der = issue::certificate(&template, key.public_key(), &issuer).unwrap();
        Self { certificate: Certificate::from_der(&der).unwrap(), key }
    }

    pub fn issuer(&self) -> Issuer<'_> {
        let name = self.certificate.subject();
        Issuer { key: &*self.key, scheme: SignatureScheme::Ed25519, name }
    }

    /// A CA below this one.
    pub fn sub(&self, template: Template) -> Self {
        let key = new_key();
        let certificate = self.certify(&template, &*key);
        Self { certificate, key }
    }

    pub fn certify(&self, template: &Template, key: &dyn SigningKey) -> Certificate {
        let der = issue::certificate(template, key.public_key(), &self.issuer()).unwrap();
        Certificate::from_der(&der).unwrap()
    }

    pub fn leaf(&self) -> Certificate {
        self.certify(&leaf_template(), &*new_key())
    }

    /// A list of what is revoked among these.
    pub fn list(&self, revoked: &[&Certificate]) -> Vec<u8> {
        let entry = |one: &&Certificate| RevokedEntry {
            serial: one.serial().to_vec(),
            at: now(),
            reason: RevokedEntry::reason("key-compromise"),
        };
        let entries: Vec<_> = revoked.iter().map(entry).collect();
        issue::revocation_list(&self.issuer(), now(), now() + YEAR, 1, &entries).unwrap()
    }
}

/// What lies in x509ca/ and x509crl/.
pub fn folders(cas: &[&Ca], lists: &[Vec<u8>]) -> TrustStore {
    let mut trust = TrustStore::new();
    for ca in cas {
        trust.add(ca.certificate.clone()).unwrap();
    }
    for list in lists {
        trust.revocation.add_crl(list).unwrap();
    }
    trust
}

fn policy(cacerts: &[&Ca], revocation: RevocationPolicy) -> PeerPolicy {
    let cacerts = cacerts.iter().map(|ca| ca.certificate.clone().into()).collect();
    PeerPolicy { cacerts, revocation, ..PeerPolicy::default() }
}

/// The verdict, after whatever there is to fetch could not be fetched.
fn verdict(
    shown: &[&Certificate],
    policy: &PeerPolicy,
    trust: &TrustStore,
) -> Result<TrustedPeer, PkiError> {
    let shown: Vec<_> = shown.iter().map(|one| x509(one.der())).collect();
    let mut trust = trust.clone();
    loop {
        let peer = verify_peer(&id(LEAF), &shown, policy, &trust, now())?;
        let Revocation::Pending(fetches) = &peer.revocation else { return Ok(peer) };
        for fetch in fetches {
            let _ = trust.revocation.deliver(fetch, None, now());
        }
    }
}

/// strongSwan's ikev2-multi-ca/revoked with `cacerts`: the root revokes the CA that `cacerts` names.
///
/// Fault: in `certificate` of verify.rs, have all of `cacerts` among the anchors.
#[test]
fn a_revoked_sub_ca_is_refused_although_cacerts_names_it() {
    let root = Ca::root(ca_template("Root"));
    let sub = root.sub(ca_template("Research"));
    let leaf = sub.leaf();
    let cas = [&root, &sub];
    for revocation in [RevocationPolicy::Strict, RevocationPolicy::IfUri, RevocationPolicy::Relaxed]
    {
        let wants = policy(&[&sub], revocation);
        let lists = [root.list(&[&sub.certificate]), sub.list(&[])];
        let refusal = verdict(&[&leaf], &wants, &folders(&cas, &lists));
        assert!(matches!(refusal, Err(PkiError::Revoked { .. })), "{revocation:?}: {refusal:?}");
        // Nobody has revoked it: the path goes on to the root.
        let lists = [root.list(&[]), sub.list(&[])];
        let peer = verdict(&[&leaf], &wants, &folders(&cas, &lists)).unwrap();
        assert_eq!(peer.path.len(), 3);
        assert_eq!(*peer.path[2], root.certificate);
    }
    // The same by `cacerts` with an absolute path, the root alone in x509ca/.
    let lists = [root.list(&[&sub.certificate]), sub.list(&[])];
    let wants = policy(&[&sub], RevocationPolicy::Strict);
    let refusal = verdict(&[&leaf], &wants, &folders(&[&root], &lists));
    assert!(matches!(refusal, Err(PkiError::Revoked { .. })), "{refusal:?}");
}

/// A certificate that is configured itself is trusted without a path. One path to it is too long, the other shows
/// that it is revoked.
///
/// Fault: in `Search::first`, keep the first refusal.
#[test]
fn a_configured_certificate_that_is_revoked_is_refused() {
    let short = Ca::root(Template { path_len: Some(0), ..ca_template("Short") });
    let long = Ca::root(ca_template("Long"));
    let sub = short.sub(ca_template("Research"));
    let cross = long.certify(&ca_template("Research"), &*sub.key);
    let leaf = sub.leaf();
    for revoked in [&[&leaf][..], &[]] {
        let mut trust = folders(&[&short, &long, &sub], &[sub.list(revoked)]);
        trust.add(cross.clone()).unwrap();
        let certs = vec![leaf.clone().into()];
        let pinned = PeerPolicy { certs, ..policy(&[], RevocationPolicy::Relaxed) };
        match verdict(&[&leaf], &pinned, &trust) {
            Ok(_) => assert!(revoked.is_empty()),
            Err(PkiError::Revoked { .. }) => assert!(!revoked.is_empty()),
            Err(why) => panic!("{why}"),
        }
    }
}

/// strongSwan's ikev2-multi-ca/skipped: the list of the root is not to be had.
///
/// Fault: as above, or in `RevocationStore::check`, look at the first link alone.
#[test]
fn strict_revocation_wants_the_list_of_the_root_too() {
    let root = Ca::root(ca_template("Root"));
    let sub = root.sub(ca_template("Research"));
    let leaf = sub.leaf();
    let trust = folders(&[&root, &sub], &[sub.list(&[])]);
    for (revocation, good) in [
        (RevocationPolicy::Strict, false),
        // The certificate of the sub-CA says where the list would be.
        (RevocationPolicy::IfUri, false),
        (RevocationPolicy::Relaxed, true),
    ] {
        for cacerts in [&[&sub][..], &[]] {
            match verdict(&[&leaf], &policy(cacerts, revocation), &trust) {
                Ok(_) => assert!(good, "{revocation:?}"),
                Err(PkiError::RevocationUnknown { subject }) => {
                    assert!(!good && subject.contains("Research"), "{revocation:?}: {subject}");
                }
                Err(why) => panic!("{revocation:?}: {why}"),
            }
        }
    }
}

/// strongSwan's ikev2-multi-ca/pathlen: one CA may be below the root, and there are two.
///
/// Fault: in `check_lengths`, leave out the anchor.
#[test]
fn a_root_limits_how_many_cas_are_below_it() {
    for (path_len, good) in [(Some(0), false), (Some(1), false), (Some(2), true), (None, true)] {
        let root = Ca::root(Template { path_len, ..ca_template("Root") });
        let research = root.sub(ca_template("Research"));
        let duck = research.sub(ca_template("Duck"));
        let trust = folders(&[&root, &research, &duck], &[]);
        let leaf = duck.leaf();
        for cacerts in [&[&duck][..], &[&research], &[&root], &[]] {
            match verdict(&[&leaf], &policy(cacerts, RevocationPolicy::Relaxed), &trust) {
                Ok(peer) => assert!(good && peer.path.len() == 4, "{path_len:?}"),
                Err(PkiError::BasicConstraints) => assert!(!good, "{path_len:?}"),
                Err(why) => panic!("{path_len:?}: {why}"),
            }
        }
    }
}

/// Fault: in `TrustStore::add`, ask `is_self_issued`.
#[test]
fn paths_end_at_self_signed_cas_or_at_those_that_are_named_for_it() {
    let root = Ca::root(ca_template("Root"));
    let sub = root.sub(ca_template("Research"));
    let leaf = sub.leaf();
    let any = policy(&[], RevocationPolicy::Relaxed);
    let wants = policy(&[&sub], RevocationPolicy::Relaxed);
    // Without the root there is no end.
    let trust = folders(&[&sub], &[]);
    for policy in [&any, &wants] {
        let refusal = verdict(&[&leaf], policy, &trust);
        assert!(matches!(refusal, Err(PkiError::UnknownCa { .. })), "{refusal:?}");
    }
    assert_eq!(trust.loose(&[]).len(), 1);
    assert!(folders(&[&sub, &root], &[]).loose(&[]).is_empty());
    // Named as an anchor it is one, and what the root says of it does not count.
    let mut trust = folders(&[&root], &[root.list(&[&sub.certificate])]);
    trust.add_ca(sub.certificate.clone()).unwrap();
    assert_eq!(verdict(&[&leaf], &wants, &trust).unwrap().path.len(), 2);
    // A new key certified by the old one is self-issued: no anchor, and it does not count for pathLen.
    let old = Ca::root(Template { path_len: Some(0), ..ca_template("Rolling") });
    let new = Ca { key: new_key(), certificate: old.certificate.clone() };
    let template = Template { serial: vec![9], ..ca_template("Rolling") };
    let new = Ca { certificate: old.certify(&template, &*new.key), key: new.key };
    assert!(new.certificate.is_self_issued() && !new.certificate.is_self_signed());
    let leaf = new.leaf();
    let refusal = verdict(&[&leaf], &any, &folders(&[&new], &[]));
    assert!(matches!(refusal, Err(PkiError::UnknownCa { .. } | PkiError::BadSignature { .. })));
    let peer = verdict(&[&leaf, &new.certificate], &any, &folders(&[&old], &[])).unwrap();
    assert_eq!(peer.path.len(), 3);
    assert_eq!(TrustStore::new().add(leaf), Err(LoadError::NotCa));
}

/// Two roots certify one CA; what is wrong with one path does not close the other.
///
/// Fault: in `Search::first`, stop at the first path.
#[test]
fn another_path_is_tried_where_one_does_not_hold() {
    let (one, two) = (Ca::root(ca_template("One")), Ca::root(ca_template("Two")));
    let sub = one.sub(ca_template("Shared"));
    let serial = vec![2, 2];
    let by_two = two.certify(&Template { serial, ..ca_template("Shared") }, &*sub.key);
    let leaf = sub.leaf();
    let shown = [&leaf, &sub.certificate, &by_two];
    let strict = policy(&[], RevocationPolicy::Strict);
    let lists = |by_one: &[&Certificate], by_two: &[&Certificate]| {
        [one.list(by_one), two.list(by_two), sub.list(&[])]
    };
    for (revoked, end) in [
        (lists(&[], &[]), Some(&one)),
        (lists(&[&sub.certificate], &[]), Some(&two)),
        (lists(&[], &[&by_two]), Some(&one)),
        (lists(&[&sub.certificate], &[&by_two]), None),
    ] {
        let verdict = verdict(&shown, &strict, &folders(&[&one, &two], &revoked));
        match (verdict, end) {
            (Ok(peer), Some(end)) => assert_eq!(*peer.path[2], end.certificate),
            (Err(PkiError::Revoked { .. }), None) => {}
            (verdict, _) => panic!("{verdict:?}"),
        }
    }
    // A list that is not to be had closes one path only.
    let lists = [two.list(&[]), sub.list(&[])];
    let peer = verdict(&shown, &strict, &folders(&[&one, &two], &lists)).unwrap();
    assert_eq!(*peer.path[2], two.certificate);
    // A renewed certificate stands beside one that has expired.
    let expired = Template { not_after: now() - YEAR / 2, ..ca_template("Shared") };
    let expired = one.certify(&expired, &*sub.key);
    let any = policy(&[], RevocationPolicy::Relaxed);
    let trust = folders(&[&one], &[]);
    for shown in [[&leaf, &expired, &sub.certificate], [&leaf, &sub.certificate, &expired]] {
        verdict(&shown, &any, &trust).unwrap();
    }
    let refusal = verdict(&[&leaf, &expired], &any, &trust);
    assert!(matches!(refusal, Err(PkiError::Expired { .. })), "{refusal:?}");
    // `cacerts` may want the longer way.
    let wants = policy(&[&two], RevocationPolicy::Relaxed);
    let peer = verdict(&shown, &wants, &folders(&[&one, &two], &[])).unwrap();
    assert_eq!(*peer.path[2], two.certificate);
}

/// strongSwan's ikev2-multi-ca/loop: CAs that certify one another. And a sub-CA's operator who makes as many
/// cross certificates as there may be: it costs little, and gains nothing.
#[test]
fn class_35_cas_that_certify_one_another_are_no_maze() {
    let root = Ca::root(ca_template("Root"));
    let (a, b) = (root.sub(ca_template("A")), root.sub(ca_template("B")));
    let b_by_a = a.certify(&Template { serial: vec![3], ..ca_template("B") }, &*b.key);
    let a_by_b = b.certify(&Template { serial: vec![4], ..ca_template("A") }, &*a.key);
    let leaf = b.leaf();
    let any = policy(&[], RevocationPolicy::Relaxed);
    let trust = folders(&[&root], &[]);
    let peer = verdict(&[&leaf, &a_by_b, &b_by_a, &a.certificate], &any, &trust).unwrap();
    assert_eq!(peer.path.len(), 4);
    let refusal = verdict(&[&leaf, &a_by_b, &b_by_a], &any, &trust);
    assert!(matches!(refusal, Err(PkiError::UnknownCa { .. })), "{refusal:?}");

    // Eight CAs of one name, each certified by the first, under a root that allows none below it.
    let tight = Ca::root(Template { path_len: Some(0), ..ca_template("Tight") });
    let first = tight.sub(ca_template("Maze"));
    let mut cas = vec![first.certificate.clone()];
    for number in 1..8 {
        let template = Template { serial: vec![number], ..ca_template("Maze") };
        cas.push(first.certify(&template, &*new_key()));
    }
    let last = new_key();
    cas[7] = first.certify(&Template { serial: vec![8], ..ca_template("Maze") }, &*last);
    let last = Ca { certificate: cas[7].clone(), key: last };
    let leaf = last.leaf();
    let shown: Vec<&Certificate> = [&leaf].into_iter().chain(&cas).collect();
    #[expect(clippy::disallowed_methods, reason = "work without bounds shows as time alone")]
    let start = Instant::now();
    let refusal = verdict(&shown, &any, &folders(&[&tight], &[]));
    let took = start.elapsed();
    assert!(refusal.is_ok() || matches!(refusal, Err(PkiError::BasicConstraints)), "{refusal:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Nine CAs below each other, with three certificates each. No path is as long as that, and 2,187 chains lead nowhere:
/// the search is given up before it has seen them all.
///
/// Fault: in `Search::step`, count nothing.
#[test]
fn class_35_chains_that_are_too_long_are_not_all_followed() {
    let root = Ca::root(ca_template("Root"));
    let mut trust = folders(&[&root], &[]);
    let mut above = root;
    for layer in 0..9 {
        let (name, key) = (format!("Layer {layer}"), new_key());
        let all = [1, 2, 3].map(|number| {
            let template = Template { serial: vec![layer + 1, number], ..ca_template(&name) };
            above.certify(&template, &*key)
        });
        for certificate in &all {
            trust.add(certificate.clone()).unwrap();
        }
        let [certificate, ..] = all;
        above = Ca { certificate, key };
    }
    let any = policy(&[], RevocationPolicy::Relaxed);
    let refusal = verdict(&[&above.leaf()], &any, &trust);
    assert!(matches!(refusal, Err(PkiError::Limits { most: 2000, .. })), "{refusal:?}");
}

/// nameConstraints with directory names; `excluded` in place of permitted.
fn constraints(excluded: bool, names: &[&str]) -> Vec<OtherExtension> {
    let mut subtrees = Vec::new();
    for name in names {
        let mut base = Vec::new();
        der::push(&mut base, context(4), &[&issue::distinguished_name(name).unwrap()]);
        der::push(&mut subtrees, SEQUENCE, &[&base]);
    }
    let (mut list, mut value) = (Vec::new(), Vec::new());
    der::push(&mut list, context(u8::from(excluded)), &[&subtrees]);
    der::push(&mut value, SEQUENCE, &[&list]);
    vec![OtherExtension { oid: "2.5.29.30".to_owned(), critical: true, value }]
}

/// The leaf is `O=Acme, OU=Lab, CN=leaf`.
///
/// Fault: in `relation`, have every directory name within every constraint, or none.
#[test]
fn directory_names_stay_within_the_constraints_of_every_ca() {
    for (excluded, names, good) in [
        (false, &["O=Acme"][..], true),
        (false, &["O=ACME, OU=lab"], true),
        (false, &["O=Other", "O=Acme"], true),
        (false, &["O=Acme, OU=Lab, CN=leaf"], true),
        (false, &["O=Acme, OU=Lab, CN=leaf, CN=more"], false),
        (false, &["O=Other"], false),
        (false, &["OU=Lab"], false),
        (true, &["O=Acme, OU=Lab"], false),
        (true, &["O=acme,  ou=LAB"], false),
        (true, &["O=Acme, OU=Office"], true),
        (true, &["O=Other"], true),
    ] {
        let others = constraints(excluded, names);
        let any = policy(&[], RevocationPolicy::Relaxed);
        // Of the root, of a CA in the middle, and of one that is an anchor without being a root.
        let root = Ca::root(Template { others: others.clone(), ..ca_template("Root") });
        let sub = root.sub(Template {
            subject: issue::distinguished_name("O=Acme, OU=Lab, CN=leaf, CN=more").unwrap(),
            ..ca_template("Sub")
        });
        let of_root = verdict(&[&sub.leaf(), &sub.certificate], &any, &folders(&[&root], &[]));
        let plain = Ca::root(ca_template("Plain"));
        let middle = plain.sub(Template { others, ..ca_template("Middle") });
        let leaf = middle.leaf();
        let in_the_middle = verdict(&[&leaf, &middle.certificate], &any, &folders(&[&plain], &[]));
        let mut trust = TrustStore::new();
        trust.add_ca(middle.certificate.clone()).unwrap();
        let of_anchor = verdict(&[&leaf], &any, &trust);
        for verdict in [of_root, in_the_middle, of_anchor] {
            match verdict {
                Ok(_) => assert!(good, "{excluded} {names:?}"),
                Err(PkiError::NameConstraints { .. }) => assert!(!good, "{excluded} {names:?}"),
                Err(why) => panic!("{excluded} {names:?}: {why}"),
            }
        }
    }
}

/// ipAddrBlocks (RFC 3779) with prefixes of IPv4; `None`: those of the issuer.
fn blocks(prefixes: Option<&[&[u8]]>) -> Vec<OtherExtension> {
    let mut choice = Vec::new();
    match prefixes {
        None => der::push(&mut choice, NULL, &[]),
        Some(prefixes) => {
            let mut list = Vec::new();
            for prefix in prefixes {
                der::push(&mut list, BIT_STRING, &[&[0], prefix]);
            }
            der::push(&mut choice, SEQUENCE, &[&list]);
        }
    }
    let (mut family, mut entry, mut value) = (Vec::new(), Vec::new(), Vec::new());
    der::push(&mut family, OCTET_STRING, &[&[0, 1]]);
    der::push(&mut entry, SEQUENCE, &[&family, &choice]);
    der::push(&mut value, SEQUENCE, &[&entry]);
    vec![OtherExtension { oid: "1.3.6.1.5.5.7.1.7".to_owned(), critical: true, value }]
}

/// Fault: in `PathQuery::check`, leave out the address blocks.
#[test]
fn address_blocks_are_within_those_of_the_issuer() {
    let any = policy(&[], RevocationPolicy::Relaxed);
    let ten: &[&[u8]] = &[&[10]];
    let inner: &[&[u8]] = &[&[10, 1], &[10, 2, 3]];
    let beyond: &[&[u8]] = &[&[10, 1], &[11]];
    for (of_root, of_leaf, first) in [
        (Some(Some(ten)), Some(Some(inner)), Some("10.1.0.0")),
        (Some(Some(ten)), Some(None), Some("10.0.0.0")),
        (Some(Some(ten)), Some(Some(beyond)), None),
        (Some(Some(inner)), Some(Some(ten)), None),
        (None, Some(Some(inner)), None),
        (Some(Some(ten)), None, None),
    ] {
        let others =
            |blocks_of: Option<Option<&[&[u8]]>>| blocks_of.map(blocks).unwrap_or_default();
        let root = Ca::root(Template { others: others(of_root), ..ca_template("Root") });
        let leaf = Template { others: others(of_leaf), ..leaf_template() };
        let leaf = root.certify(&leaf, &*new_key());
        match (verdict(&[&leaf], &any, &folders(&[&root], &[])), first) {
            (Ok(peer), Some(first)) => {
                let addresses = peer.addresses.expect("addresses");
                assert_eq!(addresses.ranges()[0].0.to_string(), first);
            }
            (Err(PkiError::AddressBlocks { .. }), None) => {}
            (verdict, _) => panic!("{of_root:?} {of_leaf:?}: {verdict:?}"),
        }
    }
    let root = Ca::root(ca_template("Root"));
    let peer = verdict(&[&root.leaf()], &any, &folders(&[&root], &[])).unwrap();
    assert_eq!(peer.addresses, None);
    // Where the addresses of one path do not fit, another path is tried.
    let template =
        |name, of: Option<&[&[u8]]>| Template { others: blocks(of), ..ca_template(name) };
    let one = Ca::root(template("One", Some(inner)));
    let two = Ca::root(template("Two", Some(ten)));
    let shared = one.sub(template("Shared", None));
    let serial = vec![2, 2];
    let by_two = two.certify(&Template { serial, ..template("Shared", None) }, &*shared.key);
    let leaf = Template { others: blocks(Some(&[&[10, 9]])), ..leaf_template() };
    let leaf = shared.certify(&leaf, &*new_key());
    let shown = [&leaf, &shared.certificate, &by_two];
    let peer = verdict(&shown, &any, &folders(&[&one, &two], &[])).unwrap();
    assert_eq!(*peer.path[2], two.certificate);
}

/// RFC 5216 §5.3 for EAP, and for IKE what CAs in the field write.
///
/// Fault: make `Ike` the default policy, or give both roles of EAP the same purposes.
#[test]
fn each_use_has_its_extended_key_usages() {
    use ExtendedKeyUsagePolicy as P;
    let root = Ca::root(ca_template("Root"));
    let trust = folders(&[&root], &[]);
    // By IKE's strict policy, its default one, as server of EAP-TLS, as its peer.
    for (purposes, expected) in [
        (&[][..], [true; 4]),
        (&["1.3.6.1.5.5.7.3.17"], [true; 4]),
        (&["2.5.29.37.0"], [true; 4]),
        (&["1.3.6.1.5.5.7.3.1"], [false, true, true, false]),
        (&["1.3.6.1.5.5.7.3.2"], [false, true, false, true]),
        (&["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"], [false, true, true, true]),
        (&["1.3.6.1.5.5.7.3.14"], [false, false, true, true]),
        (&["1.3.6.1.5.5.7.3.4"], [false; 4]),
        (&["1.3.6.1.5.5.7.3.4", "1.3.6.1.5.5.7.3.17"], [true; 4]),
    ] {
        let extended_key_usage = purposes.iter().map(|oid| (*oid).to_owned()).collect();
        let leaf = Template { extended_key_usage, ..leaf_template() };
        let leaf = root.certify(&leaf, &*new_key());
        for (usage, good) in
            [P::Ike, P::default(), P::EapServer, P::EapPeer].into_iter().zip(expected)
        {
            let policy = PeerPolicy { extended_key_usage: usage, ..PeerPolicy::default() };
            match verdict(&[&leaf], &policy, &trust) {
                Ok(_) => assert!(good, "{purposes:?} {usage:?}"),
                Err(PkiError::ExtendedKeyUsage { .. }) => assert!(!good, "{purposes:?} {usage:?}"),
                Err(why) => panic!("{purposes:?} {usage:?}: {why}"),
            }
        }
    }
}
