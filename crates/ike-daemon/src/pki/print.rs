//! `--print`: shows the content of a file in readable form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::pki::issue::Request;
use ::pki::{Certificate, Crl, LoadError, files};
use ike_proto::crypto::{SchemeRegister, SignatureScheme};

use super::args::InputArgs;
use super::{Failure, Input};

/// `--print`
pub(super) fn print(args: &InputArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let input = Input::read(args)?;
    let certificates = files::load_certificates(&input.content);
    let text = if let Ok(crl) = Crl::load_whole(schemes, &input.content) {
        list(&crl)
    } else if let Ok(request) = Request::load(schemes, &input.content) {
        self::request(&request, schemes)
    } else if let Ok(certificates) = &certificates {
        certificates.iter().map(|one| certificate(one, schemes)).collect::<Vec<_>>().join("\n")
    } else if let Ok(spki) = files::load_public_key(&input.content) {
        public_key(&spki, schemes)
    } else {
        let key = input.private_key(schemes, args.passphrase_file.as_ref());
        let key = key.map_err(|failure| match (failure, &certificates) {
            // What is neither is most likely a certificate, unless it is a key that a passphrase opens.
            (Failure::Load(name, why), Err(certificate @ LoadError::Certificate(_)))
                if !matches!(why, LoadError::PassphraseNeeded | LoadError::Passphrase) =>
            {
                Failure::Load(name, *certificate)
            }
            (failure, _) => failure,
        })?;
        format!("private key\n{}", public_key(key.public_key(), schemes))
    };
    print!("{text}");
    Ok(())
}

fn certificate(certificate: &Certificate, schemes: &SchemeRegister) -> String {
    let mut lines = Lines::default();
    lines.add("subject", &certificate.subject_text());
    lines.add("issuer", &certificate.issuer_text());
    lines.add("not before", &date(certificate.not_before()));
    lines.add("not after", &date(certificate.not_after()));
    lines.add("serial", &hex(certificate.serial()));
    let skip = usize::from(certificate.has_subject());
    for name in certificate.identities().iter().skip(skip) {
        lines.add("altName", &name.to_string());
    }
    let mut flags: Vec<String> = Vec::new();
    if certificate.is_ca() {
        flags.push("CA".to_owned());
    }
    flags.extend(certificate.path_len().map(|length| format!("pathlen:{length}")));
    flags.extend(certificate.key_usages().into_iter().map(str::to_owned));
    flags.extend(certificate.extended_key_usages().iter().map(|oid| usage(oid)));
    lines.add("flags", &flags.join(" "));
    for url in certificate.crl_urls() {
        lines.add("CRL URIs", &url);
    }
    for url in certificate.ocsp_urls() {
        lines.add("OCSP URIs", url);
    }
    lines.add("subjkeyId", &certificate.key_identifier().map(hex).unwrap_or_default());
    lines.0 + &public_key(certificate.spki(), schemes)
}

fn request(request: &Request, schemes: &SchemeRegister) -> String {
    let mut lines = Lines::default();
    lines.add("subject", &request.subject_text());
    for name in &request.names {
        lines.add("altName", &name.to_string());
    }
    lines.0 + &public_key(&request.spki, schemes)
}

fn list(crl: &Crl) -> String {
    let mut lines = Lines::default();
    lines.add("issuer", &crl.issuer_text());
    lines.add("this update", &date(crl.this_update()));
    lines.add("next update", &crl.next_update().map(date).unwrap_or_default());
    lines.add("serial", &crl.number().map(|number| number.to_string()).unwrap_or_default());
    let revoked = crl.revoked().unwrap_or_default();
    lines.add("revoked", &crl.count().to_string());
    for entry in revoked {
        let reason = entry.reason.map(|reason| format!(", {reason:?}")).unwrap_or_default();
        lines.add("", &format!("{}: {}{reason}", hex(&entry.serial), date(entry.at)));
    }
    lines.0
}

fn public_key(spki: &[u8], schemes: &SchemeRegister) -> String {
    let mut lines = Lines::default();
    let built_in = SignatureScheme::of_built_in_key(spki).iter().map(ToString::to_string);
    let outside = schemes.outside().filter(|scheme| scheme.key_in(spki).is_some());
    let names: Vec<String> = built_in.chain(outside.map(|one| one.name().to_owned())).collect();
    lines.add("pubkey", &if names.is_empty() { "unknown".to_owned() } else { names.join(" ") });
    lines.add("keyid", &hex(&::pki::ca_hash(spki)));
    lines.0
}

/// Lines of a name and a value.
#[derive(Default)]
struct Lines(String);

impl Lines {
    /// Adds a line, unless there is no value.
    fn add(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let name = if name.is_empty() { String::new() } else { format!("{name}:") };
            self.0.push_str(&format!("{name:<13}{value}\n"));
        }
    }
}

fn usage(oid: &str) -> String {
    let known = [
        ("1.3.6.1.5.5.7.3.17", "ipsecIKE"),
        ("1.3.6.1.5.5.7.3.1", "serverAuth"),
        ("1.3.6.1.5.5.7.3.2", "clientAuth"),
        ("1.3.6.1.5.5.7.3.9", "ocspSigning"),
        ("2.5.29.37.0", "anyExtendedKeyUsage"),
    ];
    let name = known.iter().find(|(known, _)| *known == oid).map_or(oid, |(_, name)| name);
    name.to_owned()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

fn date(time: SystemTime) -> String {
    let left = time.duration_since(SystemTime::now());
    let ago = SystemTime::now().duration_since(time);
    let days = |span: Duration| span.as_secs() / 86_400;
    let far = time.duration_since(UNIX_EPOCH).is_err();
    let when = ::pki::issue::date_text(time);
    match (left, ago) {
        _ if far => when,
        (Ok(left), _) => format!("{when} (in {} days)", days(left)),
        (_, Ok(ago)) => format!("{when} ({} days ago)", days(ago)),
        _ => when,
    }
}
