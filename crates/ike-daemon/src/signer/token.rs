//! Private keys in tokens and HSMs, by PKCS#11.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest;
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::AuthPin;
use ike_proto::crypto::{CryptoError, Secret, SignatureScheme, SigningKey};
use ike_proto::wire::der::{self, Der};

use super::{Refused, TokenKey};

/// Opens a key; says why not.
///
/// Without a slot, every token is searched. A slot of a module may be empty, or its token not initialized (SoftHSM
/// always has one such slot): these have no keys. What a token says stands beside what others say. The number is that
/// of the slot.
pub(super) fn open(
    key: &TokenKey,
    pin: Option<&Secret>,
) -> Result<(Arc<dyn SigningKey>, u64), Refused> {
    let module = module(&key.module).map_err(Refused::Content)?;
    let pin = pin.map(|pin| Secret::copy_from(pin.expose()));
    let failed = |why: Error| Refused::Content(format!("PKCS#11 module {:?}: {why}", key.module));
    let slots = match key.slot {
        Some(number) => vec![Slot::try_from(number).map_err(failed)?],
        None => module.get_slots_with_initialized_token().map_err(failed)?,
    };
    let (mut reasons, searched) = (Vec::new(), slots.len());
    let mut refusal: fn(String) -> Refused = Refused::Content;
    for slot in slots {
        let place = Place { module: module.clone(), path: key.module.clone(), slot };
        match Opened::find(&place, &key.handle, pin.as_ref()) {
            Ok(Some(opened)) => {
                let spki = opened.public_key(&key.handle).map_err(failed)?;
                let none = "the token has no public key for it, of a kind that is known";
                let spki = spki.ok_or_else(|| Refused::Content(none.to_owned()))?;
                let (handle, opened) = (key.handle.clone(), Mutex::new(opened));
                let token = Token { place, handle, pin, spki, opened };
                return Ok((Arc::new(token), slot.id()));
            }
            Ok(None) => {}
            Err(why) => {
                if let NotOpened::Pin(_) = why {
                    refusal = Refused::Pin;
                }
                let token = module.get_token_info(slot).ok();
                let label = token.map(|token| token.label().to_owned()).unwrap_or_default();
                reasons.push(format!("slot {slot}, token {label:?}: {why}"));
            }
        }
    }
    Err(refusal(not_found(&key.handle, searched, &reasons)))
}

/// Why there is no key: what each token that failed has said.
fn not_found(handle: &[u8], searched: usize, reasons: &[String]) -> String {
    let handle = Hex(handle);
    match (searched, reasons) {
        (0, _) => format!("no private key with CKA_ID {handle}: no slot has an initialized token"),
        (_, []) => format!("no private key with CKA_ID {handle}, in {searched} tokens"),
        (_, reasons) => format!("no private key with CKA_ID {handle}: {}", reasons.join("; ")),
    }
}

/// What a token tells of its PIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PinState {
    Locked,
    LastTry,
    SomeTries,
}

impl PinState {
    fn of(token: &TokenInfo) -> Self {
        match (token.user_pin_locked(), token.user_pin_final_try()) {
            (true, _) => Self::Locked,
            (false, true) => Self::LastTry,
            (false, false) => Self::SomeTries,
        }
    }
}

/// The refusal of a PIN, the `tries`-th of this process. Tokens lock after a few, often three, and do not tell how
/// many are left.
fn wrong_pin(tries: usize, state: Option<PinState>) -> String {
    let left = match state {
        Some(PinState::Locked) => "and the token is locked now: unlock it with its own tool",
        Some(PinState::LastTry) => {
            "and the token has one try left before it locks: correct `pin` before anything else"
        }
        Some(PinState::SomeTries) | None => {
            "and tokens lock after a few: correct `pin`, since each `check` and start is one try"
        }
    };
    format!("wrong PIN, try {tries} of this process, {left}")
}

/// What the token in this slot has refused as a PIN of this process.
fn refusals<T>(module: &Path, slot: Slot, use_them: impl FnOnce(&mut Vec<Secret>) -> T) -> T {
    type Refusals = HashMap<(PathBuf, u64), Vec<Secret>>;
    static REFUSALS: Mutex<Option<Refusals>> = Mutex::new(None);
    let mut all = lock(&REFUSALS);
    use_them(all.get_or_insert_default().entry((module.to_path_buf(), slot.id())).or_default())
}

