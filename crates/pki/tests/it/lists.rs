//! The rule about revocation lists: what a list revokes counts, whatever else is the matter with it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use der::Encode;
use ike_proto::crypto::{SchemeRegister, SignatureScheme, SigningKey};
use ike_proto::wire::der::{self as asn1, BIT_STRING, INTEGER, OCTET_STRING, SEQUENCE, context};
use pki::issue::{self, Issuer, Template};
use pki::{
    Certificate, FetchKind, LoadError, PeerPolicy, PkiError, Revocation, RevocationPolicy,
    TrustStore, verify_peer,
};
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::common::{id, now, x509};

pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// The URL in the certificate of the peer.
pub const URL: &str = "http://ca.example.org/ca.crl";
/// The serial number of the peer.
pub const SERIAL: u8 = 77;
const POLICIES: [RevocationPolicy; 3] =
    [RevocationPolicy::Relaxed, RevocationPolicy::IfUri, RevocationPolicy::Strict];

/// A key, and the certificate of its owner.
pub struct Owner {
    pub key: Box<dyn SigningKey>,
    pub certificate: Arc<Certificate>,
}

pub fn key() -> Box<dyn SigningKey> {
    key_of(KeyType::Scheme(SignatureScheme::EcdsaP256Sha256))
}

pub fn key_of(key_type: KeyType) -> Box<dyn SigningKey> {
    load_private_key(&generate(key_type).unwrap()).unwrap()
}

impl Owner {
    /// A self-signed CA.
    pub fn root(name: &str) -> Self {
        Self::root_with(name, key())
    }

    pub fn root_with(name: &str, key: Box<dyn SigningKey>) -> Self {
        let template = Template { ca: true, ..template(name) };
        let scheme = issue::default_scheme(&*key).unwrap();
        let issuer = Issuer { key: &*key, scheme, name: &template.subject };
        let der = issue::certificate(&template, key.public_key(), &issuer).unwrap();
        let certificate = Arc::new(Certificate::from_der(&der).unwrap());
        Self { key, certificate }
    }

    /// A certificate for this key.
    pub fn certify(&self, template: &Template, spki: &[u8]) -> Arc<Certificate> {
        let scheme = issue::default_scheme(&*self.key).unwrap();
        let issuer = Issuer { key: &*self.key, scheme, name: self.certificate.subject() };
        let der = issue::certificate(template, spki, &issuer).unwrap();
        Arc::new(Certificate::from_der(&der).unwrap())
    }

    /// A CA below.
    pub fn sub_ca(&self, name: &str, key: Box<dyn SigningKey>, serial: u8) -> Self {
        let template = Template { ca: true, serial: vec![serial], ..template(name) };
        let certificate = self.certify(&template, key.public_key());
        Self { key, certificate }
    }

    /// peer.example.org, with the serial number [`SERIAL`] and the list's [`URL`].
    pub fn peer(&self) -> Arc<Certificate> {
        self.peer_with(vec![URL.to_owned()])
    }

    pub fn peer_with(&self, crl: Vec<String>) -> Arc<Certificate> {
        let names = vec![id("peer.example.org")];
        let template = Template { names, serial: vec![SERIAL], crl, ..template("peer") };
        self.certify(&template, key().public_key())
    }
}

pub fn template(name: &str) -> Template {
    Template {
        subject: issue::distinguished_name(&format!("CN={name}")).unwrap(),
        not_before: now() - 90 * DAY,
        not_after: now() + 300 * DAY,
        ..Template::default()
    }
}

/// A list, octet by octet.
#[derive(Clone)]
pub struct List {
    /// Content of the version; none for version 1.
    pub version: Option<u8>,
    pub this_update: SystemTime,
    pub next_update: Option<SystemTime>,
    pub number: Option<u8>,
    pub entries: Vec<Vec<u8>>,
    pub extensions: Vec<Vec<u8>>,
}

impl Default for List {
    /// A list of today that has the peer.
    fn default() -> Self {
        Self {
            version: Some(1),
            this_update: now() - DAY,
            next_update: Some(now() + 7 * DAY),
            number: Some(3),
            entries: vec![entry(SERIAL, &[])],
            extensions: Vec::new(),
        }
    }
}

