//! Private keys in this process.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ::pki::{LoadError, files};
use ike_proto::crypto::{SchemeRegister, SignatureScheme, SigningKey};

use super::{Holds, KeySource, LoadRequest, Loaded, Passphrase, Refused, TokenKey};
use crate::files::{list, load_file, readable_by_others};
#[cfg(not(all(feature = "pkcs11", feature = "pkcs12")))]
use crate::parts::Part;

/// Reads files itself, and talks to tokens itself.
#[derive(Debug, Clone, Default)]
pub struct Local {
    schemes: SchemeRegister,
}

impl Local {
    /// Has keys of these schemes. The default is the built-in ones.
    pub fn new(schemes: SchemeRegister) -> Self {
        Self { schemes }
    }
}

impl KeySource for Local {
    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        match list(folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names,
        }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Loaded, Refused> {
        match request {
            LoadRequest::File { path, holds, passphrase } => {
                file(&self.schemes, path, *holds, *passphrase)
            }
            LoadRequest::Octets(octets) => {
                let key = files::load_private_key_with(&self.schemes, octets.expose(), None)?;
                Ok(Loaded::of(key, false, None))
            }
            LoadRequest::Token { key, pin } => {
                let (key, slot) = token(key, *pin)?;
                Ok(Loaded::of(key, false, Some(slot)))
            }
        }
    }
}

fn file(
    schemes: &SchemeRegister,
    path: &Path,
    holds: Holds,
    passphrase: Option<&Passphrase>,
) -> Result<Loaded, Refused> {
    let content = load_file(path, LARGEST).map_err(Refused::Unreadable)?;
    let readable_by_others = readable_by_others(path);
    let passphrase = passphrase.map(Passphrase::expose);
    if holds == Holds::Pkcs12 {
        let passphrase = passphrase.ok_or(Refused::PassphraseNeeded)?;
        let (keys, certificates) = pkcs12(schemes, &content, passphrase)?;
        return Ok(Loaded { keys, certificates, readable_by_others, slot: None });
    }
    let key = files::load_private_key_with(schemes, &content, passphrase)?;
    let fits = match holds {
        Holds::Rsa => is_rsa(&*key),
        Holds::Ecdsa => is_ecdsa(&*key),
        Holds::AnyKey | Holds::Pkcs12 => true,
    };
    if !fits {
        let wanted = if holds == Holds::Rsa { "RSA key" } else { "ECDSA key" };
        return Err(LoadError::Nothing(wanted).into());
    }
    Ok(Loaded::of(key, readable_by_others, None))
}

impl Loaded {
    fn of(key: Arc<dyn SigningKey>, readable_by_others: bool, slot: Option<u64>) -> Self {
        Self { keys: vec![key], certificates: Vec::new(), readable_by_others, slot }
    }
}

/// Private keys, and certificates as DER.
type Opened = (Vec<Arc<dyn SigningKey>>, Vec<Vec<u8>>);

#[cfg(feature = "pkcs12")]
fn pkcs12(schemes: &SchemeRegister, content: &[u8], passphrase: &[u8]) -> Result<Opened, Refused> {
    let opened = files::load_pkcs12(schemes, content, passphrase)?;
    let certificates = opened.certificates.iter().map(|one| one.der().to_vec()).collect();
    Ok((opened.keys, certificates))
}

#[cfg(not(feature = "pkcs12"))]
fn pkcs12(_: &SchemeRegister, _: &[u8], _: &[u8]) -> Result<Opened, Refused> {
    Err(Refused::Content(Part::Pkcs12.missing().to_string()))
}

/// A key of a token, and its slot.
type InSlot = (Arc<dyn SigningKey>, u64);

#[cfg(feature = "pkcs11")]
fn token(key: &TokenKey, pin: Option<&Passphrase>) -> Result<InSlot, Refused> {
    super::token::open(key, pin)
}

#[cfg(not(feature = "pkcs11"))]
fn token(_: &TokenKey, _: Option<&Passphrase>) -> Result<InSlot, Refused> {
    Err(Refused::Content(Part::Pkcs11.missing().to_string()))
}

impl From<LoadError> for Refused {
    fn from(why: LoadError) -> Self {
        match why {
            LoadError::PassphraseNeeded => Self::PassphraseNeeded,
            why => Self::Content(why.to_string()),
        }
    }
}

/// Octets of a file with keys.
const LARGEST: usize = 1 << 20;

/// True if a key is of the type that VICI names: `rsa`, `ecdsa`, `ed25519`, or `any` and what is not known.
pub(crate) fn is_of_kind(key: &dyn SigningKey, kind: &str) -> bool {
    match kind.to_ascii_lowercase().as_str() {
        "rsa" => is_rsa(key),
        "ecdsa" => is_ecdsa(key),
        "ed25519" => key.schemes().contains(&SignatureScheme::Ed25519),
        _ => true,
    }
}

fn is_rsa(key: &dyn SigningKey) -> bool {
    use SignatureScheme::{RsaPkcs1Sha256, RsaPssSha256};
    key.schemes().iter().any(|scheme| matches!(scheme, RsaPkcs1Sha256 | RsaPssSha256))
}

fn is_ecdsa(key: &dyn SigningKey) -> bool {
    use SignatureScheme::{EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512};
    let curves = [EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512];
    key.schemes().iter().any(|scheme| curves.contains(scheme))
}