/// Logs in by `login`, but never twice with a PIN that is wrong: the configuration is read several times, and a
/// signature that fails logs in again.
fn log_in(
    (module, slot): (&Path, Slot),
    pin: &Secret,
    state: impl FnOnce() -> Option<PinState>,
    login: impl FnOnce() -> Result<(), Error>,
) -> Result<(), NotOpened> {
    let is_known =
        |refused: &mut Vec<Secret>| refused.iter().any(|known| known.expose() == pin.expose());
    if refusals(module, slot, is_known) {
        let why =
            "wrong PIN: the token has refused it before, and it is not tried again until a restart";
        return Err(NotOpened::Pin(why.to_owned()));
    }
    match login() {
        // Another session of this process has; that counts for all.
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        Err(Error::Pkcs11(RvError::PinIncorrect, _)) => {
            let tries = refusals(module, slot, |refused| {
                refused.push(Secret::copy_from(pin.expose()));
                refused.len()
            });
            Err(NotOpened::Pin(wrong_pin(tries, state())))
        }
        // That is no try, and it may be the right one, once the token is unlocked.
        Err(why @ Error::Pkcs11(RvError::PinLocked, _)) => Err(NotOpened::Locked(why)),
        Err(why) => Err(NotOpened::Token(why)),
    }
}

/// Why a token gives no key.
enum NotOpened {
    /// It refuses the PIN.
    Pin(String),
    /// It refuses every PIN.
    Locked(Error),
    Token(Error),
}

impl From<Error> for NotOpened {
    fn from(why: Error) -> Self {
        Self::Token(why)
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(why) => f.write_str(why),
            Self::Locked(why) => write!(f, "{why}: unlock the token with its own tool"),
            Self::Token(why) => why.fmt(f),
        }
    }
}

/// The module in a shared library. It is initialized once in a process, and stays. A module that hangs meanwhile keeps no
/// other one waiting.
fn module(path: &Path) -> Result<Pkcs11, String> {
    type Modules = HashMap<PathBuf, Arc<Mutex<Option<Pkcs11>>>>;
    static MODULES: Mutex<Option<Modules>> = Mutex::new(None);
    let place = {
        let mut modules = lock(&MODULES);
        let modules = modules.get_or_insert_default();
        Arc::clone(modules.entry(path.to_path_buf()).or_default())
    };
    let mut place = lock(&place);
    if let Some(module) = &*place {
        return Ok(module.clone());
    }
    let failed = |why: Error| format!("PKCS#11 module {path:?}: {why}");
    let module = Pkcs11::new(path).map_err(failed)?;
    match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(why) => return Err(failed(why)),
    }
    *place = Some(module.clone());
    Ok(module)
}

/// A key in a token.
struct Token {
    place: Place,
    handle: Vec<u8>,
    pin: Option<Secret>,
    spki: Vec<u8>,
    opened: Mutex<Opened>,
}

/// A slot of a module.
struct Place {
    module: Pkcs11,
    path: PathBuf,
    slot: Slot,
}

/// A session in which the key is usable.
struct Opened {
    session: Session,
    key: ObjectHandle,
}

impl Opened {
    /// The key with this `CKA_ID`, if the token has it.
    fn find(
        Place { module, path, slot }: &Place,
        handle: &[u8],
        pin: Option<&Secret>,
    ) -> Result<Option<Self>, NotOpened> {
        let session = module.open_ro_session(*slot)?;
        if let Some(pin) = pin {
            let text = std::str::from_utf8(pin.expose()).map_err(Error::Utf8)?;
            let state = || module.get_token_info(*slot).ok().as_ref().map(PinState::of);
            log_in((path, *slot), pin, state, || {
                session.login(UserType::User, Some(&AuthPin::from(text)))
            })?;
        }
        let wanted = [Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Id(handle.to_vec())];
        let key = session.find_objects(&wanted)?.into_iter().next();
        Ok(key.map(|key| Self { session, key }))
    }

    /// DER SubjectPublicKeyInfo of the key, by what stands beside it.
    fn public_key(&self, handle: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let public = [Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Id(handle.to_vec())];
        let mut objects = self.session.find_objects(&public)?;
        // An RSA key has its public half in itself.
        objects.push(self.key);
        for object in objects {
            if let Some(spki) = self.spki_of(object)? {
                return Ok(Some(spki));
            }
        }
        let certificate =
            [Attribute::Class(ObjectClass::CERTIFICATE), Attribute::Id(handle.to_vec())];
        for object in self.session.find_objects(&certificate)? {
            for attribute in self.session.get_attributes(object, &[AttributeType::Value])? {
                if let Attribute::Value(der) = attribute
                    && let Ok(certificate) = ::pki::Certificate::from_der(&der)
                {
                    return Ok(Some(certificate.spki().to_vec()));
                }
            }
        }
        Ok(None)
    }

