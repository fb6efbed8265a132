//! Certificates by hash and URL (RFC 7296 §3.6): who announces it, who sends so, and what it saves.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::crypto::SignatureScheme::MlDsa87;
use ike_proto::wire::registry::{CertEncoding, ExchangeType, NotifyType};
use ike_proto::wire::{Message, Payload};
use ike_tests::credentials::{Authority, key, key_type};
use ike_tests::setup::identity;
use ike_tests::{A, B, Pair, Setup, Side};
use pki::{Authority as CertificateAuthority, Credential};
use pq_kem::sign::KeyType;

use super::{ec, refused, told};

/// Both ends with a chain of two below one root; what the ends could fetch, by end.
fn chains(kind: KeyType) -> (Setup, [Vec<Vec<u8>>; 2]) {
    let root = Authority::root("root", kind.clone(), 0);
    let mut setup = Setup::new(1);
    let mut published = [Vec::new(), Vec::new()];
    let [of_a, of_b] = &mut published;
    for (side, host, published) in [(&mut setup.a, 1, of_a), (&mut setup.b, 2, of_b)] {
        let middle = root.intermediate(&format!("middle {host}"), kind.clone(), host + 2);
        let key = key(kind.clone(), host);
        let own = middle.issue(&*key, &identity(host), host, |_| {});
        let chain = [Arc::clone(&middle.certificate)];
        side.show(Credential::new(key, own, &chain).unwrap());
        publish(side, [&root, &middle]);
        side.want("pubkey", &root);
        let certificates = side_certificates(side);
        published.extend(certificates);
    }
    (setup, published)
}

fn publish(side: &mut Side, cas: [&Authority; 2]) {
    for ca in cas {
        let authority = CertificateAuthority {
            ca: Arc::clone(&ca.certificate),
            crl_uris: Vec::new(),
            ocsp_uris: Vec::new(),
            cert_uri_base: Some("http://ca.example.org/".to_owned()),
        };
        side.answerer.trust_mut().revocation.add_authority(authority).unwrap();
    }
}

/// What the side shows, as files.
fn side_certificates(side: &Side) -> Vec<Vec<u8>> {
    let credential = side.answerer.credentials("ab", "local").first().unwrap();
    credential.chain().iter().map(|certificate| certificate.der().to_vec()).collect()
}

fn built(setup: Setup, [of_a, of_b]: [Vec<Vec<u8>>; 2]) -> Pair {
    let mut pair = setup.build();
    pair.hosts[A].web = of_b;
    pair.hosts[B].web = of_a;
    pair
}

fn encodings(pair: &Pair, host: usize) -> Vec<CertEncoding> {
    pair.hosts[host].signed[0].certs.iter().map(|cert| cert.encoding).collect()
}

/// HTTP_CERT_LOOKUP_SUPPORTED goes with CERTREQ where it is configured, and only who hears it sends no
/// certificates.
#[test]
fn each_end_sends_what_the_other_announces() {
    use CertEncoding as C;
    for (a_accepts, b_accepts) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut setup, published) = chains(ec());
        setup.a.settings.hash_and_url = a_accepts;
        setup.b.settings.hash_and_url = b_accepts;
        let mut pair = built(setup, published);
        // Longer than the first retransmissions: the request is in progress meanwhile.
        pair.hosts[B].answer_delay = Some(Duration::from_secs(12));
        pair.establish();
        for (host, peer_accepts) in [(A, b_accepts), (B, a_accepts)] {
            let one = if peer_accepts { C::HASH_AND_URL_X509 } else { C::X509_SIGNATURE };
            assert_eq!(encodings(&pair, host), [one, one], "{a_accepts} {b_accepts}");
            if peer_accepts {
                let certs = &pair.hosts[host].signed[0].certs;
                assert!(certs.iter().all(|cert| cert.data.len() == 20 + 22 + 40), "{certs:?}");
            }
        }
        let response = &pair.net.trace.iter().find(|packet| packet.from == Some(B)).unwrap().octets;
        let message = Message::decode(response).unwrap();
        let at = |wanted: &dyn Fn(&Payload<'_>) -> bool| message.payloads.iter().position(wanted);
        let lookup = at(&|payload| match payload {
            Payload::Notify(n) => n.kind == NotifyType::HTTP_CERT_LOOKUP_SUPPORTED,
            _ => false,
        });
        let request = at(&|payload| matches!(payload, Payload::CertReq(_))).expect("a CERTREQ");
        // RFC 7296 appendix C.1: [[N(HTTP_CERT_LOOKUP_SUPPORTED),] CERTREQ+,]
        assert_eq!(lookup, b_accepts.then(|| request - 1));
    }
}

