//! Key material of IKE SAs and Child SAs (RFC 7296 §2.13, §2.14, §2.17, §2.18; RFC 9370 §2.2.2,
//! §2.2.4).
//!
//! ```text
//! SKEYSEED  = prf(Ni | Nr, g^ir)                                  first keys of an IKE SA
//! SKEYSEED  = prf(SK_d, SK(n) | Ni | Nr)                          after an IKE_INTERMEDIATE
//! SKEYSEED  = prf(SK_d, "Resumption" | Ni | Nr)                   an IKE SA that is resumed (RFC 5723)
//! SKEYSEED  = prf(SK_d, SK(0) | Ni | Nr | SK(1) | … | SK(n))      a rekeyed IKE SA
//! KEYMAT    = prf+(SK_d, [SK(0)] | Ni | Nr | SK(1) | … | SK(n))   a Child SA
//! ```
//!
//! A post-quantum preshared key (PPK) is mixed in at one of three places:
//!
//! ```text
//! SK_d, SK_pi, SK_pr = prf+(PPK, SK_d'), prf+(PPK, SK_pi'), prf+(PPK, SK_pr')   RFC 8784 §3
//! SKEYSEED'          = prf+(PPK, SK_d)                                          RFC 9867 §3.1.1
//! SK_d'              = prf+(PPK, SK_d), for SK_d in the formulas above          RFC 9867 §3.2.1
//! ```

use crate::crypto::{CipherLengths, Prf, Secret};
use crate::wire::Header;

/// `prf+(key, seed[0] | seed[1] | …)` of `len` octets (RFC 7296 §2.13).
///
/// # Panics
///
/// If `len` is more than 255 blocks of the PRF: the counter is one octet. No sum of the lengths of
/// an IKE or ESP suite comes near, so this is a local bug, never the peer's doing.
pub fn prf_plus(prf: &dyn Prf, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
    assert!(len <= 255 * prf.output_len(), "prf+ of {len} octets");
    prf.prf_plus(key, seed, len)
}

/// The seven keys of an IKE SA (RFC 7296 §2.14), named after its `SK_` subscripts. One value is one
/// generation: an IKE_INTERMEDIATE key exchange makes the [`next`](Self::next).
#[derive(Debug)]
pub struct IkeKeys {
    /// SK_d: derives keys of Child SAs and of the next generation.
    pub d: Secret,
    /// SK_ai: integrity of what the initiator sends; empty for an AEAD.
    pub ai: Secret,
    /// SK_ar: integrity of what the responder sends; empty for an AEAD.
    pub ar: Secret,
    /// SK_ei: encryption of what the initiator sends, salt last.
    pub ei: Secret,
    /// SK_er: encryption of what the responder sends, salt last.
    pub er: Secret,
    /// SK_pi: the initiator's identity in AUTH.
    pub pi: Secret,
    /// SK_pr: the responder's identity in AUTH.
    pub pr: Secret,
}

impl IkeKeys {
    /// The first keys of an IKE SA (RFC 7296 §2.14). `shared` is the shared secret of IKE_SA_INIT,
    /// in one piece or several; nonces and SPIs are its own.
    pub fn initial(
        prf: &dyn Prf,
        shared: &[&Secret],
        seed: &Seed<'_>,
        lengths: &CipherLengths,
    ) -> Self {
        let Nonces { i, r } = seed.nonces;
        let shared: Vec<&[u8]> = shared.iter().map(|secret| secret.expose()).collect();
        let skeyseed = prf.prf(&[i, r].concat(), &shared);
        Self::expand(prf, &skeyseed, seed, lengths)
    }

    /// The keys of the IKE SA that replaces the one with `old` (RFC 7296 §2.18, RFC 9370 §2.2.4). `shared` is SK(0) of the CREATE_CHILD_SA, then one secret for each IKE_FOLLOWUP_KE;
    /// nonces and SPIs are those of the new SA. SKEYSEED is made with the old SA's PRF, the keys
    /// with the new one's.
    pub fn rekeyed(
        old: OldKeys<'_>,
        shared: &[&Secret],
        seed: &Seed<'_>,
        new_prf: &dyn Prf,
        lengths: &CipherLengths,
    ) -> Self {
        let skeyseed = old.prf.prf(old.sk_d.expose(), &around_nonces(shared, seed.nonces));
        Self::expand(new_prf, &skeyseed, seed, lengths)
    }

