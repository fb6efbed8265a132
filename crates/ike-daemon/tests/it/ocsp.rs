//! OCSP in IKE (RFC 4806), between two daemons and a responder on loopback.

use std::fs;
use std::time::{Duration, SystemTime};

use ::pki::issue::{CertificateStatus, Issuer, default_scheme, ocsp_response};
use ::pki::{Certificate, files};
use ike_daemon::config::{self, Config};
use ike_tokio::Target;

use crate::certificates::{Sides, net};
use crate::common::{Pair, tempdir, until};
use crate::fetch::{Server, ok, serve, url};
use crate::pki::done;

fn certificate(sides: &Sides, name: &str) -> Certificate {
    let file = fs::read(sides.0.join(name)).expect("a file");
    files::load_certificates(&file).expect("a certificate").remove(0)
}

fn own(sides: &Sides, side: &str) -> Certificate {
    certificate(sides, &format!("{side}/x509/own.pem"))
}

/// How often `server` was asked about the certificate of `side`. What asks about the other is the right one, by
/// the same responder, which has not heard of it.
fn asked(server: &Server, sides: &Sides, side: &str) -> usize {
    let own = own(sides, side);
    // The serial number is what a request ends with.
    let serial = String::from_utf8_lossy(own.serial());
    server.requests.try_iter().filter(|request| request.ends_with(&*serial)).count()
}

/// What the CA says of the certificate of `side`; signed by the key of `by`.
fn response(sides: &Sides, side: &str, revoked: bool, by: &str) -> Vec<u8> {
    let (own, ca) = (own(sides, side), certificate(sides, "ca.pem"));
    let key = fs::read(sides.0.join(by)).expect("a file");
    let key = files::load_private_key(&key, None).expect("a key");
    let issuer =
        Issuer { scheme: default_scheme(&*key).expect("a scheme"), key: &*key, name: ca.subject() };
    let now = SystemTime::now();
    let (begin, end) = (now - Duration::from_secs(60), now + Duration::from_secs(3600));
    let revoked = revoked.then_some(begin);
    let status = CertificateStatus { certificate: &own, issuer: &ca, revoked };
    ocsp_response(&issuer, None, &[status], begin, Some(end)).expect("a response")
}

