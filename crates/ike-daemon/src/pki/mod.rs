//! `ike-daemon pki`: keys, certificates, requests and revocation lists, as strongSwan's pki(1).

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pki::{Certificate, LoadError, files, issue};
use ike_proto::crypto::{CryptoError, SchemeRegister, SecureRandom, SignatureScheme, SigningKey};
use zeroize::Zeroizing;

use crate::exit::Status;

mod args;
mod make;
mod print;
mod publish;
mod revoke;

pub use args::PkiArgs;
use args::{Digest, InputArgs, OutForm, OutputArgs, PaddingArgs, PkiCommand, RsaPadding};

/// Runs `pki` for these signature schemes; what went wrong is on standard error.
pub(crate) fn run(args: &PkiArgs, schemes: &SchemeRegister) -> Status {
    let done = match &args.command {
        PkiCommand::Gen(args) => make::key(args, schemes),
        PkiCommand::SelfSigned(args) => make::self_signed(args, schemes),
        PkiCommand::Issue(args) => make::issue(args, schemes),
        PkiCommand::Req(args) => make::request(args, schemes),
        PkiCommand::Pub(args) => make::public_key(args, schemes),
        PkiCommand::Signcrl(args) => revoke::sign_crl(args, schemes),
        PkiCommand::Verify(args) => revoke::verify(args, schemes),
        PkiCommand::Publish(args) => publish::publish(args),
        PkiCommand::Print(args) => print::print(args, schemes),
    };
    match done {
        Ok(()) => Status::Done,
        Err(why) => {
            eprintln!("pki: {why}");
            match why {
                Failure::Usage(_) => Status::Usage,
                _ => Status::Failed,
            }
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    Io(String, io::Error),
    Load(String, LoadError),
    Issue(issue::IssueError),
    Generate(CryptoError),
    Wrong(String),
    /// An argument that no build of the program, or not this one, understands.
    Usage(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, why) => write!(f, "{what}: {why}"),
            Self::Load(what, why) => write!(f, "{what}: {why}"),
            Self::Issue(why) => write!(f, "{why}"),
            Self::Generate(why) => write!(f, "generating a key: {why}"),
            Self::Wrong(what) | Self::Usage(what) => f.write_str(what),
        }
    }
}

impl From<issue::IssueError> for Failure {
    fn from(why: issue::IssueError) -> Self {
        Self::Issue(why)
    }
}

/// A file's name and content, which is wiped: it may be a private key.
struct Input {
    name: String,
    content: Zeroizing<Vec<u8>>,
}

impl Input {
    fn file(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        match fs::read(path) {
            Ok(content) => Ok(Self { name, content: Zeroizing::new(content) }),
            Err(why) => Err(Failure::Io(name, why)),
        }
    }

    fn read(args: &InputArgs) -> Result<Self, Failure> {
        if let Some(path) = &args.input {
            return Self::file(path);
        }
        let name = "standard input".to_owned();
        let mut content = Zeroizing::new(Vec::new());
        match io::stdin().lock().read_to_end(&mut content) {
            Ok(_) => Ok(Self { name, content }),
            Err(why) => Err(Failure::Io(name, why)),
        }
    }

    fn failure(&self, why: LoadError) -> Failure {
        Failure::Load(self.name.clone(), why)
    }

    fn certificates(&self) -> Result<Vec<Certificate>, Failure> {
        files::load_certificates(&self.content).map_err(|why| self.failure(why))
    }

    fn certificate(&self) -> Result<Certificate, Failure> {
        let first = self.certificates()?.into_iter().next();
        first.ok_or_else(|| self.failure(LoadError::Nothing("certificate")))
    }

    fn private_key(
        &self,
        schemes: &SchemeRegister,
        passphrase: Option<&PathBuf>,
    ) -> Result<Arc<dyn SigningKey>, Failure> {
        let passphrase = passphrase.map(|path| Self::file(path)).transpose()?;
        let passphrase = passphrase.as_ref().map(|file| file.content.trim_ascii_end());
        files::load_private_key_with(schemes, &self.content, passphrase)
            .map_err(|why| self.failure(why))
    }
}

/// Writes `der` where and as the user wants it.
fn output(args: &OutputArgs, label: &str, der: &[u8]) -> Result<(), Failure> {
    let content = Zeroizing::new(match args.outform {
        OutForm::Pem => files::to_pem(label, der).into_bytes(),
        OutForm::Der => der.to_vec(),
    });
    let Some(path) = &args.out else {
        let mut out = io::stdout().lock();
        let written = out.write_all(&content).and_then(|()| out.flush());
        return written.map_err(|why| Failure::Io("standard output".to_owned(), why));
    };
    let mode = if label.ends_with("PRIVATE KEY") { 0o600 } else { 0o644 };
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(&content));
    written.map_err(|why| Failure::Io(path.display().to_string(), why))
}

/// The scheme to sign with.
fn scheme(key: &dyn SigningKey, how: &PaddingArgs) -> Result<SignatureScheme, Failure> {
    use SignatureScheme::{
        RsaPkcs1Sha256, RsaPkcs1Sha384, RsaPkcs1Sha512, RsaPssSha256, RsaPssSha384, RsaPssSha512,
    };
    let wanted = match (how.rsa_padding, how.digest) {
        (RsaPadding::Pkcs1, Digest::Sha256) => RsaPkcs1Sha256,
        (RsaPadding::Pkcs1, Digest::Sha384) => RsaPkcs1Sha384,
        (RsaPadding::Pkcs1, Digest::Sha512) => RsaPkcs1Sha512,
        (RsaPadding::Pss, Digest::Sha256) => RsaPssSha256,
        (RsaPadding::Pss, Digest::Sha384) => RsaPssSha384,
        (RsaPadding::Pss, Digest::Sha512) => RsaPssSha512,
    };
    if key.schemes().contains(&wanted) {
        return Ok(wanted);
    }
    let default = issue::default_scheme(key);
    default.ok_or_else(|| Failure::Wrong("the key makes no signatures".to_owned()))
}

/// A serial number: that in `hex`, or 127 random bits.
fn serial(hex: Option<&str>) -> Result<Vec<u8>, Failure> {
    let Some(hex) = hex else {
        let mut serial = [0; 16];
        pq_kem::os_random().fill(&mut serial);
        serial[0] = serial[0] & 0x7f | 0x40;
        return Ok(serial.to_vec());
    };
    let digits: Vec<u8> = hex
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()
        .filter(|digits: &Vec<u8>| digits.len() <= 40 && digits.iter().any(|digit| *digit != 0))
        .ok_or_else(|| Failure::Wrong(format!("{hex:?} is not a serial number")))?;
    let even = [vec![0; digits.len() % 2], digits].concat();
    let octets = even.chunks(2).map(|pair| pair.iter().fold(0, |octet, digit| octet << 4 | digit));
    Ok(octets.skip_while(|octet| *octet == 0).collect())
}