impl List {
    /// The same without an entry.
    pub fn empty() -> Self {
        Self { entries: Vec::new(), ..Self::default() }
    }

    pub fn by(&self, owner: &Owner) -> Vec<u8> {
        self.by_key(&*owner.key, owner.certificate.subject())
    }

    pub fn by_key(&self, key: &dyn SigningKey, name: &[u8]) -> Vec<u8> {
        let scheme = issue::default_scheme(key).unwrap();
        let mut tbs = Vec::new();
        if let Some(version) = self.version {
            asn1::push(&mut tbs, INTEGER, &[&[version]]);
        }
        tbs.extend_from_slice(scheme.algorithm_identifier());
        tbs.extend_from_slice(name);
        tbs.extend(date(self.this_update));
        tbs.extend(self.next_update.map(date).unwrap_or_default());
        if !self.entries.is_empty() {
            asn1::push(&mut tbs, SEQUENCE, &[&self.entries.concat()]);
        }
        let number = self.number.map(|n| extension(&[0x55, 0x1d, 20], false, &[INTEGER, 1, n]));
        let extensions = [number.unwrap_or_default(), self.extensions.concat()].concat();
        if !extensions.is_empty() {
            asn1::push(&mut tbs, context(0), &[&wrap(SEQUENCE, &extensions)]);
        }
        let tbs = wrap(SEQUENCE, &tbs);
        let signature = key.sign(&scheme, &tbs).unwrap();
        let bits = wrap(BIT_STRING, &[&[0], &signature[..]].concat());
        wrap(SEQUENCE, &[&tbs, scheme.algorithm_identifier(), &bits].concat())
    }
}

pub fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    asn1::push(&mut out, tag, &[content]);
    out
}

fn date(time: SystemTime) -> Vec<u8> {
    x509_cert::time::Time::try_from(time).unwrap().to_der().unwrap()
}

/// An entry of a list.
pub fn entry(serial: u8, extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut entry = [vec![INTEGER, 1, serial], date(now() - 2 * DAY)].concat();
    if !extensions.is_empty() {
        asn1::push(&mut entry, SEQUENCE, &[&extensions.concat()]);
    }
    wrap(SEQUENCE, &entry)
}

pub fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[1, 1, 0xff] } else { &[] };
    let parts = [&wrap(6, oid), critical, &wrap(OCTET_STRING, value)].concat();
    wrap(SEQUENCE, &parts)
}

pub fn reason(code: u8) -> Vec<u8> {
    extension(&[0x55, 0x1d, 21], false, &[0x0a, 1, code])
}

/// A critical extension that nobody knows.
fn unknown() -> Vec<u8> {
    extension(&[0x2b, 6, 1, 4, 1, 0x83, 0xb3, 0x3a, 1], true, &[5, 0])
}

/// An issuingDistributionPoint with these fields.
pub fn scope(fields: &[Vec<u8>]) -> Vec<u8> {
    extension(&[0x55, 0x1d, 28], true, &wrap(SEQUENCE, &fields.concat()))
}

/// The field distributionPoint, a URL.
pub fn place(url: &str) -> Vec<u8> {
    wrap(context(0), &wrap(context(0), &wrap(0x86, url.as_bytes())))
}

/// The field that says `[number] TRUE`.
pub fn only(number: u8) -> Vec<u8> {
    vec![0x80 | number, 1, 0xff]
}

/// The field onlySomeReasons.
fn reasons(bits: &[u8]) -> Vec<u8> {
    wrap(0x83, bits)
}

pub fn trusting(cas: &[&Owner]) -> TrustStore {
    let mut trust = TrustStore::new();
    for ca in cas {
        trust.add_ca((*ca.certificate).clone()).unwrap();
    }
    trust
}

/// What becomes of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Accepted,
    Revoked,
    Unknown,
}

