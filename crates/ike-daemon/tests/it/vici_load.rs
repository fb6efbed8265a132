//! What VICI clients load, beside what the file has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ike_daemon::config;
use ike_tokio::Target;
use vici::{Packet, Section, Value};

use crate::common::{Pair, list, tempdir, until};
use crate::pki::done;
use crate::vici::{Client, inside, serve};

pub fn yes(answer: &Section) -> bool {
    answer.str("success") == Some("yes")
}

/// Why the answer is no.
pub fn no(answer: &Section) -> String {
    assert_eq!(answer.str("success"), Some("no"), "{answer:?}");
    answer.str("errmsg").expect("a reason").to_owned()
}

/// The connection of the common configuration, as another name; `children` differ.
fn connection(port: u16, children: Section) -> Section {
    let auth = |id: &str| Section::new().text("auth", "psk").text("id", id);
    Section::new()
        .list("local_addrs", ["127.0.0.1"])
        .list("remote_addrs", ["127.0.0.1"])
        .text("remote_port", port.to_string())
        .list("proposals", ["aes256gcm16-prfsha256-x25519"])
        .section("local", auth("left.example.org"))
        .section("remote", auth("right.example.org"))
        .section("children", children)
}

fn child(options: &[(&str, &str)]) -> Section {
    let child = Section::new()
        .list("local_ts", ["10.1.0.0/16"])
        .list("remote_ts", ["10.2.0.0/16"])
        .list("esp_proposals", ["aes256gcm16-x25519"]);
    options.iter().fold(child, |child, (name, value)| child.text(*name, value))
}

pub fn only_net(options: &[(&str, &str)]) -> Section {
    Section::new().section("net", child(options))
}

pub fn names(answer: &Section, list: &str) -> Vec<String> {
    match answer.get(list) {
        Some(Value::List(items)) => {
            items.iter().map(|item| String::from_utf8(item.clone()).expect("text")).collect()
        }
        other => panic!("{list} is {other:?}"),
    }
}

pub async fn with(client: &mut Client, command: &str, name: &str, section: Section) -> Section {
    client.ask(command, Section::new().section(name, section)).await.0
}

#[tokio::test]
async fn a_loaded_connection_is_used_changed_and_unloaded() {
    let (pair, path) = serve("load-conn").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    client.register("list-conn").await;

    let net = || connection(port, only_net(&[]));
    assert!(yes(&with(&mut client, "load-conn", "other", net()).await));
    let (loaded, _) = client.ask("get-conns", Section::new()).await;
    assert_eq!(names(&loaded, "conns"), ["other"]);
    let (_, all) = client.ask("list-conns", Section::new()).await;
    assert_eq!(all.len(), 2);
    let initiate = || Section::new().text("ike", "other").text("child", "net");
    assert!(yes(&client.ask("initiate", initiate()).await.0));

    // The same again changes nothing, and what is changed keeps its SAs up.
    let before = list(&pair.left).await;
    assert!(yes(&with(&mut client, "load-conn", "other", net()).await));
    let changed = net().text("dpd_delay", "30s");
    assert!(yes(&with(&mut client, "load-conn", "other", changed).await));
    let after = list(&pair.left).await;
    assert_eq!(before[0].uniqueid, after[0].uniqueid);
    assert_eq!(before[0].child_sas[0].uniqueid, after[0].child_sas[0].uniqueid);
    let rekeyed = client.ask("rekey", Section::new().text("ike", "other")).await.0;
    assert!(yes(&rekeyed), "{rekeyed:?}");
    until(&pair.left, "rekeyed", |sas| {
        sas.iter().any(|sa| sa.uniqueid != before[0].uniqueid && sa.state == "ESTABLISHED")
    })
    .await;

    // Gone from what is tried, and still up.
    let name = || Section::new().text("name", "other");
    assert!(yes(&client.ask("unload-conn", name()).await.0));
    assert!(no(&client.ask("unload-conn", name()).await.0).contains("nothing loaded"));
    assert!(no(&client.ask("initiate", initiate()).await.0).contains("other"));
    assert!(list(&pair.left).await.iter().any(|sa| sa.state == "ESTABLISHED"));
    let (_, all) = client.ask("list-conns", Section::new()).await;
    assert_eq!(all.len(), 1);
}

