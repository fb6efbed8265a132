//! Keys and certificates that VICI clients load over a file in the format of swanctl.conf.

use std::fs;
use std::path::Path;

use ike_control::vici::ViciSocket;
use ike_daemon::config;
use vici::Section;

use crate::common::{Pair, tempdir};
use crate::pki::done;
use crate::vici::Client;
use crate::vici_load::{made, names, no, only_net, with, yes};

/// What the file has in each test.
const CHARON: &str = "charon { port = 0\n port_nat_t = 0 }\n";

/// Makes a CA, its list, and certificates of the identity `left` with keys of these types.
fn certify(folder: &Path, kinds: &[&str]) {
    done(folder, "--gen --type ecdsa --out ca.key");
    done(folder, "--self --ca --in ca.key --dn CN=CA --out ca.pem");
    for kind in kinds {
        done(folder, &format!("--gen --type {kind} --out {kind}.key"));
        let how = "--cacert ca.pem --cakey ca.key --dn CN=left --san left";
        done(folder, &format!("--issue --in {kind}.key {how} --out {kind}.pem"));
    }
}

/// The file `text`, read in `folder`.
fn file(text: &str, folder: &Path) -> config::Config {
    config::parse_settings(&format!("{CHARON}{text}"), folder).expect("no mistakes")
}

/// Two daemons, the left one with this file, and a client of that.
async fn serve(text: &str, folder: &Path) -> (Pair, Client) {
    let mut pair = Pair::configured(|side, _| match side {
        "left" => file(text, folder),
        _ => file("", Path::new("")),
    })
    .await;
    let path = folder.join("vici");
    pair.left.serve_vici(ViciSocket::bind(&path).expect("a socket"), None);
    let mut client = Client::connect(&path).await;
    client.register("list-cert").await;
    (pair, client)
}

fn certificate(folder: &Path, name: &str, kind: &str, flag: &str) -> (&'static str, Section) {
    let section = Section::new().text("type", kind).text("flag", flag);
    ("load-cert", section.text("data", made(folder, name)))
}

fn key(folder: &Path, name: &str) -> (&'static str, Section) {
    ("load-key", Section::new().text("type", "any").text("data", made(folder, name)))
}

async fn ask(client: &mut Client, (command, section): (&str, Section)) -> Section {
    client.ask(command, section).await.0
}

async fn key_ids(client: &mut Client) -> Vec<String> {
    names(&client.ask("get-keys", Section::new()).await.0, "keys")
}

