//! The present keys and algorithms of an IKE SA. It has fewer of them once the peer is authenticated.

use std::sync::Arc;

use super::window::Datagrams;
use crate::config::proposal::Selected;
use crate::crypto::{CipherLengths, CryptoError, CryptoProvider, Prf, Secret, SecureRandom};
use crate::keys::{AuthKeys, Epoch, IkeKeys};
use crate::wire::Message;
use crate::wire::payload::Payload;

/// Present keys and algorithms.
pub(crate) struct Session {
    pub(crate) epoch: Epoch,
    /// The former keys, for messages that the peer sent before it knew the present ones.
    pub(crate) previous: Option<Box<Epoch>>,
    pub(crate) prf: &'static dyn Prf,
    pub(crate) keys: SessionKeys,
    pub(crate) selected: Selected,
}

impl Session {
    /// A session of `selected`. `derive` makes its keys from PRF and lengths.
    pub(crate) fn new(
        crypto: &CryptoProvider,
        selected: Selected,
        initiator: bool,
        derive: impl FnOnce(&'static dyn Prf, &CipherLengths) -> IkeKeys,
    ) -> Result<Self, CryptoError> {
        let prf = crypto.prf(selected.prf).ok_or(CryptoError::Unsupported)?;
        let lengths = crypto.ciphers.lengths(selected.suite).ok_or(CryptoError::Unsupported)?;
        let keys = derive(prf, &lengths);
        let epoch = Epoch::new(crypto.ciphers, selected.suite, &keys, initiator)?;
        let IkeKeys { d, ei, pi, pr, .. } = keys;
        // An initiator compares SK_ei of its candidates.
        let handshake = HandshakeKeys { pi, pr, ei: initiator.then(|| Box::new(ei)) };
        let keys = SessionKeys { d, handshake: Some(Box::new(handshake)) };
        Ok(Self { epoch, previous: None, prf, keys, selected })
    }

    /// True if the peer sealed this message, with the present keys or with those before.
    pub(super) fn opens(&self, octets: &[u8], message: &Message<'_>) -> bool {
        [Some(&self.epoch), self.previous.as_deref()].into_iter().flatten().any(|epoch| {
            match message.payloads.last() {
                Some(Payload::Sk(sk)) => epoch.open(octets, sk).is_ok(),
                Some(Payload::Skf(skf)) => epoch.open_fragment(octets, skf).is_ok(),
                _ => false,
            }
        })
    }

    /// A message of this end in datagrams of `room` octets, under the keys with which it was sealed.
    pub(super) fn refragment(
        &mut self,
        rng: &mut dyn SecureRandom,
        sealed: &Datagrams,
        room: usize,
    ) -> Option<Datagrams> {
        let datagrams = match self.epoch.refragment(sealed, room, rng) {
            Ok(datagrams) => datagrams,
            Err(_) => {
                // An answer under the former keys. Each of the two keeps its own IVs.
                let previous = self.previous.as_deref_mut()?;
                previous.continue_from(&self.epoch);
                let datagrams = previous.refragment(sealed, room, rng).ok()?;
                self.epoch.continue_from(previous);
                datagrams
            }
        };
        Some(datagrams.into_iter().map(Arc::from).collect())
    }

    /// Puts the next generation of `keys`, which `epoch` has, in force. The former one still opens messages.
    pub(super) fn advance(&mut self, keys: IkeKeys, mut epoch: Epoch) {
        epoch.continue_from(&self.epoch);
        self.previous = Some(Box::new(std::mem::replace(&mut self.epoch, epoch)));
        let IkeKeys { d, pi, pr, .. } = keys;
        self.keys =
            SessionKeys { d, handshake: Some(Box::new(HandshakeKeys { pi, pr, ei: None })) };
    }
}

/// Why SK_pi and SK_pr are there when they are used.
const IN_HANDSHAKE: &str = "AUTH is made and verified before the SA is established";

/// The keys of an IKE SA without those that [`Epoch`] has.
pub(crate) struct SessionKeys {
    d: Secret,
    /// Until the peer is authenticated.
    handshake: Option<Box<HandshakeKeys>>,
}

/// The keys for IKE_INTERMEDIATE and IKE_AUTH alone.
struct HandshakeKeys {
    pi: Secret,
    pr: Secret,
    /// At an initiator, until the first IKE_INTERMEDIATE.
    ei: Option<Box<Secret>>,
}

impl SessionKeys {
    /// The keys of an SA whose peer is authenticated from the beginning, because it replaces another one.
    pub(crate) fn of_successor(keys: IkeKeys) -> Self {
        Self { d: keys.d, handshake: None }
    }