/// Fault: leave out `refuse_updown` in src/vici/load.rs. Each member of the socket's group is root then.
#[tokio::test]
async fn a_client_loads_an_updown_only_where_the_file_allows_it() {
    let (pair, path) = serve("load-updown").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    let hooked = || connection(port, only_net(&[("updown", "touch /tmp/never")]));
    let why = no(&with(&mut client, "load-conn", "hooked", hooked()).await);
    assert!(why.contains("children.net.updown") && why.contains("allow_updown"), "{why}");
    let (loaded, _) = client.ask("get-conns", Section::new()).await;
    assert!(names(&loaded, "conns").is_empty());

    let text = "[charon.plugins.vici]\nallow_updown = true\n";
    let allowing = config::parse(text, Path::new("")).expect("no mistake");
    pair.left.reload(allowing).await.expect("reloaded");
    assert!(yes(&with(&mut client, "load-conn", "hooked", hooked()).await));
}

/// Faults: in `Keeper::merged`, give no warnings, or all of them.
#[tokio::test]
async fn a_load_and_a_reload_after_it_answer_with_warnings() {
    let (pair, path) = serve("load-warnings").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    let good = with(&mut client, "load-conn", "good", connection(port, only_net(&[]))).await;
    assert!(yes(&good) && good.get("warnings").is_none(), "{good:?}");
    let section = connection(port, only_net(&[])).list("pools", ["none"]);
    let doubtful = with(&mut client, "load-conn", "doubtful", section).await;
    assert!(yes(&doubtful));
    let warning = "connection doubtful: there is no [pools.none], so no peer gets an address: add that section";
    assert_eq!(names(&doubtful, "warnings"), [warning]);
    let next = with(&mut client, "load-conn", "next", connection(port, only_net(&[]))).await;
    assert!(next.get("warnings").is_none(), "what is not new is not told: {next:?}");
    let empty = config::parse("", Path::new("")).expect("an empty file");
    let told = pair.left.reload(empty).await.expect("reloaded");
    assert!(told.iter().any(|one| one == warning), "{told:?}");
    assert!(told.iter().any(|one| one == "there is no [connections.<name>]"), "{told:?}");
    // Where the file has a connection, what a client loads over it changes nothing in what is said of the file.
    let text = "[connections.f]\nlocal = { auth = 'psk', id = 'a' }\nremote = { auth = 'psk', id = 'b' }\n\
                proposals = ['aes256gcm16-prfsha256-x25519-mlkem768']\nchildren.net = {}\n";
    let own = config::parse(text, Path::new("")).expect("no mistake");
    let of_file = own.warnings.clone();
    assert!(!of_file.is_empty());
    let told = pair.left.reload(own).await.expect("reloaded");
    assert!(of_file.iter().all(|one| told.contains(one)), "{told:?}");
    let more = with(&mut client, "load-conn", "more", connection(port, only_net(&[]))).await;
    // The file has no secret for it.
    let told = names(&more, "warnings");
    assert!(told.len() == 1 && !of_file.contains(&told[0]), "{told:?}");
}

#[tokio::test]
async fn a_loaded_connection_stands_in_place_of_the_files_until_it_is_unloaded() {
    let (pair, path) = serve("load-over").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    client.register("list-conn").await;
    let section = connection(port, only_net(&[("mode", "transport")]));
    assert!(yes(&with(&mut client, "load-conn", "site", section).await));
    let mode = |all: &[(String, Section)]| {
        inside(&all[0].1, &["site", "children", "net"]).str("mode").map(str::to_owned)
    };
    let (_, all) = client.ask("list-conns", Section::new()).await;
    assert_eq!((all.len(), mode(&all).as_deref()), (1, Some("TRANSPORT")));
    // A reload of the file leaves what is loaded where it is.
    let text = fs::read_to_string("/dev/null").expect("nothing");
    let empty = config::parse(&text, Path::new("")).expect("an empty file");
    pair.left.reload(empty).await.expect("reloaded");
    let (_, all) = client.ask("list-conns", Section::new()).await;
    assert_eq!(mode(&all).as_deref(), Some("TRANSPORT"));
    assert!(yes(&client.ask("unload-conn", Section::new().text("name", "site")).await.0));
    assert!(client.ask("list-conns", Section::new()).await.1.is_empty());
}

