//! What the daemon's end keeps, so that a new signer can be told.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::protocol::{Ask, Limits, Tls, Wiped};
use super::{Holds, LoadRequest, Passphrase, Refused, TokenKey};
use crate::service::sandbox;

/// What a new signer is told.
#[derive(Default)]
pub(super) struct Held {
    /// PKCS#11 modules that a signer may load, until the spawner has the list. None is added once `sealed` is set.
    pub(super) modules: Vec<PathBuf>,
    /// The limits of signers, until they are sealed. Nothing is added later.
    pub(super) limits: Limits,
    pub(super) sealed: bool,
    pub(super) origins: Vec<Origin>,
}

/// Where keys have come from.
pub(super) struct Origin {
    pub(super) source: Source,
    pub(super) name: String,
    pub(super) keys: Keys,
    /// When a signature had the keys loaded again.
    pub(super) tried: Option<Instant>,
}

/// The numbers of keys on this side, and their public keys.
pub(super) type Keys = Vec<(u64, Vec<u8>)>;

/// How to load keys again. The passphrases and PINs are right ones: a refused one is never kept.
pub(super) enum Source {
    File {
        path: PathBuf,
        holds: Holds,
        passphrase: Option<Wiped>,
    },
    Token {
        key: TokenKey,
        pin: Option<Wiped>,
    },
    /// The keys cannot be loaded again: this process keeps no copy of a client's key, and no PIN that a token has refused.
    None,
}

/// Keys that a new signer is to load.
pub(super) struct Again {
    /// The request; `None` if the keys cannot be loaded again.
    pub(super) ask: Option<Ask>,
    pub(super) name: String,
    pub(super) keys: Keys,
}

/// A PIN, with the module and the slot of its token. Without a slot it is for every slot of the module.
pub(super) struct PinOf(PathBuf, Option<u64>, Wiped);

impl PinOf {
    pub(super) fn of(ask: &Ask) -> Option<Self> {
        let Ask::Token { key, pin: Some(pin) } = ask else { return None };
        Some(Self(key.module.clone(), key.slot, Wiped::new(pin.octets())))
    }

    /// True if `source` gives this PIN to the same token.
    fn is_of(&self, source: &Source) -> bool {
        let Self(module, slot, own) = self;
        let Source::Token { key, pin: Some(pin) } = source else { return false };
        let one_slot = key.slot == *slot || key.slot.is_none() || slot.is_none();
        key.module == *module && one_slot && pin.octets() == own.octets()
    }
}

impl Held {
    /// Lets a signer read this file or folder of the configuration later, too, unless it is sealed.
    pub(super) fn read(&mut self, path: &Path) {
        if !self.sealed {
            for place in sandbox::places_of(path) {
                if !self.limits.places.contains(&place) {
                    self.limits.places.push(place);
                }
            }
        }
    }

    /// Lets a key sign for TLS, or without one all keys. False if the signer is sealed and this is new.
    pub(super) fn admit_tls(&mut self, spki: Option<&[u8]>) -> bool {
        if !self.sealed {
            match (spki, &mut self.limits.tls) {
                (None, tls) => *tls = Tls::All,
                (Some(spki), tls) if !tls.has(spki) => {
                    if let Tls::Of(keys) = tls {
                        keys.push(spki.to_vec());
                    }
                }
                (Some(_), _) => {}
            }
        }
        match spki {
            Some(spki) => self.limits.tls.has(spki),
            None => self.limits.tls == Tls::All,
        }
    }

    /// The keys that a new signer is told to load.
    pub(super) fn again(&self) -> Vec<Again> {
        self.origins.iter().map(Origin::again).collect()
    }

    /// The request that loads one key again; none if it was made within `pause`, or the key cannot be loaded again.
    pub(super) fn again_for(&mut self, key: u64, pause: Duration) -> Option<Again> {
        let origin = self.origins.iter_mut().find(|origin| origin.has(key))?;
        if origin.tried.is_some_and(|tried| tried.elapsed() < pause) {
            return None;
        }
        origin.tried = Some(Instant::now());
        Some(origin.again()).filter(|again| again.ask.is_some())
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.origins.iter().any(|origin| origin.has(key))
    }

