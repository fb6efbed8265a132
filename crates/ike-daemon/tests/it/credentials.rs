//! Certificates and keys in the configuration: what is loaded, and how a mistake reads.

use std::fs;
use std::path::{Path, PathBuf};

use ike_daemon::config::{self, Config, Diagnostic};
use ike_proto::config::{AuthConfig, SendCert};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::{CertEncoding, IdType};

use crate::common::tempdir;
use crate::pki::done;

/// A configuration folder of "moon", whose peer is "sun": a CA `ca.pem`, their certificates, the key of
/// moon; and the file's text.
struct Folder(PathBuf);

const MOON: &str = "[connections.c.local]
certs = 'moon.pem'
[connections.c.remote]
id = 'sun.example.org'
[connections.c.children.net]
";

impl Folder {
    fn new(name: &str) -> Self {
        let folder = tempdir(name);
        for sub in
            ["x509", "x509ca", "x509crl", "private", "rsa", "ecdsa", "pkcs8", "pkcs12", "pubkey"]
        {
            fs::create_dir(folder.join(sub)).expect("a folder");
        }
        let this = Self(folder);
        this.pki("--gen --type ed25519 --out ca.key");
        this.pki("--self --ca --in ca.key --dn \"O=lab, CN=ca\" --out x509ca/ca.pem");
        this.end_entity("moon", "ed25519", "");
        this
    }

    fn pki(&self, line: &str) -> String {
        done(&self.0, line)
    }

    /// A key in `private` and a certificate in `x509`.
    fn end_entity(&self, name: &str, kind: &str, options: &str) {
        self.pki(&format!("--gen --type {kind} --out private/{name}.key"));
        self.pki(&format!(
            "--issue --in private/{name}.key --cacert x509ca/ca.pem --cakey ca.key \
             --dn \"O=lab, CN={name}\" --san {name}.example.org {options} --out x509/{name}.pem"
        ));
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("a file")
    }

    fn parse(&self, text: &str) -> Result<Config, Vec<Diagnostic>> {
        config::parse(text, &self.0)
    }

    fn accept(&self, text: &str) -> Config {
        self.parse(text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:#?}"))
    }

    /// `line: message` of each mistake.
    fn mistakes(&self, text: &str) -> Vec<String> {
        let render = |d: &Diagnostic| format!("{}: {d}", d.line);
        self.parse(text).err().unwrap_or_default().iter().map(render).collect()
    }

    /// The one mistake in `text`, which must have all of `parts`.
    fn one_mistake(&self, text: &str, parts: &[&str]) {
        let mistakes = self.mistakes(text);
        assert_eq!(mistakes.len(), 1, "{text}: {mistakes:#?}");
        for part in parts {
            assert!(mistakes[0].contains(part), "{part}: {}", mistakes[0]);
        }
    }
}

/// A PKCS#11 module that is not there.
const MODULE: &str = "[charon.plugins.pkcs11.modules.m]\npath = '/no/such/module.so'\n";

fn fixture(name: &str) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pki/tests/fixtures");
    fs::read(fixtures.join(name)).expect("a fixture")
}

#[test]
fn a_certificate_brings_its_key_its_identity_and_a_request() {
    let folder = Folder::new("credentials-good");
    let config = folder.accept(MOON);
    assert_eq!(config.warnings, Vec::<String>::new());
    let c = &config.endpoint.connections[0];
    assert_eq!((c.local.len(), c.remote.len(), c.send_cert), (1, 1, SendCert::IfAsked));
    // `auth` is `pubkey` by default, the identity the subject, bit by bit.
    assert_eq!(c.local[0].auth, AuthConfig::pubkey());
    let subject = c.local_id().unwrap();
    assert_eq!((subject.kind, subject.to_string()), (IdType::DER_ASN1_DN, "O=lab, CN=moon".into()));
    assert_eq!(c.remote[0].certreqs.len(), 1);
    assert_eq!(c.remote[0].certreqs[0].encoding, CertEncoding::X509_SIGNATURE);
    assert_eq!(c.remote[0].certreqs[0].authorities.len(), 20);
    assert_eq!(config.answerer.identity("c", "local", None).unwrap(), *subject);

    let named = folder.accept(&MOON.replace("local]\n", "local]\nid = 'moon.example.org'\n"));
    let c = &named.endpoint.connections[0];
    assert_eq!(c.local_id(), Some(&IdData::fqdn("moon.example.org")));
    // Without `certs`, what has the identity.
    let found = MOON.replace("certs = 'moon.pem'", "id = 'moon.example.org'");
    let found = folder.accept(&found);
    assert!(found.answerer.identity("c", "local", None).is_ok());
    // By an absolute path, and in a section of its own.
    let path = folder.0.join("x509/moon.pem");
    let absolute = MOON.replace("moon.pem", &path.display().to_string());
    folder.accept(&absolute);
    let section = MOON.replace("certs = 'moon.pem'", "cert-1.file = 'moon.pem'");
    folder.accept(&section);

    let quiet = format!("[connections.c]\nsend_cert = 'never'\nsend_certreq = false\n{MOON}");
    let config = folder.accept(&quiet);
    let c = &config.endpoint.connections[0];
    assert_eq!((c.send_cert, c.remote[0].certreqs.len()), (SendCert::Never, 0));
}

