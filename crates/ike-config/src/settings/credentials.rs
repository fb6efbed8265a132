//! Private keys and CAs that are to be loaded.

use std::path::PathBuf;

use ike_proto::crypto::Secret;
use serde::{Deserialize, Serialize};

use super::connection::NamedFile;
use crate::diagnostic::Place;

/// A private key that `[secrets]` names: `secrets.private<suffix>` and the like.
#[derive(Debug)]
pub struct KeyFile {
    /// The folder whose name the section's name begins with.
    pub folder: &'static str,
    /// The content that is expected.
    pub holds: Holds,
    /// The file.
    pub path: PathBuf,
    /// The file as the configuration names it.
    pub shown: String,
    /// The full name of the option, for messages.
    pub option: String,
    /// Where it stands.
    pub place: Place,
    /// The passphrase of the file.
    pub passphrase: Option<Secret>,
}

impl KeyFile {
    /// The folders of private keys beside the configuration file, and what their files hold.
    pub const FOLDERS: [(&'static str, Holds); 5] = [
        ("private", Holds::AnyKey),
        ("rsa", Holds::Rsa),
        ("ecdsa", Holds::Ecdsa),
        ("pkcs8", Holds::AnyKey),
        ("pkcs12", Holds::Pkcs12),
    ];
}

/// The content that a file of private keys is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holds {
    /// A private key of any kind.
    AnyKey,
    /// An RSA key.
    Rsa,
    /// An ECDSA key.
    Ecdsa,
    /// Keys and certificates.
    Pkcs12,
}

/// A private key in a token that `[secrets]` names: `secrets.token<suffix>`.
#[derive(Debug)]
pub struct TokenKeyOption {
    /// The key.
    pub key: TokenKey,
    /// The user's PIN.
    pub pin: Option<Secret>,
    /// The full name of the section, for messages.
    pub option: String,
    /// Where it stands.
    pub place: Place,
}

/// A private key in a PKCS#11 token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenKey {
    /// The shared library of the module.
    pub module: PathBuf,
    /// The slot; else every slot with a token is looked at.
    pub slot: Option<u64>,
    /// `CKA_ID` of the key.
    pub handle: Vec<u8>,
}

/// `[authorities.<name>]`: a CA, and the URLs for the status of its certificates.
#[derive(Debug, Clone)]
pub struct Authority {
    /// Its name.
    pub name: String,
    /// `cacert` or `file`.
    pub cacert: NamedFile,
    /// `crl_uris`.
    pub crl_uris: Vec<String>,
    /// `ocsp_uris`.
    pub ocsp_uris: Vec<String>,
    /// `cert_uri_base`.
    pub cert_uri_base: Option<String>,
    /// `trust_anchor`.
    pub trust_anchor: bool,
}
