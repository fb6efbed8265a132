//! A ticket of a peer whose certificate has been revoked since is void (RFC 5723 §6.2).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ike_proto::config::{AuthConfig, PreSharedKey};
use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::registry::NotifyType;
use ike_tests::credentials::{Authority, credential, key};
use ike_tests::setup::identity;
use pki::{Credential, PeerPolicy, RawKey};
use pq_kem::sign::KeyType;

use super::attacks::{presented, said, ticket_of, with_ticket};
use super::by_hand::prf_plus;
use super::*;

const KEY: KeyType = KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);

fn root() -> Authority {
    Authority::root("root", KEY, 101)
}

/// A CA below the root that no end has in a file.
fn middle() -> Authority {
    root().intermediate("middle", KEY, 30)
}

/// As [`setup`], with certificates of the root. That of A has the serial number 1.
fn certified(seed: u64) -> Setup {
    let mut setup = setup(seed);
    setup.a.show(credential(&root(), KEY, 1));
    setup.a.want("pubkey", &root());
    setup.b.show(credential(&root(), KEY, 2));
    setup.b.want("pubkey", &root());
    setup
}

/// The same with a certificate of A by [`middle`], which A sends.
fn below_middle(seed: u64) -> Setup {
    let mut whole = certified(seed);
    let own = key(KEY, 1);
    let certificate = middle().issue(&*own, &identity(1), 1, |_| {});
    let chain = [Arc::clone(&middle().certificate)];
    let credential = Credential::new(own, certificate, &chain).unwrap();
    let mut side = setup(seed).a;
    side.show(credential);
    side.want("pubkey", &root());
    whole.a = side;
    whole
}

/// `host` gets a list.
fn take(pair: &mut Pair, host: usize, list: &[u8]) {
    pair.hosts[host].answerer.trust_mut().revocation.add_crl(list).unwrap();
}

/// A begins anew, and is refused. Returns why, as B's log has it.
#[track_caller]
fn refused(pair: &mut Pair, host: usize) -> Vec<String> {
    let before = pair.hosts[host].ikes_in(IkeState::Established).len();
    let request = initiate_to(pair, host);
    pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
    assert!(matches!(pair.a().done(request), Some(Err(_))), "{}", pair.story());
    assert!(pair.hosts[host].ikes_in(IkeState::Established).len() <= before);
    let mut why = pair.hosts[host].events(|event| match event {
        Event::PeerRefused(refused) => Some(refused.why.to_string()),
        _ => None,
    });
    // It may try again by a child that it wants.
    why.dedup();
    why
}

/// A is revoked while its IKE SA is lost. Its ticket does not bring it back, nor does the full handshake.
///
/// Fault: in `Answerer::resume`, answer `Resumable` always; then the ticket brings it back.
#[test]
fn a_peer_revoked_after_its_ticket_was_given_is_refused_by_ticket_and_in_full() {
    let mut pair = certified(1).build();
    pair.establish();
    lose(&mut pair);
    let from = pair.net.trace.len();
    take(&mut pair, B, &root().revocation_list(&[1]));
    let why = refused(&mut pair, B);
    assert!(why[0].starts_with("its ticket is void: certificate with serial number 01"), "{why:?}");
    assert!(why[0].contains("the revocation list of \"CN=root\""), "{why:?}");
    assert!(why[1].contains("has been revoked"), "{why:?}");
    assert!(sent(&pair, from, ExchangeType::IKE_SESSION_RESUME, false) > 0);
    assert!(sent(&pair, from, ExchangeType::IKE_SA_INIT, false) > 0);
}

/// The CA of A is removed while A's IKE SA is lost. A ticket does not bring A back.
///
/// Fault: in `Answerer::resume`, do not ask `TrustNow`.
#[test]
fn a_ticket_ends_with_the_trust_anchor_of_its_peer() {
    let mut pair = certified(1).build();
    pair.establish();
    lose(&mut pair);
    let mut other = setup(1).b;
    other.show(credential(&root(), KEY, 2));
    other.want("pubkey", &Authority::root("other", KEY, 104));
    pair.hosts[B].answerer = other.answerer;
    let why = refused(&mut pair, B);
    assert_eq!(why[0], "its ticket is void: the trust anchor of its peer was removed");
}

