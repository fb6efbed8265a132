//! `sha256_96`: what is negotiated with 128 bits is used with 96.

use std::time::Duration;

use ike_proto::wire::registry::IntegId;
use ike_tests::{A, B, Pair, Setup};

fn used(pair: &Pair, end: usize) -> Vec<IntegId> {
    let plane = &pair.hosts[end].plane;
    plane.table().sas().map(|(_, sa)| sa.suite.integ).collect()
}

#[test]
fn both_directions_have_it_and_rekeys_too() {
    for (proposal, agreed, wanted) in [
        ("aes256-sha256", IntegId::HMAC_SHA2_256_128, IntegId::HMAC_SHA2_256_96),
        ("aes256-sha512", IntegId::HMAC_SHA2_512_256, IntegId::HMAC_SHA2_512_256),
        ("aes256gcm16", IntegId::NONE, IntegId::NONE),
    ] {
        let mut setup = Setup::new(1);
        setup.both(|side| {
            side.esp_proposals(&[proposal]);
            side.net().sha256_96 = true;
        });
        let mut pair = setup.build();
        pair.establish();
        assert_eq!((used(&pair, A), used(&pair, B)), (vec![wanted; 2], vec![wanted; 2]));
        for end in [A, B] {
            let request = pair.rekey_child(end);
            pair.run_for(Duration::from_secs(20));
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
            pair.assert_agreement();
            assert_eq!((used(&pair, A), used(&pair, B)), (vec![wanted; 2], vec![wanted; 2]));
        }
        // What is shown is what was agreed on.
        assert_eq!(pair.a().child().algorithms.suite.integ, agreed);
    }
}

#[test]
fn the_peer_hears_nothing_of_it() {
    let mut setup = Setup::new(2);
    setup.both(|side| side.esp_proposals(&["aes256-sha256"]));
    setup.a.net().sha256_96 = true;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.hosts[A].done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(used(&pair, A), [IntegId::HMAC_SHA2_256_96; 2]);
    assert_eq!(used(&pair, B), [IntegId::HMAC_SHA2_256_128; 2]);
}