    /// The keys of the IKE SA that goes on with the SK_d of one that was lost (RFC 5723 §5.1); nonces and SPIs are
    /// those of IKE_SESSION_RESUME.
    pub fn resumed(
        prf: &dyn Prf,
        old_sk_d: &Secret,
        seed: &Seed<'_>,
        lengths: &CipherLengths,
    ) -> Self {
        let Nonces { i, r } = seed.nonces;
        let skeyseed = prf.prf(old_sk_d.expose(), &[b"Resumption", i, r]);
        Self::expand(prf, &skeyseed, seed, lengths)
    }

    /// The generation of keys after the one with `sk_d`, after an IKE_INTERMEDIATE exchange with the shared
    /// secret `shared` (RFC 9370 §2.2.2). Nonces and SPIs are those of IKE_SA_INIT.
    pub fn next(
        prf: &dyn Prf,
        sk_d: &Secret,
        shared: &Secret,
        seed: &Seed<'_>,
        lengths: &CipherLengths,
    ) -> Self {
        let Nonces { i, r } = seed.nonces;
        let skeyseed = prf.prf(sk_d.expose(), &[shared.expose(), i, r]);
        Self::expand(prf, &skeyseed, seed, lengths)
    }

    /// The next generation of keys, after an IKE_INTERMEDIATE exchange agreed on `ppk`
    /// (RFC 9867 §3.1.1). `sk_d` is of the generation after any key exchange of the same IKE_INTERMEDIATE;
    /// nonces and SPIs are those of IKE_SA_INIT.
    pub fn mixed_in_intermediate(
        prf: &dyn Prf,
        sk_d: &Secret,
        ppk: &Secret,
        seed: &Seed<'_>,
        lengths: &CipherLengths,
    ) -> Self {
        let skeyseed = mix(prf, ppk, sk_d);
        Self::expand(prf, &skeyseed, seed, lengths)
    }

    /// `{SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+(SKEYSEED, Ni | Nr | SPIi | SPIr)`
    fn expand(prf: &dyn Prf, skeyseed: &Secret, seed: &Seed<'_>, lengths: &CipherLengths) -> Self {
        let Nonces { i: ni, r: nr } = seed.nonces;
        let preferred = prf.output_len();
        let [spi_i, spi_r] = seed.spis.octets();
        let [d, ai, ar, ei, er, pi, pr] = cut(
            prf,
            skeyseed,
            &[ni, nr, &spi_i, &spi_r],
            [
                preferred,
                lengths.integ_key,
                lengths.integ_key,
                lengths.encr_key,
                lengths.encr_key,
                preferred,
                preferred,
            ],
        );
        Self { d, ai, ar, ei, er, pi, pr }
    }
}

/// The keys of an IKE SA that a PPK changes in IKE_AUTH (RFC 8784 §3).
#[derive(Debug)]
pub struct AuthKeys {
    /// SK_d.
    pub d: Secret,
    /// SK_pi.
    pub pi: Secret,
    /// SK_pr.
    pub pr: Secret,
}

impl AuthKeys {
    /// These keys with `ppk` mixed in.
    pub fn mixed(prf: &dyn Prf, ppk: &Secret, [d, pi, pr]: [&Secret; 3]) -> Self {
        Self { d: mix(prf, ppk, d), pi: mix(prf, ppk, pi), pr: mix(prf, ppk, pr) }
    }
}

/// What stands for `sk_d` when a CREATE_CHILD_SA exchange agreed on `ppk` (RFC 9867 §3.2.1).
pub fn mixed_in_create_child(prf: &dyn Prf, sk_d: &Secret, ppk: &Secret) -> Secret {
    mix(prf, ppk, sk_d)
}

/// Octets of a PPK Confirmation (RFC 9867 §3.1).
pub const PPK_CONFIRMATION_LEN: usize = 8;

/// PPK Confirmation: the first octets of `prf(ppk, parts[0] | parts[1] | …)`. The parts are
/// Ni | Nr | SPIi | SPIr for IKE_INTERMEDIATE (RFC 9867 §3.1), and Ni | SPIi | SPIr, with the SPIs of the
/// IKE SA that carries it, for CREATE_CHILD_SA (§3.2).
pub fn ppk_confirmation(prf: &dyn Prf, ppk: &Secret, parts: &[&[u8]]) -> Secret {
    let whole = prf.prf(ppk.expose(), parts);
    let len = PPK_CONFIRMATION_LEN.min(whole.len());
    Secret::copy_from(whole.expose().split_at(len).0)
}

/// `prf+(PPK, key)`, as long as `key`.
fn mix(prf: &dyn Prf, ppk: &Secret, key: &Secret) -> Secret {
    prf_plus(prf, ppk.expose(), &[key.expose()], key.len())
}

/// Keys of one direction of a Child SA.
#[derive(Debug)]
pub struct DirectionKeys {
    /// Encryption key, salt last.
    pub encr: Secret,
    /// Integrity key; empty for an AEAD.
    pub integ: Secret,
}

