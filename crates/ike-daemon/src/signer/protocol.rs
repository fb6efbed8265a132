//! The messages between the daemon and the signer: frames of a length (four octets, big-endian) and that many
//! octets, encoded by postcard. Each request has a number, which its answer repeats. Answers arrive in any order.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use ike_config::SandboxOptions;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::{Holds, Refused, TokenKey};

/// What the daemon asks.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) what: Ask,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    Names(PathBuf),
    File {
        path: PathBuf,
        holds: Holds,
        passphrase: Option<Wiped>,
    },
    Octets(Wiped),
    Token {
        key: TokenKey,
        pin: Option<Wiped>,
    },
    /// Sign `message` by the scheme with this AlgorithmIdentifier, with the key of this number.
    Sign {
        key: u64,
        scheme: Vec<u8>,
        message: Vec<u8>,
    },
    /// Keys may be in this PKCS#11 module, later as well.
    Admit(PathBuf),
    /// No other PKCS#11 modules from now on, and only what these limits leave.
    Seal(Limits),
    /// The key of this number is not needed any more.
    Drop {
        key: u64,
    },
}

/// What a signer may do once it is sealed. For a resolver only `landlock` and `seccomp` count.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// The files and folders that it reads.
    pub(super) places: Vec<PathBuf>,
    /// Whose keys sign for TLS.
    pub(super) tls: Tls,
    /// `[charon.sandbox]` has not turned these off.
    pub(crate) landlock: bool,
    pub(crate) seccomp: bool,
}

impl Limits {
    /// What `[charon.sandbox]` leaves.
    pub(crate) fn of(sandbox: SandboxOptions) -> Self {
        let SandboxOptions { landlock, seccomp, .. } = sandbox;
        Self { landlock, seccomp, ..Self::default() }
    }
}

/// The keys that sign for TLS as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Tls {
    /// Those with one of these public keys (DER SubjectPublicKeyInfo).
    Of(Vec<Vec<u8>>),
    /// All: control clients say which connections use EAP.
    All,
}

impl Tls {
    pub(super) fn has(&self, spki: &[u8]) -> bool {
        match self {
            Self::Of(keys) => keys.iter().any(|key| key == spki),
            Self::All => true,
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::Of(Vec::new())
    }
}

/// What the signer answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) number: u64,
    pub(super) what: Told,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Names(Result<Vec<String>, String>),
    Loaded(Result<Found, Refused>),
    Signed(Result<Vec<u8>, SignError>),
}

/// Keys that were loaded: numbers and public keys (DER SubjectPublicKeyInfo).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) keys: Vec<(u64, Vec<u8>)>,
    pub(super) certificates: Vec<Vec<u8>>,
    pub(super) readable_by_others: bool,
    pub(super) slot: Option<u64>,
}

/// Why there is no signature.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum SignError {
    Unsupported,
    Backend,
    /// The key is not for such a message.
    Use,
}

/// A secret in a message, wiped when it is dropped.
#[derive(Serialize, Deserialize)]
pub(super) struct Wiped(Vec<u8>);

impl Wiped {
    pub(super) fn new(octets: &[u8]) -> Self {
        Self(octets.to_vec())
    }

    pub(super) fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Sends `message`. What is written is wiped: it may have a passphrase in it.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    // In one piece, so that a short message costs one system call.
    to.write_all(&frame(message)?)
}

/// `message` behind its length. The memory has its size from the start: a vector that grows leaves copies behind, which
/// nobody wipes.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Zeroizing<Vec<u8>>> {
    let octets = postcard::experimental::serialized_size(message).map_err(io::Error::other)?;
    let length = u32::try_from(octets).ok().filter(|length| *length <= LARGEST);
    let length = length.ok_or_else(|| io::Error::other("message too large"))?;
    let mut frame = Vec::with_capacity(4 + octets);
    frame.extend_from_slice(&length.to_be_bytes());
    postcard::to_extend(message, frame).map(Zeroizing::new).map_err(io::Error::other)
}

/// The next message; `None` if the other end has closed.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    receive_up_to(LARGEST, from)
}

/// The next message, of so many octets at the most.
pub(crate) fn receive_up_to<T: DeserializeOwned>(
    largest: u32,
    from: &mut impl Read,
) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(why) => return Err(why),
    }
    let length = u32::from_be_bytes(length);
    if length > largest {
        return Err(io::Error::other("message too large"));
    }
    let mut octets = Zeroizing::new(vec![0; length as usize]);
    from.read_exact(&mut octets)?;
    postcard::from_bytes(&octets).map(Some).map_err(io::Error::other)
}

/// Octets of a message: more than a file with certificates has.
const LARGEST: u32 = 4 << 20;