/// The key of A is taken out of `pubkeys`, or replaced, while A's IKE SA is lost: a ticket does not bring A back. As long as
/// the key is there, it does.
///
/// Fault: in `Answerer::resume`, do not ask `TrustNow`.
#[test]
fn a_ticket_ends_with_the_key_of_its_peer_in_pubkeys() {
    let only = |n: u8| RawKey { id: identity(1), spki: key(KEY, n).public_key().to_vec() };
    for (pubkeys, why) in [
        (vec![only(7), only(1)], None),
        (vec![only(7)], Some("the trust anchor or the key of its peer was replaced")),
        (Vec::new(), Some("the key of its peer was removed from `certs` or `pubkeys`")),
    ] {
        let mut setup = setup(1);
        for (side, own, peer) in [(&mut setup.a, 1, 2), (&mut setup.b, 2, 1)] {
            side.show_in("local", AuthConfig::pubkey(), Credential::raw(key(KEY, own)));
            let known = RawKey { id: identity(peer), spki: key(KEY, peer).public_key().to_vec() };
            let policy = PeerPolicy { pubkeys: vec![known], ..PeerPolicy::default() };
            side.answerer.set_policy("ab", "remote", policy);
            side.connection.remote[0].auth = AuthConfig::pubkey();
            side.connection.remote[0].certreqs = side.answerer.certreqs("ab", "remote");
        }
        let mut pair = setup.build();
        pair.establish();
        lose(&mut pair);
        let policy = PeerPolicy { pubkeys, ..PeerPolicy::default() };
        pair.hosts[B].answerer.set_policy("ab", "remote", policy);
        match why {
            None => assert!(again(&mut pair), "{}", pair.story()),
            Some(why) => assert_eq!(refused(&mut pair, B)[0], format!("its ticket is void: {why}")),
        }
    }
}

/// The pre-shared key is replaced between IKE_SESSION_RESUME and IKE_AUTH: the ticket does not bring A back.
///
/// Fault: in `ExpectAuthRequest::go_on`, do not ask `still_takes`.
#[test]
fn a_ticket_ends_with_the_pre_shared_key_also_between_the_two_exchanges() {
    for replaced in [false, true] {
        let mut pair = setup(1).build();
        pair.establish();
        lose(&mut pair);
        let request = pair.initiate(A, Some("net"));
        pair.run_until(LONG, |w| w.hosts[B].ikes().len() == 2);
        let mut config = pair.b().endpoint.config().clone();
        if replaced {
            let (ids, secret) = (vec![identity(1), identity(2)], Secret::copy_from(b"another one"));
            config.secrets = vec![Arc::new(PreSharedKey { ids, secret })];
        }
        pair.reload(B, config);
        pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
        // The client may try the ticket once more.
        let said = complaints(&pair, B);
        let why = replaced.then_some("a secret has changed");
        assert_eq!(said.first().map(String::as_str), why, "{}", pair.story());
        let up = pair.b().ikes_in(IkeState::Established);
        assert_eq!(up.iter().any(|ike| ike.resumed), !replaced, "{}", pair.story());
    }
}

/// Without a list, and with lists that say nothing about A, its ticket is as good as ever.
///
/// Fault: in `Answerer::judge_record`, ask `any_list` first.
#[test]
fn lists_that_do_not_name_the_peer_leave_its_ticket_good() {
    // A CA of the root's name that is another one, as after an accident.
    let namesake = Authority::root("root", KEY, 103);
    let lists = [
        None,
        Some(root().revocation_list(&[9])),
        Some(middle().revocation_list(&[1])),
        Some(namesake.revocation_list(&[1])),
    ];
    for list in lists {
        let mut pair = certified(2).build();
        pair.establish();
        lose(&mut pair);
        if let Some(list) = &list {
            take(&mut pair, B, list);
        }
        assert!(again(&mut pair));
        let asked = pair.b().asked.iter().filter(|asked| **asked == "resume").count();
        assert_eq!(asked, 1);
        pair.assert_agreement();
        // The SA that was resumed has a ticket with the same path.
        take(&mut pair, B, &root().revocation_list(&[1]));
        lose(&mut pair);
        assert!(refused(&mut pair, B)[0].starts_with("its ticket is void"));
    }
}