    /// SK_d.
    pub(crate) fn d(&self) -> &Secret {
        &self.d
    }

    /// SK_pi.
    ///
    /// # Panics
    ///
    /// After [`keep_d`](Self::keep_d). An AUTH under another key would be worse.
    pub(crate) fn pi(&self) -> &Secret {
        &self.handshake().pi
    }

    /// SK_pr. As [`pi`](Self::pi).
    pub(crate) fn pr(&self) -> &Secret {
        &self.handshake().pr
    }

    fn handshake(&self) -> &HandshakeKeys {
        self.handshake.as_deref().expect(IN_HANDSHAKE)
    }

    /// SK_ei of IKE_SA_INIT, at an initiator that has not begun the next generation of keys.
    pub(crate) fn ei(&self) -> Option<&Secret> {
        self.handshake.as_ref()?.ei.as_deref()
    }

    /// SK_d, SK_pi and SK_pr with `ppk` mixed in, as IKE_AUTH uses them (RFC 8784 §3). NO_PPK_AUTH is made of the
    /// present ones.
    pub(crate) fn mixed_in_auth(&self, prf: &dyn Prf, ppk: &Secret) -> AuthKeys {
        AuthKeys::mixed(prf, ppk, [&self.d, self.pi(), self.pr()])
    }

    /// Puts `keys` in the place of those it has, and returns these.
    ///
    /// # Panics
    ///
    /// As [`pi`](Self::pi).
    pub(super) fn replace_auth_keys(&mut self, keys: AuthKeys) -> AuthKeys {
        use std::mem::replace;
        let handshake = self.handshake.as_deref_mut().expect(IN_HANDSHAKE);
        let AuthKeys { d, pi, pr } = keys;
        AuthKeys {
            d: replace(&mut self.d, d),
            pi: replace(&mut handshake.pi, pi),
            pr: replace(&mut handshake.pr, pr),
        }
    }

    /// Wipes all keys but SK_d: the others are not needed after the peer is authenticated.
    pub(super) fn keep_d(&mut self) {
        self.handshake = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(octet: u8) -> Secret {
        Secret::new(vec![octet; 4])
    }

    fn keys() -> SessionKeys {
        let handshake =
            HandshakeKeys { pi: secret(2), pr: secret(3), ei: Some(Box::new(secret(4))) };
        SessionKeys { d: secret(1), handshake: Some(Box::new(handshake)) }
    }

    fn are(keys: &SessionKeys, d: u8, pi: u8, pr: u8) -> bool {
        [(keys.d(), d), (keys.pi(), pi), (keys.pr(), pr)]
            .iter()
            .all(|(key, octet)| key.ct_eq(&[*octet; 4]))
    }

    /// Fault: in `replace_auth_keys`, leave SK_pr as it is.
    #[test]
    fn three_keys_change_and_what_the_peer_may_fall_back_on_is_given_back() {
        let mut keys = keys();
        let mixed = AuthKeys { d: secret(5), pi: secret(6), pr: secret(7) };
        let before = keys.replace_auth_keys(mixed);
        assert!(are(&keys, 5, 6, 7));
        assert!(keys.ei().is_some_and(|ei| ei.ct_eq(&[4; 4])), "no other key changes");
        keys.replace_auth_keys(before);
        assert!(are(&keys, 1, 2, 3));
    }

    /// Fault: in `keep_d`, do nothing.
    #[test]
    #[should_panic(expected = "before the SA is established")]
    fn an_established_sa_makes_no_auth() {
        let mut keys = keys();
        keys.keep_d();
        assert!(keys.d().ct_eq(&[1; 4]) && keys.ei().is_none());
        _ = keys.pi();
    }
}
