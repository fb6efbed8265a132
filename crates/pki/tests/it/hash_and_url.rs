//! CERT payloads that are a hash and a URL, sent and read.

use std::sync::Arc;

use ike_proto::config::CertRequest;
use ike_proto::crypto::SigningKey;
use ike_proto::wire::registry::CertEncoding;
use ike_proto::{AcceptedScheme, Answer, OwnedCert, Question, SignRequest};
use pki::{Answerer, Authority, Credential, HashAndUrl, TrustStore, bundle, files, sha1};

use crate::common::{certificate, fixture, id, now, shared, trusting};

const X509: CertEncoding = CertEncoding::HASH_AND_URL_X509;
const BUNDLE: CertEncoding = CertEncoding::HASH_AND_URL_BUNDLE;

fn payload(encoding: CertEncoding, octets: &[u8], url: &str) -> OwnedCert {
    OwnedCert { encoding, data: [&sha1(octets)[..], url.as_bytes()].concat() }
}

#[test]
fn a_hash_and_an_http_url_are_read() {
    // RFC 4945 §4.3.1.
    for url in [
        "http://certs.example.com/certificate.cer",
        "http://certs.example.com/certs/cert.pl?u=foo;a=pw;valid-to=+86400",
        "http://certs.example.com/%0a/../foo/bar/zappa",
        "http://user:password@certs.example.com:8888/certificate.cer",
    ] {
        let cert = payload(X509, b"certificate", url);
        let read = HashAndUrl::read(&cert).unwrap();
        assert_eq!((read.url, read.hash), (url, sha1(b"certificate")));
        let unpacked = read.unpack(b"certificate").unwrap();
        let x509 = CertEncoding::X509_SIGNATURE;
        assert_eq!(unpacked, [OwnedCert { encoding: x509, data: b"certificate".to_vec() }]);
        let why = read.unpack(b"certificatf").unwrap_err().to_string();
        assert!(why.contains("another hash"), "{why}");
    }
    for url in ["", "ftp://a/b", "https://a/", "http://a b/", "http://a/\u{7f}", "http://a/\r\nX:"]
    {
        let cert = payload(X509, b"certificate", url);
        let why = HashAndUrl::read(&cert).unwrap_err().to_string();
        assert!(why.contains("no hash and http URL"), "{url}: {why}");
    }
    let short = OwnedCert { encoding: X509, data: vec![1; 19] };
    assert!(HashAndUrl::read(&short).is_err());
    let binary = OwnedCert { encoding: X509, data: vec![0xff; 40] };
    assert!(HashAndUrl::read(&binary).is_err());
    let other = payload(CertEncoding::X509_SIGNATURE, b"certificate", "http://a/");
    assert!(HashAndUrl::read(&other).is_err());
}

/// RFC 7296 §3.6: SEQUENCE OF CHOICE { cert [0], crl [1] }, explicit tags.
#[test]
fn a_bundle_is_what_the_rfc_says() {
    let [moon, inter] = [shared("moon"), shared("inter")];
    let made = bundle(&[Arc::clone(&moon), Arc::clone(&inter)]).unwrap();
    let tagged = |tag: u8, octets: &[u8]| {
        let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
        assert!(octets.len() > 255, "the lengths in this test have two octets");
        [&[tag, 0x82], &length[..], octets].concat()
    };
    let by_hand = tagged(0x30, &[tagged(0xa0, moon.der()), tagged(0xa0, inter.der())].concat());
    assert_eq!(made, by_hand);
    let crl = [vec![0x30, 0x82, 1, 0], vec![5; 256]].concat();
    let with_list = tagged(0x30, &[tagged(0xa0, moon.der()), tagged(0xa1, &crl)].concat());
    let unpack = |octets: &[u8]| {
        let cert = payload(BUNDLE, octets, "http://a/");
        let read = HashAndUrl::read(&cert).unwrap();
        read.unpack(octets).map_err(|why| why.to_string())
    };
    let unpacked = unpack(&with_list).unwrap();
    let encodings: Vec<_> = unpacked.iter().map(|cert| cert.encoding).collect();
    assert_eq!(encodings, [CertEncoding::X509_SIGNATURE, CertEncoding::CRL]);
    assert_eq!((&*unpacked[0].data, &unpacked[1].data), (moon.der(), &crl));
    let unpacked = unpack(&made).unwrap();
    assert_eq!(unpacked[1].data, inter.der());
    // No items, too many, another tag, implicit tags, something behind, cut off.
    let many = tagged(0x30, &tagged(0xa0, moon.der()).repeat(17));
    let other = tagged(0x30, &tagged(0xa2, moon.der()));
    let implicit = tagged(0x30, &tagged(0xa0, &[vec![2, 1, 5], [2, 1, 6].repeat(90)].concat()));
    let trailing = tagged(0x30, &tagged(0xa0, &[moon.der(), &[5, 0]].concat()));
    let behind = [&made[..], &[5, 0]].concat();
    let cut = &made[..made.len() - 1];
    for bad in [&[0x30, 0][..], &many, &other, &implicit, &trailing, &behind, cut, moon.der(), b""]
    {
        let why = unpack(bad).unwrap_err();
        assert!(why.contains("no bundle"), "{why}");
    }
    for at in 0..made.len().min(64) {
        for bit in 0..8 {
            let mut changed = made.clone();
            changed[at] ^= 1 << bit;
            let _ = unpack(&changed);
        }
    }
    assert!(bundle(&[]).is_err());
    assert!(bundle(&vec![moon; 17]).is_err());
}