/// The left one asks, and has nowhere else to ask; the right one answers by `server`.
fn config(
    sides: &Sides,
    side: &str,
    port: u16,
    [left, right]: [&str; 2],
    server: &Server,
) -> Config {
    let (options, remote) = match side {
        "left" => (left, "revocation = 'strict'"),
        _ => (right, ""),
    };
    let site = format!("[connections.site]\n{options}");
    let mut text = sides.text(side, port, remote).replace("[connections.site]", &site);
    if side == "right" {
        text += &format!("[authorities.ca]\ncacert = 'ca.pem'\nocsp_uris = '{}'", url(server));
    }
    config::parse(&text, &sides.folder(side)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

async fn down(pair: &Pair) {
    pair.left.operator().down(&Target::named("site")).await.expect("an end");
    until(&pair.left, "nothing", <[_]>::is_empty).await;
    until(&pair.right, "nothing", <[_]>::is_empty).await;
}

#[tokio::test]
async fn who_is_asked_answers_and_nobody_else_is() {
    let sides = Sides::new("ocsp-answered", "ed25519", "");
    let good = response(&sides, "right", false, "ca.key");
    let server = serve(vec![ok(&good); 12]);
    let pair = Pair::configured(|side, port| {
        config(&sides, side, port, ["ocsp = 'request'", ""], &server)
    })
    .await;
    for starts in [&pair.left, &pair.right, &pair.left] {
        starts.operator().up(&net()).await.unwrap();
        down(&pair).await;
    }
    assert_eq!(asked(&server, &sides, "right"), 1, "fetched once");

    // A reload keeps it; without `reply`, nobody hears of it, and a strict peer has nothing else.
    let port = pair.left.ports().nat_t;
    let silent = config(&sides, "right", port, ["", "ocsp = 'never'"], &server);
    for (config, good) in
        [(config(&sides, "right", port, ["", ""], &server), true), (silent, false)]
    {
        pair.right.reload(config).await.unwrap();
        match pair.left.operator().up(&net()).await {
            Ok(_) => assert!(good),
            Err(why) => {
                let why = why.to_string();
                assert!(!good && why.contains("not known whether certificate"), "{why}");
            }
        }
        if good {
            down(&pair).await;
        }
    }
    assert_eq!(asked(&server, &sides, "right"), 0);
}

#[tokio::test]
async fn who_asks_himself_has_it_ready() {
    let sides = Sides::new("ocsp-ahead", "mldsa44", "");
    let server = serve(vec![ok(&response(&sides, "right", false, "ca.key")); 4]);
    let both = "ocsp = 'both'";
    let pair = Pair::configured(|side, port| {
        config(&sides, side, port, ["ocsp = 'request'", both], &server)
    })
    .await;
    // Before anybody has asked.
    let server = tokio::task::spawn_blocking(move || {
        server.requests.recv_timeout(Duration::from_secs(20)).expect("a request");
        server
    });
    let server = server.await.unwrap();
    pair.left.operator().up(&net()).await.unwrap();
    assert_eq!(asked(&server, &sides, "right"), 0);
}

#[tokio::test]
async fn bad_news_is_told_and_junk_is_not() {
    let sides = Sides::new("ocsp-bad", "ed25519", "");
    sides.ca("other", "ed25519");
    for (body, why) in [
        (response(&sides, "right", true, "ca.key"), "\"O=test, CN=right\" has been revoked"),
        (response(&sides, "right", false, "other.key"), "not known whether certificate"),
        (response(&sides, "left", false, "ca.key"), "not known whether certificate"),
        (b"<html>".to_vec(), "not known whether certificate"),
    ] {
        let server = serve(vec![ok(&body); 8]);
        let pair = Pair::configured(|side, port| {
            config(&sides, side, port, ["ocsp = 'request'", ""], &server)
        })
        .await;
        for _ in 0..2 {
            let failure = pair.left.operator().up(&net()).await.unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
            until(&pair.right, "nothing", <[_]>::is_empty).await;
        }
        assert_eq!(asked(&server, &sides, "right"), 1, "{why}: asked once");
    }
}

/// One in x509ocsp/ is believed, and named in the request.
#[tokio::test]
async fn a_responder_may_be_trusted_by_itself() {
    let sides = Sides::new("ocsp-responder", "ed25519", "");
    done(&sides.0, "--gen --type ed25519 --out responder.key");
    let eku = "--flag ocspSigning --out responder.pem";
    done(&sides.0, &format!("--self --in responder.key --dn \"O=test, CN=responder\" {eku}"));
    for side in ["left", "right"] {
        let folder = sides.folder(side).join("x509ocsp");
        fs::create_dir(&folder).expect("a folder");
        fs::copy(sides.0.join("responder.pem"), folder.join("responder.pem")).expect("a copy");
    }
    let server = serve(vec![ok(&response(&sides, "right", false, "responder.key")); 4]);
    let pair = Pair::configured(|side, port| {
        let config = config(&sides, side, port, ["ocsp = 'request'", ""], &server);
        if side == "left" {
            let requests = &config.endpoint.connections[0].remote[0].certreqs;
            let hash = ::pki::ca_hash(certificate(&sides, "responder.pem").spki());
            assert_eq!(requests[1].authorities, hash);
        }
        config
    })
    .await;
    pair.left.operator().up(&net()).await.unwrap();

    // Nobody is a responder by lying there.
    let misplaced = sides.folder("left").join("x509ocsp/own.pem");
    fs::copy(sides.folder("left").join("x509/own.pem"), misplaced).expect("a copy");
    let text = sides.text("left", 500, "");
    let mistakes = config::parse(&text, &sides.folder("left")).unwrap_err();
    let mistakes = format!("{mistakes:?}");
    assert!(
        mistakes.contains("x509ocsp/own.pem") && mistakes.contains("OCSPSigning"),
        "{mistakes}"
    );
}

#[test]
fn options_have_to_make_sense() {
    let sides = Sides::new("ocsp-options", "ed25519", "");
    let read = |options: &str| {
        let site = format!("[connections.site]\n{options}");
        let text = sides.text("left", 500, "").replace("[connections.site]", &site);
        match config::parse(&text, &sides.folder("left")) {
            Ok(config) => {
                let requests = &config.endpoint.connections[0].remote[0].certreqs;
                Ok(requests.iter().map(|request| request.encoding.to_string()).collect::<Vec<_>>())
            }
            Err(mistakes) => Err(format!("{mistakes:?}")),
        }
    };
    let [x509, ocsp] = ["X.509 Certificate - Signature".to_owned(), "OCSP Content".to_owned()];
    for (options, asked) in [
        ("", vec![x509.clone()]),
        ("ocsp = 'never'", vec![x509.clone()]),
        ("ocsp = 'reply'", vec![x509.clone()]),
        ("ocsp = 'request'", vec![x509.clone(), ocsp.clone()]),
        ("ocsp = 'both'\nocsp_max_age = '1d'", vec![x509, ocsp.clone()]),
        ("ocsp = 'both'\nsend_certreq = false", vec![ocsp]),
        ("send_certreq = false\nocsp_max_age = 0", vec![]),
    ] {
        assert_eq!(read(options), Ok(asked), "{options}");
    }
    let wrong = read("ocsp = 'yes'").unwrap_err();
    assert!(wrong.contains("connections.site.ocsp") && wrong.contains("both"), "{wrong}");
    let wrong = read("ocsp_max_age = '1d'").unwrap_err();
    assert!(wrong.contains("ocsp_max_age") && wrong.contains("not asked for"), "{wrong}");
    // Without a key to prove there is nothing to ask about.
    let folder = tempdir("ocsp-psk");
    let psk = "[connections.c]\nocsp = 'both'\nlocal = { auth = 'psk', id = 'a' }\n\
               remote = { auth = 'psk', id = 'b' }\nchildren.net = {}";
    let config = config::parse(psk, &folder).expect("a configuration");
    assert!(config.endpoint.connections[0].remote[0].certreqs.is_empty());
}