/// Verifies until no question is open. Each URL answers with what `served` has for it, or not at all.
pub fn outcome_of(
    shown: &[&Certificate],
    policy: &PeerPolicy,
    trust: &mut TrustStore,
    served: &[(&str, &[u8])],
) -> Outcome {
    let certs: Vec<_> = shown.iter().map(|shown| x509(shown.der())).collect();
    for _ in 0..10 {
        match verify_peer(&id("peer.example.org"), &certs, policy, trust, now()) {
            Ok(peer) => match &peer.revocation {
                Revocation::Settled => return Outcome::Accepted,
                Revocation::Pending(requests) => {
                    for request in requests {
                        assert_eq!(request.kind, FetchKind::Crl);
                        let mut found = served.iter().filter(|(url, _)| *url == request.url);
                        let body = found.next().map(|(_, body)| *body);
                        let _ = trust.revocation.deliver(request, body, now());
                    }
                }
            },
            Err(PkiError::Revoked { .. }) => return Outcome::Revoked,
            Err(PkiError::RevocationUnknown { .. }) => return Outcome::Unknown,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("it asks without end")
}

pub fn by(revocation: RevocationPolicy) -> PeerPolicy {
    PeerPolicy { revocation, ..PeerPolicy::default() }
}

/// What becomes of the peer with the lists from files, and with the first of them from its URL.
fn both(ca: &Owner, lists: &[&[u8]], revocation: RevocationPolicy) -> [Outcome; 2] {
    let (peer, policy) = (ca.peer(), by(revocation));
    let mut loaded = trusting(&[ca]);
    for list in lists {
        loaded.revocation.add_crl(list).unwrap();
    }
    let from_file = outcome_of(&[&peer], &policy, &mut loaded, &[]);
    let served: Vec<_> = lists.iter().map(|list| (URL, *list)).collect();
    [from_file, outcome_of(&[&peer], &policy, &mut trusting(&[ca]), &served)]
}

/// Every form of list that names the peer, and its name.
pub fn forms(ca: &Owner) -> Vec<(&'static str, Vec<u8>)> {
    let list = List::default;
    let with = |extensions: Vec<Vec<u8>>| List { extensions, ..list() };
    let of = |extension: Vec<u8>| vec![entry(SERIAL, &[extension])];
    let delta = extension(&[0x55, 0x1d, 27], true, &[INTEGER, 1, 2]);
    let freshest = extension(&[0x55, 0x1d, 46], false, &[SEQUENCE, 0]);
    let forms = [
        ("plain", list()),
        ("version 1", List { version: None, number: None, ..list() }),
        ("version 2 without extensions", List { number: None, ..list() }),
        ("a version that nobody knows", List { version: Some(5), ..list() }),
        ("its own URL", with(vec![scope(&[place(URL)])])),
        ("its own URL, end entities alone", with(vec![scope(&[place(URL), only(1)])])),
        ("another URL", with(vec![scope(&[place("http://other/x")])])),
        ("CAs alone", with(vec![scope(&[only(2)])])),
        ("some reasons", with(vec![scope(&[place(URL), reasons(&[6, 0x40])])])),
        ("indirect, its own certificates", with(vec![scope(&[place(URL), only(4)])])),
        ("a critical extension that nobody knows", with(vec![unknown()])),
        ("an entry with such an extension", List { entries: of(unknown()), ..list() }),
        (
            "an issuingDistributionPoint that is none",
            with(vec![extension(&[0x55, 0x1d, 28], true, &[5, 0])]),
        ),
        (
            "past its nextUpdate",
            List { this_update: now() - 20 * DAY, next_update: Some(now() - 2 * DAY), ..list() },
        ),
        ("without nextUpdate", List { next_update: None, ..list() }),
        ("from the future", List { this_update: now() + 2 * DAY, ..list() }),
        ("delta", with(vec![delta])),
        ("certificateHold", List { entries: of(reason(6)), ..list() }),
        ("freshestCRL", with(vec![freshest])),
    ];
    forms.into_iter().map(|(name, list)| (name, list.by(ca))).collect()
}

/// Fault: in `Lists::counted`, leave out lists that are not current, or not understood, or of another scope.
#[test]
fn a_list_of_any_form_that_names_the_peer_revokes_it() {
    let ca = Owner::root("CA");
    for (name, list) in forms(&ca) {
        for policy in POLICIES {
            let found = both(&ca, &[&list], policy);
            assert_eq!(found, [Outcome::Revoked; 2], "{name}, {policy:?}: file, URL");
        }
    }
}

/// Fault: in `Crl::reasons` or `Lists::may_say_good`, take away one of the conditions.
#[test]
fn only_a_current_list_that_is_understood_and_covers_the_peer_says_that_it_is_good() {
    let ca = Owner::root("CA");
    let good = [
        "plain",
        "version 1",
        "version 2 without extensions",
        "its own URL",
        "its own URL, end entities alone",
        "indirect, its own certificates",
        "certificateHold",
        "freshestCRL",
    ];
    let other = vec![entry(SERIAL + 1, &[])];
    let strict = |list: &List| both(&ca, &[&list.by(&ca)], RevocationPolicy::Strict);
    let with =
        |extensions: Vec<Vec<u8>>| List { extensions, entries: other.clone(), ..List::default() };
    assert_eq!(strict(&with(Vec::new())), [Outcome::Accepted; 2]);
    assert_eq!(strict(&with(vec![scope(&[place("http://other/x")])])), [Outcome::Unknown; 2]);
    assert_eq!(strict(&with(vec![scope(&[only(2)])])), [Outcome::Unknown; 2]);
    assert_eq!(strict(&with(vec![scope(&[place(URL), only(5)])])), [Outcome::Unknown; 2]);
    assert_eq!(strict(&with(vec![unknown()])), [Outcome::Unknown; 2]);
    let bad_entry = List { entries: vec![entry(SERIAL + 1, &[unknown()])], ..List::default() };
    assert_eq!(strict(&bad_entry), [Outcome::Unknown; 2]);
    for (name, list) in forms(&ca) {
        // The list of each form names 77; a peer of another serial number is judged by it.
        let names = vec![id("peer.example.org")];
        let crl = vec![URL.to_owned()];
        let template = Template { names, serial: vec![SERIAL + 1], crl, ..template("peer") };
        let peer = ca.certify(&template, key().public_key());
        for policy in POLICIES {
            let served = [(URL, list.as_slice())];
            let fetched = outcome_of(&[&peer], &by(policy), &mut trusting(&[&ca]), &served);
            let expected = match policy {
                _ if good.contains(&name) => Outcome::Accepted,
                RevocationPolicy::Relaxed => Outcome::Accepted,
                _ => Outcome::Unknown,
            };
            assert_eq!(fetched, expected, "{name}, {policy:?}");
        }
    }
}

/// Fault: in `Extensions::read`, leave the field out; in `entry_extensions`, take removeFromCRL for a reason.
#[test]
fn a_list_of_attribute_certificates_and_an_entry_that_removes_revoke_nobody() {
    let ca = Owner::root("CA");
    let attributes = List { extensions: vec![scope(&[only(5)])], ..List::default() };
    let removes = List { entries: vec![entry(SERIAL, &[reason(8)])], ..List::default() };
    for policy in POLICIES {
        let found = both(&ca, &[&attributes.by(&ca)], policy);
        let expected =
            if policy == RevocationPolicy::Relaxed { Outcome::Accepted } else { Outcome::Unknown };
        assert_eq!(found, [expected; 2], "{policy:?}");
        assert_eq!(both(&ca, &[&removes.by(&ca)], policy), [Outcome::Accepted; 2], "{policy:?}");
    }
}

/// Fault: in `Lists::status`, call a certificate revoked by any list, or by the newest alone.
#[test]
fn a_hold_ends_with_a_newer_complete_list_of_the_same_scope() {
    let ca = Owner::root("CA");
    let hold = |extensions: Vec<Vec<u8>>| {
        let entries = vec![entry(SERIAL, &[reason(6)])];
        List {
            entries,
            extensions,
            this_update: now() - 5 * DAY,
            number: Some(1),
            ..List::default()
        }
    };
    let here = || vec![scope(&[place(URL)])];
    let held = hold(Vec::new()).by(&ca);
    let lifted = |newer: &List| both(&ca, &[&held, &newer.by(&ca)], RevocationPolicy::Relaxed)[0];
    assert_eq!(lifted(&List::empty()), Outcome::Accepted);
    // Past its date, a list still tells that a hold has ended; it does not call the certificate good.
    let late = List { next_update: Some(now() - DAY / 2), ..List::empty() };
    assert_eq!(lifted(&late), Outcome::Accepted);
    let strict = both(&ca, &[&held, &late.by(&ca)], RevocationPolicy::Strict)[0];
    assert_eq!(strict, Outcome::Unknown);
    for (name, newer) in [
        ("older", List { this_update: now() - 6 * DAY, ..List::empty() }),
        ("of another scope", List { extensions: here(), ..List::empty() }),
        ("from the future", List { this_update: now() + DAY, ..List::empty() }),
        ("not understood", List { extensions: vec![unknown()], ..List::empty() }),
        ("on it still", List::default()),
    ] {
        assert_eq!(lifted(&newer), Outcome::Revoked, "{name}");
    }
}

/// Fault: in `RevocationStore::check`, refuse a revoked certificate at once.
#[test]
fn a_newer_list_is_asked_for_when_the_one_that_revokes_is_past_its_date() {
    let ca = Owner::root("CA");
    let peer = ca.peer();
    let old = List { this_update: now() - 9 * DAY, number: Some(1), ..List::default() };
    let held = List { next_update: Some(now() - DAY), ..old.clone() }.by(&ca);
    let newer = List::empty().by(&ca);
    for policy in POLICIES {
        let mut trust = trusting(&[&ca]);
        trust.revocation.add_crl(&held).unwrap();
        let policy = by(policy);
        let fetched = |trust: &mut TrustStore, served: &[(&str, &[u8])]| {
            outcome_of(&[&peer], &policy, trust, served)
        };
        assert_eq!(fetched(&mut trust.clone(), &[]), Outcome::Revoked);
        assert_eq!(fetched(&mut trust.clone(), &[(URL, &old.by(&ca))]), Outcome::Revoked);
        assert_eq!(fetched(&mut trust, &[(URL, &newer)]), Outcome::Accepted);
    }
}

/// Fault: in `Lists::deliver`, take a list for some reasons as good news: the peer's URL is asked without end.
#[test]
fn lists_for_all_reasons_together_say_that_a_certificate_is_good() {
    let ca = Owner::root("CA");
    let urls = ["http://ca.example.org/some.crl", "http://ca.example.org/others.crl"];
    let peer = ca.peer_with(urls.map(str::to_owned).to_vec());
    let part = |url: &str, bits: &[u8], entries: Vec<Vec<u8>>| {
        let extensions = vec![scope(&[place(url), reasons(bits)])];
        List { entries, extensions, ..List::default() }.by(&ca)
    };
    let some = part(urls[0], &[6, 0x40], Vec::new());
    let others = part(urls[1], &[7, 0x3f, 0x80], Vec::new());
    let bad = part(urls[1], &[7, 0x3f, 0x80], vec![entry(SERIAL, &[])]);
    for (served, expected) in [
        (vec![(urls[0], &*some), (urls[1], &*others)], Outcome::Accepted),
        (vec![(urls[0], &*some)], Outcome::Unknown),
        (vec![(urls[0], &*some), (urls[1], &*bad)], Outcome::Revoked),
    ] {
        let found =
            outcome_of(&[&peer], &by(RevocationPolicy::Strict), &mut trusting(&[&ca]), &served);
        assert_eq!(found, expected);
    }
}

/// Fault: in `Crl::load`, read lists of RFC 5280 alone; in `Stream::header`, take any length.
#[test]
fn what_is_no_list_is_refused_and_cut_or_changed_lists_never_panic() {
    let ca = Owner::root("CA");
    for (name, list) in forms(&ca) {
        assert!(pki::Crl::load(&list).is_ok(), "{name}");
        for length in 0..list.len() {
            assert!(pki::Crl::load(&list[..length]).is_err(), "{name}, {length} octets");
        }
        let long = [&list[..], &[0]].concat();
        assert!(pki::Crl::load(&long).is_err(), "{name}, an octet more");
        let peer = ca.peer();
        for at in 0..list.len() {
            let mut changed = list.clone();
            changed[at] ^= 1;
            let Ok(crl) = pki::Crl::load(&changed) else { continue };
            let signed = crl.is_signed_by(&ca.certificate);
            assert!(!signed || crl.revokes(&peer), "{name}, octet {at}");
        }
    }
    // A length that nothing follows is not believed.
    let huge = [0x30, 0x84, 0x05, 0, 0, 0, 0x30, 0x84, 0x04, 0xff, 0xff, 0xff];
    assert!(pki::Crl::load(&huge).is_err());
    assert_eq!(
        pki::Crl::load(&[0x30, 0x84, 0x7f, 0xff, 0xff, 0xff]).unwrap_err(),
        LoadError::TooLong { what: "revocation list", most: pki::MAX_LIST }
    );
}

/// Fault: in `Stream::exact`, keep all octets; in `Stream::hash_by`, begin after the start; in `HASHED`, swap two hashes;
/// in `Crl::revoked`, call a long list empty.
#[test]
fn of_a_long_list_the_serial_numbers_alone_are_kept_and_any_key_can_be_judged() {
    use pki::Crl;
    const ENTRIES: usize = 30_000;
    let date = date(now() - 2 * DAY);
    let entries = (0..ENTRIES).map(|n| {
        let serial = [&[0x40; 16][..], &(n as u32).to_be_bytes()].concat();
        wrap(SEQUENCE, &[wrap(INTEGER, &serial), date.clone()].concat())
    });
    let entries = vec![entries.collect::<Vec<_>>().concat(), entry(SERIAL, &[])];
    let list = List { entries, ..List::default() };
    for (key_type, kept) in [
        (KeyType::Scheme(SignatureScheme::EcdsaP256Sha256), false),
        (KeyType::Scheme(SignatureScheme::EcdsaP384Sha384), false),
        (KeyType::Scheme(SignatureScheme::EcdsaP521Sha512), false),
        (KeyType::Rsa2048, false),
        // They sign the list itself and no hash of it.
        (KeyType::Scheme(SignatureScheme::Ed25519), true),
        (KeyType::Scheme(SignatureScheme::MlDsa65), true),
    ] {
        let ca = Owner::root_with("CA", key_of(key_type.clone()));
        let der = list.by(&ca);
        let crl = Crl::from_stream(der.as_slice()).unwrap();
        assert_eq!((crl.count(), crl.der().is_some()), (ENTRIES + 1, kept), "{key_type:?}");
        let memory = crl.octets() - crl.der().map_or(0, <[u8]>::len);
        assert!(memory < der.len() * 2 / 3, "{memory} octets of {}", der.len());
        assert!(crl.is_signed_by(&ca.certificate) && crl.revokes(&ca.peer()), "{key_type:?}");
        assert!(!crl.is_signed_by(&Owner::root("CA").certificate));
        let mut changed = der.clone();
        changed[der.len() / 2] ^= 1;
        let judged =
            Crl::from_stream(changed.as_slice()).map(|crl| crl.is_signed_by(&ca.certificate));
        assert!(!judged.unwrap_or(false), "{key_type:?}");
    }
    // Whoever needs its entries with their dates has them, or an error.
    let ca = Owner::root("CA");
    let der = list.by(&ca);
    assert!(matches!(Crl::load(&der).unwrap().revoked(), Err(LoadError::TooLong { .. })));
    assert_eq!(
        Crl::load_whole(&SchemeRegister::built_in(), &der).unwrap().revoked().unwrap().len(),
        ENTRIES + 1
    );
    // In PEM, too.
    let pem = pem::encode(&pem::Pem::new("X509 CRL", List::default().by(&ca)));
    assert!(Crl::from_stream(pem.as_bytes()).unwrap().revokes(&ca.peer()));
}