/// What is sent by a credential with a chain of two.
fn sent(trust: TrustStore, bundled: bool, hash_and_url: bool) -> Vec<OwnedCert> {
    let key: Arc<dyn SigningKey> = files::load_private_key(&fixture("chained.key"), None).unwrap();
    let mut credential = Credential::new(key, shared("chained"), &[shared("inter")]).unwrap();
    if bundled {
        credential = credential.with_bundle().unwrap();
    }
    let scheme = credential.key().schemes()[0].clone();
    let mut answerer = Answerer::new(trust);
    answerer.add_credential("site", "local", credential);
    let request = SignRequest {
        connection: "site".to_owned(),
        round: "local".to_owned(),
        id: id("chained.example.org"),
        requests: vec![CertRequest { encoding: X509, authorities: Vec::new() }],
        hash_and_url,
        schemes: vec![AcceptedScheme { scheme, authorities: Vec::new() }],
        announced: false,
        octets: Vec::new(),
    };
    match answerer.answer(&Question::Sign(request), now()) {
        Answer::Signed(signed) => signed.certs,
        other => panic!("{other:?}"),
    }
}

fn publishing(cas: &[(&str, &str)]) -> TrustStore {
    let mut trust = trusting(&["root"]);
    for (ca, base) in cas {
        let authority = Authority {
            ca: shared(ca),
            crl_uris: Vec::new(),
            ocsp_uris: Vec::new(),
            cert_uri_base: Some((*base).to_owned()),
        };
        trust.revocation.add_authority(authority).unwrap();
    }
    trust
}

#[test]
fn what_is_sent_depends_on_the_issuer_and_on_the_peer() {
    let both = || publishing(&[("root", "http://root/"), ("inter", "http://inter/?h=")]);
    let [own, inter] = [certificate("chained"), certificate("inter")];
    let hex = |octets: &[u8]| sha1(octets).map(|octet| format!("{octet:02x}")).concat();
    let url = |base: &str, octets: &[u8]| format!("{base}{}", hex(octets));
    let plain =
        |octets: &[u8]| OwnedCert { encoding: CertEncoding::X509_SIGNATURE, data: octets.to_vec() };
    let own_url = payload(X509, own.der(), &url("http://inter/?h=", own.der()));
    let inter_url = payload(X509, inter.der(), &url("http://root/", inter.der()));
    assert_eq!(sent(both(), false, true), [own_url.clone(), inter_url]);
    assert_eq!(sent(both(), false, false), [plain(own.der()), plain(inter.der())]);
    let one = publishing(&[("inter", "http://inter/?h=")]);
    assert_eq!(sent(one, false, true), [own_url, plain(inter.der())]);
    // What is sent is read again.
    for cert in sent(both(), false, true) {
        HashAndUrl::read(&cert).unwrap();
    }
    let chain = bundle(&[shared("chained"), shared("inter")]).unwrap();
    let whole = payload(BUNDLE, &chain, &url("http://inter/?h=", &chain));
    assert_eq!(sent(both(), true, true), [whole]);
    assert_eq!(sent(both(), true, false), [plain(own.der()), plain(inter.der())]);
    assert_eq!(sent(trusting(&["root"]), true, true), [plain(own.der()), plain(inter.der())]);
    let root = publishing(&[("root", "http://root/")]);
    assert_eq!(sent(root, true, true).len(), 2, "no base for the own certificate, no bundle");
}

#[test]
fn a_base_leaves_room_for_the_hash() {
    assert!(Authority::is_uri_base("http://a/"));
    assert!(Authority::is_uri_base(&format!("http://a/{}", "b".repeat(463))));
    assert!(!Authority::is_uri_base(&format!("http://a/{}", "b".repeat(464))));
    for bad in ["", "https://a/", "ftp://a/", "http://a b/", "a/"] {
        assert!(!Authority::is_uri_base(bad), "{bad}");
    }
}
