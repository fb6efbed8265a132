//! Quick crash detection (RFC 6290) with daemons in processes of their own, one of which is killed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::tempdir;
use crate::program::write_config;
use crate::running::Running;

/// The client asks after a second without a word; timers are the usual ones, which give up after 165 s.
fn client(folder: &Path, ours: &str, theirs: &str) -> std::path::PathBuf {
    let path = write_config(folder, "left", ours, "right", theirs);
    let text = std::fs::read_to_string(&path).expect("read");
    let text = text
        .replace("retransmit_timeout = 0.3\nretransmit_tries = 1\n", "")
        .replace("[connections.site.local]", "dpd_delay = '1s'\n[connections.site.local]")
        .replace("[secrets.ike]", "dpd_action = 'start'\n[secrets.ike]");
    std::fs::write(&path, text).expect("written");
    path
}

fn gateway(folder: &Path, ours: &str, theirs: &str, charon: &str) -> std::path::PathBuf {
    let path = write_config(folder, "right", ours, "left", theirs);
    let text = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, text.replace("[charon]", &format!("[charon]\n{charon}")))
        .expect("written");
    path
}

/// A gateway is killed and starts again, with fewer shards at that, and by a secret that it has been given while it
/// ran. Its client finds out when it asks, and is up again.
#[test]
fn a_gateway_that_was_killed_is_found_at_the_next_message() {
    let folder = tempdir("qcd");
    let secret = folder.join("state").join("qcd.secret");
    let charon = format!("shards = 3\nqcd_secret = '{}'", secret.display());
    let (here, there) = ("127.0.0.51", "127.0.0.52");
    let left = client(&folder, here, there);
    let right = gateway(&folder, there, here, &charon);
    let left = Running::start(&folder, "left", &left, here);
    let killed = Running::start(&folder, "right", &right, there);
    let mode = std::fs::metadata(&secret).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let new = "5a".repeat(32);
    let old = std::fs::read_to_string(&secret).expect("read");
    std::fs::write(&secret, format!("{new}\n{old}")).expect("written");
    assert_eq!(killed.ask(&["reload"]).status.code(), Some(0));
    let up = left.ask(&["up", "net", "--timeout", "20s"]);
    assert_eq!(up.status.code(), Some(0), "{up:?}");
    killed.signal("KILL");
    drop(killed);
    std::fs::write(&secret, &new).expect("written");

    let right = gateway(&folder, there, here, &charon.replace("shards = 3", "shards = 2"));
    let begun = Instant::now();
    let right = Running::start(&folder, "right", &right, there);
    let line = left.wait_for("IKE SA down");
    assert!(line.contains("the peer has lost the SA (QCD)"), "{line}");
    right.wait_for("the peer is told that its IKE SA is gone (QCD)");
    right.wait_for("Child SA up");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let list =
        |daemon: &Running| String::from_utf8_lossy(&daemon.ask(&["list"]).stdout).into_owned();
    assert_eq!(list(&right).matches("INSTALLED").count(), 1, "{}", list(&right));
    assert_eq!(right.end(), Some(0));
}

/// What others may read is no secret, and the start says so.
#[test]
fn a_secret_that_others_may_read_is_refused() {
    let folder = tempdir("qcd-refused");
    let secret = folder.join("qcd.secret");
    std::fs::write(&secret, "5a".repeat(32)).expect("written");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).expect("set");
    let charon = format!("qcd_secret = '{}'", secret.display());
    let config = gateway(&folder, "127.0.0.53", "127.0.0.54", &charon);
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_ike-daemon"))
        .args(["run", "--data-plane", "none", "--listen", "127.0.0.53", "--config"])
        .arg(&config)
        .arg("--control")
        .arg(folder.join("x.sock"))
        .output()
        .expect("the program runs");
    let why = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{why}");
    assert!(why.contains("qcd.secret: others may read or write it"), "{why}");
    let check = || {
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_ike-daemon"));
        check
            .args(["check", "--data-plane", "none", "--config"])
            .arg(&config)
            .output()
            .expect("it runs")
    };
    let found = check();
    let why = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(found.status.code(), Some(3), "{why}");
    assert!(why.contains("qcd.secret: others may read or write it"), "{why}");
    // One that the first start is to make is no mistake, and not made here.
    std::fs::remove_file(&secret).expect("removed");
    assert_eq!(check().status.code(), Some(0), "{:?}", check());
    assert!(!secret.exists());
}

/// The folder of the secret is made even if the sandbox would not let the daemon do that any more.
#[test]
fn the_folder_of_the_secret_is_made_before_the_sandbox() {
    let folder = tempdir("qcd-sandbox");
    let secret = folder.join("lib").join("state").join("qcd.secret");
    let charon = format!("sandbox = {{}}\nqcd_secret = '{}'", secret.display());
    let config = gateway(&folder, "127.0.0.55", "127.0.0.56", &charon);
    let daemon = Running::start(&folder, "boxed", &config, "127.0.0.55");
    assert!(secret.exists());
    assert_eq!(daemon.end(), Some(0));
}
