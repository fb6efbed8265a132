//! Tickets by value (RFC 5723 §6.1): what a gateway needs to continue an IKE SA, sealed under a key of its own.
//!
//! ```text
//! version (1) | key id (8) | salt (24) | AES-256-GCM of the content | ICV (16)
//! ```
//!
//! Each ticket has an AES key of its own, `prf+(ticket key, "IKEv2 ticket" | salt)` with HMAC-SHA2-256: random IVs
//! of AES-GCM are too short for the number of tickets of several gateways with one key. Everything before the
//! ciphertext is authenticated with it.

use std::num::NonZeroU64;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::former::Former;
use crate::config::PpkId;
use crate::config::resumption::{ResumptionConfig, TicketKey};
use crate::crypto::{
    CipherKey, CipherSuite, CryptoProvider, Frame, SchemeRegister, Secret, SecureRandom,
};
use crate::event::{UsedAuth, UsedEap};
use crate::keys::prf_plus;
use crate::question::{Authorization, PeerCertificate};
use crate::wire::payload::{IdData, Sa};
use crate::wire::registry::{AuthMethod, EncrId, IdType, IntegId, PrfId};

const VERSION: u8 = 6;
const SALT_LEN: usize = 24;
const ICV_LEN: usize = 16;
/// Octets before the ciphertext.
const FRONT_LEN: usize = 1 + TicketKey::ID_LEN + SALT_LEN;
/// Octets of the longest ticket that is given: IKE_SESSION_RESUME cannot be fragmented (RFC 7383 §2.5).
pub(crate) const LONGEST: usize = 1024;
const LABEL: &[u8] = b"IKEv2 ticket";
const SUITE: CipherSuite =
    CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 256, integ: IntegId::NONE };

/// Octets of [`TicketState::secrets`].
pub(crate) const DIGEST_LEN: usize = 16;

/// The contents of a ticket.
#[derive(Debug)]
pub(crate) struct TicketState {
    pub(crate) connection: String,
    /// Until when it is valid, and when the peers must authenticate again if they must, in seconds since 1970.
    pub(crate) expires: u64,
    pub(crate) reauth_by: Option<u64>,
    /// When the IKE SA ends if they have not (RFC 4478), in seconds since 1970.
    pub(crate) ends_by: Option<u64>,
    /// A digest of the pre-shared keys with which the SA was made.
    pub(crate) secrets: [u8; DIGEST_LEN],
    /// The settings of EAP ([`RemoteAuth::eap`](crate::config::RemoteAuth::eap)).
    pub(crate) eap: String,
    pub(crate) former: Former,
}

/// Why a ticket cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is not sealed by this gateway, or was modified.
    Foreign,
    /// It has expired.
    Expired,
}

impl TicketState {
    /// Seals it under the first key; `None` without a key, without the algorithms, or if it is too long.
    pub(crate) fn seal(
        &self,
        config: &ResumptionConfig,
        crypto: &CryptoProvider,
        rng: &mut dyn SecureRandom,
    ) -> Option<Vec<u8>> {
        let key = config.keys.first()?;
        let mut salt = [0; SALT_LEN];
        rng.fill(&mut salt);
        let mut content = self.encode()?;
        let mut octets = [&[VERSION][..], &key.id, &salt].concat();
        let cipher = cipher(crypto, key, &salt)?;
        let mut icv = [0; ICV_LEN];
        let frame = Frame { iv: &[0; 8], aad: &octets, trailer: &[] };
        cipher.seal(frame, &mut content, &mut icv).ok()?;
        octets.extend_from_slice(&content);
        octets.extend(icv);
        (octets.len() <= LONGEST).then_some(octets)
    }

    /// Opens a client's ticket, at `now` in seconds since 1970.
    pub(crate) fn open(
        config: &ResumptionConfig,
        crypto: &CryptoProvider,
        octets: &[u8],
        now: u64,
    ) -> Result<Self, Unusable> {
        let content = unseal(config, crypto, octets).ok_or(Unusable::Foreign)?;
        // An owner of the key has made it, perhaps in an earlier version.
        let ticket = Self::decode(&crypto.schemes, &content).ok_or(Unusable::Foreign)?;
        if ticket.expires <= now || ticket.reauth_by.is_some_and(|by| by <= now) {
            return Err(Unusable::Expired);
        }
        Ok(ticket)
    }

