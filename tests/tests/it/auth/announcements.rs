//! SIGNATURE_HASH_ALGORITHMS (RFC 7427), SUPPORTED_AUTH_METHODS (RFC 9593) and CERTREQ.

use ike_proto::Failure;
use ike_proto::config::{AuthConfig, SendCert};
use ike_proto::crypto::SignatureScheme::{self, *};
use ike_proto::wire::registry::{ExchangeType, HashId, NotifyType};
use ike_proto::wire::{Message, Payload};
use ike_tests::Setup;
use ike_tests::credentials::{Authority, credential, key_type};

use super::{comes_up, ec, refused, root, signing, told};

/// The hashes that the first message of `setup`'s run announces.
fn announced(setup: Setup) -> Vec<HashId> {
    let mut pair = setup.build();
    pair.initiate(0, Some("net"));
    pair.settle();
    let message = Message::decode(&pair.net.trace[0].octets).unwrap();
    let data = message.payloads.iter().find_map(|payload| match payload {
        Payload::Notify(n) if n.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS => Some(n.data),
        _ => None,
    });
    let (ids, rest) = data.unwrap_or_default().as_chunks();
    assert!(rest.is_empty());
    ids.iter().map(|id| HashId(u16::from_be_bytes(*id))).collect()
}

#[test]
fn what_is_announced_is_what_auth_takes() {
    let all = announced(signing(1, ec(), ec()));
    for hash in [HashId::SHA2_256, HashId::SHA2_384, HashId::SHA2_512, HashId::IDENTITY] {
        assert!(all.contains(&hash));
    }
    assert!(!all.contains(&HashId::SHA1), "RFC 8247 §3.2");
    let mut setup = signing(1, ec(), ec());
    setup.a.want("ike:pubkey-sha384", &root());
    assert_eq!(announced(setup), [HashId::SHA2_384]);
    let mut setup = signing(1, ec(), ec());
    setup.a.want("ike:mldsa", &root());
    assert_eq!(announced(setup), [HashId::IDENTITY]);
    assert_eq!(announced(Setup::new(1)), []);
}

/// RFC 7427 §4: a hash that was not announced is not used, and refused if it is.
#[test]
fn a_key_whose_hash_the_peer_does_not_announce_does_not_sign() {
    for (auth, own) in [("ike:pubkey-sha512", ec()), ("ike:ecdsa", key_type(MlDsa65))] {
        for initiator in [true, false] {
            let mut setup = signing(2, ec(), ec());
            let (prover, judge, host) = match initiator {
                true => (&mut setup.a, &mut setup.b, 1),
                false => (&mut setup.b, &mut setup.a, 2),
            };
            prover.answerer = pki::Answerer::default();
            prover.show(credential(&root(), own.clone(), host));
            prover.want("pubkey", &root());
            judge.want(auth, &root());
            let (at_a, at_b) = refused(&mut setup.build());
            if initiator {
                assert!(matches!(at_a, Failure::Credentials(_)), "{at_a}");
            } else {
                assert_eq!(at_a, told());
                assert!(matches!(at_b[0], Failure::Credentials(_)), "{}", at_b[0]);
            }
        }
    }
}

/// A signer that does not care what was announced.
#[test]
fn a_scheme_below_what_auth_asks_for_is_refused() {
    for (auth, own) in [
        ("ike:mldsa87", MlDsa44),
        ("ike:mldsa-slhdsa", EcdsaP256Sha256),
        ("ike:ecdsa-384", EcdsaP256Sha256),
        ("ike:rsa-3072", RsaPssSha256),
        ("ike:ed25519", MlDsa87),
    ] {
        for initiator in [true, false] {
            let mut setup = signing(3, key_type(own.clone()), key_type(own.clone()));
            let (prover, judge) = match initiator {
                true => (&mut setup.a, &mut setup.b),
                false => (&mut setup.b, &mut setup.a),
            };
            judge.want(auth, &root());
            // The judge's announcements say that everything is welcome.
            let mut lenient = judge.connection.clone();
            lenient.name = "lenient".to_owned();
            lenient.set_remote_id(ike_proto::config::IdMatch::Exact(ike_tests::setup::identity(9)));
            lenient.remote[0].auth = AuthConfig::pubkey();
            judge.more.push(lenient);
            let _ = prover;
            let (at_a, at_b) = refused(&mut setup.build());
            match initiator {
                true => assert!(matches!(at_a, Failure::Peer(_)), "{auth}: {at_a}"),
                // The length of a key is not announced.
                false if auth == "ike:rsa-3072" => assert_eq!(at_b[0], told()),
                // As initiator the judge announces for the one connection it uses.
                false => assert!(matches!(at_b[0], Failure::Credentials(_)), "{auth}: {}", at_b[0]),
            }
        }
    }
}

