//! Session resumption (RFC 5723): a client and two gateways with the same ticket keys.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ike_daemon::config::{self, Config, Ports};
use ike_daemon::daemon::{Daemon, open};
use ike_tokio::Target;
use ike_tokio::{Plane, Sockets};

use crate::common::{ANY, PSK, list, listen, start, tempdir, until};

const CLIENT: [u8; 4] = [127, 0, 0, 1];
const FIRST: [u8; 4] = [127, 0, 0, 2];
const SECOND: [u8; 4] = [127, 0, 0, 3];

fn configuration(folder: &Path, client: bool, ends: [[u8; 4]; 2], port: u16) -> Config {
    let [local, remote] = ends.map(|ip| IpAddr::from(ip).to_string());
    let (us, them) = if client { ("client", "gateway") } else { ("gateway", "client") };
    let keys = if client { "" } else { "[charon.session_resumption]\nkeys = 'tickets'" };
    let text = format!(
        "[charon]
        port = 0
        port_nat_t = 0
        retransmit_timeout = 0.2
        retransmit_tries = 2
        {keys}
        [connections.site]
        local_addrs = '{local}'
        remote_addrs = '{remote}'
        remote_port = {port}
        session_resumption = true
        dpd_delay = '1s'
        keyingtries = 1
        local = {{ auth = 'psk', id = '{us}.example.org' }}
        remote = {{ auth = 'psk', id = '{them}.example.org' }}
        [connections.site.children.net]
        [secrets.ike]
        secret = '{PSK}'
        "
    );
    config::parse(&text, folder).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

async fn daemon(config: Config, sockets: Sockets) -> Daemon {
    start(config, sockets, Plane::none()).await
}

fn none(_: &Sockets) -> std::io::Result<Plane> {
    Ok(Plane::none())
}

/// The client's way to the first gateway is gone; the second one goes on with its session, and neither has
/// ever heard of the other.
#[tokio::test]
async fn resumption_across_two_gateways() {
    let folder = tempdir("resumption");
    std::fs::create_dir(folder.join("tickets")).unwrap();
    config::make_ticket_key(&folder.join("tickets/2026-01.key")).unwrap();
    config::make_ticket_key(&folder.join("tickets/2026-02.key")).unwrap();

    let (client, _) = open(&listen(CLIENT), ANY, none).unwrap();
    let (first, _) = open(&listen(FIRST), ANY, none).unwrap();
    let (to, from) = (first.ports(), client.ports().nat_t);
    let (second, _) = open(&listen(SECOND), Ports { ike: 0, nat_t: to.nat_t }, none).unwrap();
    let gateway = |own| configuration(&folder, false, [own, CLIENT], from);
    let first = daemon(gateway(FIRST), first).await;
    let second = daemon(gateway(SECOND), second).await;
    let towards = |gateway| configuration(&folder, true, [CLIENT, gateway], to.nat_t);
    let client = daemon(towards(FIRST), client).await;

    let operator = client.operator();
    operator.up(&Target::named("net")).await.unwrap();
    let sas = list(&client).await;
    assert!(!sas[0].resumed && sas[0].remote_host == "127.0.0.2");

    // Nobody says goodbye.
    drop(first);
    until(&client, "the first gateway is given up", <[_]>::is_empty).await;
    client.reload(towards(SECOND)).await.unwrap();
    operator.up(&Target::named("net")).await.unwrap();
    let sas = list(&client).await;
    assert_eq!(sas.len(), 1);
    assert!(sas[0].resumed && sas[0].remote_host == "127.0.0.3", "{sas:#?}");
    assert_eq!(sas[0].child_sas.len(), 1);
    let there = until(&second, "the second one has it", |sas| sas.len() == 1).await;
    assert!(there[0].resumed && there[0].child_sas.len() == 1);
    assert_eq!(there[0].initiator_spi, sas[0].initiator_spi);
    assert!(client.shutdown(Duration::from_secs(5)).await);
    drop(second);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What is down is down: an IKE SA that was lost before does not go on.
#[tokio::test]
async fn a_connection_that_was_taken_down_begins_anew() {
    const HERE: [u8; 4] = [127, 0, 0, 4];
    const THERE: [u8; 4] = [127, 0, 0, 5];
    let folder = tempdir("resumption-down");
    std::fs::create_dir(folder.join("tickets")).unwrap();
    config::make_ticket_key(&folder.join("tickets/1.key")).unwrap();
    for down in [false, true] {
        let (client, _) = open(&listen(HERE), ANY, none).unwrap();
        let (gateway, _) = open(&listen(THERE), ANY, none).unwrap();
        let (to, from) = (gateway.ports(), client.ports().nat_t);
        let behind = || configuration(&folder, false, [THERE, HERE], from);
        let gateway = daemon(behind(), gateway).await;
        let client = daemon(configuration(&folder, true, [HERE, THERE], to.nat_t), client).await;
        let operator = client.operator();
        operator.up(&Target::named("net")).await.unwrap();
        drop(gateway);
        until(&client, "the gateway is given up", <[_]>::is_empty).await;
        if down {
            assert_eq!(operator.down(&Target::named("site")).await, Ok(0));
            assert!(operator.down(&Target::named("site")).await.is_err(), "there is nothing left");
        }
        let (gateway, _) = open(&listen(THERE), Ports { ike: 0, nat_t: to.nat_t }, none).unwrap();
        let gateway = daemon(behind(), gateway).await;
        operator.up(&Target::named("net")).await.unwrap();
        assert_eq!(list(&client).await[0].resumed, !down);
        assert!(client.shutdown(Duration::from_secs(5)).await);
        drop(gateway);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
