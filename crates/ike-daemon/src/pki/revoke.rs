//! `--signcrl` and `--verify`.

use std::time::SystemTime;

use ::pki::issue::{self, Issuer, RevokedEntry, revocation_list};
use ::pki::{Crl, LoadError, PeerPolicy, Revocation, RevocationPolicy, TrustStore, verify_peer};
use ike_proto::config::SchemeConstraints;
use ike_proto::crypto::{SchemeRegister, SignatureScheme};
use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::CertEncoding;

use super::args::{SigncrlArgs, VerifyArgs};
use super::make::days;
use super::{Failure, Input, output, scheme, serial};

/// `--signcrl`
pub(super) fn sign_crl(args: &SigncrlArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let ca = Input::file(&args.cacert)?.certificate()?;
    let key = Input::file(&args.cakey)?.private_key(schemes, args.passphrase_file.as_ref())?;
    let issuer = Issuer { key: &*key, scheme: scheme(&*key, &args.padding)?, name: ca.subject() };
    if !issue::is_certificate_of(&issuer, &ca) {
        return Err(Failure::Wrong("--cakey is not the key of --cacert".to_owned()));
    }
    let now = SystemTime::now();
    let (mut revoked, number) = match &args.lastcrl {
        None => (Vec::new(), 1),
        Some(path) => {
            let input = Input::file(path)?;
            let last = Crl::load_whole(schemes, &input.content);
            let last = last.map_err(|why| input.failure(why))?;
            if !last.is_signed_by(&ca) {
                return Err(input.failure(LoadError::Signature));
            }
            let number = last.number().and_then(|number| number.checked_add(1)).unwrap_or(1);
            (last.revoked().map_err(|why| input.failure(why))?, number)
        }
    };
    let reason = match &args.reason {
        None => None,
        Some(word) => match RevokedEntry::reason(word) {
            None => return Err(Failure::Wrong(format!("{word:?} is not a --reason"))),
            known => known,
        },
    };
    let mut add = |serial: Vec<u8>| {
        if !revoked.iter().any(|entry| entry.serial == serial) {
            revoked.push(RevokedEntry { serial, at: now, reason });
        }
    };
    for path in &args.cert {
        let input = Input::file(path)?;
        let certificate = input.certificate()?;
        if certificate.issuer() != ca.subject() {
            return Err(input.failure(LoadError::Irrelevant));
        }
        add(certificate.serial().to_vec());
    }
    for hex in &args.serial {
        let octets = serial(Some(hex))?;
        let sign = if octets.first().is_some_and(|first| *first >= 0x80) { &[0][..] } else { &[] };
        add([sign, &octets].concat());
    }
    let der = revocation_list(&issuer, now, now + days(args.lifetime), number, &revoked)?;
    output(&args.output, "X509 CRL", &der)
}

/// `--verify`
pub(super) fn verify(args: &VerifyArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let wrong = |what: String| Failure::Wrong(what);
    let input = Input::read(&args.input)?;
    let shown = input.certificates()?;
    let mut trust = TrustStore::with_schemes(schemes);
    for path in &args.cacert {
        let file = Input::file(path)?;
        for ca in file.certificates()? {
            trust.add(ca).map_err(|why| file.failure(why))?;
        }
    }
    for path in &args.crl {
        let file = Input::file(path)?;
        trust.revocation.add_crl(&file.content).map_err(|why| file.failure(why))?;
    }
    let revocation = RevocationPolicy::parse(&args.revocation)
        .ok_or_else(|| wrong(format!("{:?} is not a --revocation policy", args.revocation)))?;
    let policy = PeerPolicy { revocation, chain: any(schemes), ..PeerPolicy::default() };
    let first = shown.first().ok_or_else(|| wrong("no certificate".to_owned()))?;
    let id = match &args.id {
        Some(text) => IdData::parse(text).map_err(|why| wrong(format!("--id: {why}")))?,
        None => first
            .identities()
            .into_iter()
            .next()
            .ok_or_else(|| wrong("the certificate has no identity".to_owned()))?,
    };
    let encoding = CertEncoding::X509_SIGNATURE;
    let payloads: Vec<Cert<'_>> =
        shown.iter().map(|certificate| Cert { encoding, data: certificate.der() }).collect();
    let peer = verify_peer(&id, &payloads, &policy, &trust, SystemTime::now())
        .map_err(|why| wrong(format!("{}: {why}", input.name)))?;
    if let Revocation::Pending(requests) = &peer.revocation
        && revocation != RevocationPolicy::Relaxed
    {
        let urls: Vec<&str> = requests.iter().map(|request| request.url.as_str()).collect();
        return Err(wrong(format!("revocation not known; ask {}", urls.join(", "))));
    }
    println!("certificate trusted, identity {:?}", id.to_string());
    Ok(())
}

/// Every scheme, also those of the program: who runs the command has chosen the CAs.
fn any(schemes: &SchemeRegister) -> SchemeConstraints {
    let outside = schemes.outside().cloned().map(SignatureScheme::Outside);
    let outside: Vec<_> = outside.collect();
    if outside.is_empty() {
        return SchemeConstraints::default();
    }
    let built_in = SignatureScheme::BUILT_IN.iter().filter(|scheme| !scheme.must_be_named());
    SchemeConstraints { schemes: built_in.cloned().chain(outside).collect(), rsa_bits: 0 }
}
