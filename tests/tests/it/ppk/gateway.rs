//! A gateway that has PPKs: for peers that its connections do not name, and for several connections.

use std::sync::Arc;

use ike_proto::config::{ConnectionConfig, IdMatch};
use ike_tests::setup::identity;
use ike_tests::{A, B};

use super::*;

const SECRET: &str = "the secret both ends have";

/// A client with the PPK "x", and a gateway that has it and says nothing of it in its connection.
fn unnamed(seed: u64, required: bool, exchange: PpkExchange) -> Setup {
    let mut setup = Setup::new(seed);
    give(&mut setup.a, "x", SECRET, required, exchange);
    setup.b.settings.ppks = vec![key(&["other"], "of somebody else"), key(&["x"], SECRET)];
    setup
}

/// Without `ppk_id` a gateway takes the PPK that its client names, as the field does; one that the client requires, or
/// one that it would like to have.
///
/// Fault: in `ConnectionConfig::takes_ppk` (config/connection.rs), leave out what comes after `covers`.
#[test]
fn a_gateway_without_ppk_id_takes_the_ppk_that_a_client_names() {
    for exchange in [PpkExchange::Auth, PpkExchange::Intermediate, PpkExchange::Any] {
        for required in [false, true] {
            let mut pair = unnamed(51, required, exchange).build();
            assert_eq!(attempt(&mut pair, A), Ok(()), "{exchange:?} {required}");
            for host in [A, B] {
                assert_eq!(pair.hosts[host].ike().ppk, Some(id("x")), "{exchange:?} {required}");
            }
            pair.assert_agreement();
        }
    }
}

/// It begins nothing with a PPK by itself, and asks for none: `ppk_id` is what an initiator offers.
#[test]
fn a_gateway_without_ppk_id_offers_none_itself() {
    for required in [false, true] {
        let mut setup = unnamed(52, required, PpkExchange::Any);
        setup.a.settings.ppks.clear();
        setup.a.connection.ppk = PpkConfig::default();
        let mut pair = setup.build();
        assert_eq!(attempt(&mut pair, B), Ok(()), "{}", pair.story());
        assert_eq!(pair.b().ike().ppk, None);
        // Nor does it need one.
        let mut pair = Setup::new(53).build();
        assert_eq!(attempt(&mut pair, A), Ok(()));
    }
}

/// One that the gateway does not have is none: the client goes on without it, unless it requires one.
#[test]
fn a_ppk_that_the_gateway_does_not_have_is_not_taken() {
    for required in [false, true] {
        let mut setup = unnamed(54, required, PpkExchange::Auth);
        setup.b.settings.ppks = vec![key(&["other"], "of somebody else")];
        let mut pair = setup.build();
        assert_eq!(attempt(&mut pair, A).is_ok(), !required, "{}", pair.story());
    }
}

/// Two connections of the gateway for the same peer that differ in their PPK alone, in either order: what the one says
/// of PPKs does not decide for the other.
///
/// Fault: in `plan` (exchange/auth/responder.rs), take the PPK as the first candidate has it.
#[test]
fn the_ppk_of_one_connection_does_not_decide_for_another() {
    for (wanted, required) in [("x", true), ("y", true), ("x", false), ("y", false)] {
        for swapped in [false, true] {
            let mut setup = Setup::new(55);
            give(&mut setup.a, wanted, SECRET, required, PpkExchange::Auth);
            setup.b.settings.ppks = vec![key(&["x", "y"], SECRET)];
            let names = if swapped { ["y", "x"] } else { ["x", "y"] };
            setup.b.connection.ppk = uses(names[0], true, PpkExchange::Auth);
            let children = setup.b.children.iter().cloned().map(Arc::new).collect();
            let mut other = ConnectionConfig { children, ..setup.b.connection.clone() };
            other.name = "other".to_owned();
            other.set_remote_id(IdMatch::Exact(identity(1)));
            other.ppk = uses(names[1], true, PpkExchange::Auth);
            setup.b.more.push(other);
            let mut pair = setup.build();
            let what = format!("{wanted} {required} {swapped}");
            assert_eq!(attempt(&mut pair, A), Ok(()), "{what}\n{}", pair.story());
            let ike = pair.b().ike();
            assert_eq!(ike.ppk, Some(id(wanted)), "{what}");
            let expected = if names[0] == wanted { "ab" } else { "other" };
            assert_eq!(ike.connection, expected, "{what}");
        }
    }
}
