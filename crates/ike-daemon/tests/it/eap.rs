//! EAP between two daemons, by every method and both versions of TLS, and what a configuration may say of it.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{ANY, Pair, list, listen, start, tempdir, until};
use crate::pki::done;
use ike_daemon::config::{self, Config, Ports};
use ike_daemon::daemon::open;
use ike_tokio::{Plane, Sockets, Target};

/// Folders "left" (the client) and "right" (the gateway) with certificates of one CA.
fn sides(name: &str) -> PathBuf {
    let folder = tempdir(name);
    done(&folder, "--gen --type ecdsa --size 256 --out ca.key");
    done(&folder, "--self --ca --in ca.key --dn \"O=test, CN=CA\" --out ca.pem");
    for side in ["left", "right"] {
        for to in ["x509", "x509ca", "private"] {
            fs::create_dir_all(folder.join(side).join(to)).expect("a folder");
        }
        done(&folder, &format!("--gen --type ecdsa --size 256 --out {side}/private/own.key"));
        done(
            &folder,
            &format!(
                "--issue --in {side}/private/own.key --cacert ca.pem --cakey ca.key \
                 --dn \"O=test, CN={side}\" --san {side}.example.org --out {side}/x509/own.pem"
            ),
        );
        fs::copy(folder.join("ca.pem"), folder.join(side).join("x509ca/ca.pem")).expect("a copy");
    }
    folder
}

/// What the sections `local` and `remote` of a side say, and what else there is.
#[derive(Clone, Copy)]
struct Says {
    local: &'static str,
    remote: &'static str,
    more: &'static str,
}

fn text(side: &str, port: u16, says: Says) -> String {
    let peer = if side == "left" { "right" } else { "left" };
    let [local_ts, remote_ts] = match side {
        "left" => ["10.1.0.0/16", "10.2.0.0/16"],
        _ => ["10.2.0.0/16", "10.1.0.0/16"],
    };
    let Says { local, remote, more } = says;
    format!(
        "[charon]
        port = 0
        port_nat_t = 0
        retransmit_timeout = 0.5
        retransmit_tries = 2
        [connections.site]
        local_addrs = '127.0.0.1'
        remote_addrs = '127.0.0.1'
        remote_port = {port}
        proposals = 'aes256gcm16-prfsha256-x25519'
        [connections.site.local]
        id = '{side}.example.org'
        {local}
        [connections.site.remote]
        id = '{peer}.example.org'
        {remote}
        [connections.site.children.net]
        local_ts = '{local_ts}'
        remote_ts = '{remote_ts}'
        {more}
        "
    )
}

const CAROL: &str = "[secrets.eap-carol]\nid = 'carol'\nsecret = 'Ar3etTnp'";

async fn pair(folder: &std::path::Path, client: Says, gateway: Says) -> Pair {
    let configure = |side: &str, port: u16| -> Config {
        let says = if side == "left" { client } else { gateway };
        let text = text(side, port, says);
        let config = config::parse(&text, &folder.join(side));
        config.unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:#?}"))
    };
    Pair::configured(configure).await
}

