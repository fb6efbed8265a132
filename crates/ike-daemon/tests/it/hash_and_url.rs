//! Certificates by hash and URL (RFC 7296 §3.6), between two daemons and a web server on loopback.

use std::fs;

use crate::certificates::{Sides, net};
use crate::common::{Pair, list, tempdir, until};
use crate::fetch::{Server, ok, serve};
use crate::pki::done;
use ike_daemon::config::{self, Config};
use ike_tokio::Target;

/// Publishes the certificate of `side`: its name, and the file.
fn published(sides: &Sides, side: &str, options: &str) -> (String, Vec<u8>) {
    let web = sides.0.join("web");
    fs::create_dir_all(&web).expect("a folder");
    let line = format!("--publish --in {side}/x509/own.pem --dir web {options}");
    let name = done(&sides.0, &line).trim().to_owned();
    let file = fs::read(web.join(&name)).expect("the file");
    (name, file)
}

/// The configuration of `side`, which sends to and fetches from `server`.
fn config(sides: &Sides, side: &str, port: u16, server: &Server, local: &str) -> Config {
    let base = format!("http://{}/certs/", server.address);
    let charon = format!("fragment_size = 1400\nhash_and_url = true\nhash_and_url_from = '{base}'");
    let text = sides
        .text(side, port, "")
        .replace("fragment_size = 1400", &charon)
        .replace("[connections.site.local]", &format!("[connections.site.local]\n{local}"));
    let text = text + &format!("[authorities.ca]\ncacert = 'ca.pem'\ncert_uri_base = '{base}'");
    config::parse(&text, &sides.folder(side)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

fn paths(server: &Server) -> Vec<String> {
    let path = |request: String| request.split(' ').nth(1).unwrap_or_default().to_owned();
    server.requests.try_iter().map(path).collect()
}

#[tokio::test]
async fn both_ends_fetch_the_other_s_certificate_once() {
    let sides = Sides::new("hash-and-url", "mldsa87", "");
    let (left, of_left) = published(&sides, "left", "");
    let (right, of_right) = published(&sides, "right", "--bundle");
    assert_eq!(left.len(), 40);
    // In the order in which they are wanted.
    let server = serve(vec![ok(&of_left), ok(&of_right)]);
    let bundle = |side: &str| if side == "right" { "cert_bundle = true" } else { "" };
    let pair =
        Pair::configured(|side, port| config(&sides, side, port, &server, bundle(side))).await;
    for starts in [&pair.left, &pair.right, &pair.left] {
        starts.operator().up(&net()).await.unwrap();
        let sas = list(starts).await;
        assert!(sas[0].remote_auth[0].by.starts_with("ML-DSA-87"), "{sas:#?}");
        starts.operator().down(&Target::named("site")).await.unwrap();
        until(&pair.left, "nothing", <[_]>::is_empty).await;
        until(&pair.right, "nothing", <[_]>::is_empty).await;
    }
    assert_eq!(paths(&server), [format!("/certs/{left}"), format!("/certs/{right}")]);
}

#[tokio::test]
async fn who_serves_something_else_is_nobody() {
    let sides = Sides::new("hash-and-url-wrong", "ed25519", "");
    let (left, _) = published(&sides, "left", "");
    let (_, of_right) = published(&sides, "right", "");
    // A certificate that is good, of somebody else.
    let server = serve(vec![ok(&of_right)]);
    let pair = Pair::configured(|side, port| config(&sides, side, port, &server, "")).await;
    for _ in 0..2 {
        let why = pair.left.operator().up(&net()).await.unwrap_err().to_string();
        assert!(why.contains("AUTHENTICATION_FAILED"), "{why}");
        until(&pair.right, "nothing", <[_]>::is_empty).await;
    }
    assert_eq!(paths(&server), [format!("/certs/{left}")], "asked once");
}

/// What one end accepts is its own affair.
#[tokio::test]
async fn who_does_not_accept_it_gets_certificates() {
    let sides = Sides::new("hash-and-url-one-way", "ed25519", "");
    let (right, of_right) = published(&sides, "right", "");
    let server = serve(vec![ok(&of_right)]);
    let pair = Pair::configured(|side, port| {
        let mut config = config(&sides, side, port, &server, "");
        if side == "right" {
            config.endpoint.hash_and_url = false;
            config.lookup = Default::default();
        }
        config
    })
    .await;
    pair.left.operator().up(&net()).await.unwrap();
    assert_eq!(paths(&server), [format!("/certs/{right}")]);
}

#[test]
fn options_have_to_make_sense() {
    let folder = tempdir("hash-and-url-options");
    let mistakes = |charon: &str| {
        let text = format!("[charon]\n{charon}\n[connections]\n");
        match config::parse(&text, &folder) {
            Ok(config) => Ok((config.endpoint.hash_and_url, config.warnings)),
            Err(mistakes) => Err(format!("{mistakes:?}")),
        }
    };
    assert!(!mistakes("").unwrap().0);
    assert!(mistakes("hash_and_url = 'yes'").unwrap().0);
    let from = "hash_and_url_from = ['http://certs.example.org/', 'http://192.0.2.1:8080/ca/']";
    assert!(mistakes(&format!("hash_and_url = true\n{from}")).unwrap().0);
    let alone = mistakes(from).unwrap_err();
    assert!(alone.contains("without `hash_and_url`"), "{alone}");
    for bad in ["http://certs.example.org", "https://certs.example.org/", "certs.example.org/"] {
        let wrong = format!("hash_and_url = true\nhash_and_url_from = '{bad}'");
        let wrong = mistakes(&wrong).unwrap_err();
        assert!(wrong.contains("hash_and_url_from") && wrong.contains("whole host"), "{wrong}");
    }
    let base = "[authorities.a]\ncert_uri_base = 'https://ca.example.org/'";
    let wrong = mistakes(base).unwrap_err();
    assert!(wrong.contains("authorities.a.cert_uri_base"), "{wrong}");
}

/// The bundle is sent by its URL or not at all.
#[test]
fn a_bundle_that_nobody_finds_is_warned_about() {
    let sides = Sides::new("hash-and-url-no-base", "ed25519", "");
    let warnings = |base: &str| {
        let text = sides.text("left", 500, "");
        let bundle = "[connections.site.local]\ncert_bundle = true\n";
        let text = text.replace("[connections.site.local]\n", bundle);
        let text = text + &format!("\n[authorities.ca]\ncacert = 'ca.pem'\n{base}");
        let config = config::parse(&text, &sides.folder("left")).expect("a configuration");
        config.warnings.into_iter().filter(|one| one.contains("cert_bundle")).collect::<Vec<_>>()
    };
    let without = warnings("");
    assert!(without[0].contains("`connections.site.local.cert_bundle` changes nothing"));
    assert!(without[0].starts_with("line ") && without.len() == 1, "{without:?}");
    assert!(warnings("cert_uri_base = 'http://ca.example.org/'").is_empty());
}

#[test]
fn options_of_accounting_without_it_are_warned_about() {
    let folder = tempdir("accounting-options");
    let warnings = |options: &str| {
        let radius = "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'";
        let config = config::parse(&format!("{radius}\n{options}\n[connections]\n"), &folder);
        let warnings = config.expect("a configuration").warnings.into_iter();
        warnings.filter(|one| one.contains("without `accounting`")).count()
    };
    let all = "accounting_interval = 300\naccounting_close_on_timeout = false\naccounting_requires_vip = true";
    assert_eq!(warnings(all), 3);
    assert_eq!(warnings(&format!("accounting = false\n{all}")), 3);
    assert_eq!(warnings(&format!("accounting = true\n{all}")), 0);
}