    fn encode(&self) -> Option<Zeroizing<Vec<u8>>> {
        let Self { connection, expires, reauth_by, ends_by, secrets, eap, former } = self;
        // With its maximum capacity, so that no copy of SK_d is left behind.
        let mut out = Writer(Zeroizing::new(Vec::with_capacity(8 * LONGEST)));
        out.long(connection.as_bytes())?;
        out.octets(&expires.to_be_bytes());
        out.octets(&reauth_by.unwrap_or(0).to_be_bytes());
        out.octets(&ends_by.unwrap_or(0).to_be_bytes());
        out.octets(secrets);
        out.long(eap.as_bytes())?;
        out.octets(&former.spis.0.to_be_bytes());
        out.octets(&former.spis.1.to_be_bytes());
        let mut sa = Vec::new();
        Sa { proposals: vec![former.proposal.clone()] }.encode(&mut sa);
        out.long(&sa)?;
        out.short(former.sk_d.expose())?;
        out.option(former.ppk.as_ref(), |out, id| out.long(id.octets()))?;
        out.octets(&[u8::from(former.full_transcript)]);
        for rounds in [&former.local, &former.remote] {
            out.octets(&[u8::try_from(rounds.len()).ok()?]);
            for used in rounds {
                out.used(used)?;
            }
        }
        Some(out.0)
    }

    fn decode(schemes: &SchemeRegister, octets: &[u8]) -> Option<Self> {
        let mut from = Reader(octets);
        let connection = from.text()?;
        let expires = from.number()?;
        let reauth_by = Some(from.number()?).filter(|by| *by != 0);
        let ends_by = Some(from.number()?).filter(|by| *by != 0);
        let secrets = from.array()?;
        let eap = from.text()?;
        let spis = (from.number()?, from.number()?);
        let mut sa = Sa::decode(from.long()?).ok()?;
        let proposal = sa.proposals.pop().filter(|_| sa.proposals.is_empty())?;
        let sk_d = Secret::copy_from(from.short()?);
        let ppk = from.option(|from| Some(PpkId::new(from.long()?)))?;
        let full_transcript = from.octet()? != 0;
        let local = from.rounds(schemes)?;
        let remote = from.rounds(schemes)?;
        let former = Former { spis, proposal, sk_d, local, remote, ppk, full_transcript };
        let ticket = Self { connection, expires, reauth_by, ends_by, secrets, eap, former };
        from.0.is_empty().then_some(ticket)
    }
}

fn unseal(
    config: &ResumptionConfig,
    crypto: &CryptoProvider,
    octets: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let (front, sealed) = octets.split_at_checked(FRONT_LEN)?;
    let (version, rest) = front.split_first()?;
    let (id, salt) = rest.split_at_checked(TicketKey::ID_LEN)?;
    let at = sealed.len().checked_sub(ICV_LEN)?;
    let (content, icv) = sealed.split_at(at);
    if *version != VERSION {
        return None;
    }
    let mut keys = config.keys.iter().filter(|key| key.id == *id);
    // Two keys may have the same id.
    keys.find_map(|key| {
        let mut content = Zeroizing::new(content.to_vec());
        let frame = Frame { iv: &[0; 8], aad: front, trailer: &[] };
        cipher(crypto, key, salt)?.open(frame, &mut content, icv).ok()?;
        Some(content)
    })
}

/// The cipher of one ticket.
fn cipher(crypto: &CryptoProvider, key: &TicketKey, salt: &[u8]) -> Option<Box<dyn CipherKey>> {
    let prf = crypto.prf(PrfId::HMAC_SHA2_256)?;
    let lengths = crypto.ciphers.lengths(SUITE).filter(|lengths| lengths.iv == 8)?;
    let key = prf_plus(prf, key.secret.expose(), &[LABEL, salt], lengths.encr_key);
    crypto.ciphers.key(SUITE, key.expose(), &[]).ok()
}

struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    fn octets(&mut self, octets: &[u8]) {
        self.0.extend_from_slice(octets);
    }

    fn short(&mut self, octets: &[u8]) -> Option<()> {
        self.octets(&[u8::try_from(octets.len()).ok()?]);
        self.octets(octets);
        Some(())
    }

    fn long(&mut self, octets: &[u8]) -> Option<()> {
        // A ticket that would have to grow is too long in any case.
        let length = u16::try_from(octets.len()).ok().filter(|length| *length <= 1024)?;
        self.octets(&length.to_be_bytes());
        self.octets(octets);
        (self.0.len() <= 4 * LONGEST).then_some(())
    }

    fn option<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T) -> Option<()>,
    ) -> Option<()> {
        self.octets(&[u8::from(value.is_some())]);
        value.map_or(Some(()), |value| write(self, value))
    }

    fn id(&mut self, id: &IdData) -> Option<()> {
        self.octets(&[id.kind.0]);
        self.long(&id.data)
    }

    fn used(&mut self, used: &UsedAuth) -> Option<()> {
        // An SA with limited addresses gets no ticket.
        let UsedAuth { id, method, scheme, certificate, eap, addresses: _ } = used;
        self.id(id)?;
        self.octets(&[method.0]);
        // By an AlgorithmIdentifier: the gateway that opens the ticket may know other schemes.
        self.option(scheme.as_ref(), |out, scheme| out.short(scheme.distinct_identifier()))?;
        self.option(certificate.as_ref(), |out, certificate| {
            out.octets(&[u8::from(certificate.unchecked)]);
            out.long(certificate.subject.as_bytes())?;
            out.long(&certificate.path)
        })?;
        self.option(eap.as_ref(), |out, eap| {
            out.long(eap.method.as_bytes())?;
            out.option(eap.id.as_ref(), Self::id)?;
            out.octets(&eap.password.map_or(0, NonZeroU64::get).to_be_bytes());
            // Its lifetime is in `reauth_by` and `ends_by`.
            out.option(eap.authorization.as_ref(), |out, granted| out.long(&granted.granted))
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn octet(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.octet()?;
        self.take(length.into())
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(self.array()?);
        self.take(length.into())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.long()?.to_vec()).ok()
    }

    /// `None` if it is malformed, `Some(None)` if it is absent.
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.octet()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn id(&mut self) -> Option<IdData> {
        Some(IdData { kind: IdType(self.octet()?), data: self.long()?.to_vec() })
    }

    fn rounds(&mut self, schemes: &SchemeRegister) -> Option<Vec<UsedAuth>> {
        let count = self.octet()?;
        (0..count).map(|_| self.used(schemes)).collect()
    }

    fn used(&mut self, schemes: &SchemeRegister) -> Option<UsedAuth> {
        let id = self.id()?;
        let method = AuthMethod(self.octet()?);
        let scheme = self.option(|from| {
            let identifier = from.short()?;
            schemes.iter().find(|scheme| scheme.distinct_identifier() == identifier).cloned()
        })?;
        let certificate = self.option(|from| {
            let unchecked = from.octet()? != 0;
            let (subject, path) = (from.text()?.into(), from.long()?.into());
            Some(Arc::new(PeerCertificate { subject, path, unchecked }))
        })?;
        let eap = self.option(|from| {
            let (method, id) = (from.text()?, from.option(Self::id)?);
            let password = NonZeroU64::new(from.number()?);
            let authorization = from.option(|from| {
                let granted = from.long()?.into();
                Some(Box::new(Authorization { granted, ..Authorization::default() }))
            })?;
            Some(Box::new(UsedEap { method, id, password, authorization }))
        })?;
        Some(UsedAuth { id, method, scheme, certificate, eap, addresses: None })
    }
}

#[cfg(test)]
mod tests;
