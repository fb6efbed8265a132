//! Tests that change the network of the system: each runs itself again in a network namespace of its own, by
//! `unshare`, as root of a user namespace where that is allowed. A machine without namespaces cannot show what
//! they show, and says so; with `IKE_KERNEL_TESTS=must`, as in CI, that is a failure.
#![forbid(unsafe_code)]

use std::process::{Child, Command};
use std::time::Duration;

/// Set in the copy of the test program that runs inside.
const INSIDE: &str = "IKE_TEST_INSIDE_NAMESPACE";

/// What a namespace must be able to have: a command that makes it, and its name.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    name: &'static str,
    probe: &'static [&'static str],
}

/// Pairs of virtual Ethernet devices.
pub const VETH: Need = Need {
    name: "veth",
    probe: &["ip", "link", "add", "p0", "type", "veth", "peer", "name", "p1"],
};

/// TUN devices.
pub const TUN: Need =
    Need { name: "TUN", probe: &["ip", "tuntap", "add", "dev", "probe0", "mode", "tun"] };

/// Runs `test`, which is the body of the test called `name` (with its modules), in a namespace: starts this
/// program there, for that test alone, or does the work if it is that program.
///
/// # Panics
///
/// If the test fails, or if it cannot be run and must.
pub fn in_namespace(name: &str, need: Need, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let unshare = |arguments: &[&str], command: &[&str]| {
        Command::new("unshare").args(arguments).args(command).env(INSIDE, "1").output()
    };
    let ways: [&[&str]; 2] = [&["--user", "--map-root-user", "--net"], &["--net"]];
    let able = |way: &&[&str]| unshare(way, need.probe).is_ok_and(|output| output.status.success());
    let Some(way) = ways.into_iter().find(able) else {
        let lack =
            format!("{name}: not shown, for lack of unshare, namespaces, ip or {}", need.name);
        assert!(std::env::var_os("IKE_KERNEL_TESTS").is_none_or(|must| must != "must"), "{lack}");
        return eprintln!("{lack}");
    };
    let exe = std::env::current_exe().expect("a program has a file");
    let exe = exe.to_str().expect("whose name is text");
    let output = unshare(way, &[exe, "--exact", name, "--nocapture"]).expect("it has just run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Runs `command`, words with a space between.
///
/// # Panics
///
/// If it fails.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output().expect("the program is there");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
}

/// Another host: a network namespace beside this one, as long as this is kept.
#[derive(Debug)]
pub struct Host(Child);

impl Host {
    /// A host without any device that is up.
    ///
    /// # Panics
    ///
    /// If there is no `unshare`, or it may not.
    #[expect(clippy::new_without_default, reason = "it starts a process")]
    pub fn new() -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", "100"]).spawn();
        let host = Self(holder.expect("there is unshare"));
        // Until it has left this namespace.
        let ours = std::fs::read_link("/proc/self/ns/net").expect("there is a namespace");
        let theirs = format!("/proc/{}/ns/net", host.id());
        while std::fs::read_link(&theirs).is_ok_and(|theirs| theirs == ours) {
            std::thread::sleep(Duration::from_millis(5));
        }
        host
    }

    /// The process that keeps it.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The command that runs `command` there.
    pub fn inside(&self, command: &str) -> String {
        format!("nsenter --target {} --net {command}", self.id())
    }

    /// Runs `command` there.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn run(&self, command: &str) {
        run(&self.inside(command));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `ip` with these words; what it prints.
///
/// # Panics
///
/// If it fails.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip is there");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
