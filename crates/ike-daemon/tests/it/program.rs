//! The program itself: exit statuses, signals, and the command line against a running daemon.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::tempdir;
use crate::running::{Running, program};

fn output(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl Running {
    pub(crate) fn start(folder: &Path, name: &str, config: &Path, address: &str) -> Self {
        let mut command = program();
        command.args(["run", "--data-plane", "none", "--listen", address]);
        Self::start_by(command, folder, name, config)
    }
}

/// A configuration for one side; both sides use the same ports at different loopback addresses.
pub(crate) fn write_config(
    folder: &Path,
    us: &str,
    ours: &str,
    them: &str,
    theirs: &str,
) -> PathBuf {
    let text = format!(
        "[charon]\nport = 45001\nport_nat_t = 45002\nretransmit_timeout = 0.3\nretransmit_tries = 1\n\
         [connections.site]\nlocal_addrs = '{ours}'\nremote_addrs = '{theirs}'\nremote_port = 45002\n\
         [connections.site.local]\nauth = 'psk'\nid = '{us}'\n\
         [connections.site.remote]\nauth = 'psk'\nid = '{them}'\n\
         [connections.site.children.net]\nlocal_ts = '10.1.0.0/16'\nremote_ts = '10.1.0.0/16'\n\
         [secrets.ike]\nsecret = 'a secret of this test'\n"
    );
    let path = folder.join(format!("{us}.toml"));
    std::fs::write(&path, text).expect("written");
    path
}

/// AWS-LC's own noise source costs the first key of a process some 100 ms, which was the first `up` after a start.
///
/// Fault: remove `AWS_LC_SYS_NO_JITTER_ENTROPY` from `.cargo/config.toml`.
#[test]
fn the_first_key_waits_for_no_noise_of_the_processor() {
    let octets = std::fs::read(env!("CARGO_BIN_EXE_ike-daemon")).expect("the program");
    let has = |name: &str| octets.windows(name.len()).any(|at| at == name.as_bytes());
    assert!(has("RAND_bytes"), "the program names its functions");
    assert!(!has("jent_read_entropy"), "AWS-LC was built with jitterentropy");
}

#[test]
fn check_tells_all_mistakes_by_its_status() {
    let folder = tempdir("check");
    let good = write_config(&folder, "good", "127.0.0.1", "peer", "127.0.0.2");
    let checked = output(&["check", "--config", good.to_str().expect("UTF-8")]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let bad = folder.join("bad.toml");
    std::fs::write(&bad, "[charon]\nport = 'x'\nprot = 3\n").expect("written");
    for arguments in [["check", "--config"], ["run", "--config"]] {
        let refused = output(&[&arguments[..], &[bad.to_str().expect("UTF-8")]].concat());
        assert_eq!(refused.status.code(), Some(3));
        let text = stderr(&refused);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("bad.toml:2:9: `charon.port` cannot be \"x\""), "{text}");
        assert!(
            lines[1].contains("bad.toml:3:1: unknown option `charon.prot`; did you mean `port`?")
        );
    }
}

#[test]
fn check_says_for_which_data_plane_and_counts_every_secret() {
    let folder = tempdir("check-plane");
    let path = write_config(&folder, "good", "127.0.0.1", "peer", "127.0.0.2");
    let mut text = std::fs::read_to_string(&path).expect("read");
    text.push_str("[secrets.ppk-a]\nid = 'a'\nsecret = '0x00112233445566778899aabbccddeeff'\n");
    text.push_str("[secrets.eap-carol]\nid = 'carol'\nsecret = 'Ar3etTnp'\n");
    std::fs::write(&path, &text).expect("written");
    let file = path.to_str().expect("UTF-8");
    let said = |more: &[&str]| {
        let checked = output(&[&["check", "--config", file], more].concat());
        let out = String::from_utf8_lossy(&checked.stdout).into_owned();
        (checked.status.code(), out, stderr(&checked))
    };
    let (status, out, _) = said(&["--data-plane", "userspace"]);
    assert_eq!(status, Some(0));
    assert!(out.contains("secrets 3; data plane: ESP in user space)"), "{out}");
    let (status, out, _) = said(&[]);
    assert_eq!(status, Some(0));
    assert!(out.contains("; data plane: "), "{out}");
    assert!(said(&["--data-plane", "none"]).1.contains("data plane: none)"));
    // What ESP in user space has not.
    let text = text.replace("remote_ts =", "mark_in = 7\nremote_ts =");
    std::fs::write(&path, text).expect("written");
    let (status, _, why) = said(&["--data-plane", "userspace"]);
    assert_eq!(status, Some(3), "{why}");
    assert!(why.contains("good.toml: `connections.site.children.net`: "), "{why}");
    assert!(why.contains("cannot do `mark_in`"), "{why}");
    assert_eq!(said(&[]).0, Some(0), "without a data plane that is named it is no mistake");
}

#[test]
fn statuses_tell_what_is_wrong() {
    assert_eq!(output(&["fly"]).status.code(), Some(2));
    assert_eq!(output(&["up"]).status.code(), Some(2));
    let folder = tempdir("statuses");
    let socket = folder.join("none.sock");
    let alone = output(&["list", "--control", socket.to_str().expect("UTF-8")]);
    assert_eq!(alone.status.code(), Some(4));
    assert!(stderr(&alone).contains("is the daemon running?"));
    let config = write_config(&folder, "kernel", "127.0.0.1", "peer", "127.0.0.2");
    let arguments = ["run", "--data-plane", "kernel", "--listen", "127.0.0.9", "--config"];
    let kernel = program()
        .args(arguments)
        .arg(&config)
        .arg("--control")
        .arg(&socket)
        .output()
        .expect("the program runs");
    assert_eq!(kernel.status.code(), Some(1));
    let why = stderr(&kernel);
    assert!(why.contains("kernel data plane: "), "{why}");
    assert!(!socket.exists());
}

#[test]
fn a_daemon_lives_from_start_to_signal() {
    let folder = tempdir("life");
    let left = write_config(&folder, "left", "127.0.0.41", "right", "127.0.0.42");
    let right = write_config(&folder, "right", "127.0.0.42", "left", "127.0.0.41");
    let left_daemon = Running::start(&folder, "left", &left, "127.0.0.41");
    let right_daemon = Running::start(&folder, "right", &right, "127.0.0.42");

    let up = left_daemon.ask(&["up", "net", "--timeout", "20s"]);
    assert_eq!(up.status.code(), Some(0), "{}", stderr(&up));
    let text = String::from_utf8_lossy(&right_daemon.ask(&["list"]).stdout).into_owned();
    assert!(text.starts_with("site: #"), "{text}");
    assert!(
        text.contains("'right' @ 127.0.0.42[45002]") && text.contains("INSTALLED, TUNNEL"),
        "{text}"
    );
    assert_eq!(left_daemon.ask(&["rekey", "--child", "net"]).status.code(), Some(0));
    assert_eq!(left_daemon.ask(&["rekey", "--ike", "site", "--reauth"]).status.code(), Some(0));
    let unknown = left_daemon.ask(&["down", "nothing"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(stderr(&unknown).trim(), "no SA of nothing");

    // A broken file changes nothing.
    let good = std::fs::read_to_string(&left).expect("read");
    std::fs::write(&left, good.replace("auth", "atuh")).expect("written");
    left_daemon.signal("HUP");
    let line = left_daemon.wait_for("did you mean");
    assert!(
        line.contains(
            "left.toml:11:1: unknown option `connections.site.local.atuh`; did you mean `auth`?"
        ),
        "{line}"
    );
    left_daemon.wait_for("stays as it was");
    assert_eq!(left_daemon.ask(&["up", "net"]).status.code(), Some(0));
    assert_eq!(left_daemon.ask(&["reload"]).status.code(), Some(3));
    left_daemon.wait_for("the configuration stays as it was");
    // Fault: in `Keeper::of_file`, start with no warnings.
    let doubtful = "children.web]\nesp_proposals = ['aes256gcm16-x25519-mlkem768']";
    std::fs::write(&left, good.replace("children.net]", doubtful)).expect("written");
    left_daemon.signal("HUP");
    left_daemon.wait_for("peers use one of these key exchange methods");
    left_daemon.wait_for("configuration reloaded");
    assert_eq!(left_daemon.ask(&["up", "net"]).status.code(), Some(1));

    // A signal deletes the SAs at the peer, and the socket goes too.
    let socket = left_daemon.socket.clone();
    assert_eq!(left_daemon.end(), Some(0));
    assert!(!socket.exists());
    right_daemon.wait_for("deleted by the peer");
    assert_eq!(String::from_utf8_lossy(&right_daemon.list().stdout).trim(), "[]");
    let silent = right_daemon.ask(&["up", "net"]);
    assert_eq!(silent.status.code(), Some(1));
    let why = stderr(&silent);
    assert!(why.starts_with("the peer does not answer; the daemon tries again"), "{why}");
    let waiting = right_daemon.ask(&["up", "net", "--timeout", "0.1"]);
    assert_eq!(waiting.status.code(), Some(5), "{}", stderr(&waiting));
    assert_eq!(right_daemon.end(), Some(0));
}

/// Faults: in `Keeper::of_file`, start with no warnings. There, compare with `present()` in place of `at_start`. In
/// `put` of src/operator/reloading.rs, return no warnings.
#[test]
fn a_reload_says_what_a_start_says_the_second_time_as_well() {
    let folder = tempdir("reload-warnings");
    let path = write_config(&folder, "left", "127.0.0.43", "right", "127.0.0.44");
    let daemon = Running::start(&folder, "left", &path, "127.0.0.43");
    let text = std::fs::read_to_string(&path).expect("read");
    let pools = "[connections.site]\npools = ['none']\n";
    let text =
        text.replace("[connections.site]\n", pools).replace("[charon]\n", "[charon]\nshards = 2\n");
    std::fs::write(&path, text).expect("written");
    let file = path.to_str().expect("UTF-8");
    let checked = stderr(&output(&["check", "--data-plane", "none", "--config", file]));
    assert!(checked.lines().all(|line| line.starts_with("warning: ")), "{checked}");
    for part in ["other users may read", "both have 10.1.0.0/16", "there is no [pools.none]"] {
        assert!(checked.contains(part), "{checked}");
    }
    let later = "[charon] shards takes effect at the next start";
    for _ in 0..2 {
        let reload = daemon.ask(&["reload"]);
        assert_eq!(reload.status.code(), Some(6), "not all is in force");
        let said = "reloaded, except for the options that standard error names\n";
        assert_eq!(String::from_utf8_lossy(&reload.stdout), said);
        assert_eq!(stderr(&reload), format!("{checked}not in force: {later}\n"));
        for warning in checked.lines() {
            daemon.wait_for(warning.trim_start_matches("warning: "));
        }
        daemon.wait_for(later);
        daemon.wait_for("configuration reloaded");
    }
    std::fs::write(&path, "").expect("written");
    let empty = daemon.ask(&["reload"]);
    // The ports of the file before take effect until the next start.
    assert_eq!(empty.status.code(), Some(6));
    let told = stderr(&empty);
    assert!(told.contains("warning: there is no [connections.<name>]\n"), "{told}");
    daemon.wait_for("there is no [connections.<name>]");
}

#[test]
fn offload_lists_the_devices_without_a_daemon() {
    let table = output(&["offload"]);
    assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(
        text.lines().any(|line| line.starts_with("lo ") && line.contains("loopback")),
        "{text}"
    );
    let json = output(&["offload", "--json"]);
    assert_eq!(json.status.code(), Some(0), "{}", stderr(&json));
    let devices: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let lo = devices.as_array().and_then(|all| all.iter().find(|device| device["name"] == "lo"));
    let lo = lo.expect("every system has a loopback device");
    assert_eq!((&lo["kind"], &lo["esp"]["crypto"]), (&"loopback".into(), &"missing".into()));
}
