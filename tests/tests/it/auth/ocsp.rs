//! OCSP in IKE (RFC 4806): who asks, who answers, and what it costs.

use ike_proto::config::SendCert;
use ike_proto::crypto::SignatureScheme::MlDsa87;
use ike_proto::wire::registry::CertEncoding;
use ike_proto::wire::{Message, Payload};
use ike_tests::credentials::{key, key_type};
use ike_tests::setup::identity;
use ike_tests::{A, B, Pair, Setup, Side, World};
use pki::{Credential, PeerPolicy, RevocationPolicy};
use pq_kem::sign::KeyType;

use super::hash_and_url::{auth_octets, documented};
use super::{ec, refused, told};

/// Both ends by certificates of one root, with what it says of each of them.
fn setup(kind: KeyType, revoked: bool) -> Setup {
    let root = ike_tests::credentials::Authority::root("root", kind.clone(), 0);
    let mut setup = Setup::new(1);
    for (side, host) in [(&mut setup.a, 1), (&mut setup.b, 2)] {
        let key = key(kind.clone(), host);
        let own = root.issue(&*key, &identity(host), host, |template| {
            template.ocsp = vec!["http://ocsp.example.org/".to_owned()];
        });
        let response = root.ocsp_response(&own, revoked);
        side.want("pubkey", &root);
        side.show(Credential::new(key, own, &[]).unwrap());
        side.answerer.reply_by_ocsp("ab", true);
        let (fetches, _) = side.answerer.status_ahead(World::dawn());
        let taken = side.answerer.deliver_status(&fetches[0].requests[0], &response, World::dawn());
        assert_eq!(taken, Ok(revoked));
    }
    setup
}

/// `side` has to know that the peer's certificate is good, and asks the peer for that alone.
fn asks(side: &mut Side) {
    let policy =
        PeerPolicy { revocation: RevocationPolicy::Strict, ocsp: true, ..PeerPolicy::default() };
    side.answerer.set_policy("ab", "remote", policy);
    side.connection.remote[0].certreqs = side.answerer.certreqs("ab", "remote");
}

fn signed(pair: &Pair, host: usize) -> Vec<CertEncoding> {
    pair.hosts[host].signed[0].certs.iter().map(|cert| cert.encoding).collect()
}

/// The CERTREQ payloads of the IKE_SA_INIT response.
fn requests(pair: &Pair) -> Vec<(CertEncoding, usize)> {
    let response = &pair.net.trace.iter().find(|packet| packet.from == Some(B)).unwrap().octets;
    let message = Message::decode(response).unwrap();
    let request = |payload: &Payload<'_>| match payload {
        Payload::CertReq(request) => Some((request.encoding, request.authorities.len())),
        _ => None,
    };
    message.payloads.iter().filter_map(request).collect()
}

/// Who asks gets a response, and needs no other source; who does not gets none. RFC 4806 §4.1: the request is a
/// payload of its own.
#[test]
fn each_end_answers_what_the_other_asks() {
    use CertEncoding as C;
    for (a_asks, b_asks) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut setup = setup(ec(), false);
        for (side, _) in [(&mut setup.a, a_asks), (&mut setup.b, b_asks)].iter_mut().filter(|s| s.1)
        {
            asks(side);
        }
        let mut pair = setup.build();
        pair.establish();
        for (host, peer_asks) in [(A, b_asks), (B, a_asks)] {
            let expected: &[C] =
                if peer_asks { &[C::X509_SIGNATURE, C::OCSP] } else { &[C::X509_SIGNATURE] };
            assert_eq!(signed(&pair, host), expected, "{a_asks} {b_asks}");
        }
        let mut wanted = vec![(C::X509_SIGNATURE, 20)];
        wanted.extend(b_asks.then_some((C::OCSP, 0)));
        assert_eq!(requests(&pair), wanted);
    }
}

#[test]
fn bad_news_and_no_news_authenticate_nobody() {
    for host in [1, 2] {
        for revoked in [true, false] {
            let mut setup = setup(ec(), revoked);
            let (asking, other) = match host {
                1 => (&mut setup.b, &mut setup.a),
                _ => (&mut setup.a, &mut setup.b),
            };
            asks(asking);
            if !revoked {
                other.answerer.own_status().clear();
            }
            let mut pair = setup.build();
            let (at_a, at_b) = refused(&mut pair);
            let (here, wire) = if host == 1 { (&at_b[0], Some(&at_a)) } else { (&at_a, None) };
            let why = if revoked { "has been revoked" } else { "not known" };
            assert!(here.to_string().contains(why), "{here}");
            assert!(wire.is_none_or(|wire| *wire == told()), "{wire:?}");
        }
    }
}

/// The response may go without the certificate, which the peer has; and who asks for nothing else has not asked
/// for a certificate.
#[test]
fn a_response_is_no_certificate() {
    for (send_cert, asked_for_certificates) in [(SendCert::Never, true), (SendCert::IfAsked, false)]
    {
        let mut setup = setup(ec(), false);
        let own = setup.b.answerer.credentials("ab", "local")[0].certificate().unwrap().clone();
        setup.b.connection.send_cert = send_cert;
        asks(&mut setup.a);
        let pinned = PeerPolicy {
            revocation: RevocationPolicy::Strict,
            ocsp: true,
            certs: vec![own],
            ..PeerPolicy::default()
        };
        setup.a.answerer.set_policy("ab", "remote", pinned);
        if !asked_for_certificates {
            let requests = &mut setup.a.connection.remote[0].certreqs;
            requests.retain(|request| request.encoding == CertEncoding::OCSP);
        }
        // That it is strict shows that the response came; that the certificate did not, the octets.
        let mut pair = setup.build();
        pair.establish();
        let [_, without] = auth_octets(&pair);
        let mut setup = self::setup(ec(), false);
        asks(&mut setup.a);
        let mut pair = setup.build();
        pair.establish();
        let [_, with] = auth_octets(&pair);
        assert!(without + 250 < with, "{without} {with}");
    }
}

/// The figures of docs/certificates.md: `cargo test -p ike-tests --test it octets_of_ike_auth -- --nocapture`.
///
/// Fault: change a figure of that table by twenty.
#[test]
fn octets_of_ike_auth_with_ocsp_responses() {
    for (name, kind, least) in [("ECDSA P-256", ec(), 200), ("ML-DSA-87", key_type(MlDsa87), 4700)]
    {
        let mut all = Vec::new();
        for on in [false, true] {
            let mut setup = setup(kind.clone(), false);
            if on {
                setup.both(asks);
            }
            let mut pair = setup.build();
            pair.establish();
            let octets = auth_octets(&pair);
            println!("{name}, OCSP {on}: IKE_AUTH request + response, {octets:?} octets");
            all.push(octets);
        }
        for (with, without) in all[1].iter().zip(all[0]) {
            let more = with - without;
            assert!((least..least + 500).contains(&more), "{name}: {more} octets more");
        }
        documented(name, &all);
    }
}
