//! Keys and certificates of the schemes, by `pki` of the program. tests/lab/scenarios/schemes.sh runs the program.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder in which `pki` runs.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("ike-schemes-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn output(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ike-test-schemes-daemon"))
            .current_dir(&self.0)
            .arg("pki")
            .args(line.split(' '))
            .output()
            .expect("the program runs")
    }

    fn pki(&self, line: &str) -> String {
        let output = self.output(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A root, an end entity and a request of the scheme, and a CA that is none of them.
///
/// Fault: in `main`, pass `pq_kem::provider()` on.
fn makes_a_chain(scheme: &str) {
    let folder = Folder::new(scheme);
    for name in ["ca", "own", "other"] {
        folder.pki(&format!("--gen --type {scheme} --out {name}.key"));
        assert!(folder.pki(&format!("--print --in {name}.key")).contains(scheme));
    }
    for name in ["ca", "other"] {
        folder.pki(&format!("--self --ca --in {name}.key --dn CN={name} --out {name}.pem"));
    }
    folder.pki("--req --in own.key --dn CN=own --san own.example.org --out own.csr");
    folder.pki("--issue --type pkcs10 --in own.csr --cacert ca.pem --cakey ca.key --out own.pem");
    assert!(folder.pki("--print --in own.pem").contains(scheme));
    folder.pki("--verify --in own.pem --cacert ca.pem");
    let refused = folder.output("--verify --in own.pem --cacert other.pem");
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(folder.pki("--pub --in own.key"), folder.pki("--pub --in own.pem --type x509"));
}

#[test]
fn ed448_has_keys_and_certificates() {
    makes_a_chain("ed448");
}

#[test]
fn a_brainpool_curve_has_keys_and_certificates() {
    makes_a_chain("ecdsa_brainpoolp256r1");
}

/// The signatures of both have one identifier.
///
/// Fault: in `Schemes::of_signature` of ike-pki, do not ask the key.
#[test]
fn a_ca_of_either_curve_certifies_keys_of_the_other_one() {
    let (p256, brainpool) = ("ecdsa --size 256", "ecdsa_brainpoolp256r1");
    for (name, ca, own) in [("p256", p256, brainpool), ("brainpool", brainpool, p256)] {
        let folder = Folder::new(&format!("ca-{name}"));
        folder.pki(&format!("--gen --type {ca} --out ca.key"));
        folder.pki("--self --ca --in ca.key --dn CN=ca --out ca.pem");
        folder.pki(&format!("--gen --type {own} --out own.key"));
        folder.pki("--issue --in own.key --cacert ca.pem --cakey ca.key --dn CN=own --out own.pem");
        folder.pki("--verify --in own.pem --cacert ca.pem");
        folder.pki("--signcrl --cacert ca.pem --cakey ca.key --cert own.pem --out ca.crl");
        let refused = folder.output("--verify --in own.pem --cacert ca.pem --crl ca.crl");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("revoked"), "{ca}: {said}");
    }
}
