//! `pki --publish`: files that peers fetch by hash and URL (RFC 7296 §3.6).

use std::fs;
use std::sync::Arc;

use ::pki::sha1;

use super::args::PublishArgs;
use super::{Failure, Input};

/// Writes the files, and prints their names.
pub(super) fn publish(args: &PublishArgs) -> Result<(), Failure> {
    let mut certificates = Vec::new();
    for path in &args.input {
        certificates.extend(Input::file(path)?.certificates()?.into_iter().map(Arc::new));
    }
    let all: Vec<Vec<u8>> = match args.bundle {
        true => {
            let bundle = ::pki::bundle(&certificates);
            vec![bundle.map_err(|why| Failure::Load("the bundle".to_owned(), why))?]
        }
        false => certificates.iter().map(|certificate| certificate.der().to_vec()).collect(),
    };
    for octets in all {
        let name: String = sha1(&octets).iter().map(|octet| format!("{octet:02x}")).collect();
        let path = args.dir.join(&name);
        // What is there already has the same content.
        let written = fs::write(&path, &octets);
        written.map_err(|why| Failure::Io(path.display().to_string(), why))?;
        println!("{name}");
    }
    Ok(())
}
