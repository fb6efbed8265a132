use std::path::Path;

use ike_config::TextAlone;

use super::*;

/// A build with all parts but these.
fn without(missing: &[Part]) -> Parts {
    let mut all = Parts([true; Part::ALL.len()]);
    for (part, built) in Part::ALL.iter().zip(&mut all.0) {
        *built = !missing.contains(part);
    }
    all
}

/// The lines about `text`, which is a connection of a file or other sections.
fn told(text: &str, pkcs12: &[&str], built: Parts) -> Vec<String> {
    let mut reading = ike_config::read_toml(text, Path::new(""), &TextAlone);
    assert!(reading.report.is_clean(), "{:?}", reading.report.finish());
    let pkcs12: Vec<_> = pkcs12.iter().map(|name| (*name).to_owned()).collect();
    refuse(&mut reading.settings, &pkcs12, built, &mut reading.report);
    let mistakes = reading.report.finish();
    mistakes.iter().map(|one| format!("{}: {one}", one.line)).collect()
}

fn connection(options: &str, remote: &str) -> String {
    format!(
        "[connections.a]\n{options}\nlocal.auth = 'pubkey'\n\
         remote = {{ {remote}, id = 'b' }}\nchildren.net = {{}}\n"
    )
}

/// What needs a part, and what a build without it says. The first line of a connection is its section.
fn needs() -> Vec<(Part, String, Vec<&'static str>)> {
    const SERVER: &str =
        "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\nclass_group = true\n";
    const MODULE: &str = "[charon.plugins.pkcs11.modules.m]\npath = '/no/such/module.so'\n";
    let psk = "auth = 'psk'";
    let tcp = |options| connection(options, psk);
    vec![
        (
            Part::Eap,
            connection("", "auth = 'eap-mschapv2'"),
            vec!["4: `connections.a.remote.auth`: "],
        ),
        (Part::Eap, "[secrets.eap-c]\nid = 'c'\nsecret = 'x'\n".into(), vec!["0: [secrets.eap]: "]),
        (Part::Radius, SERVER.into(), vec!["0: [charon.plugins.eap-radius]: "]),
        (
            Part::Radius,
            connection("pools = 'radius'", "auth = 'eap-radius'") + SERVER,
            vec!["0: [charon.plugins.eap-radius]: ", "0: [connections.a] pools: "],
        ),
        (Part::Vici, "[charon.plugins.vici]\n".into(), vec!["0: [charon.plugins.vici]: "]),
        (Part::Metrics, "[charon.metrics]\n".into(), vec!["0: [charon.metrics]: "]),
        (Part::Tcp, "[charon]\nlisten_tcp = true\n".into(), vec!["0: [charon] listen_tcp: "]),
        (Part::Tcp, tcp("enable_tcp = 'yes'"), vec!["0: [connections.a] enable_tcp: "]),
        (Part::Tcp, tcp("enable_tcp = 'fallback'"), vec!["0: [connections.a] enable_tcp: "]),
        (
            Part::Tcp,
            tcp("separate_transports = 'yes'"),
            vec!["0: [connections.a] separate_transports: "],
        ),
        (Part::Pkcs11, MODULE.into(), vec!["0: [charon.plugins.pkcs11.modules] m: "]),
        (
            Part::Pkcs11,
            format!("{MODULE}[secrets.token-a]\nhandle = '01'\n"),
            vec!["3: `secrets.token-a`: ", "0: [charon.plugins.pkcs11.modules] m: "],
        ),
        (
            Part::Pkcs12,
            "[secrets.pkcs12-a]\nfile = 'a.p12'\nsecret = 'x'\n".into(),
            vec!["2: `secrets.pkcs12-a.file`: "],
        ),
    ]
}

/// Fault: in `refuse`, leave out a part.
#[test]
fn a_build_without_a_part_refuses_what_needs_it() {
    for (part, text, expected) in needs() {
        let expected: Vec<_> =
            expected.iter().map(|line| format!("{line}{}", part.missing())).collect();
        assert_eq!(told(&text, &[], without(&[part])), expected, "{text}");
    }
}

/// Fault: in `refuse`, do not ask whether VICI is built.
#[test]
fn a_build_with_all_parts_refuses_nothing() {
    for (_, text, _) in needs() {
        assert_eq!(told(&text, &["a.p12"], without(&[])), Vec::<String>::new(), "{text}");
    }
}

/// Fault: in `Part::names`, write no feature.
#[test]
fn the_line_names_the_part_and_the_feature() {
    let file = told("", &["a.p12"], without(&[Part::Pkcs12]));
    assert_eq!(file, ["0: pkcs12/a.p12: ike-daemon was built without PKCS#12 (feature `pkcs12`)"]);
}

/// Between sites no part is needed.
///
/// Fault: in `refuse_connection`, refuse `SeparateTransports::Accept` as well.
#[test]
fn a_build_without_any_part_takes_sites() {
    let text = connection("", "auth = 'psk'") + "[secrets.ike]\nsecret = 'x'\n[charon]\nport = 1\n";
    assert_eq!(told(&text, &[], without(&Part::ALL)), Vec::<String>::new());
}

/// Fault: in `Cargo.toml`, take a feature out of `default`, or write `BUILT` in another order than `ALL`.
#[test]
fn the_parts_are_the_default_features() {
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let mut default: Vec<String> = manifest["features"]["default"].clone().try_into().unwrap();
    // The others are those of crates below.
    default.retain(|feature| !feature.contains('/'));
    assert_eq!(default, Part::ALL.map(Part::feature));
}

/// Fault: in `docs/service.md`, leave out a row of the table of features.
#[test]
fn the_guide_lists_every_part() {
    let guide = include_str!("../../../../docs/service.md");
    for feature in Part::ALL.map(Part::feature) {
        let row = format!("| `{feature}` | ");
        assert!(guide.lines().any(|line| line.starts_with(&row)), "docs/service.md lacks {row}");
    }
}