/// Another gateway, or one that has crashed, has never seen A's certificate: neither the one below the root, which it
/// knows, nor the one below a CA that A alone sends.
///
/// Fault: in `Answerer::resume`, let a path of an unknown issuer stand.
#[test]
fn a_gateway_that_has_never_seen_the_peer_knows_its_ticket_as_void() {
    for (below, ca, serial) in
        [(false, root(), 1), (true, middle(), 1), (true, root(), middle_serial())]
    {
        for revoked in [false, true] {
            let setup = if below { below_middle(3) } else { certified(3) };
            let mut pair = three(setup, |other| {
                other.show(credential(&root(), KEY, 2));
                other.want("pubkey", &root());
            });
            pair.establish();
            lose(&mut pair);
            take(&mut pair, C, &ca.revocation_list(&[if revoked { serial } else { 99 }]));
            if revoked {
                let why = refused(&mut pair, C);
                assert!(why[0].starts_with("its ticket is void"), "{why:?}");
                assert!(why[1].contains("has been revoked"), "{why:?}");
                continue;
            }
            let request = initiate_to(&mut pair, C);
            pair.run_for(5 * SECOND);
            assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
            assert!(pair.hosts[C].ike().resumed);
        }
    }
}

/// The serial number of the certificate of [`middle`].
fn middle_serial() -> u8 {
    *middle().certificate.serial().last().unwrap()
}

/// A ticket of an older daemon, sealed by a key that both have, has another format. A begins in full, and is up.
///
/// Fault: in `unseal`, do not compare the version.
#[test]
fn a_ticket_of_another_format_is_void_and_no_error() {
    let mut pair = certified(4).build();
    let request = presented(&mut pair);
    let older = with_ticket(&request, |ticket| {
        let (front, sealed) = ticket.split_at(33);
        let keys = prf_plus(&[1; 32], &[b"IKEv2 ticket", &front[9..]].concat(), 36);
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &keys[..32]).unwrap());
        let nonce = || {
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&keys[32..]);
            Nonce::assume_unique_for_key(nonce)
        };
        let (mut front, mut content) = (front.to_vec(), sealed.to_vec());
        let length = key.open_in_place(nonce(), Aad::from(&front), &mut content).unwrap().len();
        content.truncate(length);
        front[0] = 2;
        key.seal_in_place_append_tag(nonce(), Aad::from(&front), &mut content).unwrap();
        *ticket = [front, content].concat();
    });
    assert_eq!(said(&mut pair, older), [NotifyType::TICKET_NACK]);
    assert_eq!(complaints(&pair, B), ["not sealed by a key of this gateway"]);
}

/// The octets of a ticket, with a certificate by the root and with one below another CA, whose name has two letters
/// more. Each certificate adds 21 octets and its serial number, and the path adds twelve: docs/resumption.md has these
/// figures.
///
/// Fault: in `TrustedPeer::shown`, record the anchor as well.
#[test]
fn a_path_adds_few_octets_to_a_ticket() {
    let length = |setup: Setup| {
        let mut pair = setup.build();
        ticket_of(&presented(&mut pair)).len()
    };
    // The schemes of both ends by their AlgorithmIdentifiers, of 12 octets each.
    let fixed = 247 + 2 * 12;
    assert_eq!(
        (length(certified(5)), length(below_middle(5))),
        (fixed + 12 + 22, fixed + 2 + 12 + 22 + 22)
    );
}
