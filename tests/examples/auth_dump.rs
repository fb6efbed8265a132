//! Handshakes by signatures whose signed octets, signatures and certificates are written to files, so
//! that another implementation of the algorithms can verify them.
//!
//! `auth_dump DIR` writes `SCHEME-ROLE.octets`, `.sig` and `.der` (the signer's certificate) for both
//! ends of a handshake by each scheme, and `root.der`. Both ends have verified each other.

use std::path::{Path, PathBuf};
use std::{env, fs};

use ike_proto::crypto::SignatureScheme::{self, *};
use ike_tests::credentials::{Authority, credential, key_type};
use ike_tests::{Host, Setup};

/// Without Falcon, which OpenSSL does not have, and slower than is worth while the small SLH-DSA sets.
const SCHEMES: &[SignatureScheme] = &[
    MlDsa44,
    MlDsa65,
    MlDsa87,
    SlhDsaSha2_128s,
    SlhDsaSha2_128f,
    SlhDsaSha2_192f,
    SlhDsaSha2_256f,
    SlhDsaShake128f,
    SlhDsaShake192f,
    SlhDsaShake256f,
    Ed25519,
    EcdsaP256Sha256,
    EcdsaP384Sha384,
    EcdsaP521Sha512,
    RsaPssSha256,
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(env::args().nth(1).ok_or("usage: auth_dump DIR")?);
    fs::create_dir_all(&dir)?;
    let ca = Authority::root("root", key_type(MlDsa65), 0);
    fs::write(dir.join("root.der"), ca.certificate.der())?;
    for scheme in SCHEMES {
        let mut setup = Setup::new(1);
        for (n, side) in [(1, &mut setup.a), (2, &mut setup.b)] {
            side.show(credential(&ca, key_type(scheme.clone()), n));
            side.want("ike:pubkey", &ca);
        }
        let mut pair = setup.build();
        pair.establish();
        write(&dir, "initiator", pair.a())?;
        write(&dir, "responder", pair.b())?;
        let datagrams = pair.net.trace.len();
        let octets: usize = pair.net.trace.iter().map(|packet| packet.octets.len()).sum();
        println!("{scheme}: {datagrams} datagrams, {octets} octets");
    }
    Ok(())
}

fn write(dir: &Path, role: &str, host: &Host) -> Result<(), Box<dyn std::error::Error>> {
    let signed = host.signed.first().ok_or("nothing was signed")?;
    let file = |kind: &str| dir.join(format!("{}-{role}.{kind}", signed.scheme));
    fs::write(file("octets"), &signed.octets)?;
    fs::write(file("sig"), &signed.signature)?;
    let certificate = signed.certs.first().ok_or("no certificate was sent")?;
    fs::write(file("der"), &certificate.data)?;
    Ok(())
}