    fn spki_of(&self, object: ObjectHandle) -> Result<Option<Vec<u8>>, Error> {
        use AttributeType as A;
        let wanted = [A::KeyType, A::Modulus, A::PublicExponent, A::EcParams, A::EcPoint];
        let (mut kind, mut modulus, mut exponent) = (None, None, None);
        let (mut curve, mut point) = (None, None);
        for attribute in self.session.get_attributes(object, &wanted)? {
            match attribute {
                Attribute::KeyType(is) => kind = Some(is),
                Attribute::Modulus(octets) => modulus = Some(octets),
                Attribute::PublicExponent(octets) => exponent = Some(octets),
                Attribute::EcParams(octets) => curve = Some(octets),
                Attribute::EcPoint(octets) => point = Some(octets),
                _ => {}
            }
        }
        Ok(match (kind, modulus, exponent, curve, point) {
            (Some(KeyType::RSA), Some(modulus), Some(exponent), _, _) => {
                Some(rsa_spki(&modulus, &exponent))
            }
            (Some(KeyType::EC), _, _, Some(curve), Some(point)) => ec_spki(&curve, &point),
            (Some(KeyType::EC_EDWARDS), _, _, _, Some(point)) => {
                let point = unwrapped(&point);
                let identifier = SignatureScheme::Ed25519.key_algorithm_identifier();
                (point.len() == 32).then(|| spki(identifier, point))
            }
            _ => None,
        })
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignFailed> {
        use SignatureScheme as S;
        let pss = |hash_alg, mgf, s_len: u64| PkcsPssParams { hash_alg, mgf, s_len: s_len.into() };
        type M = MechanismType;
        let mechanism = match scheme {
            S::RsaPkcs1Sha256 => Mechanism::Sha256RsaPkcs,
            S::RsaPkcs1Sha384 => Mechanism::Sha384RsaPkcs,
            S::RsaPkcs1Sha512 => Mechanism::Sha512RsaPkcs,
            S::RsaPssSha256 => {
                Mechanism::Sha256RsaPkcsPss(pss(M::SHA256, PkcsMgfType::MGF1_SHA256, 32))
            }
            S::RsaPssSha384 => {
                Mechanism::Sha384RsaPkcsPss(pss(M::SHA384, PkcsMgfType::MGF1_SHA384, 48))
            }
            S::RsaPssSha512 => {
                Mechanism::Sha512RsaPkcsPss(pss(M::SHA512, PkcsMgfType::MGF1_SHA512, 64))
            }
            S::EcdsaP256Sha256 => return self.ecdsa(&digest::SHA256, message),
            S::EcdsaP384Sha384 => return self.ecdsa(&digest::SHA384, message),
            S::EcdsaP521Sha512 => return self.ecdsa(&digest::SHA512, message),
            S::Ed25519 => Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)),
            _ => return Err(SignFailed::Unsupported),
        };
        Ok(self.session.sign(&mechanism, self.key, message)?)
    }

    /// Tokens have ECDSA over a digest; not all of them hash.
    fn ecdsa(
        &self,
        hash: &'static digest::Algorithm,
        message: &[u8],
    ) -> Result<Vec<u8>, SignFailed> {
        let digest = digest::digest(hash, message);
        let raw = self.session.sign(&Mechanism::Ecdsa, self.key, digest.as_ref())?;
        let (r, s) = raw.split_at(raw.len() / 2);
        let mut pair = Vec::new();
        der::push_unsigned(&mut pair, r);
        der::push_unsigned(&mut pair, s);
        let mut signature = Vec::new();
        der::push(&mut signature, der::SEQUENCE, &[&pair]);
        Ok(signature)
    }
}

enum SignFailed {
    Unsupported,
    Token(Error),
}

impl From<Error> for SignFailed {
    fn from(why: Error) -> Self {
        Self::Token(why)
    }
}

impl SigningKey for Token {
    fn schemes(&self) -> &[SignatureScheme] {
        SignatureScheme::of_built_in_key(&self.spki)
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut opened = lock(&self.opened);
        let mut signed = opened.sign(scheme, message);
        if matches!(signed, Err(SignFailed::Token(_))) {
            // It may have been taken out and put in again since.
            let again = Opened::find(&self.place, &self.handle, self.pin.as_ref());
            if let Ok(Some(again)) = again {
                *opened = again;
                signed = opened.sign(scheme, message);
            }
        }
        signed.map_err(|failed| match failed {
            SignFailed::Unsupported => CryptoError::Unsupported,
            SignFailed::Token(why) => {
                tracing::error!(slot = self.place.slot.id(), id = %Hex(&self.handle), %why, "the token does not sign");
                CryptoError::Backend
            }
        })
    }

