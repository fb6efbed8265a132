//! Daemons whose files name no proposals.

use std::path::Path;

use ike_control::views::IkeSa;
use ike_daemon::config::{self, Config};
use ike_tokio::Target;

use crate::common::{PSK, Pair, until};

/// A file of the least that a connection needs, with `ike` and `esp` in the connection and the child.
fn file(side: &str, port: u16, ike: &str, esp: &str) -> Config {
    let (other, local, remote) = match side {
        "left" => ("right", "10.1.0.0/16", "10.2.0.0/16"),
        _ => ("left", "10.2.0.0/16", "10.1.0.0/16"),
    };
    let text = format!(
        "[charon]
        port = 0
        port_nat_t = 0
        [connections.site]
        local_addrs = '127.0.0.1'
        remote_addrs = '127.0.0.1'
        remote_port = {port}
        {ike}
        [connections.site.local]
        auth = 'psk'
        id = '{side}.example.org'
        [connections.site.remote]
        auth = 'psk'
        id = '{other}.example.org'
        [connections.site.children.net]
        local_ts = '{local}'
        remote_ts = '{remote}'
        {esp}
        [secrets.ike]
        secret = '{PSK}'
        "
    );
    config::parse(&text, Path::new("")).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

/// True if there is one IKE SA with one child, and both have these additional key exchanges.
fn has(sas: &[IkeSa], of_ike: &[&str], of_child: &[&str]) -> bool {
    let [sa] = sas else { return false };
    let [child] = sa.child_sas.as_slice() else { return false };
    sa.state == "ESTABLISHED"
        && child.state == "INSTALLED"
        && sa.algorithms.ke == of_ike
        && child.algorithms.ke == of_child
}

/// Fault: in `ConnectionConfig::new` and `ChildConfig::new`, take the classical proposals alone, not the
/// default ones.
#[tokio::test]
async fn two_daemons_are_hybrid_in_every_rekey_by_either_end() {
    let hybrid = ["ML_KEM_768"];
    let pair = Pair::configured(|side, port| file(side, port, "", "")).await;
    pair.left.operator().up(&Target::named("net")).await.unwrap();
    for daemon in [&pair.left, &pair.right] {
        until(daemon, "a hybrid IKE SA", |sas| has(sas, &hybrid, &[])).await;
    }
    for daemon in [&pair.right, &pair.left] {
        for name in ["net", "site"] {
            let before = until(daemon, "quiet", |sas| sas.len() == 1).await;
            daemon.operator().rekey(&Target::named(name)).await.unwrap();
            for end in [&pair.left, &pair.right] {
                until(end, "hybrid after the rekey", |sas| {
                    let new = |sa: &IkeSa| match name {
                        "net" => sa.child_sas[0].spi_in != before[0].child_sas[0].spi_in,
                        _ => sa.initiator_spi != before[0].initiator_spi,
                    };
                    has(sas, &hybrid, &hybrid) && new(&sas[0])
                })
                .await;
            }
        }
    }
}

#[tokio::test]
async fn a_daemon_that_names_none_meets_a_classical_one() {
    for (ike, esp) in [
        ("proposals = 'aes256gcm16-prfsha256-x25519'", "esp_proposals = 'aes256gcm16'"),
        ("proposals = 'aes256-sha256-modp2048'", "esp_proposals = 'aes256-sha256-ecp256'"),
    ] {
        let pair = Pair::configured(|side, port| match side {
            "left" => file(side, port, "", ""),
            _ => file(side, port, ike, esp),
        })
        .await;
        pair.left.operator().up(&Target::named("net")).await.unwrap();
        for daemon in [&pair.left, &pair.right, &pair.left] {
            for name in ["net", "site"] {
                daemon.operator().rekey(&Target::named(name)).await.unwrap();
                for end in [&pair.left, &pair.right] {
                    until(end, "classical", |sas| has(sas, &[], &[])).await;
                }
            }
        }
    }
}