#[tokio::test]
async fn start_action_is_acted_upon_and_undone() {
    let (pair, path) = serve("load-start").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    let two = |options: &[(&str, &str)]| only_net(options).section("other", child(&[]));
    let section = connection(port, two(&[("start_action", "start")]));
    assert!(yes(&with(&mut client, "load-conn", "auto", section).await));
    let up = until(&pair.left, "up", |sas| {
        sas.iter().any(|sa| sa.child_sas.iter().any(|c| c.name == "net" && c.state == "INSTALLED"))
    })
    .await;
    // Another child of the connection is changed: what was started stays.
    let changed = connection(port, two(&[("start_action", "start")]).section("more", child(&[])));
    assert!(yes(&with(&mut client, "load-conn", "auto", changed).await));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(list(&pair.left).await[0].uniqueid, up[0].uniqueid);
    // The child itself is changed: its SA ends, and a new one begins.
    let child_id = up[0].child_sas[0].uniqueid;
    let changed = connection(port, two(&[("start_action", "start"), ("priority", "7")]));
    assert!(yes(&with(&mut client, "load-conn", "auto", changed).await));
    until(&pair.left, "started again", |sas| {
        let mut children = sas.iter().flat_map(|sa| &sa.child_sas);
        children.any(|c| c.name == "net" && c.uniqueid != child_id && c.state == "INSTALLED")
    })
    .await;
    // Unloaded: what start_action had begun ends.
    assert!(yes(&client.ask("unload-conn", Section::new().text("name", "auto")).await.0));
    until(&pair.left, "ended", |sas| sas.is_empty()).await;
}

#[tokio::test]
async fn what_the_file_would_not_take_is_refused_by_name() {
    let (pair, path) = serve("load-wrong").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    let good = || connection(port, only_net(&[]));
    for (section, said) in [
        (good().text("remote_prot", "4500"), "unknown option `connections.x.remote_prot`"),
        (good().text("aggressive", "yes"), "`connections.x.aggressive` is not supported"),
        (good().text("dpd_delay", "soon"), "`connections.x.dpd_delay` cannot be \"soon\""),
        (connection(port, only_net(&[("mode", "fast")])), "children.net.mode` cannot be \"fast\""),
        (good().section("extra", Section::new()), "unknown section `connections.x.extra`"),
        (Section::new(), "`connections.x.local` is missing"),
        (good().text("dpd_delay", b"\xff\xfe"), "`dpd_delay` is not UTF-8"),
        (good().text("local", "psk"), "`local` is given twice"),
    ] {
        let why = no(&with(&mut client, "load-conn", "x", section.clone()).await);
        assert!(why.contains(said), "{why:?} for {section:?}");
        assert!(!why.contains("line "), "{why}");
    }
    assert!(no(&client.ask("load-conn", Section::new()).await.0).contains("one section"));
    assert!(no(&with(&mut client, "load-conn", "a b", good()).await).contains("cannot be a name"));
    for (command, about, said) in [
        (
            "load-token",
            Section::new().text("handle", "01"),
            "`module` is missing, and no PKCS#11 module is configured",
        ),
        ("load-token", Section::new().text("handle", "0g").text("module", "m"), "hexadecimal"),
        ("load-token", Section::new().text("module", "m"), "handle"),
        ("load-token", Section::new().text("handle", "01").text("label", "x"), "label"),
        ("load-cert", Section::new().text("type", "X509").text("data", "junk"), ""),
        ("load-cert", Section::new().text("type", "X509_AC").text("data", "x"), "X509_AC"),
        ("load-key", Section::new().text("type", "any").text("data", "junk"), ""),
        ("load-shared", Section::new().text("type", "PIN").text("data", "x"), "PIN"),
        ("load-shared", Section::new().text("type", "IKE"), "`data` is missing"),
        ("load-shared", Section::new().text("type", "PPK").text("data", "x"), "`secrets.ppk"),
        ("unload-shared", Section::new().text("id", "nobody"), "nobody"),
        ("unload-key", Section::new().text("id", "00"), "00"),
        ("unload-pool", Section::new().text("name", "nobody"), "nobody"),
        ("install", Section::new(), "`child` is missing"),
        ("install", Section::new().text("child", "nothing"), "nothing"),
        ("uninstall", Section::new().text("child", "net"), "net"),
        ("redirect", Section::new().text("ike", "site"), "gateway"),
        ("get-counters", Section::new().text("name", "site"), "site"),
        ("flush-certs", Section::new().text("type", "LEAVES"), "LEAVES"),
    ] {
        let why = no(&client.ask(command, about).await.0);
        assert!(why.contains(said), "{command}: {why}");
    }
    // Nothing of all that is there.
    for (command, list) in [("get-conns", "conns"), ("get-shared", "keys"), ("get-keys", "keys")] {
        assert_eq!(names(&client.ask(command, Section::new()).await.0, list), Vec::<String>::new());
    }
}