/// Without certificates from the peer, there is nothing to look up.
#[test]
fn who_wants_no_certificate_does_not_announce_it() {
    let mut setup = Setup::new(1);
    setup.both(|side| side.settings.hash_and_url = true);
    let mut pair = setup.build();
    pair.establish();
    for packet in pair.net.trace.iter().take(2) {
        let message = Message::decode(&packet.octets).unwrap();
        let lookup = NotifyType::HTTP_CERT_LOOKUP_SUPPORTED;
        let is = |payload: &Payload<'_>| matches!(payload, Payload::Notify(n) if n.kind == lookup);
        assert!(!message.payloads.iter().any(is));
    }
}

#[test]
fn what_is_not_to_be_had_authenticates_nobody() {
    let (mut setup, [_, of_b]) = chains(ec());
    setup.both(|side| side.settings.hash_and_url = true);
    let mut pair = built(setup, [Vec::new(), of_b]);
    let (at_a, at_b) = refused(&mut pair);
    assert_eq!(at_a, told());
    assert!(at_b[0].to_string().contains("not found"), "{}", at_b[0]);
}

/// Octets of the messages of IKE_AUTH, each way.
pub(super) fn auth_octets(pair: &Pair) -> [usize; 2] {
    let octets = |host| {
        let sent = pair.net.trace.iter().filter(|packet| packet.from == host);
        let auth = sent.filter(|packet| {
            ike_proto::wire::Header::decode(&packet.octets)
                .is_ok_and(|header| header.exchange == ExchangeType::IKE_AUTH)
        });
        auth.map(|packet| packet.octets.len()).sum()
    };
    [octets(Some(A)), octets(Some(B))]
}

/// Compares octets of IKE_AUTH, request and response of each run, with the row of docs/certificates.md that begins with
/// `name`. ECDSA signatures differ by some octets from run to run.
#[track_caller]
pub(super) fn documented(name: &str, runs: &[[usize; 2]]) {
    let document = include_str!("../../../../docs/certificates.md");
    let row = document.lines().find_map(|line| line.strip_prefix(&format!("| {name} | ")));
    let cells = row.expect("a row").trim_end_matches(" |").split(" | ");
    for (cell, octets) in cells.zip(runs) {
        let written = cell.split(" + ").map(|number| number.replace(',', "").parse::<usize>());
        for (written, octets) in written.zip(octets) {
            let written = written.expect("a number");
            assert!(written.abs_diff(*octets) <= 9, "{name}: {written}, now {octets} octets");
        }
        assert_eq!(cell.split(" + ").count(), 2, "{name}: {cell}");
    }
}

/// The figures of docs/certificates.md: `cargo test -p ike-tests --test it octets_of_ike_auth -- --nocapture`.
///
/// Fault: change a figure of that table by twenty.
#[test]
fn octets_of_ike_auth_with_ml_dsa_87() {
    let mut all = Vec::new();
    for on in [false, true] {
        let (mut setup, published) = chains(key_type(MlDsa87));
        setup.both(|side| side.settings.hash_and_url = on);
        let mut pair = built(setup, published);
        pair.establish();
        let octets = auth_octets(&pair);
        println!("hash and URL {on}: IKE_AUTH request + response, {octets:?} octets");
        all.push(octets);
    }
    documented("certificates", &all[..1]);
    documented("hash and URL", &all[1..]);
    let [with, without] = [all[0], all[1]];
    // Two certificates of 7,200 to 7,500 octets; what is left is the signature of 4,627 octets.
    assert!(with.iter().all(|octets| *octets > 19_000), "{with:?}");
    assert!(without.iter().all(|octets| *octets < 6_000), "{without:?}");
}
