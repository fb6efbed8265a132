//! Address blocks in certificates (RFC 3779): traffic selectors stay within them, whoever begins.

use std::sync::Arc;

use ike_proto::wire::der::{self, BIT_STRING, OCTET_STRING, SEQUENCE};
use ike_tests::credentials::{Authority, key};
use ike_tests::setup::identity;
use ike_tests::{A, Setup, Side};
use pki::issue::OtherExtension;
use pki::{Answerer, Credential, PeerPolicy, TrustStore};

use super::{ec, signing};

/// ipAddrBlocks with one prefix of IPv4.
fn block(prefix: &[u8]) -> OtherExtension {
    let (mut bits, mut list, mut family) = (Vec::new(), Vec::new(), Vec::new());
    der::push(&mut bits, BIT_STRING, &[&[0], prefix]);
    der::push(&mut list, SEQUENCE, &[&bits]);
    der::push(&mut family, OCTET_STRING, &[&[0, 1]]);
    let (mut entry, mut value) = (Vec::new(), Vec::new());
    der::push(&mut entry, SEQUENCE, &[&family, &list]);
    der::push(&mut value, SEQUENCE, &[&entry]);
    OtherExtension { oid: "1.3.6.1.5.5.7.1.7".to_owned(), critical: true, value }
}

/// Host `host` shows a certificate with this block, which the other end has pinned.
fn limited(host: u8, prefix: &[u8]) -> Setup {
    let mut setup = signing(1, ec(), ec());
    let key = key(ec(), host);
    let root = Authority::root("apart", ec(), 9);
    let certificate =
        root.issue(&*key, &identity(host), 1, |template| template.others = vec![block(prefix)]);
    let policy = PeerPolicy { certs: vec![Arc::clone(&certificate)], ..PeerPolicy::default() };
    let credential = Credential::new(key, certificate, &[]).unwrap();
    let (shows, judges) = match host {
        1 => (&mut setup.a, &mut setup.b),
        _ => (&mut setup.b, &mut setup.a),
    };
    let renewed = |side: &mut Side| {
        let trust: TrustStore = side.answerer.trust().clone();
        std::mem::replace(&mut side.answerer, Answerer::new(trust))
    };
    renewed(shows);
    shows.answerer.set_policy("ab", "remote", PeerPolicy::default());
    shows.answerer.add_credential("ab", "local", credential);
    judges.answerer.set_policy("ab", "remote", policy);
    setup
}

/// The engine with the limited peer installs no selector beyond the block, as responder and as initiator, in
/// IKE_AUTH and after the IKE SA was rekeyed.
///
/// Fault: in `narrow_to_certified`, give `remote_ts` back as it came.
#[test]
fn selectors_stay_within_the_blocks_of_the_peers_certificate() {
    for (host, prefix, within) in [(1, [10, 1, 5], "10.1.5.0/24"), (2, [10, 2, 7], "10.2.7.0/24")] {
        let mut pair = limited(host, &prefix).build();
        pair.establish();
        let judge =
            |pair: &ike_tests::Pair| if host == 1 { pair.b().ike() } else { pair.a().ike() };
        let texts = |pair: &ike_tests::Pair| -> Vec<String> {
            let children = judge(pair).children;
            children.iter().flat_map(|child| &child.remote_ts).map(ToString::to_string).collect()
        };
        assert_eq!(texts(&pair), [within], "host {host}: {}", pair.story());
        assert!(judge(&pair).remote_auth[0].addresses.is_some());
    }
}

/// Fault: as above.
#[test]
fn a_peer_without_a_right_to_any_of_its_selectors_gets_no_child() {
    for host in [1, 2] {
        let mut pair = limited(host, &[10, 9]).build();
        pair.initiate(A, Some("net"));
        pair.run_for(std::time::Duration::from_secs(20));
        for end in [pair.a(), pair.b()] {
            assert!(end.ikes().iter().all(|ike| ike.children.is_empty()), "{}", pair.story());
        }
    }
}
