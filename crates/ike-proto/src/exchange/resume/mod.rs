//! Session resumption (RFC 5723): IKE_SESSION_RESUME instead of IKE_SA_INIT, the IKE_AUTH after it, and how
//! tickets are requested and given.
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, [N(COOKIE),] Ni, N(TICKET_OPAQUE) [,N+]  -->
//!                               <--  HDR, Nr [,N+]
//!    HDR, SK {IDi, [IDr,] AUTH, SAi2, TSi, TSr, [N(TICKET_REQUEST)]}  -->
//!                               <--  HDR, SK {IDr, AUTH, SAr2, TSi, TSr, [N(TICKET_LT_OPAQUE)]}
//! ```
//!
//! Both ends have authenticated before. Now they prove that they still have the former keys.

pub(crate) mod fits;
pub(crate) mod former;
pub(crate) mod granting;
pub(crate) mod initiator;
pub(crate) mod responder;
pub(crate) mod ticket;

use crate::channel::Session;
use crate::config::proposal::Selected;
use crate::crypto::{CryptoError, CryptoProvider, Secret};
use crate::keys::{IkeKeys, Seed};
use crate::wire::registry::AuthMethod;

/// The method of AUTH payloads made with SK_px. RFC 5723 §4.3.3 calls them similar to those of a pre-shared
/// secret, and assigns no number of their own.
const METHOD: AuthMethod = AuthMethod::PSK;

/// The keys of an IKE SA that continues with `sk_d` of another one.
pub(crate) fn session(
    crypto: &CryptoProvider,
    selected: Selected,
    sk_d: &Secret,
    seed: &Seed<'_>,
    initiator: bool,
) -> Result<Session, CryptoError> {
    Session::new(crypto, selected, initiator, |prf, lengths| {
        IkeKeys::resumed(prf, sk_d, seed, lengths)
    })
}