#[test]
fn keys_and_certificates_come_in_every_form() {
    let folder = Folder::new("credentials-forms");
    folder.write("rsa/pkcs1.key", fixture("rsa-pkcs1.key"));
    folder.write("x509/rsa.pem", fixture("rsa.pem"));
    folder.write("ecdsa/sec1.key", fixture("moon-sec1.key"));
    folder.write("x509/ec.der", fixture("moon.der"));
    folder.write("pkcs8/mldsa.key", fixture("mldsa65-pbes2.key"));
    folder.write("x509/mldsa.pem", fixture("mldsa65.pem"));
    folder.write("pkcs12/chained.p12", fixture("chained.p12"));
    folder.write("x509crl/inter.crl", fixture("inter.crl"));
    // Editors' remains and hidden files are no certificates.
    folder.write("x509ca/ca.pem~", "old");
    folder.write("x509/.swp", "open");
    let secrets = "
        [secrets.pkcs8-1]
        file = 'mldsa.key'
        secret = 'tunnel'
        [secrets.pkcs12-1]
        file = 'chained.p12'
        secret_file = 'passphrase'
        ";
    folder.write("passphrase", "tunnel\n");
    for (local, name) in [
        ("certs = 'rsa.pem'", "rsa.example.org"),
        ("certs = 'ec.der'", "moon.example.org"),
        ("certs = 'mldsa.pem'", "mldsa65.example.org"),
        ("id = 'chained.example.org'", "chained.example.org"),
    ] {
        let text = MOON.replace("certs = 'moon.pem'", local) + secrets;
        let config = folder.accept(&text);
        let id = IdData::fqdn(name);
        assert!(config.answerer.identity("c", "local", Some(&id)).is_ok(), "{name}");
    }
}

#[test]
fn rounds_are_read_in_their_order() {
    let folder = Folder::new("credentials-rounds");
    folder.end_entity("earth", "ecdsa --size 256", "");
    let text = "[connections.c.local-b]
        round = 2
        auth = 'psk'
        id = 'moon@example.org'
        [connections.c.local-a]
        round = 1
        certs = ['moon.pem', 'earth.pem']
        [connections.c.remote]
        cacerts = 'ca.pem'
        revocation = 'strict'
        [connections.c.remote-2]
        auth = 'ike:ecdsa-sha384'
        id = 'sun.example.org'
        [connections.c.children.net]
        [secrets.ike]
        secret = 'x'
        ";
    let config = folder.accept(text);
    let c = &config.endpoint.connections[0];
    let names: Vec<&str> = c.local.iter().map(|round| round.name.as_str()).collect();
    assert_eq!(names, ["local-a", "local-b"]);
    assert_eq!(c.local[1].auth, AuthConfig::Psk);
    let names: Vec<&str> = c.remote.iter().map(|round| round.name.as_str()).collect();
    assert_eq!(names, ["remote", "remote-2"]);
    assert_eq!(c.remote[1].auth, AuthConfig::parse("ike:ecdsa-sha384").unwrap());
    folder.one_mistake(&text.replace("strict", "strikt"), &["10: ", "did you mean `strict`"]);
}

