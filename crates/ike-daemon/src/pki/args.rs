//! The command line of `pki`, in the words of strongSwan's pki(1). A subcommand may be written as
//! there, `pki --gen`, or without the dashes.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValue, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use ike_proto::crypto::SignatureScheme;

/// Arguments of `pki`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct PkiArgs {
    /// What to do
    #[command(subcommand)]
    pub command: PkiCommand,
}

/// What `pki` can do.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Makes a private key
    #[command(long_flag = "gen")]
    Gen(GenArgs),
    /// Makes a self-signed certificate
    #[command(name = "self", long_flag = "self")]
    SelfSigned(SelfArgs),
    /// Issues a certificate with the key of a CA
    #[command(long_flag = "issue")]
    Issue(IssueArgs),
    /// Makes a certification request (PKCS#10)
    #[command(long_flag = "req")]
    Req(ReqArgs),
    /// Issues a revocation list
    #[command(long_flag = "signcrl")]
    Signcrl(SigncrlArgs),
    /// Prints what a file holds
    #[command(long_flag = "print")]
    Print(InputArgs),
    /// Extracts the public key
    #[command(long_flag = "pub")]
    Pub(PubArgs),
    /// Writes certificates where peers fetch them by hash and URL
    #[command(long_flag = "publish")]
    Publish(PublishArgs),
    /// Verifies a certificate
    #[command(long_flag = "verify")]
    Verify(VerifyArgs),
}

/// Arguments of `gen`.
#[derive(Debug, Args)]
pub struct GenArgs {
    /// Type of key
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = KeyNames, default_value = "mldsa65")]
    pub kind: KeyName,
    /// Bits: rsa 2048, 3072 (default) or 4096; ecdsa 256, 384 (default) or 521
    #[arg(short, long, value_name = "BITS")]
    pub size: Option<u32>,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The type of a key as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyName {
    /// A built-in type.
    BuiltIn(KeyKind),
    /// The name of a signature scheme that the program may have brought.
    Other(String),
}

/// Reads a [`KeyName`]. Help and completions list the built-in ones.
#[derive(Debug, Clone)]
struct KeyNames;

impl TypedValueParser for KeyNames {
    type Value = KeyName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<KeyName, clap::Error> {
        let text = NonEmptyStringValueParser::new().parse_ref(command, arg, value)?;
        Ok(match KeyKind::from_str(&text, false) {
            Ok(kind) => KeyName::BuiltIn(kind),
            Err(_) => KeyName::Other(text),
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let kinds = KeyKind::value_variants().iter();
        Some(Box::new(kinds.filter_map(ValueEnum::to_possible_value)))
    }
}

/// A built-in type of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyKind {
    /// RSA
    Rsa,
    /// ECDSA
    Ecdsa,
    /// Ed25519
    Ed25519,
    /// ML-DSA-44
    Mldsa44,
    /// ML-DSA-65
    Mldsa65,
    /// ML-DSA-87
    Mldsa87,
    /// SLH-DSA-SHA2-128s: small signatures, slow to make
    Slhdsa128s,
    /// SLH-DSA-SHA2-192s
    Slhdsa192s,
    /// SLH-DSA-SHA2-256s
    Slhdsa256s,
}

/// The subject and what else a certificate says.
#[derive(Debug, Args)]
pub struct ContentArgs {
    /// subjectAltName: host name, e-mail or IP address (may be given several times)
    #[arg(short = 'a', long, value_name = "NAME")]
    pub san: Vec<String>,
    /// Days the certificate is valid
    #[arg(short, long, value_name = "DAYS", default_value_t = 1095, value_parser = clap::value_parser!(u32).range(1..))]
    pub lifetime: u32,
    /// Serial number in hexadecimal; random by default
    #[arg(long, value_name = "HEX")]
    pub serial: Option<String>,
    /// A CA certificate
    #[arg(long)]
    pub ca: bool,
    /// Most CA certificates below this one
    #[arg(long, value_name = "N", requires = "ca")]
    pub pathlen: Option<u8>,
    /// extendedKeyUsage (may be given several times); IKE needs none
    #[arg(long, value_enum, value_name = "FLAG")]
    pub flag: Vec<Flag>,
    /// URL of an OCSP responder (may be given several times)
    #[arg(long, value_name = "URL")]
    pub ocsp: Vec<String>,
    /// URL of a revocation list (may be given several times)
    #[arg(long, value_name = "URL")]
    pub crl: Vec<String>,
}

/// An extended key usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Flag {
    /// IKE (RFC 4945)
    #[value(name = "ipsecIKE")]
    IpsecIke,
    /// TLS server
    #[value(name = "serverAuth")]
    ServerAuth,
    /// TLS client
    #[value(name = "clientAuth")]
    ClientAuth,
    /// OCSP responses
    #[value(name = "ocspSigning")]
    OcspSigning,
}

