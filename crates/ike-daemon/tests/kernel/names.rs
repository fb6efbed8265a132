//! The process that looks host names up: killed, stopped, and with more silent names than it has threads.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ike_test_namespace::Host;

use crate::own_tunnel::{CLIENT, GATEWAY, folder, road_warrior, start, until, with_name_server};
use crate::running::child_of;

/// How long to wait for what comes at all.
const LONG: Duration = Duration::from_secs(60);

/// More than look-ups at a time.
const SILENT: usize = 20;

/// [`CLIENT`], and connections to peers whose name servers are silent, `traps` of them.
fn named(client: &str, traps: usize) -> String {
    let mut named = client.to_owned();
    for n in 0..traps {
        write!(
            named,
            "[connections.n{n}]\nremote_addrs = 'gw{n}.example'\n\
             [connections.n{n}.local]\nauth = 'psk'\nid = 'n'\n\
             [connections.n{n}.remote]\nauth = 'psk'\nid = 'gw'\n\
             [connections.n{n}.children.n{n}]\nremote_ts = '10.95.{n}.0/24'\nstart_action = 'trap'\n"
        )
        .unwrap();
    }
    named
}

/// The name server gets questions and answers none.
fn silent(host: &Host, folder: &Path) -> String {
    host.run("ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev in0");
    host.inside(&with_name_server(folder, "192.0.2.77"))
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), process]).status().unwrap().success());
}

/// Look-ups are under way when the process is killed, and again when the next one is stopped.
///
/// Faults, each by itself: in `Line::keep` of src/names/client.rs, let the loop end with `End::Lost`: there is no second
/// process. In `Lookups::name_servers`, wait without a limit, and call it in `Names::known`: `list` takes long.
pub(crate) fn a_resolver_that_is_killed_or_stopped_holds_no_tunnel() {
    let host = road_warrior();
    let folder = folder("killed");
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    let client = named(CLIENT, 2);
    let client = start(&folder, "client", &client, &silent(&host, &folder), "none");
    until(&client, |list| list.contains("\"INSTALLED\""));
    let spawner = child_of(&client.pid().to_string(), "resolver");
    let first = child_of(&spawner, "resolver");
    signal("KILL", &first);
    client.wait_for("the process that looks host names up is replaced");
    client.wait_for("host name not resolved");
    let begun = Instant::now();
    let mut stopped = first;
    loop {
        stopped = another(&spawner, &stopped);
        signal("STOP", &stopped);
        for command in [&["list"][..], &["down", "home"], &["up", "net"], &["reload"]] {
            assert_eq!(client.ask(command).status.code(), Some(0), "{command:?}");
        }
        // Who waits for a stopped one waits until the daemon replaces it. A very busy machine has another try.
        if child_of(&spawner, "resolver") == stopped {
            break;
        }
        assert!(begun.elapsed() < LONG, "commands wait for the resolver");
    }
    assert_eq!((client.end(), gateway.end()), (Some(0), Some(0)));
    assert!(!Path::new("/proc").join(stopped).join("exe").exists(), "it ends with the daemon");
}

/// The resolver that follows `former`.
fn another(spawner: &str, former: &str) -> String {
    let begun = Instant::now();
    loop {
        let next = child_of(spawner, "resolver");
        if !next.is_empty() && next != former {
            return next;
        }
        assert!(begun.elapsed() < LONG, "there is no other one");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Look-ups that find nothing take three seconds here, and there are more than at a time. Then comes a name that the hosts
/// file has.
///
/// Fault: let `AT_A_TIME` of ike-control be `[2; 3]`.
pub(crate) fn a_name_of_the_hosts_file_waits_for_one_round_of_silent_names() {
    let host = road_warrior();
    let folder = folder("hosts");
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    let command = silent(&host, &folder);
    let options = "nameserver 192.0.2.77\noptions timeout:1 attempts:1\n";
    std::fs::write(folder.join("resolv.conf"), options).unwrap();
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, "198.51.100.9 zz.example\n").unwrap();
    let script = std::fs::read_to_string(folder.join("run")).unwrap();
    let mount = format!("mount --bind {} /etc/hosts\n{script}", hosts.display());
    std::fs::write(folder.join("run"), mount).unwrap();
    // It is looked up after the others.
    let client = named(&CLIENT.replace("'198.51.100.9'", "'zz.example'"), SILENT);
    let begun = Instant::now();
    let client = start(&folder, "client", &client, &command, "none");
    client.wait_for("host name not resolved");
    let round = begun.elapsed();
    until(&client, |list| list.contains("\"INSTALLED\""));
    let took = begun.elapsed();
    println!("a first look-up has failed after {round:?}, up after {took:?}");
    assert!(took < 3 * round, "{took:?}, and the first round took {round:?}");
    assert_eq!((client.end(), gateway.end()), (Some(0), Some(0)));
}