#[test]
fn a_raw_public_key_needs_no_certificate() {
    let folder = Folder::new("credentials-raw");
    folder.pki("--pub --in private/moon.key --out pubkey/moon.pub");
    folder.pki("--gen --type ecdsa --out sun.key");
    folder.pki("--pub --in sun.key --out pubkey/sun.pub");
    let text = "[connections.c.local]
id = 'moon.example.org'
pubkeys = 'moon.pub'
[connections.c.remote]
id = 'sun.example.org'
pubkeys = ['sun.pub']
[connections.c.children.net]
";
    let config = folder.accept(text);
    let c = &config.endpoint.connections[0];
    assert_eq!(c.remote[0].certreqs.len(), 1);
    assert_eq!(c.remote[0].certreqs[0].encoding, CertEncoding::RAW_PUBLIC_KEY);
    folder.one_mistake(
        &text.replace("id = 'moon.example.org'\n", ""),
        &["1: ", "`connections.c.local.id` is missing"],
    );
    folder.one_mistake(
        &text.replace("id = 'sun.example.org'\n", ""),
        &["4: ", "`connections.c.remote.id` must say whose public key it is"],
    );
    folder.one_mistake(&text.replace("moon.pub", "sun.pub"), &["3: ", "no private key for it"]);
    folder.one_mistake(
        &text.replace("['sun.pub']", "['sun.pub']\nca_id = 'CN=ca'"),
        &["7: ", "`connections.c.remote.ca_id`: raw public keys have no CA"],
    );
    folder.one_mistake(
        &text.replace("['sun.pub']", "['son.pub']"),
        &["6: ", "cannot read", "did you mean `sun.pub`?"],
    );
}

/// Fault: in `trusted` of rounds.rs, leave out `check_peer`.
#[test]
fn a_pinned_certificate_that_every_login_would_refuse_is_a_mistake() {
    let folder = Folder::new("credentials-version-1");
    let v1 = concat!(env!("CARGO_MANIFEST_DIR"), "/../pki/tests/fixtures/v1.pem");
    folder.write("v1.pem", fs::read(v1).expect("a fixture"));
    let pinning = |file: &str| {
        MOON.replace("id = 'sun.example.org'", &format!("id = 'sun.example.org'\ncerts = '{file}'"))
    };
    folder.one_mistake(
        &pinning("../v1.pem"),
        &["5: ", "`connections.c.remote.certs`", "not version 3", "`pubkeys`"],
    );
    folder.accept(&pinning("moon.pem"));
}

