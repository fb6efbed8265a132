//! `dscp`: of everything that a connection sends, and of the answers before there is one.

use std::collections::BTreeSet;
use std::time::Duration;

use ike_proto::config::AddressSpec;
use ike_tests::setup::address;
use ike_tests::{A, B, Setup};

fn only(dscp: u8) -> BTreeSet<u8> {
    BTreeSet::from([dscp])
}

#[test]
fn all_packets_of_a_connection_have_it() {
    let mut setup = Setup::new(1);
    (setup.a.connection.dscp, setup.b.connection.dscp) = (46, 10);
    setup.both(|side| side.connection.dpd_delay = Duration::from_secs(5));
    // Cookies and retransmissions, too.
    setup.b.settings.cookie_threshold = 1;
    setup.b.settings.cookie_threshold_ip = 1;
    setup.conditions.loss = 100;
    let mut pair = setup.build();
    pair.establish();
    pair.rekey_child(A);
    pair.run_for(Duration::from_secs(60));
    pair.rekey_child(B);
    pair.run_for(Duration::from_secs(60));
    assert_eq!((&pair.a().codepoints, &pair.b().codepoints), (&only(46), &only(10)));
}

/// Who answers before he knows whose connection it is goes by addresses, the most exact first.
#[test]
fn answers_before_a_connection_is_chosen_go_by_addresses() {
    for (exact, other, expected) in [(10, 0, only(10)), (0, 10, only(0))] {
        let mut setup = Setup::new(2);
        setup.b.connection.dscp = exact;
        // Nothing that fits: an answer, and no SA.
        setup.a.ike_proposals(&["aes128-sha256-modp2048"]);
        setup.b.ike_proposals(&["aes256gcm16-prfsha384-x25519"]);
        let mut anybody = setup.b.connection.clone();
        (anybody.name, anybody.dscp) = ("anybody".to_owned(), other);
        anybody.remote_addrs = vec![AddressSpec::Any(None)];
        setup.b.more.push(anybody);
        setup.b.connection.remote_addrs = vec![AddressSpec::single(address(1))];
        let mut pair = setup.build();
        pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(60));
        assert_eq!((&pair.a().codepoints, &pair.b().codepoints), (&only(0), &expected));
    }
}
