//! Two daemons that authenticate by certificates, made by `pki`, over loopback sockets.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Pair, list, tempdir, until};
use crate::fetch::{ok, serve, url};
use crate::pki::done;
use ike_daemon::config::{self, Config};
use ike_tokio::Target;

/// A CA, and a folder for each side with its certificate, its key and the CA.
pub struct Sides(pub PathBuf);

impl Sides {
    /// `options` are those of `pki --issue`.
    pub fn new(name: &str, kind: &str, options: &str) -> Self {
        let this = Self(tempdir(name));
        this.ca("ca", kind);
        for side in ["left", "right"] {
            for folder in ["x509", "x509ca", "x509crl", "private"] {
                fs::create_dir_all(this.0.join(side).join(folder)).expect("a folder");
            }
            this.certify(side, kind, "ca", options);
        }
        this
    }

    pub fn ca(&self, name: &str, kind: &str) {
        done(&self.0, &format!("--gen --type {kind} --out {name}.key"));
        let dn = format!("--dn \"O=test, CN={name}\"");
        done(&self.0, &format!("--self --ca --in {name}.key {dn} --out {name}.pem"));
    }

    /// Gives `side` a certificate of `ca` and trust in it.
    fn certify(&self, side: &str, kind: &str, ca: &str, options: &str) {
        for old in ["x509/own.pem", "private/own.key"] {
            let _ = fs::remove_file(self.0.join(side).join(old));
        }
        done(&self.0, &format!("--gen --type {kind} --out {side}/private/own.key"));
        done(
            &self.0,
            &format!(
                "--issue --in {side}/private/own.key --cacert {ca}.pem --cakey {ca}.key \
                 --dn \"O=test, CN={side}\" --san {side}.example.org {options} \
                 --out {side}/x509/own.pem"
            ),
        );
        fs::copy(self.0.join(format!("{ca}.pem")), self.0.join(side).join("x509ca/ca.pem"))
            .expect("a copy");
    }

    pub fn folder(&self, side: &str) -> PathBuf {
        self.0.join(side)
    }

    /// The configuration of `side`; `remote` are options of its `remote` section.
    pub fn text(&self, side: &str, port: u16, remote: &str) -> String {
        let peer = if side == "left" { "right" } else { "left" };
        let [local_ts, remote_ts] = match side {
            "left" => ["10.1.0.0/16", "10.2.0.0/16"],
            _ => ["10.2.0.0/16", "10.1.0.0/16"],
        };
        format!(
            "[charon]
            port = 0
            port_nat_t = 0
            retransmit_timeout = 0.5
            retransmit_tries = 2
            fragment_size = 1400
            [connections.site]
            local_addrs = '127.0.0.1'
            remote_addrs = '127.0.0.1'
            remote_port = {port}
            proposals = 'aes256gcm16-prfsha256-x25519'
            [connections.site.local]
            certs = 'own.pem'
            [connections.site.remote]
            id = '{peer}.example.org'
            {remote}
            [connections.site.children.net]
            local_ts = '{local_ts}'
            remote_ts = '{remote_ts}'
            "
        )
        .replace("certs = 'own.pem'", &format!("certs = 'own.pem'\nid = '{side}.example.org'"))
    }

    fn config(&self, side: &str, port: u16, remote: &str) -> Config {
        config::parse(&self.text(side, port, remote), &self.folder(side))
            .unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
    }
}

pub fn net() -> Target {
    Target::named("net")
}