#[test]
fn a_mistake_about_certificates_is_named_with_its_line() {
    let folder = Folder::new("credentials-mistakes");
    folder.end_entity("earth", "ecdsa --size 256", "");
    folder.pki("--gen --type ed25519 --out stranger.key");
    folder.pki("--self --in stranger.key --dn CN=stranger --out x509/stranger.pem");
    fs::create_dir(folder.0.join("x509/folder.pem")).unwrap();
    let local = |options: &str| MOON.replace("certs = 'moon.pem'", options);
    let remote = |options: &str| {
        MOON.replace("id = 'sun.example.org'", &format!("id = 'sun.example.org'\n{options}"))
    };
    for (text, parts) in [
        (
            local("certs = 'mon.pem'"),
            &["2: `connections.c.local.certs`: cannot read", "x509/", "did you mean `moon.pem`?"][..],
        ),
        (local("certs = 'folder.pem'"), &["2: ", "not a file"]),
        (local("certs = 'stranger.pem'"), &["2: ", "there is no private key for it", "private/"]),
        (local("certs = '../private/moon.key'"), &["2: ", "no certificate in it", "PEM or DER"]),
        (local("certs = ['moon.pem', 'x.pem']"), &["2: ", "x.pem"]),
        (
            local("[connections.c.local.cert-a]"),
            &["2: ", "`connections.c.local.cert-a.file` is missing"],
        ),
        (local(""), &["1: ", "does not say which certificate", "`certs`, `pubkeys`, or an `id`"]),
        (local("id = 'mars.example.org'"), &["2: ", "no certificate with a private key has it"]),
        (
            local("certs = 'moon.pem'\nid = 'mars.example.org'"),
            &["3: ", "is not in the certificate", "moon.example.org"],
        ),
        (
            local("certs = 'moon.pem'\nauth = 'mldsa65'"),
            &["1: ", "`connections.c.local.auth`", "ED25519"],
        ),
        (local("certs = 'moon.pem'\nauth = 'psk'"), &["2: ", "is of no use", "pubkey"]),
        (local("certs = 'moon.pem'\nauth = 'xauth-eap'"), &["3: ", "not supported yet"]),
        (local("certs = 'moon.pem'\nauth = 'mldsa66'"), &["3: ", "cannot be \"mldsa66\""]),
        (remote("cacerts = 'ca.pm'"), &["5: ", "did you mean `ca.pem`?"]),
        (remote("cacerts = '../x509/moon.pem'"), &["5: ", "not a CA certificate", "CA:TRUE"]),
        (remote("revocation = 'stric'"), &["5: ", "did you mean `strict`?"]),
        (remote("groups = 'x'"), &["5: ", "nothing tells which of these `groups`"]),
        (remote("ca_id = 'vpn*.org'"), &["5: ", "`connections.c.remote.ca_id` cannot be", "`*`"]),
        (remote("ca_id = 'fqdn:^ca'"), &["5: ", "begins with `^` and ends with `$`"]),
        (
            remote("cert_policy = '1.2.3, x'"),
            &["5: ", "`connections.c.remote.cert_policy`", "\"x\""],
        ),
        (
            remote("auth = 'psk'\nca_id = 'CN=ca'"),
            &["6: ", "`connections.c.remote.ca_id` is of no use", "pubkey"],
        ),
        (
            remote("auth = 'psk'\ncert_policy = '1.2.3'"),
            &["6: ", "`connections.c.remote.cert_policy` is of no use", "pubkey"],
        ),
        (
            format!(
                "{MOON}[authorities.a]\ncacert = 'ca.pem'\ncrl_uris = 'https://ca.example.org/'"
            ),
            &["8: ", "http://"],
        ),
        (
            format!("{MOON}[authorities.a]\ncrl_uris = 'http://ca.example.org/'"),
            &["6: ", "`authorities.a.cacert` is missing"],
        ),
        (format!("{MOON}[authorities.a]\ncacert = '../x509/moon.pem'"), &["7: ", "not a CA"]),
        (format!("{MOON}[secrets.private-a]\nfile = 'no.key'"), &["7: ", "cannot read"]),
        (
            format!("{MOON}[secrets.private-a]\nsecret = 'x'"),
            &["6: ", "`secrets.private-a.file` is missing"],
        ),
        (
            format!("{MOON}{MODULE}[secrets.token-a]\nhandle = '1'"),
            &["9: ", "CKA_ID", "hexadecimal"],
        ),
        (
            format!("{MOON}{MODULE}[secrets.token-a]\nhandle = '0x'"),
            &["9: ", "CKA_ID", "hexadecimal"],
        ),
        (
            format!("{MOON}[secrets.token-a]\nhandle = '01'"),
            &["6: ", "`secrets.token-a.module` is missing"],
        ),
        (
            format!("{MOON}[secrets.token-a]\nhandle = '01'\nmodule = 'm'"),
            &["8: ", "no such module", "[charon.plugins.pkcs11.modules]"],
        ),
        (
            format!("{MOON}{MODULE}[secrets.token-a]\nslot = 1"),
            &["8: ", "`secrets.token-a.handle` is missing"],
        ),
        (
            format!("{MOON}{MODULE}[secrets.token-a]\nhandle = '01'\npin_file = 'none'"),
            &["10: ", "secrets.token-a.pin_file", "cannot read"],
        ),
        (
            format!("{MOON}{MODULE}[secrets.token-a]\nhandle = '01'\npin = 'a'"),
            &["8: ", "secrets.token-a", "/no/such/module.so"],
        ),
        (
            format!("{MOON}[charon.plugins.pkcs11.modules.m]\npath = 'module.so'"),
            &["7: ", "absolute path of a shared library"],
        ),
    ] {
        folder.one_mistake(&text, parts);
    }
}

