//! Reloads in the middle of IKE_AUTH: what an IKE SA is compared with later is what has authenticated its peer.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::SecretsNow;
use ike_proto::config::{
    EndpointConfig, PostQuantumKey, PpkExchange, PpkId, PpkMatch, PreSharedKey,
};
use ike_proto::crypto::Secret;
use ike_tests::credentials::credential;
use ike_tests::setup::identity;
use ike_tests::{A, B, Setup};

use super::{ec, root, signing};

const SECOND: Duration = Duration::from_secs(1);

/// How A and B compare with the configuration in force if both have been `changed` while B thinks about the question
/// `asked` in IKE_AUTH.
#[track_caller]
fn compared(setup: Setup, asked: &str, changed: impl Fn(&mut EndpointConfig)) -> [SecretsNow; 2] {
    let mut pair = setup.build();
    pair.hosts[B].answer_delay = Some(5 * SECOND);
    pair.initiate(A, Some("net"));
    pair.run_until(60 * SECOND, |w| w.hosts[B].asked.contains(&asked));
    for host in [A, B] {
        let mut config = pair.hosts[host].endpoint.config().clone();
        changed(&mut config);
        pair.reload(host, config);
    }
    pair.run_for(30 * SECOND);
    [pair.a().ike().secrets, pair.b().ike().secrets]
}

/// A's pre-shared key has been verified at B, which has still to sign, when both get another one for the same identities.
///
/// Fault: in `Stem::establish`, take the number of all keys from the configuration, as it was done before.
#[test]
fn a_pre_shared_key_that_was_replaced_in_ike_auth_has_authenticated_the_peer() {
    let other = |config: &mut EndpointConfig| {
        let secret = Secret::copy_from(b"another one");
        let ids = vec![identity(1), identity(2)];
        config.secrets = vec![Arc::new(PreSharedKey { ids, secret })];
    };
    let setup = || {
        let mut setup = Setup::new(1);
        setup.b.show(credential(&root(), ec(), 2));
        setup.a.want("pubkey", &root());
        setup
    };
    let [_, b] = compared(setup(), "sign", other);
    assert_eq!(b, SecretsNow::Replaced);
    let [a, b] = compared(setup(), "sign", |config| config.secrets.reverse());
    assert_eq!((a, b), (SecretsNow::Same, SecretsNow::Same));
    let [_, b] = compared(setup(), "sign", |config| config.secrets.clear());
    assert_eq!(b, SecretsNow::Removed);
}

/// The same with a PPK, in IKE_INTERMEDIATE and in IKE_AUTH: the keys depend on the one of before at both ends.
///
/// Faults, each by itself: in `Stem::next_epoch`, `take_in_auth` or `mix_in_auth`, let the number be 0; in `InForce::secrets`, do
/// not ask `is_in_force`.
#[test]
fn a_ppk_that_was_replaced_in_ike_auth_is_in_the_keys() {
    let key = |octet: u8| {
        let ids = vec![PpkId::new(*b"ppk")];
        vec![Arc::new(PostQuantumKey { ids, secret: Secret::new(vec![octet; 32]) })]
    };
    for exchange in [PpkExchange::Auth, PpkExchange::Intermediate] {
        let setup = || {
            let mut setup = signing(2, ec(), ec());
            setup.both(|side| {
                side.connection.ppk.ids = vec![PpkMatch::Exact(PpkId::new(*b"ppk"))];
                side.connection.ppk.required = true;
                side.connection.ppk.exchange = exchange;
                side.settings.ppks = key(1);
            });
            setup
        };
        let replaced = compared(setup(), "judge", |config| config.ppks = key(2));
        assert_eq!(replaced, [SecretsNow::Replaced; 2], "{exchange:?}");
        let same = compared(setup(), "judge", |config| config.ppks = key(1));
        assert_eq!(same, [SecretsNow::Same; 2], "{exchange:?}");
    }
}
