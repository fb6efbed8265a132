//! A daemon that has much to do in user space, with a signer and a peer that do not answer.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::own_tunnel::{CLIENT, GATEWAY, folder, road_warrior, start, until};
use crate::running::child_of;

/// Sends datagrams into the tunnel as fast as it can, until a signal comes, or for a minute.
const FLOOD: &str = "perl -MSocket -e 'alarm 60; socket(S,PF_INET,SOCK_DGRAM,17); \
    $to=sockaddr_in(9,inet_aton(\"10.95.0.1\")); $on=1; $SIG{TERM}=sub{$on=0}; $n=0; \
    while($on){send(S,\"x\" x 200,0,$to); $n++} print $n'";

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), process]).status().unwrap().success());
}

/// Fault: in `Daemon::shutdown_unless`, leave out the farewell.
pub(crate) fn a_busy_daemon_answers_within_a_second_and_ends_within_five() {
    let host = road_warrior();
    let folder = folder("busy");
    let exe = env!("CARGO_BIN_EXE_ike-daemon");
    let gateway = start(&folder, "gateway", GATEWAY, exe, "none");
    // The peer counts as alive, and an answer is waited for long.
    let client = CLIENT
        .replace("dpd_delay = '500ms'", "dpd_delay = '30s'")
        .replace("retransmit_timeout = 0.2", "retransmit_timeout = 4.0");
    let client = start(&folder, "client", &client, &host.inside(exe), "userspace");
    until(&client, |list| list.contains("\"INSTALLED\""));
    let mut flood = Command::new("sh");
    let flood = flood
        .args(["-c", &format!("exec {}", host.inside(FLOOD))])
        .stdout(std::process::Stdio::piped());
    let flood = flood.spawn().unwrap();
    let spawner = child_of(&client.pid().to_string(), "signer");
    signal("STOP", &child_of(&spawner, "signer"));
    gateway.signal("STOP");
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < Duration::from_millis(1500) {
        let asked = Instant::now();
        assert_eq!(client.list().status.code(), Some(0));
        took.push(asked.elapsed());
    }
    let list = String::from_utf8(client.list().stdout).unwrap();
    assert!(list.contains("\"INSTALLED\""), "{list}");
    let ending = Instant::now();
    assert_eq!(client.end(), Some(0));
    let ended = ending.elapsed();
    signal("TERM", &flood.id().to_string());
    let flood = flood.wait_with_output().unwrap();
    assert!(String::from_utf8(flood.stdout).unwrap().parse::<u64>().unwrap() > 10_000);
    // Not the slowest: the machine that tests may have much to do itself.
    took.sort();
    let median = took[took.len() / 2];
    println!("`list` took {median:?}, the end {ended:?}");
    assert!(median < Duration::from_secs(1), "{took:?}");
    assert!(ended < Duration::from_secs(5), "{ended:?}");
    gateway.signal("CONT");
    assert_eq!(gateway.end(), Some(0));
}
