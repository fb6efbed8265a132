//! A list that revokes the certificate of a peer whose IKE SA is up.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, slice};

use ::pki::issue::{self, CertificateStatus, Issuer, RevokedEntry};
use ::pki::{Certificate, files};
use ike_control::vici::ViciSocket;
use ike_control::views::{IkeSa, render};
use ike_daemon::config::{self, Config, Ports};
use ike_daemon::daemon::{Daemon, open};
use ike_tokio::{Plane, Sockets, Target};
use tracing_subscriber::fmt::MakeWriter;
use vici::Section;

use crate::certificates::{Sides, net};
use crate::common::{Pair, list, listen, start, until};
use crate::fetch::{Server, ok, serve, serve_slowly, url};
use crate::pki::done;
use crate::vici::{Client, inside};

const KIND: &str = "ed25519";

/// The log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::ErrorKind::Other)?.extend(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// From now on, until the guard is dropped.
    fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn with(&self, what: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned();
        text.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    }
}

fn read(sides: &Sides, side: &str, text: &str) -> Config {
    config::parse(text, &sides.folder(side)).unwrap_or_else(|m| panic!("{text}\n{m:#?}"))
}

/// The right one reads its files again, with `options` in its connection.
async fn reload(pair: &Pair, sides: &Sides, options: &str) {
    let text = sides.text("right", pair.left.ports().nat_t, "");
    let text = text.replace("[connections.site]", &format!("[connections.site]\n{options}"));
    pair.right.reload(read(sides, "right", &text)).await.expect("a reload");
}