#[tokio::test]
async fn every_method_brings_a_client_up() {
    let folder = sides("eap-methods");
    let by_name = "auth = 'eap-NAME'\neap_id = 'carol'";
    let asks = "auth = 'eap-NAME'\neap_id = '%any'";
    let gateway = ("auth = 'pubkey'", "certs = 'own.pem'");
    let tls12 = "[charon.tls]\nversion_max = '1.2'";
    let alone_tls = "auth = 'eap-tls'\ncerts = 'own.pem'";
    let alone_ttls = "auth = 'eap-ttls'\neap_id = 'carol'";
    let gtc = "[charon.plugins.eap-ttls]\nphase2_method = 'gtc'\nfragment_size = 100";
    // Client's local, its remote; gateway's local, its remote; what else there is; what is shown of it.
    type Case = [&'static str; 6];
    let cases: [Case; 11] = [
        ["mschapv2", by_name, gateway.0, asks, "", "EAP-MSCHAPV2 (\"carol\")"],
        ["md5", by_name, gateway.0, asks, "", "EAP-MD5 (\"carol\")"],
        ["gtc", by_name, gateway.0, asks, "", "EAP-GTC (\"carol\")"],
        ["ttls", by_name, gateway.0, asks, "", "EAP-TTLS (\"carol\")"],
        ["ttls", by_name, gateway.0, asks, tls12, "EAP-TTLS (\"carol\")"],
        ["ttls", by_name, gateway.0, asks, gtc, "EAP-TTLS (\"carol\")"],
        [
            "mschapv2",
            "auth = 'eap'\neap_id = 'carol'",
            gateway.0,
            "auth = 'eap-dynamic'\neap_id = '%any'",
            "",
            "EAP-TTLS (\"carol\")",
        ],
        ["tls", alone_tls, gateway.0, "auth = 'eap-tls'", "", "EAP-TLS (\"left.example.org\")"],
        ["tls", alone_tls, gateway.0, "auth = 'eap-tls'", tls12, "EAP-TLS (\"left.example.org\")"],
        [
            "tls",
            alone_tls,
            "auth = 'eap-tls'",
            "auth = 'eap-tls'",
            "",
            "EAP-TLS (\"left.example.org\")",
        ],
        [
            "ttls",
            alone_ttls,
            "auth = 'eap-ttls'",
            "auth = 'eap-ttls'\neap_id = '%any'",
            "",
            "EAP-TTLS (\"carol\")",
        ],
    ];
    for [name, client, judged, asks, more, shown] in cases {
        let leak = |text: &str| -> &'static str { String::leak(text.replace("NAME", name)) };
        let own = if judged.contains("eap") {
            [judged, gateway.1].join("\n")
        } else {
            gateway.1.to_owned()
        };
        let more: &'static str = String::leak([more, CAROL].join("\n"));
        let left = Says { local: leak(client), remote: judged, more };
        let right = Says { local: leak(&own), remote: leak(asks), more };
        let pair = pair(&folder, left, right).await;
        let up = pair.left.operator().up(&Target::named("net")).await;
        up.unwrap_or_else(|why| panic!("{name} {client} {asks} {more}: {why}"));
        let sas = until(&pair.right, "up", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
        assert_eq!(sas[0].remote_auth[0].by, shown);
        assert_eq!(sas[0].remote_auth[0].id, "left.example.org");
        assert_eq!(list(&pair.left).await[0].local_auth[0].by, shown);
        let alone = judged.contains("eap");
        assert_eq!(list(&pair.left).await[0].remote_auth[0].by == shown, alone);
    }
}

#[tokio::test]
async fn who_does_not_prove_itself_stays_out() {
    let folder = sides("eap-refused");
    // A gateway whose certificate in TLS is of another CA.
    let other = sides("eap-other");
    let wrong = "[secrets.eap-carol]\nid = 'carol'\nsecret = 'wrong'";
    let nobody = "[secrets.eap-dave]\nid = 'dave'\nsecret = 'Ar3etTnp'";
    let mschapv2 = "auth = 'eap-mschapv2'\neap_id = 'carol'";
    let asks = "auth = 'eap-mschapv2'\neap_id = '%any'";
    let own = "certs = 'own.pem'";
    let tls = "auth = 'eap-tls'\ncerts = 'own.pem'";
    let ttls = "auth = 'eap-ttls'\neap_id = 'carol'";
    let gateway = |local, remote| Says { local, remote, more: CAROL };
    let client = |local, remote, more| Says { local, remote, more };
    let pubkey = "auth = 'pubkey'";
    let cases = [
        ("password", &folder, client(mschapv2, pubkey, wrong), gateway(own, asks)),
        ("secret", &folder, client(mschapv2, pubkey, nobody), gateway(own, asks)),
        (
            "method",
            &folder,
            client(mschapv2, pubkey, CAROL),
            gateway(own, "auth = 'eap-md5'\neap_id = '%any'"),
        ),
        (
            "identity",
            &folder,
            client(tls, pubkey, ""),
            gateway(own, "auth = 'eap-tls'\neap_id = 'mallory.example.org'"),
        ),
        (
            "client's CA",
            &other,
            client(tls, "auth = 'eap-tls'", ""),
            gateway(tls, "auth = 'eap-tls'"),
        ),
        (
            "gateway's CA",
            &other,
            client(ttls, "auth = 'eap-ttls'", CAROL),
            gateway("auth = 'eap-ttls'\ncerts = 'own.pem'", "auth = 'eap-ttls'\neap_id = '%any'"),
        ),
        (
            "name in the tunnel",
            &folder,
            client(ttls, pubkey, CAROL),
            gateway(own, "auth = 'eap-ttls'\neap_id = 'dave'"),
        ),
        (
            "tunnel",
            &folder,
            client(ttls, pubkey, wrong),
            gateway(own, "auth = 'eap-ttls'\neap_id = '%any'"),
        ),
    ];
    for (what, right_folder, client, gateway) in cases {
        let configure = |side: &str, port: u16| -> Config {
            let (says, folder) =
                if side == "left" { (client, &folder) } else { (gateway, right_folder) };
            config::parse(&text(side, port, says), &folder.join(side))
                .unwrap_or_else(|mistakes| panic!("{what}: {mistakes:#?}"))
        };
        let pair = Pair::configured(configure).await;
        let up = pair.left.operator().up(&Target::named("net")).await;
        let why = up.expect_err(what).to_string();
        assert!(!why.contains("Ar3etTnp"), "{why}");
        until(&pair.right, what, <[_]>::is_empty).await;
        assert!(list(&pair.left).await.is_empty(), "{what}");
    }
}

const UNSIGNED: &str =
    "EAP needs a gateway that authenticates by public key, or EAP alone at both ends";

#[test]
fn what_cannot_be_is_named() {
    let folder = sides("eap-config");
    let gateway = "certs = 'own.pem'";
    let table = [
        (
            "auth = 'eap-sim'",
            "auth = 'pubkey'",
            "",
            "`connections.site.local.auth = \"eap-sim\"` is not supported yet",
        ),
        ("auth = 'eap-radius'", "auth = 'pubkey'", "", "is for the peer"),
        (gateway, "auth = 'eap'", "", "does not say which method"),
        (gateway, "auth = 'eap-radius'", "", "there is no RADIUS server"),
        ("auth = 'psk'", "auth = 'eap-tls'", "", "TLS needs a certificate"),
        ("auth = 'psk'", "auth = 'eap-mschapv2'", "", UNSIGNED),
        ("auth = 'null'", "auth = 'eap-mschapv2'", "", UNSIGNED),
        ("auth = 'eap-mschapv2'", "auth = 'psk'", "", UNSIGNED),
        ("auth = 'eap-mschapv2'", "auth = 'null'", "", UNSIGNED),
        ("auth = 'eap-mschapv2'", "auth = 'eap-mschapv2'", "", "not authenticate it well enough"),
        (
            "auth = 'eap-tls'\ncerts = 'own.pem'",
            "auth = 'eap-md5'",
            "",
            "not authenticate it well enough",
        ),
        (gateway, "auth = 'eap-mschapv2'\neap_id = ''", "", "eap_id"),
        (gateway, "auth = 'eap-mschapv2'\neap_id = '*@example.org'", "", "no patterns"),
        (gateway, "auth = 'eap-tls'\neap_id = 'C=CH, CN=*'", "", "no patterns"),
        (gateway, "auth = 'eap-mschapv2'\neap_id = '^.*@example[.]org$'", "", "no patterns"),
        (gateway, "auth = 'eap-mschapv2'\neap_id = '^carol$'", "", "no patterns"),
        (gateway, "auth = 'eap-mschapv2'\ncacerts = 'ca.pem'", "", "cacerts` is of no use"),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[secrets.xauth-a]\nid = 'a'",
            "`secrets.xauth-a.secret` is missing",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[charon.tls]\nversion_min = '1.3'\nversion_max = '1.2'",
            "above `version_max`",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[charon.plugins.eap-radius]\nsecret = 'x'",
            "`charon.plugins.eap-radius.address` is missing",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'",
            "`charon.plugins.eap-radius.secret` is missing",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\neap_start = true",
            "eap_start` is not supported yet",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\naccounting = 'sometimes'",
            "`charon.plugins.eap-radius.accounting` has a value that is not accepted (its section has secrets: no value is quoted)",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'\ngroups = 'a'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\nclass_group = true",
            "tells which of these `groups`",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'\neap_id = 'email:^.[.]b$'",
            "",
            "there are no patterns here",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[secrets.eap-carol]\nid = 'email:^carol$'\nsecret = 'x'",
            "`secrets.eap-carol.id` has a value that is not accepted (its section has secrets: no value is quoted): a regular expression",
        ),
        (
            gateway,
            "auth = 'eap-radius'\ngroups = 'a'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'",
            "tells which of these `groups`",
        ),
        (
            gateway,
            "auth = 'eap-radius'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\n[charon.plugins.eap-radius.dae]\nenable = true",
            "`charon.plugins.eap-radius.dae.secret` is missing",
        ),
        (
            gateway,
            "auth = 'eap-radius'",
            "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\n[charon.plugins.eap-radius.dae]\nlisten = 'here'",
            "dae.listen` has a value that is not accepted",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[charon.plugins.eap-ttls]\nphase2_method = 'sim'",
            "phase2_method",
        ),
        (
            gateway,
            "auth = 'eap-mschapv2'",
            "[secrets.eap-a]\nid = 'a'",
            "`secrets.eap-a.secret` is missing",
        ),
    ];
    for (local, remote, more, expected) in table {
        let text = text("right", 500, Says { local, remote, more });
        let mistakes = config::parse(&text, &folder.join("right")).expect_err(expected);
        let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(expected)), "{expected}: {said:#?}");
    }
    // EAP is the last of several rounds.
    let says = Says { local: gateway, remote: "auth = 'eap-mschapv2'", more: "" };
    let more = "[connections.site.remote-2]\nauth = 'pubkey'\nround = 2";
    let text = text("right", 500, says) + more;
    let mistakes = config::parse(&text, &folder.join("right")).expect_err("a round after it");
    assert!(mistakes.iter().any(|m| m.to_string().contains("last round")), "{mistakes:#?}");
    // Whoever may show a certificate in TLS may be judged by CAs of its own.
    for remote in [
        "auth = 'eap-tls'\ncacerts = 'ca.pem'",
        "auth = 'eap-ttls'\ncacerts = 'ca.pem'",
        "auth = 'eap-dynamic'\ncacerts = 'ca.pem'",
    ] {
        let more = "[secrets.xauth-carol]\nid = 'carol'\nsecret = 'Ar3etTnp'";
        let text = self::text("right", 500, Says { local: gateway, remote, more });
        let parsed = config::parse(&text, &folder.join("right"));
        parsed.unwrap_or_else(|mistakes| panic!("{remote}: {mistakes:#?}"));
    }
    // What is printed of a configuration has no password.
    let says = Says { more: CAROL, ..says };
    let config = config::parse(&self::text("right", 500, says), &folder.join("right")).unwrap();
    assert!(!format!("{config:?}").contains("Ar3etTnp"));
}