/// RFC 9593: with several keys the one that the peer announced is used, in both directions.
#[test]
fn announced_methods_choose_among_several_keys() {
    let schemes: [SignatureScheme; 4] = [Ed25519, EcdsaP256Sha256, MlDsa65, RsaPssSha256];
    for wanted in &schemes {
        let mut setup = Setup::new(4);
        for (n, side) in [(1, &mut setup.a), (2, &mut setup.b)] {
            for scheme in &schemes {
                side.show(credential(&root(), key_type(scheme.clone()), n));
            }
            let auth = match wanted {
                Ed25519 => "ike:ed25519",
                EcdsaP256Sha256 => "ike:ecdsa-256-sha256",
                MlDsa65 => "ike:mldsa65",
                _ => "ike:rsa/pss-sha256",
            };
            side.want(auth, &root());
        }
        let pair = comes_up(setup);
        for host in &pair.hosts {
            assert_eq!(host.ike().local_auth[0].scheme, Some(wanted.clone()));
        }
    }
}

/// The responder's CERTREQ chooses the initiator's certificate, the initiator's the responder's.
#[test]
fn certificate_requests_choose_among_several_certificates() {
    let (first, second) = (root(), Authority::root("second", ec(), 8));
    for (ca, expected) in [(&first, Ed25519), (&second, MlDsa44)] {
        let mut setup = Setup::new(5);
        for (n, side) in [(1, &mut setup.a), (2, &mut setup.b)] {
            side.show(credential(&first, key_type(Ed25519), n));
            side.show(credential(&second, key_type(MlDsa44), n));
            side.want("pubkey", ca);
        }
        let pair = comes_up(setup);
        for host in &pair.hosts {
            assert_eq!(host.ike().local_auth[0].scheme, Some(expected.clone()));
        }
    }
}

#[test]
fn certificates_are_sent_as_send_cert_says() {
    for (send, asks, works) in [
        (SendCert::Always, false, true),
        (SendCert::IfAsked, true, true),
        (SendCert::IfAsked, false, false),
        (SendCert::Never, true, false),
    ] {
        let mut setup = signing(6, ec(), ec());
        setup.a.connection.send_cert = send;
        if !asks {
            setup.b.connection.remote[0].certreqs = Vec::new();
        }
        if works {
            comes_up(setup);
        } else {
            assert_eq!(refused(&mut setup.build()).0, told());
        }
    }
}

/// A certificate that the judge has anyhow need not be sent (RFC 7296 §3.6).
#[test]
fn a_certificate_that_is_known_need_not_be_sent() {
    let mut setup = signing(7, ec(), ec());
    setup.a.connection.send_cert = SendCert::Never;
    let key = ike_tests::credentials::key(ec(), 1);
    let pin = root().issue(&*key, &ike_tests::setup::identity(1), 1, |_| {});
    let policy = pki::PeerPolicy { certs: vec![pin], ..pki::PeerPolicy::default() };
    setup.b.answerer.set_policy("ab", "remote", policy);
    comes_up(setup);
}

/// RFC 9593 §3.1: a list too long for the IKE_SA_INIT response comes in IKE_INTERMEDIATE, in one that is
/// under way or in one for this alone.
#[test]
fn a_long_list_of_methods_comes_in_ike_intermediate() {
    for (proposals, exchanges) in [
        ("aes256gcm16-prfsha256-x25519", 1),
        ("aes256gcm16-prfsha256-x25519-ke1_ecp256", 1),
        ("aes256gcm16-prfsha256-x25519-ke1_ecp256-ke2_modp2048", 2),
    ] {
        let mut setup = Setup::new(8);
        for scheme in [Ed25519, MlDsa65] {
            setup.a.show(credential(&root(), key_type(scheme), 1));
        }
        setup.a.want("pubkey", &root());
        setup.b.show(credential(&root(), ec(), 2));
        setup.b.want("ike:mldsa65-slhdsa", &root());
        setup.b.settings.fragment_size = Some(400);
        setup.both(|side| side.ike_proposals(&[proposals]));
        let pair = comes_up(setup);
        assert_eq!(pair.b().ike().remote_auth[0].scheme, Some(MlDsa65), "as the list says");
        let intermediate =
            |packet: &&ike_tests::network::Packet| packet.is(ExchangeType::IKE_INTERMEDIATE, false);
        let mut ids: Vec<_> = pair.net.trace.iter().filter(intermediate).collect();
        ids.dedup_by_key(|packet| packet.header().map(|header| header.message_id));
        assert_eq!(ids.len(), exchanges, "{proposals}: {}", pair.story());
    }
}

/// Who does not sign has no use for the list.
#[test]
fn a_secret_needs_no_list_of_methods() {
    let mut setup = Setup::new(9);
    setup.b.show(credential(&root(), ec(), 2));
    setup.a.want("pubkey", &root());
    let mut choosy = setup.b.connection.clone();
    choosy.name = "choosy".to_owned();
    choosy.remote[0].auth = AuthConfig::parse("ike:mldsa65-slhdsa").unwrap();
    setup.b.more.push(choosy);
    setup.b.settings.fragment_size = Some(400);
    let pair = comes_up(setup);
    let any =
        |response| pair.net.trace.iter().any(|p| p.is(ExchangeType::IKE_INTERMEDIATE, response));
    assert!(!any(false) && !any(true));
}
