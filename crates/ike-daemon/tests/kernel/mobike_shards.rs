//! Daemons of several shards whose addresses change (RFC 4555): the SPI steers, wherever a message comes from, so that an
//! IKE SA stays on its shard. In network namespaces, as they are needed for addresses that come and go.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ike_test_namespace::{Host, run};

use crate::running::Running;

/// IKE SAs: the odds that they are all on one shard are nil.
const PEERS: usize = 8;

fn configuration(folder: &Path, us: &str) -> PathBuf {
    let mut text = "[charon]\nshards = 4\ncookie_threshold = 0\ncookie_threshold_ip = 0\n\
                    block_threshold = 0\n[secrets.ike]\nsecret = 'a secret of this test'\n"
        .to_owned();
    for n in 0..PEERS {
        let [client, gateway] = [format!("c{n}.example.org"), "gw.example.org".to_owned()];
        let (local, remote, there) = match us {
            "client" => (client, gateway, "192.0.2.2"),
            _ => (gateway, client, "192.0.2.0/24"),
        };
        let (ours, theirs) = match us {
            "client" => (format!("10.2.{n}.0/24"), "10.1.0.0/16".to_owned()),
            _ => ("10.1.0.0/16".to_owned(), format!("10.2.{n}.0/24")),
        };
        write!(
            text,
            "[connections.site{n}]\nlocal_addrs = '192.0.2.0/24'\nremote_addrs = '{there}'\n\
             proposals = 'aes256gcm16-prfsha256-x25519'\n\
             [connections.site{n}.local]\nauth = 'psk'\nid = '{local}'\n\
             [connections.site{n}.remote]\nauth = 'psk'\nid = '{remote}'\n\
             [connections.site{n}.children.net{n}]\nlocal_ts = '{ours}'\nremote_ts = '{theirs}'\n"
        )
        .unwrap();
    }
    let path = folder.join(format!("{us}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

/// What `list` says of each IKE SA: its responder's SPI by the initiator's, the peer's address, and children.
fn sas(daemon: &Running) -> BTreeMap<String, (String, String, usize)> {
    let list: serde_json::Value = serde_json::from_slice(&daemon.list().stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all = list.as_array().unwrap().iter().map(|sa| {
        let children = sa["child-sas"]
            .as_array()
            .map_or_else(|| sa["child-sas"].as_object().map_or(0, serde_json::Map::len), Vec::len);
        (
            text(&sa["initiator-spi"]),
            (text(&sa["responder-spi"]), text(&sa["remote-host"]), children),
        )
    });
    all.collect()
}

/// Waits until every IKE SA of `daemon` has its peer at `address`.
#[track_caller]
fn until_at(daemon: &Running, address: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let sas = sas(daemon);
        if sas.len() == PEERS && sas.values().all(|(_, remote, _)| remote == address) {
            return;
        }
        assert!(Instant::now() < deadline, "not at {address}: {sas:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn moves_of_either_end_keep_every_sa_on_its_shard() {
    let host = Host::new();
    run("ip link set lo up");
    run("ip link add out0 type veth peer name in0");
    run(&format!("ip link set in0 netns {}", host.id()));
    // The second address stays when the first one goes.
    run("sysctl -qw net.ipv4.conf.all.promote_secondaries=1");
    run("ip addr add 192.0.2.2/24 dev out0");
    run("ip link set out0 up");
    host.run("sysctl -qw net.ipv4.conf.all.promote_secondaries=1");
    host.run("ip link set lo up");
    host.run("ip addr add 192.0.2.1/24 dev in0");
    host.run("ip link set in0 up");
    let name = format!("ike-daemon-{}-mobike-shards", std::process::id());
    let folder = std::env::temp_dir().join(name);
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let start = |us: &str, prefix: String| {
        let mut words = prefix.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(["run", "--data-plane", "none"]);
        Running::start_by(command, &folder, us, &configuration(&folder, us))
    };
    let gateway = start("gateway", exe.to_owned());
    let client = start("client", host.inside(exe));
    let up = client.ask(&["up", "--all", "--timeout", "20s"]);
    assert_eq!(up.status.code(), Some(0), "{up:?}");
    until_at(&gateway, "192.0.2.1");
    let spis = |daemon: &Running| {
        let sas = sas(daemon);
        assert!(sas.values().all(|(.., children)| *children == 1), "{sas:#?}");
        sas.into_iter().map(|(ours, (theirs, ..))| (ours, theirs)).collect::<Vec<_>>()
    };
    let before = spis(&gateway);
    let mut shards: Vec<_> = before.iter().map(|(_, spi_r)| spi_r[..2].to_owned()).collect();
    shards.sort();
    shards.dedup();
    assert!(shards.len() > 1, "{before:#?}");

    host.run("ip addr add 192.0.2.11/24 dev in0");
    host.run("ip addr del 192.0.2.1/24 dev in0");
    until_at(&gateway, "192.0.2.11");
    assert_eq!(spis(&gateway), before);

    run("ip addr add 192.0.2.12/24 dev out0");
    run("ip addr del 192.0.2.2/24 dev out0");
    until_at(&client, "192.0.2.12");
    assert_eq!(spis(&client), before);
    // Exchanges of both ends get through, and find their SAs.
    for daemon in [&gateway, &client] {
        for n in 0..PEERS {
            let child = format!("net{n}");
            let rekeyed = daemon.ask(&["rekey", "--child", &child]);
            assert_eq!(rekeyed.status.code(), Some(0), "{rekeyed:?}");
        }
    }
    assert_eq!(sas(&gateway).keys().collect::<Vec<_>>(), sas(&client).keys().collect::<Vec<_>>());
    assert_eq!((gateway.end(), client.end()), (Some(0), Some(0)));
}