/// Keys of a Child SA, by who sends under them in the exchange that made it.
#[derive(Debug)]
pub struct ChildKeys {
    /// From the initiator of the exchange to the responder.
    pub initiator: DirectionKeys,
    /// From the responder of the exchange to the initiator.
    pub responder: DirectionKeys,
}

impl ChildKeys {
    /// Keys of a Child SA (RFC 7296 §2.17, RFC 9370 §2.2.4). `shared` is empty without a key
    /// exchange of its own, else SK(0), SK(1), …; the nonces are those of the exchange that
    /// creates the SA, which is IKE_SA_INIT for a child of IKE_AUTH.
    pub fn derive(
        prf: &dyn Prf,
        sk_d: &Secret,
        shared: &[&Secret],
        nonces: Nonces<'_>,
        lengths: &CipherLengths,
    ) -> Self {
        let (encr, integ) = (lengths.encr_key, lengths.integ_key);
        let [encr_i, integ_i, encr_r, integ_r] =
            cut(prf, sk_d, &around_nonces(shared, nonces), [encr, integ, encr, integ]);
        Self {
            initiator: DirectionKeys { encr: encr_i, integ: integ_i },
            responder: DirectionKeys { encr: encr_r, integ: integ_r },
        }
    }
}

/// The nonces of one exchange, without payload headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonces<'a> {
    /// Ni.
    pub i: &'a [u8],
    /// Nr.
    pub r: &'a [u8],
}

impl Nonces<'_> {
    /// The same with octets of their own.
    pub fn to_owned(self) -> OwnNonces {
        OwnNonces { i: self.i.into(), r: self.r.into() }
    }
}

/// [`Nonces`] with octets of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNonces {
    i: Box<[u8]>,
    r: Box<[u8]>,
}

impl OwnNonces {
    /// The same without octets of their own.
    pub fn borrow(&self) -> Nonces<'_> {
        Nonces { i: &self.i, r: &self.r }
    }
}

/// The SPIs of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spis {
    i: u64,
    r: u64,
}

impl Spis {
    /// SPIi and SPIr. SPIr is 0 before the responder has chosen it.
    pub const fn new(i: u64, r: u64) -> Self {
        Self { i, r }
    }

    /// SPIi.
    pub fn i(self) -> u64 {
        self.i
    }

    /// SPIr.
    pub fn r(self) -> u64 {
        self.r
    }

    /// Those of a message.
    pub fn of(header: &Header) -> Self {
        Self { i: header.spi_i, r: header.spi_r }
    }

    /// SPIi and SPIr as in a message.
    pub fn octets(self) -> [[u8; 8]; 2] {
        [self.i.to_be_bytes(), self.r.to_be_bytes()]
    }

    /// SPIi and SPIr.
    pub fn pair(self) -> (u64, u64) {
        (self.i, self.r)
    }
}

/// What every key of an IKE SA is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Seed<'a> {
    nonces: Nonces<'a>,
    spis: Spis,
}

impl<'a> Seed<'a> {
    /// The nonces of the exchange that makes the IKE SA, and the SPIs of the IKE SA.
    pub const fn new(nonces: Nonces<'a>, spis: Spis) -> Self {
        Self { nonces, spis }
    }
}

/// What the IKE SA that is rekeyed gives to the keys of the next one.
#[derive(Clone, Copy)]
pub struct OldKeys<'a> {
    prf: &'a dyn Prf,
    sk_d: &'a Secret,
}

impl<'a> OldKeys<'a> {
    /// Its PRF, and its SK_d.
    pub fn new(prf: &'a dyn Prf, sk_d: &'a Secret) -> Self {
        Self { prf, sk_d }
    }
}

/// `SK(0) | Ni | Nr | SK(1) | … | SK(n)`, or `Ni | Nr` with no shared secret.
fn around_nonces<'a>(shared: &[&'a Secret], nonces: Nonces<'a>) -> Vec<&'a [u8]> {
    let mut secrets = shared.iter().map(|secret| secret.expose());
    let mut parts: Vec<&[u8]> = secrets.next().into_iter().collect();
    parts.extend([nonces.i, nonces.r]);
    parts.extend(secrets);
    parts
}

/// Takes keys of the given lengths, in order, from the bits of prf+.
fn cut<const N: usize>(
    prf: &dyn Prf,
    key: &Secret,
    seed: &[&[u8]],
    lengths: [usize; N],
) -> [Secret; N] {
    let stream = prf_plus(prf, key.expose(), seed, lengths.iter().sum());
    let mut rest = stream.expose();
    lengths.map(|len| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        Secret::copy_from(head)
    })
}