#[tokio::test]
async fn secrets_are_loaded_and_unloaded_by_their_identifiers() {
    // The right end has another secret than the left one's file.
    let pair = Pair::configured(|side, port| {
        let peer = if side == "left" { "right" } else { "left" };
        let text = format!(
            "charon {{ port = 0\n port_nat_t = 0\n retransmit_timeout = 0.5\n retransmit_tries = 2 }}
             connections {{ site {{ local_addrs = 127.0.0.1\n remote_addrs = 127.0.0.1
                remote_port = {port}
                local {{ auth = psk\n id = {side}.example.org }}
                remote {{ auth = psk
 id = {peer}.example.org }}
                children {{ net {{ }} }} }} }}
             secrets {{ ike-1 {{ id = nobody.example.org\n secret = \"another\" }} }}"
        );
        config::parse_settings(&text, Path::new("")).expect("no mistakes")
    })
    .await;
    let (mut pair, path) = (pair, tempdir("load-shared").join("vici"));
    let socket = ike_control::vici::ViciSocket::bind(&path).expect("a socket");
    pair.left.serve_vici(socket, None);
    let other = path.with_file_name("right");
    pair.right.serve_vici(ike_control::vici::ViciSocket::bind(&other).expect("a socket"), None);
    let (mut left, mut right) = (Client::connect(&path).await, Client::connect(&other).await);
    let net = || Section::new().text("child", "net");
    assert!(!yes(&left.ask("initiate", net()).await.0), "there is no common secret yet");
    let shared = |id: &str, secret: &[u8], owner: &str| {
        Section::new()
            .text("id", id)
            .text("type", "ike")
            .text("data", secret)
            .list("owners", [owner])
    };
    let secret = b"\x00binary \xff secret";
    for (client, peer) in [(&mut left, "right.example.org"), (&mut right, "left.example.org")] {
        assert!(yes(&client.ask("load-shared", shared("ike-a", secret, peer)).await.0));
        let shared = names(&client.ask("get-shared", Section::new()).await.0, "keys");
        assert_eq!(shared, ["ike-1", "ike-a"], "the file's as well: swanctl reads the same file");
    }
    let (answer, _) = left.ask("initiate", net()).await;
    assert!(yes(&answer), "{answer:?}");
    assert!(yes(&left.ask("unload-shared", Section::new().text("id", "ike-a")).await.0));
    let target = Target::named("site");
    pair.left.operator().down(&target).await.expect("down");
    assert!(!yes(&left.ask("initiate", net()).await.0));
    assert!(yes(&left.ask("load-shared", shared("ike-b", secret, "%any")).await.0));
    assert!(yes(&left.ask("initiate", net()).await.0));
    assert!(yes(&left.ask("clear-creds", Section::new()).await.0));
    assert!(names(&left.ask("get-shared", Section::new()).await.0, "keys").is_empty());
}

/// One end of a tunnel with a secret in the format of swanctl.conf.
fn in_swanctls_format(side: &str, port: u16) -> config::Config {
    let peer = if side == "left" { "right" } else { "left" };
    let text = format!(
        "charon {{ port = 0\n port_nat_t = 0\n retransmit_timeout = 0.5\n retransmit_tries = 2 }}
         connections {{ site {{ local_addrs = 127.0.0.1\n remote_addrs = 127.0.0.1
            remote_port = {port}
            local {{ auth = psk\n id = {side}.example.org }}
            remote {{ auth = psk\n id = {peer}.example.org }}
            children {{ net {{ }} }} }} }}
         secrets {{ ike-1 {{ secret = \"of the file\" }} }}"
    );
    config::parse_settings(&text, Path::new("")).expect("no mistakes")
}

/// Where swanctl reads the same file, the file's sections are swanctl's: they are named, replaced and unloaded as if
/// swanctl had loaded them. A reload is `swanctl --load-all --clear`.
///
/// Faults: in `Overlay::read`, hide nothing, or not what a loaded secret replaces; in `Overlay::names`, leave the file's
/// out; in `Overlay::adopt`, keep what is hidden, or what is loaded.
#[tokio::test]
async fn what_a_file_of_swanctl_gave_is_replaced_and_unloaded_like_what_swanctl_loads() {
    let mut pair = Pair::configured(in_swanctls_format).await;
    let path = tempdir("of-the-file").join("vici");
    pair.left.serve_vici(ike_control::vici::ViciSocket::bind(&path).expect("a socket"), None);
    let mut left = Client::connect(&path).await;
    left.register("list-conn").await;
    let again = |pair: &Pair| in_swanctls_format("left", pair.right.ports().nat_t);
    let named = |command: &'static str| (command, Section::new());
    let up = || ("initiate", Section::new().text("child", "net"));
    let down = || ("terminate", Section::new().text("ike", "site"));
    let shared = |secret: &str| {
        let section = Section::new().text("id", "ike-1").text("type", "ike");
        ("load-shared", section.text("data", secret).list("owners", ["%any"]))
    };
    let one = |id: &str| Section::new().text("id", id);
    let conn = || Section::new().text("name", "site");
    macro_rules! ask {
        ($what:expr) => {{
            let (command, section) = $what;
            left.ask(command, section).await
        }};
    }
    assert!(yes(&ask!(up()).0));
    assert!(yes(&ask!(down()).0));
    assert_eq!(names(&ask!(named("get-conns")).0, "conns"), ["site"]);
    assert_eq!(names(&ask!(named("get-shared")).0, "keys"), ["ike-1"]);

    // A changed secret takes the place of the file's.
    assert!(yes(&ask!(shared("another")).0));
    assert_eq!(names(&ask!(named("get-shared")).0, "keys"), ["ike-1"]);
    assert!(!yes(&ask!(up()).0), "the peer has the secret of before");
    pair.left.reload(again(&pair)).await.expect("a reload");
    assert!(yes(&ask!(up()).0), "what the file has is in force");
    assert!(yes(&ask!(down()).0));

    // A removed one lets nobody in.
    for remove in [("unload-shared", one("ike-1")), named("clear-creds")] {
        assert!(yes(&ask!(remove).0));
        assert!(names(&ask!(named("get-shared")).0, "keys").is_empty());
        assert!(!yes(&ask!(up()).0));
        pair.left.reload(again(&pair)).await.expect("a reload");
        assert!(yes(&ask!(up()).0));
        assert!(yes(&ask!(down()).0));
    }

    // The same of a connection.
    assert!(yes(&ask!(("unload-conn", conn())).0));
    assert!(names(&ask!(named("get-conns")).0, "conns").is_empty());
    assert_eq!(ask!(named("list-conns")).1.len(), 0);
    assert!(no(&ask!(("unload-conn", conn())).0).contains("site"));
    pair.left.reload(again(&pair)).await.expect("a reload");
    assert_eq!(names(&ask!(named("get-conns")).0, "conns"), ["site"]);

    // What no file has had stays.
    let port = pair.right.ports().nat_t;
    for (name, stays) in [("other", true), ("site", false)] {
        let loaded = Section::new().section(name, connection(port, only_net(&[])));
        assert!(yes(&ask!(("load-conn", loaded)).0));
        pair.left.reload(again(&pair)).await.expect("a reload");
        let all = pair.left.config();
        let of_name = all.endpoint.connections.iter().find(|one| one.name == name);
        let proposals = of_name.expect("it is there").proposals.len();
        assert_eq!(proposals == 1, stays, "{name} is as it was loaded");
    }
}

/// What `pki` has made in `folder`.
pub fn made(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).expect("a file")
}

#[tokio::test]
async fn certificates_and_keys_are_loaded_and_listed() {
    let folder = tempdir("load-cert");
    done(&folder, "--gen --type ecdsa --out ca.key");
    done(&folder, "--self --ca --in ca.key --dn \"O=test, CN=CA\" --out ca.pem");
    for side in ["left", "right"] {
        done(&folder, &format!("--gen --type ecdsa --out {side}.key"));
        done(
            &folder,
            &format!(
                "--issue --in {side}.key --cacert ca.pem --cakey ca.key --dn \"O=test, CN={side}\" \
                 --san {side}.example.org --out {side}.pem"
            ),
        );
    }
    let mut pair = Pair::configured(|_, _| {
        let text = "[charon]\nport = 0\nport_nat_t = 0\n";
        config::parse(text, Path::new("")).expect("no mistakes")
    })
    .await;
    let mut clients = Vec::new();
    for side in ["left", "right"] {
        let path = folder.join(format!("{side}.vici"));
        let socket = ike_control::vici::ViciSocket::bind(&path).expect("a socket");
        match side {
            "left" => pair.left.serve_vici(socket, None),
            _ => pair.right.serve_vici(socket, None),
        }
        clients.push((side, Client::connect(&path).await));
    }
    let ports = (pair.left.ports().nat_t, pair.right.ports().nat_t);
    let mut ids = Vec::new();
    for (side, client) in &mut clients {
        let (port, peer) = if *side == "left" { (ports.1, "right") } else { (ports.0, "left") };
        let connection = Section::new()
            .list("local_addrs", ["127.0.0.1"])
            .list("remote_addrs", ["127.0.0.1"])
            .text("remote_port", port.to_string())
            .section(
                "local",
                Section::new()
                    .list("certs", [made(&folder, &format!("{side}.pem"))])
                    .text("id", format!("{side}.example.org")),
            )
            .section("remote", Section::new().text("id", format!("{peer}.example.org")))
            .section("children", only_net(&[]));
        let connection = match *side {
            "left" => connection,
            // The same traffic, the other way round.
            _ => Section::new()
                .list("local_addrs", ["127.0.0.1"])
                .list("remote_addrs", ["127.0.0.1"])
                .section(
                    "local",
                    Section::new()
                        .list("certs", [made(&folder, "right.pem")])
                        .text("id", "right.example.org"),
                )
                .section("remote", Section::new().text("id", "left.example.org"))
                .section(
                    "children",
                    Section::new().section(
                        "net",
                        Section::new()
                            .list("local_ts", ["10.2.0.0/16"])
                            .list("remote_ts", ["10.1.0.0/16"]),
                    ),
                ),
        };
        // In any order: the connection may come before its key.
        let answer = with(client, "load-conn", "site", connection).await;
        assert!(yes(&answer), "{answer:?}");
        let ca = Section::new().text("cacert", made(&folder, "ca.pem"));
        assert!(yes(&with(client, "load-authority", "own", ca).await));
        let key =
            Section::new().text("type", "any").text("data", made(&folder, &format!("{side}.key")));
        let (answer, _) = client.ask("load-key", key).await;
        assert!(yes(&answer), "{answer:?}");
        ids.push(answer.str("id").expect("an id").to_owned());
        assert_eq!(
            names(&client.ask("get-keys", Section::new()).await.0, "keys"),
            ids[ids.len() - 1..]
        );
        let (authorities, _) = client.ask("get-authorities", Section::new()).await;
        assert_eq!(names(&authorities, "authorities"), ["own"]);
    }
    let client = &mut clients[0].1;
    let (answer, _) = client.ask("initiate", Section::new().text("child", "net")).await;
    assert!(yes(&answer), "{answer:?}");

    let cert = Section::new().text("type", "X509").text("flag", "NONE");
    let cert = cert.text("data", made(&folder, "left.pem"));
    assert!(yes(&client.ask("load-cert", cert).await.0));
    client.register("list-cert").await;
    let (_, all) = client.ask("list-certs", Section::new()).await;
    let flags: Vec<_> = all.iter().filter_map(|(_, section)| section.str("flag")).collect();
    assert_eq!(flags, ["NONE", "CA"]);
    assert_eq!(all[0].1.str("has_privkey"), Some("yes"));
    assert!(matches!(all[0].1.get("data"), Some(Value::Text(der)) if der.first() == Some(&0x30)));
    let only = Section::new().text("type", "X509").text("flag", "CA");
    assert_eq!(client.ask("list-certs", only).await.1.len(), 1);
    client.register("list-authority").await;
    let (_, all) = client.ask("list-authorities", Section::new()).await;
    assert_eq!(inside(&all[0].1, &["own"]).str("cacert"), Some("O=test, CN=CA"));

    // Without its key it cannot sign any more.
    assert!(yes(&client.ask("unload-key", Section::new().text("id", &ids[0])).await.0));
    assert!(yes(&client.ask("terminate", Section::new().text("ike", "site")).await.0));
    assert!(!yes(&client.ask("initiate", Section::new().text("child", "net")).await.0));
}

#[tokio::test]
async fn traps_are_installed_listed_and_uninstalled() {
    let (_pair, path) = serve("load-trap").await;
    let mut client = Client::connect(&path).await;
    client.register("list-policy").await;
    let net = || Section::new().text("child", "net");
    assert!(yes(&client.ask("install", net()).await.0));
    let (_, policies) = client.ask("list-policies", Section::new().text("trap", "yes")).await;
    let policy = inside(&policies[0].1, &["site/net"]);
    assert_eq!(policy.str("mode"), Some("tunnel"));
    assert_eq!(names(policy, "remote-ts"), ["10.2.0.0/16"]);
    assert!(client.ask("list-policies", Section::new().text("drop", "yes")).await.1.is_empty());
    assert!(yes(&client.ask("uninstall", net()).await.0));
    assert!(client.ask("list-policies", Section::new().text("trap", "yes")).await.1.is_empty());
    assert!(no(&client.ask("uninstall", net()).await.0).contains("net"));
}

#[tokio::test]
async fn an_sa_ends_at_once_by_force_and_counters_count() {
    let (pair, path) = serve("force").await;
    let mut client = Client::connect(&path).await;
    assert!(yes(&client.ask("initiate", Section::new().text("child", "net")).await.0));
    let (counters, _) = client.ask("get-counters", Section::new()).await;
    let global = inside(&counters, &["counters", ""]);
    assert_eq!(global.str("ike-init-out-req"), Some("1"));
    assert_eq!(global.str("ike-auth-in-resp"), Some("1"));
    let of_site = || Section::new().text("name", "site");
    let (counters, _) = client.ask("get-counters", of_site()).await;
    let site = inside(&counters, &["counters", "site"]);
    for name in ["ike-init-out-req", "ike-init-in-resp", "ike-auth-out-req", "ike-auth-in-resp"] {
        assert_eq!((name, site.str(name)), (name, Some("1")));
    }
    let (counters, _) = client.ask("get-counters", Section::new().text("all", "yes")).await;
    let all: Vec<_> = inside(&counters, &["counters"]).iter().map(|(name, _)| name).collect();
    assert_eq!(all, ["site"]);
    // The end that answers knows the connection once it has authenticated its peer.
    let theirs = pair.right.operator().handle().counters().of("site").expect("counted");
    let theirs: BTreeMap<_, _> = theirs.iter().collect();
    assert_eq!((theirs["ike-auth-out-resp"], theirs["ike-init-in-req"]), (1, 0));
    // The right one is gone without a word: nobody would ever answer the delete.
    pair.right.leave(Duration::from_secs(5)).await;
    let force = Section::new().text("ike", "site").text("force", "yes").text("timeout", "300");
    let (answer, _) = client.ask("terminate", force).await;
    assert!(yes(&answer), "{answer:?}");
    assert!(list(&pair.left).await.is_empty());
    assert!(yes(&client.ask("reset-counters", Section::new()).await.0));
    let (counters, _) = client.ask("get-counters", Section::new()).await;
    assert_eq!(inside(&counters, &["counters", ""]).str("ike-init-out-req"), Some("0"));
    let (counters, _) = client.ask("get-counters", of_site()).await;
    assert_eq!(inside(&counters, &["counters", "site"]).str("ike-init-out-req"), Some("1"));
    assert!(yes(&client.ask("reset-counters", of_site()).await.0));
    assert!(no(&client.ask("get-counters", of_site()).await.0).contains("site"));
    assert!(yes(&client.ask("reset-counters", Section::new().text("all", "yes")).await.0));
    let (algorithms, _) = client.ask("get-algorithms", Section::new()).await;
    assert_eq!(inside(&algorithms, &["aead"]).str("AES_GCM_16"), Some("pq-kem"));
    assert_eq!(inside(&algorithms, &["ke"]).str("CURVE_25519"), Some("pq-kem"));
}

#[tokio::test]
async fn a_reload_keeps_what_is_up_and_a_broken_file_changes_nothing() {
    let folder = tempdir("vici-reload");
    let file = folder.join("ike.conf");
    let text = |port: u16, site: &str, more: &str| {
        format!(
            "charon {{ port = 0\n port_nat_t = 0\n retransmit_timeout = 0.5\n retransmit_tries = 2 }}
             connections {{ site {{ local_addrs = 127.0.0.1\n remote_addrs = 127.0.0.1
                remote_port = {port}
                local {{ auth = psk\n id = left.example.org }}
                remote {{ auth = psk\n id = right.example.org }}
                children {{ net {{ local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16
                    esp_proposals = aes256gcm16-x25519\n {site} }} }} }} {more} }}
             secrets {{ ike {{ secret = \"{}\" }} }}",
            crate::common::PSK
        )
    };
    let mut pair = Pair::start(crate::common::Carrier::None, "", "").await;
    let port = pair.right.ports().nat_t;
    fs::write(&file, text(port, "", "")).expect("a file");
    let path = folder.join("vici");
    let socket = ike_control::vici::ViciSocket::bind(&path).expect("a socket");
    pair.left.serve_vici(socket, Some(file.clone()));
    let mut client = Client::connect(&path).await;
    client.register("list-conn").await;
    assert!(yes(&client.ask("reload-settings", Section::new()).await.0));
    assert!(yes(&client.ask("initiate", Section::new().text("child", "net")).await.0));
    let up = list(&pair.left).await;
    let still = |sas: &[ike_control::views::IkeSa]| {
        sas.len() == 1
            && sas[0].uniqueid == up[0].uniqueid
            && sas[0].child_sas[0].uniqueid == up[0].child_sas[0].uniqueid
    };

    // A mistake anywhere: nothing of the file is taken.
    let other = "other { local { auth = psk }\n remote { auth = psk } children { x { } } }";
    fs::write(&file, text(port, "", other).replace("secret =", "secrte =")).expect("a file");
    let why = no(&client.ask("reload-settings", Section::new()).await.0);
    assert!(why.contains("ike.conf:") && why.contains("secrte"), "{why}");
    assert_eq!(client.ask("list-conns", Section::new()).await.1.len(), 1);
    assert!(still(&list(&pair.left).await));

    // Another connection beside it, then it is changed itself: its SAs stay, and are rekeyed.
    fs::write(&file, text(port, "", other)).expect("a file");
    assert!(yes(&client.ask("reload-settings", Section::new()).await.0));
    assert_eq!(client.ask("list-conns", Section::new()).await.1.len(), 2);
    fs::write(&file, text(port, "priority = 9", other)).expect("a file");
    assert!(yes(&client.ask("reload-settings", Section::new()).await.0));
    assert!(still(&list(&pair.left).await));
    let old = up[0].child_sas[0].uniqueid;
    assert!(yes(&client.ask("rekey", Section::new().text("child", "net")).await.0));
    until(&pair.left, "the child rekeyed", |sas| {
        sas.iter().flat_map(|sa| &sa.child_sas).any(|c| c.uniqueid != old && c.state == "INSTALLED")
    })
    .await;

    // Gone from the file: gone from what is tried, and still up.
    fs::write(&file, text(port, "", other).replace("site {", "elsewhere {")).expect("a file");
    assert!(yes(&client.ask("reload-settings", Section::new()).await.0));
    no(&client.ask("initiate", Section::new().text("ike", "site")).await.0);
    let sas = list(&pair.left).await;
    assert_eq!((sas[0].uniqueid, sas[0].state.as_str()), (up[0].uniqueid, "ESTABLISHED"));
    assert!(yes(&client.ask("rekey", Section::new().text("ike", "site")).await.0));
    until(&pair.left, "the IKE SA rekeyed", |sas| {
        sas.iter().any(|sa| sa.uniqueid != up[0].uniqueid && sa.state == "ESTABLISHED")
    })
    .await;
}

/// Fault: in `Overlay::read_section`, read a pool without the others.
#[tokio::test]
async fn hundreds_of_connections_are_loaded_one_by_one() {
    let (pair, path) = serve("load-many").await;
    let port = pair.right.ports().nat_t;
    let mut client = Client::connect(&path).await;
    for number in 0..300 {
        let section = connection(port, only_net(&[]));
        assert!(yes(&with(&mut client, "load-conn", &format!("c{number}"), section).await));
    }
    let (loaded, _) = client.ask("get-conns", Section::new()).await;
    assert_eq!(names(&loaded, "conns").len(), 300);
    // What cannot be in force with another load is refused, and keeps no later load away.
    let pool = |addrs: &str| Section::new().text("addrs", addrs);
    assert!(yes(&with(&mut client, "load-pool", "a", pool("10.50.0.0/24")).await));
    let why = no(&with(&mut client, "load-pool", "b", pool("10.50.0.0/25")).await);
    assert!(why.contains("addresses in common"), "{why}");
    let section = connection(port, only_net(&[]));
    assert!(yes(&with(&mut client, "load-conn", "later", section).await));
    let all = client.ask("get-pools", Section::new().text("leases", "yes")).await.0;
    assert!(all.get("a").is_some() && all.get("b").is_none(), "{all:?}");
    // The last one is in force, however quick the answers were.
    let last = Section::new().text("ike", "c299").text("child", "net");
    assert!(yes(&client.ask("initiate", last).await.0));
    client.send(&Packet::Request("version".to_owned(), Section::new())).await;
    assert!(matches!(client.receive().await, Some(Packet::Response(_))));
}