#[test]
fn a_mistake_in_a_folder_is_named_by_the_file() {
    let folder = Folder::new("credentials-folders");
    for (name, content, parts) in [
        (
            "x509ca/moon.pem",
            folder.read("x509/moon.pem"),
            &["0: x509ca/moon.pem: not a CA", "CA:TRUE"][..],
        ),
        (
            "x509ca/text.pem",
            b"text".to_vec(),
            &["0: x509ca/text.pem: no certificate in it", "PEM or DER"],
        ),
        (
            "x509/key.pem",
            folder.read("private/moon.key"),
            &["0: x509/key.pem: no certificate in it"],
        ),
        ("private/empty.key", Vec::new(), &["0: private/empty.key: no private key in it"]),
        ("rsa/moon.key", folder.read("private/moon.key"), &["0: rsa/moon.key: no RSA key in it"]),
        (
            "ecdsa/moon.key",
            folder.read("private/moon.key"),
            &["0: ecdsa/moon.key: no ECDSA key in it"],
        ),
        ("pubkey/x.pub", b"x".to_vec(), &["0: pubkey/x.pub: ", "a public key"]),
        (
            "private/old.key",
            fixture("mldsa65-pbes2.key"),
            &[
                "0: private/old.key: encrypted",
                "[secrets.private-<suffix>]",
                "`file = \"old.key\"`",
            ],
        ),
        (
            "pkcs12/old.p12",
            fixture("chained.p12"),
            &["0: pkcs12/old.p12: encrypted", "[secrets.pkcs12-<suffix>]"],
        ),
        ("x509/huge.pem", vec![b'x'; (1 << 20) + 1], &["0: ", "huge.pem", "longer than"]),
    ] {
        folder.write(name, content);
        folder.one_mistake(MOON, parts);
        fs::remove_file(folder.0.join(name)).unwrap();
    }
    folder.write("private/old.key", fixture("mldsa65-pbes2.key"));
    folder.write("x509/old.pem", fixture("mldsa65.pem"));
    let opened = |secret: &str| format!("{MOON}[secrets.private-a]\nfile = 'old.key'\n{secret}");
    folder.accept(&opened("secret = 'tunnel'"));
    folder.one_mistake(
        &opened("secret = 'funnel'"),
        &["7: `secrets.private-a.file`", "wrong passphrase"],
    );
    folder.one_mistake(&opened(""), &["7: ", "encrypted", "`secret`"]);
    let both = opened("secret = 'tunnel'\nsecret_file = 'x'");
    folder.one_mistake(&both, &["9: ", "stands beside"]);
    let shown = format!("{:?}", folder.accept(&opened("secret = 'tunnel'")));
    assert!(!shown.contains("tunnel"), "a passphrase is in debug output");
}

#[test]
fn what_will_hardly_work_is_warned_about() {
    let folder = Folder::new("credentials-warnings");
    folder.write("x509/expired.pem", fixture("expired.pem"));
    folder.write("x509ca/root-expired.pem", fixture("root-expired.pem"));
    folder.write("x509crl/stale.crl", fixture("stale.crl"));
    fs::create_dir(folder.0.join("x509ac")).unwrap();
    folder.write("x509ac/attribute.pem", "whatever");
    folder.write("x509crl/root.crl", fixture("root.crl"));
    folder.write("x509crl/none.crl", folder.read("x509ca/ca.pem"));
    folder.write("private/spare.key", fixture("moon.key"));
    folder.end_entity("earth", "ed25519", "");
    use std::os::unix::fs::PermissionsExt;
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(folder.0.join("private/moon.key"), open).unwrap();
    let text = MOON.replace("'sun.example.org'", "'sun.example.org'\ncerts = 'expired.pem'");
    let text = text.replace("'moon.pem'", "['moon.pem', 'earth.pem']");
    let warnings = folder.accept(&text).warnings;
    for expected in [
        "line 5: `connections.c.remote.certs`: certificate",
        "x509/expired.pem: certificate",
        "x509ca/root-expired.pem: certificate",
        "x509crl/stale.crl: a newer list was due",
        "x509crl/none.crl: no X509 CRL in it: expected a revocation list, PEM or DER; this list is left out",
        "private/moon.key: a private key, and others may read it",
        "private/spare.key: ",
        "x509ac/attribute.pem: files of x509ac/ are not used",
        "line 1: `connections.c.local`: certificate \"O=lab, CN=earth\" is never used",
        "x509crl/root.crl: no CA in x509ca/ signed it, \"C=CH, O=pq-ike, CN=Root\" did",
    ] {
        let found = warnings.iter().any(|warning| warning.contains(expected));
        assert!(found, "{expected}: {warnings:#?}");
    }
    let empty = tempdir("credentials-nobody");
    let text =
        "[connections.c.local]\nauth = 'null'\n[connections.c.remote]\n[connections.c.children.n]";
    let warnings = config::parse(text, &empty).unwrap().warnings;
    assert!(warnings[0].contains("line 3: ") && warnings[0].contains("no certificate is trusted"));
}