/// A reload that removes the password of a client ends the client's IKE SA. A reload that replaces the password does not.
///
/// Faults, each by itself: in `Keeper::evidence`, answer `Same` where there is no password now, or do so for a password that
/// was not there before either. In `Keeper::adopt`, leave `former_passwords` as they are.
#[tokio::test]
async fn an_ike_sa_ends_with_the_password_of_its_client() {
    let folder = sides("eap-removed");
    let local = "auth = 'eap-mschapv2'\neap_id = 'carol'";
    let client = Says { local, remote: "auth = 'pubkey'", more: CAROL };
    let remote = "auth = 'eap-mschapv2'\neap_id = '%any'";
    let gateway = Says { local: "certs = 'own.pem'", remote, more: CAROL };
    let pair = pair(&folder, client, gateway).await;
    pair.left.operator().up(&Target::named("net")).await.expect("it comes up");
    let dave = "[secrets.eap-dave]\nid = 'dave'\nsecret = 'Ar3etTnp'";
    let other = "[secrets.eap-carol]\nid = 'carol'\nsecret = 'another'";
    for (more, stays) in [(other, true), (dave, false)] {
        let text = text("right", pair.left.ports().nat_t, Says { more, ..gateway });
        let config = config::parse(&text, &folder.join("right"));
        pair.right.reload(config.unwrap_or_else(|m| panic!("{m:#?}"))).await.expect("a reload");
        assert_eq!(list(&pair.right).await.len(), usize::from(stays), "{more}");
    }
}

