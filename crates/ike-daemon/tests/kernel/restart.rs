//! Ends and starts of a daemon, with a way in clear for what its child protects. In network namespaces: what the peer's
//! host hears is in clear, because the peer's daemon has no data plane.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use ike_test_namespace::{Host, run};

use crate::own_tunnel::{folder, road_warrior, start, until};

const GATEWAY: &str = "
    [connections.home]
    [connections.home.local]
    auth = 'psk'
    id = 'gw'
    [connections.home.remote]
    auth = 'psk'
    [connections.home.children.net]
    local_ts = '10.94.0.0/16'
    [secrets.ike]
    secret = 'a secret of this test'
";

const CLIENT: &str = "
    [charon]
    retransmit_timeout = 0.2
    retransmit_base = 1.0
    retransmit_tries = 1
    [connections.home]
    remote_addrs = '198.51.100.9'
    keyingtries = 0
    [connections.home.local]
    auth = 'psk'
    id = 'a'
    [connections.home.remote]
    auth = 'psk'
    id = 'gw'
    [connections.home.children.net]
    remote_ts = '10.94.0.0/16'
    start_action = 'start'
    hold = 'no'
    [secrets.ike]
    secret = 'a secret of this test'
";

/// Echo requests that this namespace has heard.
fn heard() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let [names, values] = [lines.next().unwrap(), lines.next().unwrap()];
    let column = names.split(' ').position(|name| name == "InEchos").unwrap();
    values.split(' ').nth(column).unwrap().parse().unwrap()
}

/// Pings from `host` into the protected network, until it is dropped.
struct Pings(Child);

impl Pings {
    fn start(host: &Host) -> Self {
        let command = host.inside("ping -q -n -i 0.01 10.94.0.1");
        let mut words = command.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let command = command.args(words).stdout(std::process::Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn ask(host: &Host, words: &str) -> Output {
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    Command::new("sh").args(["-c", &host.inside(&format!("{exe} {words}"))]).output().unwrap()
}

/// A service that is restarted, killed, or does not start any more.
///
/// Faults: in `Control::close`, flush in either case; in `UserspacePlane::start`, give the routes `Leftovers::Remove`.
pub(crate) fn a_restart_lets_nothing_out_in_clear_and_unblock_does() {
    let host = road_warrior();
    run("ip addr add 10.94.0.1/32 dev lo");
    let folder = folder("restart");
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    let _pings = Pings::start(&host);
    let command = host.inside(exe);
    let service = || start(&folder, "client", CLIENT, &command, "userspace --keep-blocks");
    let mut client = service();
    until(&client, |list| list.contains("\"INSTALLED\""));
    let clear = heard();
    assert!(clear > 0, "there is a way in clear");
    for again in 0..3 {
        match again {
            2 => drop(client),
            _ => assert_eq!(client.end(), Some(0)),
        }
        if again == 1 {
            std::thread::sleep(Duration::from_secs(1));
        }
        client = service();
        until(&client, |list| list.contains("\"INSTALLED\""));
    }
    drop(gateway);
    assert_eq!(client.end(), Some(0));
    let file = folder.join("broken.toml");
    std::fs::write(&file, format!("{CLIENT}\nnonsense = 1\n")).unwrap();
    let control = folder.join("client.sock");
    for command in ["check", "run"] {
        let words =
            format!("{command} --config {} --control {}", file.display(), control.display());
        let told = ask(&host, &words);
        assert_eq!(told.status.code(), Some(3), "{told:?}");
        let told = String::from_utf8(told.stderr).unwrap();
        assert!(told.lines().last().unwrap().contains("`ike-daemon unblock`"), "{told}");
    }
    assert_eq!(heard(), clear, "in clear");
    let unblocked = ask(&host, &format!("unblock --control {}", control.display()));
    assert_eq!(unblocked.status.code(), Some(0), "{unblocked:?}");
    let begun = Instant::now();
    while heard() == clear {
        assert!(begun.elapsed() < Duration::from_secs(2), "still blocked: {unblocked:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A stop is SIGTERM without the option.
///
/// Fault: in `commands::run`, set `keep_blocks` in either case.
pub(crate) fn a_stop_of_a_bare_daemon_blocks_nothing() {
    let host = road_warrior();
    run("ip addr add 10.94.0.1/32 dev lo");
    let folder = folder("stop");
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    let client = start(&folder, "client", CLIENT, &host.inside(exe), "userspace");
    until(&client, |list| list.contains("\"INSTALLED\""));
    let before = heard();
    assert_eq!(client.end(), Some(0));
    host.run("ping -q -n -c 1 -W 2 10.94.0.1");
    assert_eq!(heard(), before + 1);
    drop(gateway);
}

/// A trap waits for its first packet, and has left no block of a tunnel that was up.
///
/// Fault: in `UserspacePlane::apply`, do not block the routes at `RemoveSas`.
pub(crate) fn a_trap_that_was_never_up_is_blocked_over_a_restart() {
    let host = road_warrior();
    run("ip addr add 10.94.0.1/32 dev lo");
    let folder = folder("trap");
    let command = host.inside(env!("CARGO_BIN_EXE_ike-daemon"));
    let trap = CLIENT.replace("'start'", "'trap'");
    let before = heard();
    for _ in 0..2 {
        let client = start(&folder, "client", &trap, &command, "userspace --keep-blocks");
        let begun = Instant::now();
        let table = host.inside("ip route show table 7296");
        loop {
            let routes = Command::new("sh").args(["-c", &table]).output().unwrap();
            let routes = String::from_utf8(routes.stdout).unwrap();
            if routes.lines().any(|line| line.starts_with("10.94.0.0/16 dev ike0")) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{routes}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(client.end(), Some(0));
        let ping = host.inside("ping -q -n -c 3 -i 0.1 -W 1 10.94.0.1");
        assert!(!Command::new("sh").args(["-c", &ping]).output().unwrap().status.success());
    }
    assert_eq!(heard(), before, "in clear");
}