    /// Forgets a PIN that was refused. The daemon does not try it again by itself, because a token locks itself after a few
    /// wrong PINs. Another error says nothing about the PIN: the token may have been taken out for a moment.
    pub(super) fn refuse(&mut self, pin: Option<&PinOf>, why: &Refused) {
        let refused = pin.filter(|_| matches!(why, Refused::Pin(_)));
        for origin in &mut self.origins {
            if refused.is_some_and(|pin| pin.is_of(&origin.source)) {
                origin.source = Source::None;
            }
        }
    }

    /// True unless this PIN was refused.
    pub(super) fn keeps(&self, pin: &PinOf) -> bool {
        self.origins.iter().any(|origin| pin.is_of(&origin.source))
    }

    pub(super) fn drop_key(&mut self, key: u64) {
        for origin in &mut self.origins {
            origin.keys.retain(|(number, _)| *number != key);
        }
        self.origins.retain(|origin| !origin.keys.is_empty());
    }
}

impl Origin {
    fn has(&self, key: u64) -> bool {
        self.keys.iter().any(|(number, _)| *number == key)
    }

    fn again(&self) -> Again {
        Again { ask: self.source.ask(), name: self.name.clone(), keys: self.keys.clone() }
    }
}

impl Again {
    /// The PKCS#11 module that has the keys.
    pub(super) fn module(&self) -> Option<&Path> {
        match &self.ask {
            Some(Ask::Token { key, .. }) => Some(&key.module),
            _ => None,
        }
    }
}

impl Source {
    pub(super) fn of(request: &LoadRequest<'_>) -> Self {
        match request {
            LoadRequest::File { path, holds, passphrase } => Self::File {
                path: path.to_path_buf(),
                holds: *holds,
                passphrase: wiped(*passphrase),
            },
            LoadRequest::Octets(_) => Self::None,
            LoadRequest::Token { key, pin } => Self::Token { key: key.clone(), pin: wiped(*pin) },
        }
    }

    pub(super) fn ask(&self) -> Option<Ask> {
        let again = |secret: &Option<Wiped>| secret.as_ref().map(|one| Wiped::new(one.octets()));
        match self {
            Self::File { path, holds, passphrase } => {
                Some(Ask::File { path: path.clone(), holds: *holds, passphrase: again(passphrase) })
            }
            Self::Token { key, pin } => Some(Ask::Token { key: key.clone(), pin: again(pin) }),
            Self::None => None,
        }
    }
}

fn wiped(secret: Option<&Passphrase>) -> Option<Wiped> {
    secret.map(|secret| Wiped::new(secret.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults, each by itself: in `Held::refuse`, forget nothing; forget whatever the reason.
    #[test]
    fn a_pin_that_was_refused_is_not_tried_with_another_signer() {
        let token = |module: &str, pin: &[u8]| {
            let key = TokenKey { module: module.into(), slot: None, handle: vec![1] };
            let source = Source::Token { key, pin: Some(Wiped::new(pin)) };
            Origin { source, name: String::new(), keys: Vec::new(), tried: None }
        };
        let origins = vec![token("/a.so", b"1"), token("/a.so", b"2"), token("/b.so", b"1")];
        let mut held = Held { origins, ..Held::default() };
        let asks = |held: &Held| -> Vec<bool> {
            held.again().iter().map(|again| again.ask.is_some()).collect()
        };
        assert_eq!(asks(&held), [true, true, true]);
        let pin = PinOf("/a.so".into(), None, Wiped::new(b"1"));
        held.refuse(Some(&pin), &Refused::Content("device removed".to_owned()));
        assert_eq!(asks(&held), [true, true, true], "the PIN is a good one");
        held.refuse(Some(&pin), &Refused::Pin("wrong PIN".to_owned()));
        assert_eq!(asks(&held), [false, true, true]);
    }
}
