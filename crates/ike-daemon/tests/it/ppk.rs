//! Post-quantum preshared keys and downgrade prevention in configuration files.

use std::path::Path;

use ike_daemon::config::{self, Config};
use ike_proto::config::{DowngradePrevention, PpkExchange, PpkId, PpkMatch, PpkRekey};

fn text(options: &str, secrets: &str) -> String {
    format!(
        "[connections.c]\n{options}\n[connections.c.local]\nauth = 'psk'\n\
         [connections.c.remote]\nauth = 'psk'\n[connections.c.children.n]\n\
         [secrets.ike]\nsecret = 'x'\n{secrets}\n"
    )
}

fn accept(options: &str, secrets: &str) -> Config {
    let text = text(options, secrets);
    config::parse(&text, Path::new("")).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:#?}"))
}

/// `line: message` of each mistake.
fn mistakes(options: &str, secrets: &str) -> Vec<String> {
    let parsed = config::parse(&text(options, secrets), Path::new(""));
    parsed.err().unwrap_or_default().iter().map(|d| format!("{}: {d}", d.line)).collect()
}

fn id(octets: &[u8]) -> PpkId {
    PpkId::new(octets)
}

#[test]
fn options_become_what_they_say() {
    let config = accept(
        "ppk_id = 'a.example.org, *.example.org, %any'\nppk_required = 'yes'\n\
         ppk_exchange = 'intermediate'\nppk_rekey = 'require'\ndowngrade_prevention = 'require'",
        "[secrets.ppk-1]\nid = 'a.example.org'\nid-2 = '@#0102ff'\nsecret = '0x00ff'",
    );
    let c = &config.endpoint.connections[0];
    let wanted = vec![
        PpkMatch::Exact(id(b"a.example.org")),
        PpkMatch::Suffix(id(b".example.org")),
        PpkMatch::Any,
    ];
    assert_eq!(c.ppk.ids, wanted);
    assert!(c.ppk.required);
    assert_eq!(c.ppk.exchange, PpkExchange::Intermediate);
    assert_eq!(c.ppk.rekey, PpkRekey::Require);
    assert_eq!(c.downgrade_prevention, DowngradePrevention::Require);
    let key = &config.endpoint.ppks[0];
    assert_eq!(key.ids, [id(b"a.example.org"), id(&[1, 2, 255])]);
    assert_eq!(key.secret.expose(), [0, 255]);
    assert_eq!(
        config.warnings,
        ["the secret of PPK 'a.example.org' has less than 32 octets: make a longer one"]
    );
}

#[test]
fn the_defaults_are_those_of_swanctl_conf() {
    let config = accept("", "");
    let c = &config.endpoint.connections[0];
    assert!(c.ppk.ids.is_empty() && !c.ppk.required);
    assert_eq!((c.ppk.exchange, c.ppk.rekey), (PpkExchange::Any, PpkRekey::No));
    assert_eq!(c.downgrade_prevention, DowngradePrevention::Yes);
}

#[test]
fn mistakes_are_named() {
    let table = [
        ("ppk_required = true", "", "`connections.c.ppk_id` is missing"),
        ("ppk_rekey = 'yes'", "", "`connections.c.ppk_id` is missing"),
        ("ppk_id = 'a*b'", "", "`connections.c.ppk_id` cannot be \"a*b\""),
        ("ppk_exchange = 'ike_auth'", "", "`connections.c.ppk_exchange` cannot be \"ike_auth\""),
        ("downgrade_prevention = 'force'", "", "`connections.c.downgrade_prevention` cannot be"),
        ("", "[secrets.ppk]\nsecret = 'x'", "`secrets.ppk.id` is missing"),
        ("", "[secrets.ppk]\nid = 'a'", "`secrets.ppk.secret` is missing"),
        ("", "[secrets.ppk]\nid = 'a'\nsecret = '0xz'", "`secrets.ppk.secret` is not hexadecimal"),
        (
            "",
            "[secrets.ppk]\nid = 'a'\nsecret = 'x'\nids = 3\nkey = 1",
            "unknown option in `secrets.ppk`",
        ),
    ];
    for (options, secrets, wanted) in table {
        let found = mistakes(options, secrets);
        assert!(found.iter().any(|line| line.contains(wanted)), "{options} {secrets}: {found:#?}");
    }
}

#[test]
fn a_ppk_that_no_secret_has_is_warned_of() {
    let config = accept("ppk_id = 'b'", "[secrets.ppk]\nid = 'a'\nsecret = 'x'");
    assert_eq!(config.warnings.len(), 3);
    assert!(config.warnings.iter().any(|w| w.contains("ppk_id")), "{:?}", config.warnings);
}

/// A secret that no connection can come to is warned of. One that peers may name is used, if there is a connection that
/// peers begin.
///
/// Fault: in `is_ppk_used` (config/mod.rs), count no connection without `ppk_id`; or all of them.
#[test]
fn a_ppk_that_nobody_uses_is_warned_of() {
    let secret = "a secret of more than thirty-two octets";
    let secrets = |ids: &[&str]| {
        let one = |id: &&str| format!("[secrets.ppk-{id}]\nid = '{id}'\nsecret = '{secret}'\n");
        ids.iter().map(one).collect::<String>()
    };
    let unused = |options: &str, ids: &[&str]| {
        let config = accept(options, &secrets(ids));
        let all = config.warnings.into_iter();
        all.filter(|warning| warning.contains("used by no connection")).collect::<Vec<_>>()
    };
    assert_eq!(unused("", &["carol"]), [""; 0]);
    assert_eq!(unused("ppk_id = 'carol'", &["carol"]), [""; 0]);
    let expected = ["PPK 'dave' is used by no connection: name it in a ppk_id"];
    assert_eq!(unused("ppk_id = 'carol'", &["carol", "dave"]), expected);
}
