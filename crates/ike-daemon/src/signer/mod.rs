//! Private keys and their place. They are read here, or held by a process of their own, the *signer*. The signer
//! reads the files, talks to tokens, and signs on request. The process that the network reaches then has no
//! private keys, and need not be able to read their files.
//!
//! The two processes talk over a pair of sockets that both have from the start (`protocol.rs`). When one of them
//! ends, so does the other. The daemon replaces a signer that does not answer: a third process starts a new one
//! (`spawner.rs`), which loads the same keys. A passphrase or PIN in the configuration file passes through the daemon.
//!
//! Before the network reaches the daemon, the signer is *sealed*: without PKCS#11 modules it opens no other files and no
//! network. Its keys sign what an AUTH payload covers (`octets.rs`), and what TLS covers if EAP uses the key. A daemon that has
//! been taken over gets no other signature, except by a key that the daemon itself has brought.

mod client;
mod held;
mod link;
mod local;
mod octets;
pub(crate) mod protocol;
mod server;
pub(crate) mod spawner;
#[cfg(feature = "pkcs11")]
mod token;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ike_config::SandboxOptions;
use ike_proto::crypto::SigningKey;
use serde::{Deserialize, Serialize};

pub use client::Signer;
pub use ike_config::{Holds, TokenKey};
pub use local::Local;
pub(crate) use local::is_of_kind;
pub(crate) use server::serve_stdin;

/// The command of the program as a signer, and as the process that starts signers.
const COMMAND: &str = "signer";

/// Where private keys are.
pub trait KeySource: fmt::Debug + Send + Sync {
    /// The names of the files in the folder at `folder`, in order; none if there is no such folder.
    ///
    /// # Errors
    /// Those of reading it.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Loads the private keys of a file or of a token.
    ///
    /// # Errors
    /// Why there are none.
    fn load(&self, request: &LoadRequest) -> Result<Loaded, Refused>;

    /// This PKCS#11 module may be loaded also once the source is [sealed](Self::seal): the configuration names it,
    /// for keys that control clients tell of. After that it changes nothing.
    ///
    /// # Errors
    /// If the source is gone.
    fn admit(&self, module: &Path) -> io::Result<()> {
        let _ = module;
        Ok(())
    }

    /// Sets how long a question may wait for its answer.
    fn answer_within(&self, limit: Duration) {
        let _ = limit;
    }

    /// True if a question so far had no answer. Then a key that is missing is no mistake of the configuration.
    fn has_failed(&self) -> bool {
        false
    }

    /// The key of this public key (DER SubjectPublicKeyInfo) signs for TLS as well, because EAP uses it; without one all
    /// keys do. False if the source is [sealed](Self::seal) and this is new: then the key does not.
    fn admit_tls(&self, spki: Option<&[u8]>) -> bool {
        let _ = spki;
        true
    }

    /// From now on no PKCS#11 module is loaded that was neither loaded nor admitted so far: whoever takes over the process that
    /// asks shall not bring a library of his own. Files are read in the folders of `bounds` and of what was read so far. A key
    /// signs what an AUTH payload covers, and for TLS if that is [admitted](Self::admit_tls). Until then there is no thread
    /// for answers, so that the process can give up what threads would keep.
    ///
    /// # Errors
    /// If the source is gone, or there is no thread to be had.
    fn seal(&self, bounds: Bounds) -> io::Result<()> {
        let _ = bounds;
        Ok(())
    }
}

/// What a sealed source reads, and whether the kernel sees to it.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Folders of keys: of the configuration, and of the service's credentials.
    pub folders: Vec<PathBuf>,
    /// `[charon.sandbox]`.
    pub sandbox: SandboxOptions,
}

/// What to load.
#[derive(Debug)]
pub enum LoadRequest<'a> {
    /// A file.
    File {
        /// Its path.
        path: &'a Path,
        /// What it is to hold.
        holds: Holds,
        /// What opens it.
        passphrase: Option<&'a Passphrase>,
    },
    /// What a file with one private key has.
    Octets(&'a Passphrase),
    /// A key of a PKCS#11 token.
    Token {
        /// Which.
        key: TokenKey,
        /// The user's PIN.
        pin: Option<&'a Passphrase>,
    },
}

/// A passphrase or PIN, wiped when it is dropped and never printed.
pub type Passphrase = ike_proto::crypto::Secret;

/// What was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// Private keys.
    pub keys: Vec<Arc<dyn SigningKey>>,
    /// Certificates beside them, DER.
    pub certificates: Vec<Vec<u8>>,
    /// Others than its owner may read the file.
    pub readable_by_others: bool,
    /// The slot of the token that has the key.
    pub slot: Option<u64>,
}

/// Why nothing was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// The file is encrypted.
    PassphraseNeeded,
    /// It cannot be read.
    Unreadable(String),
    /// It does not hold what it should.
    Content(String),
    /// A token refuses the PIN: each more try may lock it.
    Pin(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PassphraseNeeded => write!(f, "{}", ::pki::LoadError::PassphraseNeeded),
            Self::Unreadable(why) | Self::Content(why) | Self::Pin(why) => f.write_str(why),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
