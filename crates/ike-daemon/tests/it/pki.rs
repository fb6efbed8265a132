//! `ike-daemon pki` as a user types it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::tempdir;

/// Runs `pki` in `folder` with the words of `line`; `"…"` keeps spaces together.
fn pki(folder: &Path, line: &str) -> Output {
    let quoted = line.split('"').enumerate();
    let words = quoted.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part],
    });
    let program = env!("CARGO_BIN_EXE_ike-daemon");
    let run = Command::new(program).current_dir(folder).arg("pki").args(words).output();
    run.expect("the program runs")
}

/// As [`pki`], and it must work; its standard output.
pub fn done(folder: &Path, line: &str) -> String {
    let output = pki(folder, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// As [`pki`], and it must fail; its standard error.
fn fails(folder: &Path, line: &str) -> String {
    let output = pki(folder, line);
    assert!(!output.status.success(), "{line}");
    assert!(output.stdout.is_empty(), "{line}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A CA and a certificate of it, by the four commands of `pki --help`.
fn four_commands(folder: &Path, kind: &str) {
    for line in [
        format!("--gen --type {kind} --out ca.key"),
        "--self --ca --in ca.key --dn \"O=example, CN=CA\" --out ca.pem".to_owned(),
        format!("--gen --type {kind} --out moon.key"),
        "--issue --in moon.key --cacert ca.pem --cakey ca.key --dn \"O=example, CN=moon\" \
         --san moon.example.org --san 192.0.2.1 --crl http://crl.example.org/ca.crl --out moon.pem"
            .to_owned(),
    ] {
        assert_eq!(done(folder, &line), "");
    }
}

#[test]
fn a_ca_and_a_certificate_in_four_commands() {
    for kind in ["mldsa44", "mldsa65", "mldsa87", "ecdsa", "ed25519", "rsa --size 2048"] {
        let folder = &tempdir("pki-four");
        four_commands(folder, kind);
        let verify = "--verify --in moon.pem --cacert ca.pem";
        let trusted = done(folder, verify);
        assert_eq!(trusted, "certificate trusted, identity \"O=example, CN=moon\"\n", "{kind}");
        done(folder, &format!("{verify} --id moon.example.org"));
        done(folder, &format!("{verify} --id 192.0.2.1"));
        let other = fails(folder, &format!("{verify} --id sun.example.org"));
        assert!(other.contains("does not have the identity"), "{other}");
        let unknown = fails(folder, &format!("{verify} --revocation strict"));
        assert!(unknown.contains("ask http://crl.example.org/ca.crl"), "{unknown}");
        let ca = fails(folder, "--verify --in ca.pem --cacert ca.pem");
        assert!(ca.contains("keyUsage"), "{ca}");
    }
}

#[test]
fn private_keys_are_for_their_owner_and_nothing_is_overwritten() {
    let folder = &tempdir("pki-owner");
    four_commands(folder, "ed25519");
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("ca.key"), 0o600);
    assert_eq!(mode("ca.pem") & 0o600, 0o600);
    let before = fs::read(folder.join("ca.key")).unwrap();
    let refusal = fails(folder, "--gen --type ed25519 --out ca.key");
    assert!(refusal.contains("ca.key"), "{refusal}");
    assert_eq!(fs::read(folder.join("ca.key")).unwrap(), before);
}

#[test]
fn a_request_becomes_a_certificate_that_can_be_revoked() {
    let folder = &tempdir("pki-request");
    four_commands(folder, "mldsa65");
    done(folder, "--gen --type ecdsa --size 256 --out sun.key");
    done(folder, "--req --in sun.key --dn \"CN=sun\" --san sun.example.org --out sun.csr");
    let issue = "--issue --in sun.csr --cacert ca.pem --cakey ca.key --serial 80ff";
    done(folder, &format!("{issue} --flag ipsecIKE --lifetime 30 --out sun.pem"));
    let verify = "--verify --in sun.pem --cacert ca.pem --id sun.example.org";
    done(folder, verify);

    let sign = "--signcrl --cacert ca.pem --cakey ca.key";
    done(folder, &format!("{sign} --out empty.crl"));
    done(folder, &format!("{verify} --crl empty.crl --revocation strict"));
    done(folder, &format!("{sign} --serial 0102 --lastcrl empty.crl --out second.crl"));
    let revoke = "--cert sun.pem --reason key-compromise --lastcrl second.crl --out third.crl";
    done(folder, &format!("{sign} {revoke}"));
    let refusal = fails(folder, &format!("{verify} --crl third.crl"));
    assert!(refusal.contains("has been revoked"), "{refusal}");
    let printed = done(folder, "--print --in third.crl");
    for expected in ["serial:      3", "revoked:     2", "00:80:ff: ", "KeyCompromise", "01:02: "] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    // By serial number it is the same entry.
    done(folder, &format!("{sign} --serial 80ff --lastcrl third.crl --out fourth.crl"));
    assert!(done(folder, "--print --in fourth.crl").contains("revoked:     2"));
}

#[test]
fn lines_for_strongswans_pki_work() {
    let folder = &tempdir("pki-spelling");
    four_commands(folder, "rsa --size 2048");
    done(
        folder,
        "--req --type priv --in moon.key --dn CN=moon --san moon.example.org --out moon.csr",
    );
    for (how, name, oid) in [
        (
            "--rsa-padding pss --digest sha384",
            "pss.pem",
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 10],
        ),
        ("--digest sha512", "sha512.pem", [0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 13]),
        ("", "sha256.pem", [0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 11]),
    ] {
        let issue = "--issue --type pkcs10 --in moon.csr --cacert ca.pem --cakey ca.key";
        done(folder, &format!("{issue} --outform der {how} --out {name}"));
        let der = fs::read(folder.join(name)).unwrap();
        assert!(der.windows(9).any(|window| window == oid), "{how}");
        done(folder, &format!("--verify --in {name} --cacert ca.pem --id moon.example.org"));
    }
    assert!(done(folder, "--print --type x509 --in pss.pem").contains("moon.example.org"));
}

#[test]
fn everything_prints_and_has_a_public_key() {
    let folder = &tempdir("pki-print");
    four_commands(folder, "mldsa87");
    done(folder, "--req --in moon.key --dn CN=moon --san moon.example.org --out moon.csr");
    let key = done(folder, "pub --in moon.key");
    assert!(key.starts_with("-----BEGIN PUBLIC KEY-----\n"));
    for name in ["moon.pem", "moon.csr"] {
        assert_eq!(done(folder, &format!("--pub --in {name}")), key, "{name}");
    }
    let printed = done(folder, "--print --in moon.pem");
    for expected in [
        "subject:     O=example, CN=moon\n",
        "issuer:      O=example, CN=CA\n",
        "altName:     moon.example.org\n",
        "altName:     192.0.2.1\n",
        "flags:       digitalSignature\n",
        "CRL URIs:    http://crl.example.org/ca.crl\n",
        "pubkey:      ML-DSA-87\n",
        "(in 1094 days)",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(done(folder, "--print --in ca.pem").contains("flags:       CA keyCertSign cRLSign\n"));
    assert!(
        done(folder, "--print --in moon.key").starts_with("private key\npubkey:      ML-DSA-87")
    );
    assert!(done(folder, "--print --in moon.csr").contains("altName:     moon.example.org\n"));
}

#[test]
fn mistakes_are_named() {
    let folder = &tempdir("pki-mistakes");
    four_commands(folder, "ed25519");
    let pem = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    fs::write(folder.join("bad.pem"), pem).unwrap();
    fs::write(folder.join("bad.der"), [0x30, 0]).unwrap();
    done(folder, "--self --in ca.key --dn CN=last --ca --pathlen 0 --out last.pem");
    done(folder, "--issue --in moon.key --cacert last.pem --cakey ca.key --dn CN=x --out x.pem");
    for (line, expected) in [
        ("--print --in bad.pem", "bad.pem: malformed certificate: tbsCertificate"),
        ("--print --in bad.der", "bad.der: malformed certificate: tbsCertificate"),
        ("--gen --type mldsa65 --size 3", "no such --size"),
        ("--gen --type rsa --size 1024", "no such --size"),
        ("--self --in missing.key --dn CN=x", "missing.key: "),
        ("--self --in ca.pem --dn CN=x", "ca.pem: no private key"),
        ("--self --in ca.key --dn moon", "distinguished name"),
        ("--self --in ca.key --dn CN=x --san keyid:x", "subjectAltName"),
        ("--self --in ca.key --dn CN=x --serial 0", "not a serial number"),
        ("--issue --in moon.key --cacert ca.pem --cakey ca.key", "--dn is needed"),
        ("--issue --in moon.key --cacert ca.pem --cakey moon.key --dn CN=x", "not the key of"),
        ("--issue --in ca.key --cacert moon.pem --cakey moon.key --dn CN=x", "not a CA"),
        ("--signcrl --cacert ca.pem --cakey ca.key --serial 1 --reason boredom", "--reason"),
        // Fault: in args.rs, leave out `range`.
        ("--self --in ca.key --dn CN=x --lifetime 0", "0 is not in 1.."),
        ("--issue --in moon.key --cacert ca.pem --cakey ca.key --dn CN=x --lifetime 0", "0 is not"),
        ("--signcrl --cacert ca.pem --cakey ca.key --lifetime 0", "0 is not in 1.."),
        // Fault: in `issue` of make.rs, do not ask for `path_len`.
        (
            "--issue --in moon.key --cacert last.pem --cakey ca.key --dn CN=x --ca",
            "--cacert has pathlen 0, so that no CA may be below it",
        ),
        ("--verify --in moon.pem --cacert moon.pem", "moon.pem: not a CA certificate"),
        ("--verify --in moon.pem --cacert ca.pem --revocation lax", "--revocation"),
        ("--print --in /dev/null", "no private key"),
    ] {
        let stderr = fails(folder, line);
        assert!(stderr.contains(expected), "{line}: {stderr}");
    }
}

#[test]
fn a_passphrase_opens_an_encrypted_key() {
    let folder = &tempdir("pki-passphrase");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pki/tests/fixtures");
    let key = fixtures.join("mldsa65-pbes2.key");
    let key = key.display();
    fs::write(folder.join("passphrase"), "tunnel\n").unwrap();
    let request = format!("--req --in {key} --dn CN=x");
    done(folder, &format!("{request} --passphrase-file passphrase"));
    assert!(fails(folder, &request).contains("a passphrase is needed"));
    fs::write(folder.join("passphrase"), "funnel\n").unwrap();
    let wrong = fails(folder, &format!("{request} --passphrase-file passphrase"));
    assert!(wrong.contains("wrong passphrase"));
}