    fn is_elsewhere(&self) -> bool {
        true
    }
}

fn rsa_spki(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    der::push_unsigned(&mut fields, modulus);
    der::push_unsigned(&mut fields, exponent);
    let mut key = Vec::new();
    der::push(&mut key, der::SEQUENCE, &[&fields]);
    spki(SignatureScheme::RsaPkcs1Sha256.key_algorithm_identifier(), &key)
}

/// `curve` is the DER of the curve's name, with which the identifier of a key on it ends.
fn ec_spki(curve: &[u8], point: &[u8]) -> Option<Vec<u8>> {
    use SignatureScheme::{EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512};
    let of_curve = |scheme: &SignatureScheme| scheme.key_algorithm_identifier().ends_with(curve);
    let scheme = [EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512].into_iter().find(of_curve)?;
    Some(spki(scheme.key_algorithm_identifier(), unwrapped(point)))
}

/// `CKA_EC_POINT` is the DER of an OCTET STRING, with some tokens its content.
fn unwrapped(point: &[u8]) -> &[u8] {
    let mut der = Der::new(point);
    der.content(der::OCTET_STRING).filter(|_| der.is_empty()).unwrap_or(point)
}

fn spki(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let mut bits = Vec::new();
    der::push(&mut bits, der::BIT_STRING, &[&[0], key]);
    let mut spki = Vec::new();
    der::push(&mut spki, der::SEQUENCE, &[algorithm, &bits]);
    spki
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(slot {}, {})", self.place.slot, Hex(&self.handle))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `not_found`, say the last reason alone.
    #[test]
    fn every_token_that_failed_is_named_and_no_other_error_hides_it() {
        let reasons =
            ["slot 1, token \"a\": wrong PIN".to_owned(), "slot 2, token \"b\": busy".to_owned()];
        assert_eq!(
            not_found(&[0x0a, 1], 3, &reasons),
            "no private key with CKA_ID 0a01: slot 1, token \"a\": wrong PIN; slot 2, token \"b\": busy"
        );
        assert_eq!(not_found(&[1], 2, &[]), "no private key with CKA_ID 01, in 2 tokens");
        assert!(not_found(&[1], 0, &[]).ends_with("no slot has an initialized token"));
    }

    /// Faults, each by itself: in `log_in`, leave out what is known; keep no PIN.
    #[test]
    fn a_token_that_has_refused_a_pin_does_not_get_it_again() {
        use std::cell::Cell;

        let slots = [7u64, 8].map(|number| Slot::try_from(number).unwrap());
        let (one, other) = (Path::new("one.so"), Path::new("other.so"));
        let tries = Cell::new(0);
        let refused = |module, slot, pin: &[u8], answer: RvError| {
            let login = || {
                tries.set(tries.get() + 1);
                Err(Error::Pkcs11(answer, cryptoki::context::Function::Login))
            };
            match log_in((module, slot), &Secret::copy_from(pin), || None, login) {
                Err(why) => why.to_string(),
                Ok(()) => String::new(),
            }
        };
        let wrong = |module, slot, pin| refused(module, slot, pin, RvError::PinIncorrect);
        assert!(wrong(one, slots[0], b"1").contains("try 1"));
        assert!(wrong(one, slots[0], b"1").contains("until a restart"));
        assert_eq!(tries.get(), 1, "it is not tried again");
        assert!(wrong(one, slots[0], b"2").contains("try 2"), "another PIN");
        assert!(wrong(one, slots[1], b"1").contains("try 1"), "another token");
        assert!(wrong(other, slots[0], b"1").contains("try 1"), "another module");
        // Neither of these says that the PIN is wrong.
        for answer in [RvError::PinLocked, RvError::DeviceRemoved, RvError::UserAlreadyLoggedIn] {
            let before = tries.get();
            refused(one, slots[0], b"3", answer);
            assert_eq!(tries.get(), before + 1, "{answer:?}");
        }
        assert!(wrong(one, slots[0], b"3").contains("try 3"));
    }

    /// Fault: in `wrong_pin`, leave out the state.
    #[test]
    fn a_refused_pin_says_what_is_left() {
        for (state, part) in [
            (Some(PinState::Locked), "is locked now"),
            (Some(PinState::LastTry), "one try left"),
            (Some(PinState::SomeTries), "is one try"),
            (None, "is one try"),
        ] {
            let line = wrong_pin(2, state);
            assert!(
                line.starts_with("wrong PIN, try 2 of this process") && line.contains(part),
                "{line}"
            );
        }
    }
}
