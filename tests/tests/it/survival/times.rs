//! Times that no clock can hold.

use std::time::Duration;

use ike_proto::config::TcpUse;
use ike_tests::{A, B, Setup};

/// Every time that an embedder can configure is as long as the type allows, in the place of "never": a handshake,
/// rekeys and liveness checks go on, and nothing overflows.
///
/// Fault: in `usable` (endpoint/usable.rs), leave out `bound` for any of the three.
#[test]
fn times_without_end_overflow_nothing() {
    let never = Duration::MAX;
    let mut setup = Setup::new(41);
    setup.both(|side| {
        let settings = &mut side.settings;
        settings.half_open_timeout = never;
        settings.keep_alive = never;
        settings.retry_initiate_interval = never;
        settings.delete_rekeyed_delay = never;
        settings.resumption.lifetime = never;
        settings.retransmission.limit = never;
        let connection = &mut side.connection;
        connection.dpd_delay = never;
        connection.rekey_time = never;
        connection.reauth_time = never;
        connection.over_time = never;
        connection.rand_time = never;
        connection.enable_tcp = TcpUse::Fallback(never);
        let child = side.net();
        child.rekey_time = never;
        child.life_time = never;
        child.rand_time = never;
        child.inactivity = never;
    });
    let mut pair = setup.build();
    pair.establish();
    for end in [A, B] {
        let child = pair.rekey_child(end);
        let ike = pair.rekey_ike(end);
        pair.run_for(Duration::from_secs(30));
        assert_eq!(pair.hosts[end].done(child), Some(Ok(())), "{}", pair.story());
        assert_eq!(pair.hosts[end].done(ike), Some(Ok(())), "{}", pair.story());
    }
    pair.run_for(Duration::from_secs(3600));
    assert_eq!((pair.a().children_up().len(), pair.b().children_up().len()), (1, 1));
}
