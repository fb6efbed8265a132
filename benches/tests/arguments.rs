//! What `ike-bench` says of arguments that make no sense: at once, and not after minutes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// What `ike-bench links` says on standard error. It must have failed, without measuring anything.
fn refused(arguments: &[&str]) -> String {
    refused_by("links", arguments)
}

/// The same of another of its commands.
fn refused_by(name: &str, arguments: &[&str]) -> String {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ike-bench"));
    let output = command.current_dir(folder).arg(name).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?} measured");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn mistakes_are_told_before_anything_is_measured() {
    for (arguments, expected) in [
        (["loss", "nosuch", "--runs", "1"], "no scenario nosuch"),
        (["loss", "pq-ipsec", "--suite", "psk"], "pq-ipsec: no rows"),
        (["--csv", "no/such/folder.csv", "--runs", "1"], "no/such/folder.csv: "),
        (["--svg", "no/such/folder.svg", "--runs", "1"], "no/such/folder.svg: "),
        (["--handshakes", "no/such/h.csv", "--runs", "1"], "no/such/h.csv: "),
        (["--to", "localhost", "--csv", "no/such/to.csv"], "no/such/to.csv: "),
        (["--to", "localhost", "--link", "satellite, north"], "no commas"),
    ] {
        let said = refused(&arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn arguments_without_effect_are_refused() {
    for arguments in [
        ["--to", "localhost", "--loss", "5"],
        ["--to", "localhost", "--rate", "9600"],
        ["--to", "localhost", "--seed", "2"],
        ["--from", "h.csv", "--jitter", "1"],
        ["--port", "500", "--runs", "1"],
        ["--bundle", "initiator", "--runs", "1"],
    ] {
        let said = refused(&arguments);
        assert!(said.contains("cannot be used with") || said.contains("required"), "{said}");
    }
    assert!(refused(&["--clock", "time", "--runs", "1"]).contains("--gilbert"));
}

#[test]
fn values_have_bounds() {
    for (arguments, expected) in [
        (["--runs", "0"], "0 is not in 1.."),
        (["--rtt", "1e300"], "--rtt 1e300: not from 0"),
        (["--rtt", "nan"], "--rtt NaN: not from 0"),
        (["--jitter", "-1"], "--jitter -1.0: not from 0"),
        (["--loss", "-5"], "--loss -5: not from 0"),
        (["--loss", "100"], "--loss 100: not from 0"),
        (["--rate", "0"], "nothing would ever arrive"),
        (["--gilbert", "0.1,0"], "two probabilities"),
        (["--limit", "0"], "--limit 0.0: "),
        (["--rules", "ours/"], "--rules ours/: ours, strongswan"),
        (["--suite", "nosuch"], "no suite nosuch; there are classical"),
    ] {
        let said = refused(&arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

/// Fault: in `Output::some` of main.rs, return `Ok(chosen)` always.
#[test]
fn the_other_commands_measure_nothing_by_mistake() {
    for (name, arguments, expected) in [
        ("kem", ["--only", "nosuch"], "--only nosuch: no algorithm or backend"),
        ("sign", ["--only", "nosuch"], "--only nosuch: no algorithm or backend"),
        ("sizes", ["--only", "nosuch"], "--only nosuch: no algorithm or backend"),
        ("handshake", ["--only", "nosuch"], "--only nosuch: no such suite; there are "),
        ("esp", ["--only", "nosuch"], "no suite has \"nosuch\""),
        ("soak", ["--only", "nosuch"], "--only nosuch: no such shape; there are "),
        ("memory", ["--suite", "nosuch"], "nosuch"),
        ("kem", ["--runs", "0"], "0 is not in 1.."),
        ("handshake", ["--runs", "0"], "0 is not in 1.."),
        ("memory", ["--sas", "0"], "--sas must be at least 1"),
        ("sign", ["--limit", "nan"], "--limit NaN: "),
        ("sizes", ["--seconds", "1e300"], "--seconds 1e300: "),
        ("handshake", ["--limit", "1e300"], "--limit 1e300: "),
        ("esp", ["--seconds", "1e300"], "--seconds 1e300: "),
        ("esp", ["--cores", "2,0"], "--cores 0: "),
        ("esp", ["--size", "5"], "no IP packet of 5 octets"),
    ] {
        let said = refused_by(name, &arguments);
        assert!(said.contains(expected), "{name} {arguments:?}: {said}");
    }
}
