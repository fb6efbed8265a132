//! What a client has tickets for ends with what it authenticated by (RFC 5723 §6.2, §9.7).

use ike_proto::config::{DowngradePrevention, EndpointConfig, PreSharedKey};
use ike_proto::wire::payload::IdData;
use ike_proto::{Command, Failure};
use ike_tests::setup::identity;

use super::*;

/// A loses its IKE SA and takes another configuration before or after that. True if it presents the ticket.
#[track_caller]
fn presents_after(lost: bool, change: impl Fn(&mut EndpointConfig)) -> bool {
    let mut pair = setup(1).build();
    pair.establish();
    let mut config = pair.a().endpoint.config().clone();
    change(&mut config);
    let back = setup(1).a.config();
    if lost {
        lose(&mut pair);
    }
    pair.reload(A, config);
    if !lost {
        lose(&mut pair);
    }
    // So that it is up again in any case. What was changed is not believed to be as before.
    if back.secrets.len() != pair.a().endpoint.config().secrets.len() {
        pair.reload(A, back);
    }
    again(&mut pair);
    sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false) > 0
}

fn connection(config: &mut EndpointConfig) -> &mut ike_proto::config::ConnectionConfig {
    Arc::make_mut(&mut config.connections[0])
}

#[test]
fn a_client_whose_credentials_have_changed_presents_nothing() {
    for lost in [true, false] {
        assert!(presents_after(lost, |_| {}));
        assert!(presents_after(lost, |config| connection(config).dpd_delay = 20 * SECOND));
        assert!(!presents_after(lost, |config| config.secrets.clear()), "the PSK is unloaded");
        let downgrade = |config: &mut EndpointConfig| {
            connection(config).downgrade_prevention = DowngradePrevention::No;
        };
        assert!(!presents_after(lost, downgrade), "in force anew by a full handshake");
        assert!(!presents_after(lost, |config| connection(config).credentials = 1));
    }
}

#[test]
fn a_secret_that_is_another_one() {
    let mut pair = setup(2).build();
    pair.establish();
    lose(&mut pair);
    let ids = vec![identity(1), identity(2)];
    for host in [A, B] {
        let secret = Secret::copy_from(b"another one");
        let mut config = pair.hosts[host].endpoint.config().clone();
        config.secrets = vec![Arc::new(PreSharedKey { ids: ids.clone(), secret })];
        pair.reload(host, config);
    }
    assert!(!again(&mut pair));
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0, "A knows that");
}

#[test]
fn tickets_are_forgotten_when_that_is_asked_for() {
    let mut pair = setup(3).build();
    pair.establish();
    let forget = |pair: &mut Pair| {
        let request = pair.command(A, Command::ForgetTickets("ab".to_owned()));
        pair.a().done(request)
    };
    assert_eq!(forget(&mut pair), Some(Err(Failure::NotFound)), "its IKE SA is there");
    lose(&mut pair);
    let other = pair.command(A, Command::ForgetTickets("b".to_owned()));
    assert_eq!(pair.a().done(other), Some(Err(Failure::NotFound)));
    assert_eq!(forget(&mut pair), Some(Ok(())));
    assert!(!again(&mut pair));
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0);
}

/// The gateway has turned it off, perhaps because it had to.
#[test]
fn downgrade_prevention_that_is_off_now() {
    let mut pair = setup(4).build();
    pair.establish();
    lose(&mut pair);
    let mut config = pair.b().endpoint.config().clone();
    connection(&mut config).downgrade_prevention = DowngradePrevention::No;
    pair.reload(B, config);
    assert!(!again(&mut pair));
    assert_eq!(complaints(&pair, B), ["downgrade prevention is off"]);
}

/// IDr is what the ticket has, octet by octet, however the client spells it (RFC 5723 §4.3.3).
#[test]
fn a_name_that_is_spelt_otherwise() {
    let mut setup = setup(5);
    let capitals = IdData::fqdn("B.Example");
    setup.a.connection.set_remote_id(ike_proto::config::IdMatch::Exact(capitals));
    let mut pair = setup.build();
    pair.establish();
    lose(&mut pair);
    assert!(again(&mut pair));
    pair.assert_agreement();
}

/// A ticket that is void stays so for as long as it could have been good, whatever the lifetime is by now.
#[test]
fn void_for_its_whole_life() {
    let mut pair = setup(6).build();
    pair.establish();
    let mut config = pair.b().endpoint.config().clone();
    config.resumption.lifetime = 5 * SECOND;
    pair.reload(B, config);
    // B deletes it, and A does not hear of that: its Delete is lost, and the rest of what B says.
    let cut = switch(&mut pair);
    cut.store(true, Ordering::Relaxed);
    let ike = pair.ike_id(B);
    pair.command(B, Command::ForgetIke(ike));
    pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
    cut.store(false, Ordering::Relaxed);
    // So that what is over is forgotten.
    pair.run_for(MINUTE);
    let more = pair.initiate(B, Some("net"));
    pair.run_for(5 * SECOND);
    assert_eq!(pair.b().done(more), Some(Ok(())), "{}", pair.story());
    let ike = pair.ike_id(B);
    pair.command(B, Command::TerminateIke(ike));
    pair.run_for(5 * SECOND);
    assert!(!again(&mut pair), "{}", pair.story());
    assert_eq!(complaints(&pair, B), ["its IKE SA was resumed, rekeyed or deleted"]);
}