/// The gateway has restarted with the password of before, another one, or none. The ticket is good in the first case only.
///
/// Faults, each by itself: in `Credentials::at_once`, do not ask `compared`; in `EapSecrets::print`, return `None`.
#[tokio::test]
async fn a_ticket_ends_with_the_eap_password_of_its_owner() {
    let folder = sides("eap-ticket");
    fs::create_dir(folder.join("right/tickets")).expect("a folder");
    config::make_ticket_key(&folder.join("right/tickets/1.key")).expect("a key");
    let [here, there] = [[127, 0, 0, 6], [127, 0, 0, 7]];
    let read = |side: &str, port, secrets: &str| {
        let says = match side {
            "left" => ("auth = 'eap-mschapv2'\neap_id = 'carol'", "auth = 'pubkey'"),
            _ => ("certs = 'own.pem'", "auth = 'eap-mschapv2'\neap_id = '%any'"),
        };
        let mut text = text(side, port, Says { local: says.0, remote: says.1, more: "" });
        let own = if side == "left" { here } else { there };
        let peer = if side == "left" { there } else { here };
        let [own, peer] = [own, peer].map(|ip| IpAddr::from(ip).to_string());
        text = text.replace("local_addrs = '127.0.0.1'", &format!("local_addrs = '{own}'"));
        let options = "session_resumption = true\ndpd_delay = '1s'\nkeyingtries = 1";
        let to = format!("remote_addrs = '{peer}'\n{options}");
        text = text.replace("remote_addrs = '127.0.0.1'", &to) + secrets;
        if side == "right" {
            text += "\n[charon.session_resumption]\nkeys = 'tickets'\n";
        }
        let config = config::parse(&text, &folder.join(side));
        config.unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:#?}"))
    };
    let none = |_: &Sockets| Ok(Plane::none());
    let other = "[secrets.eap-carol]\nid = 'carol'\nsecret = 'another'";
    let nobody = "[secrets.eap-dave]\nid = 'dave'\nsecret = 'Ar3etTnp'";
    for (secrets, resumes) in [(CAROL, true), (other, false), (nobody, false)] {
        let (client, _) = open(&listen(here), ANY, none).expect("sockets");
        let (gateway, _) = open(&listen(there), ANY, none).expect("sockets");
        let (to, from) = (gateway.ports().nat_t, client.ports().nat_t);
        let gateway = start(read("right", from, CAROL), gateway, Plane::none()).await;
        let client = start(read("left", to, CAROL), client, Plane::none()).await;
        let operator = client.operator();
        operator.up(&Target::named("net")).await.expect("it comes up");
        drop(gateway);
        until(&client, "the gateway is given up", <[_]>::is_empty).await;
        let (gateway, _) =
            open(&listen(there), Ports { ike: 0, nat_t: to }, none).expect("sockets");
        let gateway = start(read("right", from, secrets), gateway, Plane::none()).await;
        let up = operator.up(&Target::named("net")).await;
        assert_eq!(up.is_ok(), resumes, "{secrets} {up:?}");
        let resumed: Vec<_> = list(&client).await.iter().map(|sa| sa.resumed).collect();
        assert_eq!(resumed, vec![true; usize::from(resumes)], "{secrets}");
        assert!(client.shutdown(Duration::from_secs(5)).await);
        drop(gateway);
    }
}
