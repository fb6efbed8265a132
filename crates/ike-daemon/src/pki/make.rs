//! `--gen`, `--pub`, `--self`, `--issue`, `--req`: make keys, certificates and requests.

use std::time::{Duration, SystemTime};

use ::pki::files;
use ::pki::issue::{self, Issuer, Request, Template};
use ike_proto::crypto::{SchemeRegister, SignatureScheme};
use ike_proto::wire::payload::IdData;
use pq_kem::sign::{KeyType, generate};

use super::args::{ContentArgs, GenArgs, IssueArgs, KeyKind, KeyName, PubArgs, ReqArgs, SelfArgs};
use super::{Failure, Input, output, scheme, serial};

/// `--gen`
pub(super) fn key(args: &GenArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let kind = match &args.kind {
        KeyName::BuiltIn(kind) => *kind,
        KeyName::Other(name) => {
            let scheme = schemes.by_name(name).ok_or_else(|| unknown(name, schemes))?;
            if args.size.is_some() {
                return Err(Failure::Wrong(NO_SIZE.to_owned()));
            }
            let key_type = KeyType::Scheme(SignatureScheme::Outside(scheme.clone()));
            let key = generate(key_type).map_err(Failure::Generate)?;
            return output(&args.output, "PRIVATE KEY", &key);
        }
    };
    let key_type = match (kind, args.size) {
        (KeyKind::Rsa, Some(2048)) => KeyType::Rsa2048,
        (KeyKind::Rsa, None | Some(3072)) => KeyType::Rsa3072,
        (KeyKind::Rsa, Some(4096)) => KeyType::Rsa4096,
        (KeyKind::Ecdsa, Some(256)) => KeyType::Scheme(SignatureScheme::EcdsaP256Sha256),
        (KeyKind::Ecdsa, None | Some(384)) => KeyType::Scheme(SignatureScheme::EcdsaP384Sha384),
        (KeyKind::Ecdsa, Some(521)) => KeyType::Scheme(SignatureScheme::EcdsaP521Sha512),
        (kind, size) => match (kind.scheme(), size) {
            (Some(scheme), None) => KeyType::Scheme(scheme),
            _ => return Err(Failure::Wrong(NO_SIZE.to_owned())),
        },
    };
    let key = generate(key_type).map_err(Failure::Generate)?;
    output(&args.output, "PRIVATE KEY", &key)
}

fn unknown(name: &str, schemes: &SchemeRegister) -> Failure {
    let brought: Vec<&str> = schemes.outside().map(|scheme| scheme.name()).collect();
    let brought = match brought.as_slice() {
        [] => String::new(),
        names => format!(", or one that this program brings: {}", names.join(", ")),
    };
    Failure::Usage(format!(
        "--type: {name:?} is no type of key: use one that `pki --gen --help` lists{brought}"
    ))
}

/// `--pub`
pub(super) fn public_key(args: &PubArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let passphrase = args.input.passphrase_file.as_ref();
    let (spki, _) = subject_of(&Input::read(&args.input)?, schemes, passphrase)?;
    output(&args.output, "PUBLIC KEY", &spki)
}

/// `--self`
pub(super) fn self_signed(args: &SelfArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let key =
        Input::read(&args.input)?.private_key(schemes, args.input.passphrase_file.as_ref())?;
    let subject = issue::distinguished_name(&args.dn)?;
    let issuer = Issuer { key: &*key, scheme: scheme(&*key, &args.padding)?, name: &subject };
    let template = template(&args.content, subject.clone(), Vec::new())?;
    let der = issue::certificate(&template, key.public_key(), &issuer)?;
    output(&args.output, "CERTIFICATE", &der)
}

/// `--issue`
pub(super) fn issue(args: &IssueArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let input = Input::read(&args.input)?;
    let ca = Input::file(&args.cacert)?.certificate()?;
    let passphrase = args.input.passphrase_file.as_ref();
    let key = Input::file(&args.cakey)?.private_key(schemes, passphrase)?;
    let issuer = Issuer { key: &*key, scheme: scheme(&*key, &args.padding)?, name: ca.subject() };
    if !issue::is_certificate_of(&issuer, &ca) {
        return Err(Failure::Wrong("--cakey is not the key of --cacert".to_owned()));
    }
    if !ca.is_ca() {
        return Err(Failure::Wrong("--cacert is not a CA certificate".to_owned()));
    }
    if args.content.ca && ca.path_len() == Some(0) {
        let why = "--cacert has pathlen 0, so that no CA may be below it: leave out --ca, or use another CA";
        return Err(Failure::Wrong(why.to_owned()));
    }
    let (spki, request) = subject_of(&input, schemes, passphrase)?;
    let (subject, names) = match (&args.dn, request) {
        (Some(dn), request) => {
            let names = request.map(|request| request.names).unwrap_or_default();
            (issue::distinguished_name(dn)?, names)
        }
        (None, Some(request)) => (request.subject, request.names),
        (None, None) => return Err(Failure::Wrong("--dn is needed without a request".to_owned())),
    };
    let template = template(&args.content, subject, names)?;
    let der = issue::certificate(&template, &spki, &issuer)?;
    output(&args.output, "CERTIFICATE", &der)
}

/// `--req`
pub(super) fn request(args: &ReqArgs, schemes: &SchemeRegister) -> Result<(), Failure> {
    let key =
        Input::read(&args.input)?.private_key(schemes, args.input.passphrase_file.as_ref())?;
    let subject = issue::distinguished_name(&args.dn)?;
    let requester = Issuer { key: &*key, scheme: scheme(&*key, &args.padding)?, name: &subject };
    let der = Request::make(&requester, &names(&args.san)?)?;
    output(&args.output, "CERTIFICATE REQUEST", &der)
}

/// The public key of a private key, request, public key or certificate; the request if it is one.
fn subject_of(
    input: &Input,
    schemes: &SchemeRegister,
    passphrase: Option<&std::path::PathBuf>,
) -> Result<(Vec<u8>, Option<Request>), Failure> {
    if let Ok(request) = Request::load(schemes, &input.content) {
        return Ok((request.spki.clone(), Some(request)));
    }
    if let Ok(spki) = files::load_public_key(&input.content) {
        return Ok((spki, None));
    }
    let key = input.private_key(schemes, passphrase)?;
    Ok((key.public_key().to_vec(), None))
}

/// Names on the command line come instead of those in a request, not besides them: what is certified
/// is what the CA's operator sees.
fn template(
    args: &ContentArgs,
    subject: Vec<u8>,
    requested: Vec<IdData>,
) -> Result<Template, Failure> {
    let given = names(&args.san)?;
    let now = SystemTime::now();
    Ok(Template {
        subject,
        names: if given.is_empty() { requested } else { given },
        serial: serial(args.serial.as_deref())?,
        not_before: now,
        not_after: now + days(args.lifetime),
        ca: args.ca,
        path_len: args.pathlen,
        extended_key_usage: args.flag.iter().map(|flag| flag.oid().to_owned()).collect(),
        crl: args.crl.clone(),
        ocsp: args.ocsp.clone(),
        ..Template::default()
    })
}

fn names(san: &[String]) -> Result<Vec<IdData>, Failure> {
    let parse = |text: &String| {
        IdData::parse(text).map_err(|why| Failure::Wrong(format!("--san {text:?}: {why}")))
    };
    san.iter().map(parse).collect()
}

const NO_SIZE: &str = "there is no such --size of this type";

pub(super) fn days(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 24 * 3600)
}
