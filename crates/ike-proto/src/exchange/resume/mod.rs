//! Session resumption (RFC 5723): IKE_SESSION_RESUME in the place of IKE_SA_INIT, the IKE_AUTH after it, and
//! how tickets are asked for and given.
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, [N(COOKIE),] Ni, N(TICKET_OPAQUE) [,N+]  -->
//!                               <--  HDR, Nr [,N+]
//!    HDR, SK {IDi, [IDr,] AUTH, SAi2, TSi, TSr, [N(TICKET_REQUEST)]}  -->
//!                               <--  HDR, SK {IDr, AUTH, SAr2, TSi, TSr, [N(TICKET_LT_OPAQUE)]}
//! ```
//!
//! Both ends have proven themselves before; now they prove that they still have the keys of then.

pub(crate) mod fits;
pub(crate) mod former;
pub(crate) mod granting;
pub(crate) mod initiator;
pub(crate) mod responder;
pub(crate) mod ticket;

use crate::config::proposal::Selected;
use crate::crypto::{CryptoError, CryptoProvider, Secret};
use crate::ike_sa::state::Session;
use crate::keys::schedule::IkeKeys;
use crate::wire::registry::AuthMethod;

/// The method of AUTH payloads made by SK_px: RFC 5723 §4.3.3 calls them similar to those of a pre-shared
/// secret, and gives no number of their own.
const METHOD: AuthMethod = AuthMethod::PSK;

/// The keys of an IKE SA that goes on with `sk_d` of another one.
pub(crate) fn session(
    crypto: &CryptoProvider,
    selected: Selected,
    sk_d: &Secret,
    (ni, nr): (&[u8], &[u8]),
    (spi_i, spi_r): (u64, u64),
    initiator: bool,
) -> Result<Session, CryptoError> {
    Session::new(crypto, selected, initiator, |prf, lengths| {
        IkeKeys::resumed(prf, sk_d, ni, nr, spi_i, spi_r, lengths)
    })
}