#[tokio::test]
async fn certificates_of_every_kind_authenticate_both_ends() {
    for (kind, scheme) in [
        ("mldsa44", "ML-DSA-44"),
        ("mldsa87", "ML-DSA-87"),
        ("ed25519", "ED25519"),
        ("ecdsa --size 256", "ECDSA-256"),
        ("ecdsa --size 521", "ECDSA-521"),
        ("rsa --size 2048", "RSA_EMSA_"),
    ] {
        let sides = Sides::new("certificates-kinds", kind, "");
        let pair = Pair::configured(|side, port| sides.config(side, port, "")).await;
        for (starts, answers) in [(&pair.left, &pair.right), (&pair.right, &pair.left)] {
            starts.operator().up(&net()).await.unwrap_or_else(|why| panic!("{kind}: {why}"));
            until(answers, "responder", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
            for (daemon, us, them) in
                [(&pair.left, "left", "right"), (&pair.right, "right", "left")]
            {
                let sas = list(daemon).await;
                let auth = |by: &str| by.starts_with(scheme);
                let (local, remote) = (&sas[0].local_auth, &sas[0].remote_auth);
                assert_eq!((local.len(), remote.len()), (1, 1), "{sas:#?}");
                assert!(auth(&local[0].by) && auth(&remote[0].by), "{kind}: {sas:#?}");
                assert_eq!(local[0].id, format!("{us}.example.org"));
                assert_eq!(remote[0].id, format!("{them}.example.org"));
                assert_eq!(remote[0].certificate, Some(format!("O=test, CN={them}")));
            }
            assert_eq!(starts.operator().down(&Target::named("site")).await, Ok(1));
            until(answers, "nothing", <[_]>::is_empty).await;
        }
    }
}

#[tokio::test]
async fn who_is_not_trusted_learns_nothing_but_that() {
    let sides = Sides::new("certificates-stranger", "ecdsa --size 256", "");
    sides.ca("other", "ecdsa --size 256");
    // Only the left one's certificate is of the CA that both know.
    sides.certify("right", "ecdsa --size 256", "other", "");
    fs::copy(sides.0.join("ca.pem"), sides.folder("right").join("x509ca/ca.pem")).unwrap();
    // Asked for a certificate of a CA it has none of, the right one would not even answer.
    let silent = "send_certreq = false\n[connections.site.local]";
    let pair = Pair::configured(|side, port| {
        let text = sides.text(side, port, "").replace("[connections.site.local]", silent);
        let text = text.replace("send_certreq", "send_cert = 'always'\nsend_certreq");
        config::parse(&text, &sides.folder(side)).unwrap_or_else(|m| panic!("{m:#?}"))
    })
    .await;
    let ours = pair.left.operator().up(&net()).await.unwrap_err().to_string();
    assert!(ours.contains("no trusted CA \"O=test, CN=other\""), "{ours}");
    let theirs = pair.right.operator().up(&net()).await.unwrap_err().to_string();
    assert!(theirs.contains("AUTHENTICATION_FAILED") && !theirs.contains("trusted"), "{theirs}");
    until(&pair.left, "nothing", <[_]>::is_empty).await;
}

#[tokio::test]
async fn a_policy_that_wants_post_quantum_signatures_takes_no_other() {
    let sides = Sides::new("certificates-policy", "ecdsa --size 256", "");
    let pair =
        Pair::configured(|side, port| sides.config(side, port, "auth = 'ike:mldsa65'")).await;
    assert!(pair.left.operator().up(&net()).await.is_err());
    assert!(pair.right.operator().up(&net()).await.is_err());
}

#[tokio::test]
async fn a_ca_and_policies_are_asked_of_the_path() {
    let sides = Sides::new("certificates-path", "ecdsa --size 256", "");
    for (options, refusal) in [
        ("ca_id = 'O=test, CN=ca'", None),
        ("ca_id = 'asn1dn:^O=test, CN=c[a-c]$'", None),
        ("ca_id = 'O=test, CN=other'", Some("no CA has the identity of `ca_id`")),
        ("cert_policy = '1.2.3'", Some("does not have the policy 1.2.3")),
    ] {
        let configure = |side: &str, port: u16| {
            sides.config(side, port, if side == "left" { options } else { "" })
        };
        let pair = Pair::configured(configure).await;
        match (pair.left.operator().up(&net()).await, refusal) {
            (Ok(_), None) => {}
            (Err(why), Some(refusal)) => {
                assert!(why.to_string().contains(refusal), "{options}: {why}");
            }
            (outcome, _) => panic!("{options}: {outcome:?}"),
        }
    }
}

/// A revocation list of the CA, as it is served.
fn revocation_list(sides: &Sides, revoked: &str) -> Vec<u8> {
    let name = sides.0.join("ca.crl");
    let _ = fs::remove_file(&name);
    let sign = "--signcrl --cacert ca.pem --cakey ca.key --outform der --out ca.crl";
    done(&sides.0, &format!("{sign} {revoked}"));
    fs::read(name).expect("the list")
}

#[tokio::test]
async fn revocation_lists_are_fetched_once_and_heeded() {
    let sides = Sides::new("certificates-fetched", "ed25519", "");
    let good = revocation_list(&sides, "");
    let server = serve(vec![ok(&good), ok(&good)]);
    let remote = "revocation = 'strict'";
    let authority = format!("[authorities.ca]\ncacert = 'ca.pem'\ncrl_uris = '{}'", url(&server));
    let configure = |side: &str, port: u16| {
        let strict = if side == "left" { remote } else { "" };
        let mut text = sides.text(side, port, strict);
        if side == "left" {
            text += &authority;
        }
        config::parse(&text, &sides.folder(side)).unwrap_or_else(|m| panic!("{m:#?}"))
    };
    let pair = Pair::configured(configure).await;
    for starts in [&pair.left, &pair.right] {
        starts.operator().up(&net()).await.unwrap();
        starts.operator().down(&Target::named("site")).await.unwrap();
        until(&pair.left, "nothing", <[_]>::is_empty).await;
    }
    assert_eq!(server.requests.try_iter().count(), 1, "fetched once, kept for the second time");

    // A reload keeps what was fetched.
    let port = pair.right.ports().nat_t;
    pair.left.reload(configure("left", port)).await.unwrap();
    pair.left.operator().up(&net()).await.unwrap();
    assert_eq!(server.requests.try_iter().count(), 0);

    let revoked = revocation_list(&sides, "--cert right/x509/own.pem");
    let server = serve(vec![ok(&revoked)]);
    let authority = format!("[authorities.ca]\ncacert = 'ca.pem'\ncrl_uris = '{}'", url(&server));
    let pair = Pair::configured(|side, port| {
        let text = sides.text(side, port, "") + if side == "left" { &authority } else { "" };
        config::parse(&text, &sides.folder(side)).unwrap_or_else(|m| panic!("{m:#?}"))
    })
    .await;
    let why = pair.left.operator().up(&net()).await.unwrap_err().to_string();
    assert!(why.contains("\"O=test, CN=right\" has been revoked"), "{why}");
    let why = pair.right.operator().up(&net()).await.unwrap_err().to_string();
    assert!(why.contains("AUTHENTICATION_FAILED") && !why.contains("revoked"), "{why}");
    assert_eq!(server.requests.try_iter().count(), 1);
}

#[tokio::test]
async fn what_cannot_be_known_is_refused_if_the_policy_says_so() {
    let sides = Sides::new("certificates-unknown", "ed25519", "--crl http://127.0.0.1:9/ca.crl");
    let pair = Pair::configured(|side, port| {
        let policy = if side == "left" { "revocation = 'ifuri'" } else { "" };
        sides.config(side, port, policy)
    })
    .await;
    let why = pair.left.operator().up(&net()).await.unwrap_err().to_string();
    assert!(why.contains("not known whether certificate"), "{why}");
    let sides = Sides::new("certificates-relaxed", "ed25519", "--crl http://127.0.0.1:9/ca.crl");
    let pair = Pair::configured(|side, port| sides.config(side, port, "")).await;
    pair.left.operator().up(&net()).await.unwrap();
}

#[tokio::test]
async fn a_reload_takes_new_certificates_and_a_broken_one_changes_nothing() {
    let sides = Sides::new("certificates-reload", "ed25519", "");
    let pair = Pair::configured(|side, port| sides.config(side, port, "")).await;
    let file = |side: &str, port: u16| {
        let path = sides.folder(side).join("ike.toml");
        fs::write(&path, sides.text(side, port, "")).unwrap();
        path
    };
    let left = file("left", pair.right.ports().nat_t);
    let right = file("right", pair.left.ports().nat_t);
    async fn reload(pair: &Pair, left: &Path, right: &Path) -> Result<(), String> {
        for (daemon, file) in [(&pair.left, left), (&pair.right, right)] {
            let config = config::load(file).map_err(|error| error.to_string())?;
            daemon.reload(config).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
    // A file that is no certificate.
    let own = sides.folder("left").join("x509/own.pem");
    let good = fs::read(&own).unwrap();
    fs::write(&own, "half a certificate").unwrap();
    let why = reload(&pair, &left, &right).await.unwrap_err();
    assert!(why.contains("x509/own.pem: no certificate in it"), "{why}");
    assert!(why.contains("`connections.site.local.certs`"), "{why}");
    pair.left.operator().up(&net()).await.unwrap();
    pair.left.operator().down(&Target::named("site")).await.unwrap();
    fs::write(&own, good).unwrap();

    // Another CA and other keys for both.
    sides.ca("new", "mldsa65");
    for side in ["left", "right"] {
        sides.certify(side, "mldsa65", "new", "");
    }
    reload(&pair, &left, &right).await.unwrap();
    pair.left.operator().up(&net()).await.unwrap();
    assert_eq!(list(&pair.left).await[0].remote_auth[0].by, "ML-DSA-65");
}
