//! Configuration files in strongSwan's own syntax.

use std::fs;
use std::path::Path;
use std::process::Command;

use ike_daemon::config;

use crate::common::tempdir;

/// Two gateways and road warriors, as people write them.
const SAMPLE: &str = r#"
# what all have
conn-defaults {
    version = 2
    proposals = aes256gcm16-prfsha384-x25519-ke1_mlkem768, aes128gcm16-prfsha256-x25519
    rekey_time = 4h   # and then
    dpd_delay = 30s
    unique = replace
}
child-defaults {
    esp_proposals = aes256gcm16-x25519
    start_action = trap
    dpd_action = trap
}
connections {
    gw-gw : conn-defaults {
        local_addrs  = 192.0.2.1
        remote_addrs = 192.0.2.2, gw.example.org
        dpd_delay =
        local {
            auth = psk
            id = "C=CH, O=strongSwan, CN=moon"
        }
        remote {
            auth = psk
            id = sun.example.org
        }
        children {
            net-net : child-defaults {
                local_ts  = 10.1.0.0/16
                remote_ts = 10.2.0.0/16[tcp/http], 10.3.0.0/16
                start_action = none
            }
        }
    }
    host : conn-defaults { remote_addrs = %any
        local { auth = psk }
        remote { auth = psk } children { host : child-defaults { mode = transport } } }
}
secrets {
    ike-1 { id-moon = "C=CH, O=strongSwan, CN=moon"
        id-sun = sun.example.org
        secret = 0sFpZAZqEN6Ti9sqt4ZP5EWcqx }
    ike-any { secret = "a \"quoted\" secret # and no comment \
that goes on" }
}
charon {
    port = 4242
    plugins {
        vici {
            socket = unix:///run/other.vici
            group = root
        }
    }
}
"#;

#[test]
fn what_people_write_is_read() {
    let config = config::parse_settings(SAMPLE, Path::new("")).expect("no mistakes");
    let names: Vec<_> = config.endpoint.connections.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["gw-gw", "host"]);
    let gateway = &config.endpoint.connections[0];
    assert_eq!(gateway.proposals.len(), 2);
    // Unset, so that the default counts and not what it refers to.
    assert_eq!(gateway.dpd_delay.as_secs(), 0);
    assert_eq!(config.endpoint.connections[1].dpd_delay.as_secs(), 30);
    let child = &gateway.children[0];
    assert_eq!(child.start_action, ike_proto::config::Action::None);
    assert_eq!(child.dpd_action, ike_proto::config::Action::Trap);
    assert_eq!(child.remote_ts.len(), 2);
    assert_eq!(config.hosts["gw-gw"].remote.len(), 2);
    assert_eq!(config.endpoint.secrets.len(), 2);
    let secret = &config.endpoint.secrets[1].secret;
    assert_eq!(secret.expose(), b"a \"quoted\" secret # and no comment that goes on");
    assert_eq!(config.ports.ike, 4242);
    assert_eq!(config.vici.as_deref(), Some(Path::new("/run/other.vici")));
    assert_eq!(config.vici_group, Some(0));
}

/// Texts, and what is said about them, with the place.
const WRONG: &[(&str, &str)] = &[
    ("connections {\n", "1:1: this section is not closed"),
    ("}\n", "1:1: `}` closes no section"),
    ("connections {\n  a.b {\n } }\n", "2:3: '.' cannot be in the name"),
    ("charon {\n port = \"1\n", "2:9: this string is not closed"),
    ("charon {\n port\n}\n", "2:2: a name alone: expected `=`"),
    ("charon {\n prot = 5 }\n", "2:2: unknown option `charon.prot`; did you mean `port`?"),
    ("charon {\n port = many\n}\n", "2:9: `charon.port` cannot be \"many\""),
    ("charon : missing { }\n", "1:10: there is no section `missing` to refer to"),
    ("a : b { x = 1 }\nb : a { }\ncharon : a { }\n", "refers to itself"),
    ("libstrongswan { x = 1 }\n", "1:1: unknown section `libstrongswan`"),
    ("charon {\n load_modular = yes }\n", "unknown option `charon.load_modular`"),
    (
        "connections { a { aggressive = yes\n local { auth = psk }\n remote { auth = psk } } }\n",
        "`connections.a.aggressive` is not supported yet",
    ),
    (
        "charon { plugins { vici { group = nobody-has-it } } }\n",
        "1:35: `charon.plugins.vici.group` cannot be \"nobody-has-it\"",
    ),
    ("include nothing.conf\n", "1:9: `include`: "),
    ("= 5\n", "1:1: '=' begins neither"),
    ("charon : {\n }\n", "1:1: `:` needs names of sections"),
];

#[test]
fn mistakes_are_found_with_their_places() {
    for (text, said) in WRONG {
        let mistakes = match config::parse_settings(text, Path::new("/nonexistent")) {
            Ok(_) => panic!("{text:?} is taken"),
            Err(mistakes) => mistakes,
        };
        let shown: Vec<_> =
            mistakes.iter().map(|m| format!("{}:{}: {m}", m.line, m.column)).collect();
        assert!(shown.iter().any(|mistake| mistake.contains(said)), "{said:?}: {shown:#?}");
    }
}

#[test]
fn files_are_included_and_mistakes_name_them() {
    let folder = tempdir("settings-include");
    fs::create_dir_all(folder.join("conf.d")).expect("a folder");
    let main = folder.join("swanctl.conf");
    fs::write(&main, "connections {\n  include conf.d/*.conf\n}\ninclude \"ch aron.conf\"\n")
        .expect("a file");
    fs::write(folder.join("ch aron.conf"), "charon { port = 77 }\n").expect("a file");
    let site =
        "site {\n  local { auth = psk }\n  remote { auth = psk }\n  children { net { } }\n}\n";
    fs::write(folder.join("conf.d/site.conf"), site).expect("a file");
    fs::write(folder.join("conf.d/.hidden.conf"), "}").expect("a file");
    let config = config::load(&main).expect("no mistakes");
    assert_eq!(config.endpoint.connections[0].name, "site");
    assert_eq!(config.ports.ike, 77);

    fs::write(folder.join("conf.d/site.conf"), site.replace("auth = psk", "auht = psk"))
        .expect("a file");
    let check = Command::new(env!("CARGO_BIN_EXE_ike-daemon"))
        .args(["check", "--config"])
        .arg(&main)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(said.contains("conf.d/site.conf:2:11: unknown option"), "{said}");
    assert_eq!(check.status.code(), Some(3), "{said}");

    fs::write(folder.join("conf.d/site.conf"), "include ../swanctl.conf\n").expect("a file");
    let error = config::load(&main).expect_err("it includes itself").to_string();
    assert!(error.contains("includes itself"), "{error}");
}