/// A command that fails changes nothing: nor does the next one that succeeds put in force what it would have done.
///
/// Fault: in `Operator::load_by`, leave out `put_back`.
#[tokio::test]
async fn a_refused_change_of_credentials_leaves_those_of_the_file() {
    let folder = tempdir("creds-refused");
    certify(&folder, &["ecdsa"]);
    for (name, place) in [("ecdsa.pem", "x509"), ("ecdsa.key", "private")] {
        fs::create_dir(folder.join(place)).expect("a folder");
        fs::copy(folder.join(name), folder.join(place).join(name)).expect("a copy");
    }
    let text = "connections { site { local { certs = ecdsa.pem }\n remote { id = right }\n children { net { } } } }
                secrets { ike-1 { secret = \"of the file\" } }";
    let (_pair, mut client) = serve(text, &folder).await;
    let ids = key_ids(&mut client).await;
    assert_eq!(ids.len(), 1);
    // The connection cannot be assembled while its certificate is gone.
    let (there, gone) = (folder.join("x509/ecdsa.pem"), folder.join("gone.pem"));
    let unload = ("unload-key", Section::new().text("id", ids[0].as_str()));
    for change in [key(&folder, "ecdsa.key"), unload, ("clear-creds", Section::new())] {
        fs::rename(&there, &gone).expect("a file");
        let command = change.0;
        let why = no(&ask(&mut client, change).await);
        assert!(why.contains("certs"), "{command}: {why}");
        fs::rename(&gone, &there).expect("a file");
        assert_eq!(key_ids(&mut client).await, ids, "{command}");
        let (shared, _) = client.ask("get-shared", Section::new()).await;
        assert_eq!(names(&shared, "keys"), ["ike-1"], "{command}");
        // Something else succeeds.
        assert!(yes(&ask(&mut client, certificate(&folder, "ca.pem", "X509", "CA")).await));
        let only = Section::new().text("type", "X509").text("flag", "NONE");
        let (_, all) = client.ask("list-certs", only).await;
        let signs: Vec<_> = all.iter().filter_map(|(_, one)| one.str("has_privkey")).collect();
        assert_eq!(signs, ["yes"], "{command}");
    }
}

/// `swanctl --load-creds --clear` loads one key after another, and between them a connection may have none that it can
/// use.
///
/// Faults: in `choose_credentials`, take each certificate with the identity in place of one without a key, or of none.
#[tokio::test]
async fn a_key_of_another_type_is_loaded_before_the_one_that_a_connection_needs() {
    let folder = tempdir("creds-types");
    certify(&folder, &["ecdsa", "ed25519"]);
    let (_pair, mut client) = serve("", &folder).await;
    for name in ["ed25519.pem", "ecdsa.pem"] {
        assert!(yes(&ask(&mut client, certificate(&folder, name, "X509", "NONE")).await));
    }
    let named = |name: &str| Section::new().list("certs", [made(&folder, name)]);
    let by_id = Section::new().text("id", "left");
    for (name, auth, local) in [
        ("named", "ecdsa-sha384", named("ecdsa.pem")),
        ("other", "ed25519", named("ed25519.pem")),
        ("by-id", "ecdsa-sha384", by_id),
    ] {
        let connection = Section::new()
            .section("local", local.text("auth", auth))
            .section("remote", Section::new().text("id", "right"))
            .section("children", only_net(&[]));
        let answer = with(&mut client, "load-conn", name, connection).await;
        assert!(yes(&answer), "{name}: {answer:?}");
    }
    for name in ["ed25519.key", "ecdsa.key"] {
        let answer = ask(&mut client, key(&folder, name)).await;
        assert!(yes(&answer), "{name}: {answer:?}");
    }
    assert_eq!(key_ids(&mut client).await.len(), 2);
}

/// With a file that has no connections and no keys, everything is a client's. A reload takes away what a file has had,
/// and nothing else.
///
/// Faults: in `LoadedCredentials::adopt`, keep no certificate, or no list, or all of them.
#[tokio::test]
async fn a_reload_keeps_certificates_and_lists_that_no_file_has_had() {
    let folder = tempdir("creds-reload");
    let other = folder.join("other");
    fs::create_dir_all(&other).expect("a folder");
    for place in [&folder, &other] {
        certify(place, &["ecdsa"]);
        done(place, "--signcrl --cacert ca.pem --cakey ca.key --out ca.crl");
    }
    // The file has the other ones.
    let all = [("ca.pem", "x509ca"), ("ca.crl", "x509crl"), ("ecdsa.pem", "x509")];
    for (name, place) in all {
        fs::create_dir(folder.join(place)).expect("a folder");
        fs::copy(other.join(name), folder.join(place).join(name)).expect("a copy");
    }
    let (pair, mut client) = serve("", &folder).await;
    for place in [&folder, &other] {
        for loaded in [
            certificate(place, "ca.pem", "X509", "CA"),
            certificate(place, "ca.crl", "X509_CRL", "NONE"),
            certificate(place, "ecdsa.pem", "X509", "NONE"),
            key(place, "ecdsa.key"),
        ] {
            let answer = ask(&mut client, loaded).await;
            assert!(yes(&answer), "{answer:?}");
        }
    }
    let count = async |client: &mut Client| {
        let (_, all) = client.ask("list-certs", Section::new()).await;
        let kinds = all.iter().map(|(_, one)| (one.str("type"), one.str("flag")));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort();
        kinds.dedup();
        (all.len(), kinds.len())
    };
    pair.left.reload(file("", &folder)).await.expect("a reload");
    assert_eq!(count(&mut client).await, (6, 3), "the file's and the loaded");
    for (name, place) in all {
        fs::remove_file(folder.join(place).join(name)).expect("a file");
    }
    // What a reload puts in force, and what it leaves to the next one.
    for _ in 0..2 {
        pair.left.reload(file("", &folder)).await.expect("a reload");
        assert_eq!(count(&mut client).await, (3, 3), "the loaded alone");
        assert_eq!(key_ids(&mut client).await.len(), 2, "no file has had a key");
    }
    assert!(yes(&ask(&mut client, certificate(&folder, "ca.pem", "X509", "CA")).await));
    assert_eq!(count(&mut client).await, (3, 3));
}