/// A pair that is up, its left one known to the right one.
async fn up(sides: &Sides) -> Pair {
    let pair = Pair::configured(|side, port| read(sides, side, &sides.text(side, port, ""))).await;
    pair.left.operator().up(&net()).await.expect("it comes up");
    until(&pair.right, "responder", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    pair
}

/// The right one has this file in x509crl/: a list by `ca` that names certificates as `revoked` says.
fn publish(sides: &Sides, ca: &str, file: &str, revoked: &str) {
    let sign = format!("--signcrl --cacert {ca}.pem --cakey {ca}.key --out right/x509crl/{file}");
    let _ = fs::remove_file(sides.folder("right").join("x509crl").join(file));
    done(&sides.0, &format!("{sign} {revoked}"));
}

/// The SAs of the right one are as they were, for as long as a judgement could take.
async fn stays(daemon: &Daemon, before: &[IkeSa]) {
    let spis = |sas: &[IkeSa]| sas.iter().map(|sa| sa.initiator_spi.clone()).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(spis(&list(daemon).await), spis(before));
}

/// The SA ends, even though it was rekeyed, and stays away while the list is there.
///
/// Fault: in `Credentials::note`, do nothing at `IkeRekeyed`.
#[tokio::test]
async fn a_list_ends_the_sa_of_a_revoked_peer_until_the_list_is_lifted() {
    let sides = Sides::new("live-ends", KIND, "");
    let pair = up(&sides).await;
    let before = list(&pair.right).await;
    publish(&sides, "ca", "ca.crl", "");
    reload(&pair, &sides, "").await;
    stays(&pair.right, &before).await;
    assert_eq!(pair.right.operator().rekey(&Target::named("site")).await, Ok(1));
    let rekeyed = until(&pair.right, "one IKE SA", |sas| sas.len() == 1).await;
    assert_ne!(rekeyed[0].initiator_spi, before[0].initiator_spi);
    let (log, _guard) = Log::begin();
    publish(&sides, "ca", "ca.crl", "--cert left/x509/own.pem");
    reload(&pair, &sides, "").await;
    until(&pair.right, "nothing", <[_]>::is_empty).await;
    until(&pair.left, "nothing", <[_]>::is_empty).await;
    let ended = log.with("IKE SA ended");
    let [line] = ended.as_slice() else { panic!("{ended:?}") };
    for part in [
        "connection=site",
        "remote=left.example.org",
        "subject=O=test, CN=left",
        "certificate with serial number",
        "of \"O=test, CN=ca\" is revoked by the revocation list of \"O=test, CN=ca\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(pair.left.operator().up(&net()).await.is_err());
    publish(&sides, "ca", "ca.crl", "");
    reload(&pair, &sides, "").await;
    pair.left.operator().up(&net()).await.unwrap();
}

/// An SA of a connection that is in the files no longer ends as well: what was set for it holds on.
///
/// Fault: in `Credentials::replace`, do not take over what is set for connections that are up.
#[tokio::test]
async fn a_list_ends_an_sa_whose_connection_was_removed() {
    let sides = Sides::new("live-removed", KIND, "");
    let pair = up(&sides).await;
    let before = list(&pair.right).await;
    let removed = || {
        let text = sides.text("right", pair.left.ports().nat_t, "");
        let text = text.replace("[connections.site", "[connections.other");
        read(&sides, "right", &text)
    };
    pair.right.reload(removed()).await.expect("a reload");
    stays(&pair.right, &before).await;
    publish(&sides, "ca", "ca.crl", "--cert left/x509/own.pem");
    pair.right.reload(removed()).await.expect("a reload");
    until(&pair.right, "nothing", <[_]>::is_empty).await;
}

/// Of the options' defaults one ends, and the other warns once.
///
/// Fault: in `Credentials::warn`, do not ask whether there was a warning.
#[tokio::test]
async fn without_revocation_live_there_is_one_warning() {
    let sides = Sides::new("live-warns", KIND, "");
    let pair = up(&sides).await;
    let before = list(&pair.right).await;
    let (log, _guard) = Log::begin();
    publish(&sides, "ca", "ca.crl", "--cert left/x509/own.pem");
    for _ in 0..2 {
        reload(&pair, &sides, "revocation_live = false").await;
        stays(&pair.right, &before).await;
    }
    let warned = log.with("IKE SA goes on");
    let [line] = warned.as_slice() else { panic!("{warned:?}") };
    assert!(line.contains(&format!("swanctl --terminate --ike-id {}", before[0].uniqueid)));
    assert!(line.contains("remote=left.example.org"), "{line}");
    // It is the configuration of this moment that counts.
    reload(&pair, &sides, "").await;
    until(&pair.right, "nothing", <[_]>::is_empty).await;

    let own = "[connections.c]\nlocal = { auth = 'psk' }\nremote = { auth = 'psk' }\n\
               children.n = {}\n[secrets.ike]\nsecret = 'x'";
    let conf = "connections { c { local { auth = psk\n } remote { auth = psk\n }\nOPTION\n\
                children { n { } } } }\nsecrets { ike { secret = x\n } }";
    let ends = |config: Config| config.answerer.ends_live("c");
    assert!(ends(config::parse(own, Path::new("")).unwrap()));
    for (option, expected) in [("", false), ("revocation_live = yes", true)] {
        let text = conf.replace("OPTION", option);
        assert_eq!(ends(config::parse_settings(&text, Path::new("")).unwrap()), expected);
    }
}

/// A namesake of the CA that the right one does not trust, a list that cannot be read, and a list by the CA about
/// another serial number end nobody.
///
/// Fault: in `Standings::judge`, ask `any_list` first.
#[tokio::test]
async fn lists_that_refuse_no_login_end_no_sa() {
    let sides = Sides::new("live-namesake", KIND, "");
    let pair = up(&sides).await;
    let before = list(&pair.right).await;
    let pem = fs::read(sides.folder("left").join("x509/own.pem")).unwrap();
    let serial = files::load_certificates(&pem).unwrap()[0].serial().to_vec();
    let serial: String = serial.iter().map(|octet| format!("{octet:02x}")).collect();
    done(&sides.0, &format!("--gen --type {KIND} --out other.key"));
    done(&sides.0, "--self --ca --in other.key --dn \"O=test, CN=ca\" --out other.pem");
    publish(&sides, "other", "namesake.crl", &format!("--serial {serial}"));
    publish(&sides, "ca", "ca.crl", "--serial 7777");
    fs::write(sides.folder("right").join("x509crl/broken.crl"), "no list").unwrap();
    reload(&pair, &sides, "").await;
    stays(&pair.right, &before).await;
    publish(&sides, "ca", "ca.crl", &format!("--serial {serial}"));
    reload(&pair, &sides, "").await;
    until(&pair.right, "nothing", <[_]>::is_empty).await;
}

/// The path of a client of EAP-TLS counts as that of its SA.
///
/// Fault: in `work` of EAP's conversations, leave the certificate out.
#[tokio::test]
async fn a_client_of_eap_tls_ends_as_well() {
    let sides = Sides::new("live-eap", "ecdsa --size 256", "");
    let configure = |side: &str, port: u16| {
        let text = sides.text(side, port, "");
        let (section, auth) = match side {
            "left" => ("[connections.site.local]", "auth = 'eap-tls'"),
            _ => ("[connections.site.remote]", "auth = 'eap-tls'"),
        };
        read(&sides, side, &text.replace(section, &format!("{section}\n{auth}")))
    };
    let pair = Pair::configured(configure).await;
    pair.left.operator().up(&net()).await.unwrap();
    let up = until(&pair.right, "up", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    assert_eq!(up[0].remote_auth[0].certificate.as_deref(), Some("O=test, CN=left"));
    publish(&sides, "ca", "ca.crl", "--cert left/x509/own.pem");
    pair.right.reload(configure("right", pair.left.ports().nat_t)).await.unwrap();
    until(&pair.right, "nothing", <[_]>::is_empty).await;
}

/// Twelve SAs of one connection, whose certificate is revoked, go on after one line and one for each with
/// `revocation_live = no`. With `yes` they end at the limited rate, after one line.
///
/// Fault: in `Group::is_suspicious`, return false; in `Credentials::act`, leave the line for `no` out.
#[tokio::test]
async fn a_list_that_ends_most_sas_of_a_connection_is_slowed_down() {
    const MANY: usize = 12;
    let sides = Sides::new("live-brake", KIND, "");
    let with = |side: &str, port: u16, live: bool| {
        let text = sides.text(side, port, "");
        let site = text.find("[connections.site]").unwrap();
        let (charon, site) = text.split_at(site);
        let options = format!("[connections.site]\nunique = 'never'\nrevocation_live = {live}");
        let site = site.replace("[connections.site]", &options);
        match side {
            "left" => {
                let one = |n: usize| {
                    let site = site.replace("connections.site", &format!("connections.site{n}"));
                    site.replace(".children.net]", &format!(".children.net{n}]"))
                };
                let all: String = (0..MANY).map(one).collect();
                read(&sides, side, &format!("{charon}{all}"))
            }
            _ => read(&sides, side, &format!("{charon}{site}")),
        }
    };
    let pair = Pair::configured(|side, port| with(side, port, false)).await;
    for n in 0..MANY {
        pair.left.operator().up(&Target::named(format!("net{n}"))).await.unwrap();
    }
    until(&pair.right, "all", |sas| sas.len() == MANY).await;
    let (log, _guard) = Log::begin();
    publish(&sides, "ca", "ca.crl", "--cert left/x509/own.pem");
    pair.right.reload(with("right", pair.left.ports().nat_t, false)).await.unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while log.with("IKE SA goes on").len() < MANY {
        assert!(Instant::now() < end, "no warnings");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let first = log.with("").remove(0);
    assert!(first.contains("ERROR") && first.contains("revoked=12 of=12"), "{first}");
    assert!(first.contains("as `revocation_live = no` says"), "{first}");
    log.0.lock().unwrap().clear();
    let begun = Instant::now();
    pair.right.reload(with("right", pair.left.ports().nat_t, true)).await.unwrap();
    until(&pair.right, "some", |sas| sas.len() < MANY).await;
    let left = list(&pair.right).await.len();
    assert!(left > 0, "they end one after the other");
    until(&pair.right, "nothing", <[_]>::is_empty).await;
    assert!(begun.elapsed() >= Duration::from_secs(1) / 20 * (MANY as u32 - 1));
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("revo")).collect();
    assert!(lines[0].contains("ERROR") && lines[0].contains("ends=12 of=12"), "{}", lines[0]);
    assert_eq!(lines.iter().filter(|line| line.contains("ERROR")).count(), 1);
    assert_eq!(log.with("IKE SA ended").len(), MANY);
}

/// A list that a live SA depends on is fetched again when the next one is due. The next one revokes the peer. After
/// that no SA depends on it, and it is not fetched.
///
/// Fault: in `Credentials::renew_lists`, take every list for not due.
#[tokio::test]
async fn a_list_is_fetched_again_while_an_sa_depends_on_it() {
    let sides = Sides::new("live-renewed", KIND, "");
    let pem = fs::read(sides.0.join("ca.key")).unwrap();
    let key = files::load_private_key(&pem, None).unwrap();
    let pem = fs::read(sides.0.join("ca.pem")).unwrap();
    let ca: Certificate = files::load_certificates(&pem).unwrap().remove(0);
    let pem = fs::read(sides.folder("left").join("x509/own.pem")).unwrap();
    let own: Certificate = files::load_certificates(&pem).unwrap().remove(0);
    let scheme = issue::default_scheme(&*key).unwrap();
    let issuer = Issuer { key: &*key, scheme, name: ca.subject() };
    let second = Duration::from_secs(1);
    let now = SystemTime::now();
    let entry = RevokedEntry { serial: own.serial().to_vec(), at: now, reason: None };
    let made = |from: SystemTime, next: SystemTime, number: u64, revoked: &[RevokedEntry]| {
        ok(&issue::revocation_list(&issuer, from, next, number, revoked).unwrap())
    };
    let first = made(now - 5 * second, now + 3 * second, 1, &[]);
    let next = made(now, now + 5 * second, 2, slice::from_ref(&entry));
    let server = serve(vec![first, next.clone(), next]);
    let authority = format!("[authorities.ca]\ncacert = 'ca.pem'\ncrl_uris = '{}'", url(&server));
    let pair = Pair::configured(|side, port| {
        let text = sides.text(side, port, "") + if side == "right" { &authority } else { "" };
        read(&sides, side, &text)
    })
    .await;
    pair.left.operator().up(&net()).await.unwrap();
    until(&pair.right, "up", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    assert_eq!(server.requests.try_iter().count(), 1);
    until(&pair.right, "nothing", <[_]>::is_empty).await;
    assert_eq!(server.requests.try_iter().count(), 1, "the next list");
    tokio::time::sleep(3 * second).await;
    assert_eq!(server.requests.try_iter().count(), 0, "nobody depends on it");
}

/// The gateway restarts. The client's ticket is good, since the gateway has no list yet. The gateway fetches one at once,
/// from the URL of the CA's authority, although no peer has shown a certificate.
///
/// Fault: in `Answerer::list_due`, ask for an example that was accepted.
#[tokio::test]
async fn an_sa_that_a_ticket_resumes_after_a_restart_ends_by_a_list_that_is_fetched_for_it() {
    let sides = Sides::new("live-resumed", KIND, "");
    fs::create_dir(sides.folder("right").join("tickets")).unwrap();
    config::make_ticket_key(&sides.folder("right").join("tickets/1.key")).unwrap();
    for (file, revoked) in [("good", ""), ("revoking", "--cert left/x509/own.pem")] {
        let sign = "--signcrl --cacert ca.pem --cakey ca.key";
        done(&sides.0, &format!("{sign} --out {file}.crl {revoked}"));
    }
    let served = |file: &str| ok(&fs::read(sides.0.join(file)).unwrap());
    // The second one comes slowly, so that the SA is seen before it ends.
    let pause = Duration::from_millis(150);
    let server = serve_slowly(vec![served("good.crl"), served("revoking.crl")], pause);
    let configure = |side: &str, port: u16| {
        let options = "session_resumption = true\ndpd_delay = '1s'\nkeyingtries = 1";
        let site = format!("[connections.site]\n{options}");
        let mut text = sides.text(side, port, "").replace("[connections.site]", &site);
        if side == "right" {
            text += "[charon.session_resumption]\nkeys = 'tickets'\n";
            text += &format!("[authorities.ca]\ncacert = 'ca.pem'\ncrl_uris = '{}'", url(&server));
        }
        read(&sides, side, &text.replace("retransmit_timeout = 0.5", "retransmit_timeout = 0.2"))
    };
    let Pair { left, right, .. } = Pair::configured(configure).await;
    left.operator().up(&net()).await.unwrap();
    let nat_t = right.ports().nat_t;
    drop(right);
    until(&left, "the gateway is given up", <[_]>::is_empty).await;
    let listen = listen([127, 0, 0, 1]);
    let none = |_: &Sockets| Ok(Plane::none());
    let (sockets, plane) = open(&listen, Ports { ike: 0, nat_t }, none).unwrap();
    let right = start(configure("right", left.ports().nat_t), sockets, plane).await;
    let (log, _guard) = Log::begin();
    left.operator().up(&net()).await.unwrap();
    assert!(list(&left).await.iter().all(|sa| sa.resumed), "{:?}", list(&left).await);
    until(&right, "nothing", <[_]>::is_empty).await;
    assert_eq!(log.with("IKE SA ended").len(), 1);
    assert_eq!(server.requests.try_iter().count(), 2);
}

/// A pair that is up. The left one's certificate is good by a response for six seconds. The next one revokes it.
async fn up_by_responses(name: &str, options: &str) -> (Pair, Server) {
    let sides = Sides::new(name, KIND, "");
    let certificate = |file: &str| {
        let pem = fs::read(sides.0.join(file)).expect("a file");
        files::load_certificates(&pem).expect("a certificate").remove(0)
    };
    let (ca, own): (Certificate, _) = (certificate("ca.pem"), certificate("left/x509/own.pem"));
    let pem = fs::read(sides.0.join("ca.key")).expect("a file");
    let key = files::load_private_key(&pem, None).expect("a key");
    let scheme = issue::default_scheme(&*key).expect("a scheme");
    let issuer = Issuer { key: &*key, scheme, name: ca.subject() };
    let (second, now) = (Duration::from_secs(1), SystemTime::now());
    let says = |revoked: Option<SystemTime>, from: SystemTime, next: SystemTime| {
        let status = CertificateStatus { certificate: &own, issuer: &ca, revoked };
        ok(&issue::ocsp_response(&issuer, None, &[status], from, Some(next)).expect("a response"))
    };
    let first = says(None, now - 5 * second, now + 6 * second);
    let next = says(Some(now), now - second, now + 3600 * second);
    let server = serve(vec![first, next.clone(), next]);
    let authority = format!("[authorities.ca]\ncacert = 'ca.pem'\nocsp_uris = '{}'", url(&server));
    let pair = Pair::configured(|side, port| {
        let text = sides.text(side, port, "") + if side == "right" { &authority } else { "" };
        let site = format!("[connections.site]\n{options}");
        read(&sides, side, &text.replace("[connections.site]", &site))
    })
    .await;
    pair.left.operator().up(&net()).await.expect("it comes up");
    until(&pair.right, "up", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    assert_eq!(server.requests.try_iter().count(), 1);
    (pair, server)
}

/// The status of a peer is known by OCSP alone. The responder is asked again when its next response is due. That one
/// revokes the peer: its SA ends, or there is a warning.
///
/// Fault: in `Credentials::ask_responders`, take every response for not due.
#[tokio::test]
async fn a_responder_is_asked_again_while_an_sa_depends_on_it() {
    let (log, _guard) = Log::begin();
    let (ends, warns) = tokio::join!(
        up_by_responses("live-responses", ""),
        up_by_responses("live-responses-warn", "revocation_live = false"),
    );
    until(&ends.0.right, "nothing", <[_]>::is_empty).await;
    until(&ends.0.left, "nothing", <[_]>::is_empty).await;
    let ended = log.with("IKE SA ended");
    assert!(
        ended.len() == 1 && ended[0].contains("is revoked by an OCSP response of"),
        "{ended:?}"
    );
    let before = list(&warns.0.right).await;
    let end = Instant::now() + Duration::from_secs(20);
    while log.with("IKE SA goes on").is_empty() {
        assert!(Instant::now() < end, "no warning");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stays(&warns.0.right, &before).await;
    for (_, server) in [ends, warns] {
        assert_eq!(server.requests.try_iter().count(), 1, "the next response");
    }
}

/// Fault: in `check_key`, keep the certificate of the first answer; in `ike` of `views/text.rs`, leave the mark out.
#[tokio::test]
async fn list_and_vici_mark_a_peer_that_was_accepted_unchecked() {
    let sides = Sides::new("live-unchecked", KIND, "");
    let authority = "[authorities.ca]\ncacert = 'ca.pem'\ncrl_uris = 'http://127.0.0.1:1/ca.crl'";
    let mut pair = Pair::configured(|side, port| {
        let text = sides.text(side, port, "") + if side == "right" { authority } else { "" };
        read(&sides, side, &text)
    })
    .await;
    let path = sides.0.join("charon.vici");
    pair.right.serve_vici(ViciSocket::bind(&path).expect("the socket works"), None);
    pair.left.operator().up(&net()).await.unwrap();
    let sas = until(&pair.right, "up", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    let text = render(&sas);
    assert!(text.contains("  remote 'left.example.org' (revocation unchecked) @ "), "{text}");
    let text = render(&list(&pair.left).await);
    assert!(!text.contains("unchecked"), "it asks no URL: {text}");
    let mut client = Client::connect(&path).await;
    client.register("list-sa").await;
    let (_, sas) = client.ask("list-sas", Section::new()).await;
    let [(_, sa)] = sas.as_slice() else { panic!("{sas:?}") };
    assert_eq!(inside(sa, &["site"]).str("unchecked"), Some("yes"));
}

/// A trust anchor of the same name takes the place of one that is removed: the IKE SA stays. Without one it ends.
///
/// Faults, each by itself: in `TrustNow::by_ca`, compare no names, or answer `Same` at the end.
#[tokio::test]
async fn an_ike_sa_ends_with_the_trust_anchor_of_its_peer() {
    let sides = Sides::new("live-anchor", KIND, "");
    let pair = up(&sides).await;
    let before = list(&pair.right).await;
    let anchor = sides.folder("right").join("x509ca/ca.pem");
    for old in ["ca.key", "ca.pem"] {
        fs::remove_file(sides.0.join(old)).expect("it is there");
    }
    sides.ca("ca", KIND);
    fs::copy(sides.0.join("ca.pem"), &anchor).expect("a copy");
    reload(&pair, &sides, "").await;
    stays(&pair.right, &before).await;
    sides.ca("other", KIND);
    fs::copy(sides.0.join("other.pem"), &anchor).expect("a copy");
    reload(&pair, &sides, "").await;
    assert!(list(&pair.right).await.is_empty());
    until(&pair.left, "nothing", <[_]>::is_empty).await;
}