/// How to sign.
#[derive(Debug, Args)]
pub struct PaddingArgs {
    /// Padding of RSA signatures
    #[arg(short = 'R', long, value_enum, default_value_t = RsaPadding::Pkcs1)]
    pub rsa_padding: RsaPadding,
    /// Hash of RSA signatures; other keys have their own
    #[arg(short = 'g', long, value_enum, default_value_t = Digest::Sha256)]
    pub digest: Digest,
}

/// Hash of RSA signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Digest {
    /// SHA-256
    Sha256,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
}

/// Padding of RSA signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RsaPadding {
    /// PKCS#1 v1.5
    Pkcs1,
    /// PSS
    Pss,
}

/// Where something is read from.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Input file, PEM or DER; default: standard input
    #[arg(short, long = "in", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Type of the input, as strongSwan's pki wants it named; it is found out anyhow
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// File with the passphrase of an encrypted private key
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
}

/// Where something is written to.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Encoding
    #[arg(short = 'f', long, value_enum, default_value_t = OutForm::Pem)]
    pub outform: OutForm,
    /// Output file, which must not exist yet; private keys are for its owner only. Default: standard
    /// output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// An encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutForm {
    /// PEM
    Pem,
    /// DER
    Der,
}

/// Arguments of `self`.
#[derive(Debug, Args)]
pub struct SelfArgs {
    /// Private key
    #[command(flatten)]
    pub input: InputArgs,
    /// Subject and issuer, such as "C=CH, O=strongSwan, CN=CA"
    #[arg(short, long, value_name = "DN")]
    pub dn: String,
    /// Content
    #[command(flatten)]
    pub content: ContentArgs,
    /// Padding
    #[command(flatten)]
    pub padding: PaddingArgs,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `issue`.
#[derive(Debug, Args)]
pub struct IssueArgs {
    /// Private key, public key, certificate or request to certify
    #[command(flatten)]
    pub input: InputArgs,
    /// Certificate of the CA
    #[arg(short, long, value_name = "FILE")]
    pub cacert: PathBuf,
    /// Private key of the CA
    #[arg(short = 'k', long, value_name = "FILE")]
    pub cakey: PathBuf,
    /// Subject; default: that of the request
    #[arg(short, long, value_name = "DN")]
    pub dn: Option<String>,
    /// Content
    #[command(flatten)]
    pub content: ContentArgs,
    /// Padding
    #[command(flatten)]
    pub padding: PaddingArgs,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `req`.
#[derive(Debug, Args)]
pub struct ReqArgs {
    /// Private key
    #[command(flatten)]
    pub input: InputArgs,
    /// Subject
    #[arg(short, long, value_name = "DN")]
    pub dn: String,
    /// subjectAltName (may be given several times)
    #[arg(short = 'a', long, value_name = "NAME")]
    pub san: Vec<String>,
    /// Padding
    #[command(flatten)]
    pub padding: PaddingArgs,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `signcrl`.
#[derive(Debug, Args)]
pub struct SigncrlArgs {
    /// Certificate of the CA
    #[arg(short, long, value_name = "FILE")]
    pub cacert: PathBuf,
    /// Private key of the CA
    #[arg(short = 'k', long, value_name = "FILE")]
    pub cakey: PathBuf,
    /// File with the passphrase of the CA's private key
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// Days until the next list is due
    #[arg(short, long, value_name = "DAYS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub lifetime: u32,
    /// The last list: its entries are taken over, its number counted up
    #[arg(short = 'a', long, value_name = "FILE")]
    pub lastcrl: Option<PathBuf>,
    /// Certificate to revoke (may be given several times)
    #[arg(short = 'z', long, value_name = "FILE")]
    pub cert: Vec<PathBuf>,
    /// Serial number to revoke, in hexadecimal (may be given several times)
    #[arg(short, long, value_name = "HEX")]
    pub serial: Vec<String>,
    /// Why they are revoked
    #[arg(short, long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Padding
    #[command(flatten)]
    pub padding: PaddingArgs,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `pub`.
#[derive(Debug, Args)]
pub struct PubArgs {
    /// Private key, public key, certificate or request
    #[command(flatten)]
    pub input: InputArgs,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `publish`.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// Certificates, PEM or DER (may be given several times)
    #[arg(short, long = "in", value_name = "FILE", required = true)]
    pub input: Vec<PathBuf>,
    /// Folder that a web server has: each certificate becomes a file there, DER, named by its SHA-1 in
    /// hexadecimal
    #[arg(short, long, value_name = "FOLDER")]
    pub dir: PathBuf,
    /// One file with all of them instead, for `cert_bundle`: the own certificate first, then its issuers
    #[arg(short, long)]
    pub bundle: bool,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Certificate; further ones in the file link it to its CA
    #[command(flatten)]
    pub input: InputArgs,
    /// CA certificate (may be given several times): trusted if self-signed, else only a link
    #[arg(short, long, value_name = "FILE", required = true)]
    pub cacert: Vec<PathBuf>,
    /// Revocation list (may be given several times)
    #[arg(short = 'l', long, value_name = "FILE")]
    pub crl: Vec<PathBuf>,
    /// Identity the certificate must have
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// What if it is not known whether the certificate was revoked: strict, ifuri or relaxed
    #[arg(long, value_name = "POLICY", default_value = "relaxed")]
    pub revocation: String,
}

impl KeyKind {
    /// The signature scheme of keys that have one only.
    pub(super) fn scheme(self) -> Option<SignatureScheme> {
        Some(match self {
            Self::Rsa | Self::Ecdsa => return None,
            Self::Ed25519 => SignatureScheme::Ed25519,
            Self::Mldsa44 => SignatureScheme::MlDsa44,
            Self::Mldsa65 => SignatureScheme::MlDsa65,
            Self::Mldsa87 => SignatureScheme::MlDsa87,
            Self::Slhdsa128s => SignatureScheme::SlhDsaSha2_128s,
            Self::Slhdsa192s => SignatureScheme::SlhDsaSha2_192s,
            Self::Slhdsa256s => SignatureScheme::SlhDsaSha2_256s,
        })
    }
}

impl Flag {
    /// The object identifier.
    pub(super) fn oid(self) -> &'static str {
        match self {
            Self::IpsecIke => "1.3.6.1.5.5.7.3.17",
            Self::ServerAuth => "1.3.6.1.5.5.7.3.1",
            Self::ClientAuth => "1.3.6.1.5.5.7.3.2",
            Self::OcspSigning => "1.3.6.1.5.5.7.3.9",
        }
    }
}

/// ML-DSA in four commands.
const EXAMPLE: &str = "Example, an ML-DSA CA and a certificate:
  ike-daemon pki --gen --type mldsa65 --out ca.key
  ike-daemon pki --self --ca --in ca.key --dn \"O=example, CN=CA\" --out ca.pem
  ike-daemon pki --gen --type mldsa65 --out moon.key
  ike-daemon pki --issue --in moon.key --cacert ca.pem --cakey ca.key \\
      --dn \"O=example, CN=moon\" --san moon.example.org --out moon.pem";
