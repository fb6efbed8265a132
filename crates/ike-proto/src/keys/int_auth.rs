//! IntAuth: what AUTH covers of the IKE_INTERMEDIATE exchanges (RFC 9242 §3.3.2).

use crate::crypto::{Prf, Secret};
use crate::wire::HEADER_LEN;

/// Octets of a generic payload header.
const GENERIC_HEADER: usize = 4;

/// The running transcript of both directions.
#[derive(Default)]
pub struct IntAuth {
    initiator: Option<Secret>,
    responder: Option<Secret>,
    /// Requests taken, which are one less than the message ID of IKE_AUTH.
    exchanges: u32,
}

/// A message that is not what [`IntAuth::absorb`] can cover: too short, or too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotCovered;

impl IntAuth {
    /// Takes one whole IKE_INTERMEDIATE message, whatever it carries.
    ///
    /// `sk_p` is the sender's SK_pi or SK_pr in force when the exchange began. `front` is the message
    /// from the IKE header through the generic header of the Encrypted payload (of fragment 1 with
    /// SKF turned into SK), `inner` the decrypted payloads. The two lengths in `front` are replaced by
    /// those that RFC 9242 prescribes.
    ///
    /// # Errors
    ///
    /// [`NotCovered`] if `front` holds no two headers, or a length overflows.
    pub fn absorb(
        &mut self,
        prf: &dyn Prf,
        sk_p: &Secret,
        from_initiator: bool,
        front: &[u8],
        inner: &[u8],
    ) -> Result<(), NotCovered> {
        let mut a = front.to_vec();
        let total = u32::try_from(a.len() + inner.len()).map_err(|_| NotCovered)?;
        let payload = u16::try_from(inner.len() + GENERIC_HEADER).map_err(|_| NotCovered)?;
        if a.len() < HEADER_LEN + GENERIC_HEADER {
            return Err(NotCovered);
        }
        //= RFC 9242 §3.3.2
        //# the Length field in the IKE Header (denoted as Adjusted
        //# Length in Figure 1) is set to the sum of the lengths of IntAuth_[i/
        //# r]*A and IntAuth_[i/r]*P
        a[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&total.to_be_bytes());
        let end = a.len();
        a[end - 2..].copy_from_slice(&payload.to_be_bytes());
        let running = if from_initiator { &mut self.initiator } else { &mut self.responder };
        let next = match running.as_ref() {
            Some(before) => prf.prf(sk_p.expose(), &[before.expose(), &a, inner]),
            None => prf.prf(sk_p.expose(), &[&a, inner]),
        };
        *running = Some(next);
        self.exchanges += u32::from(from_initiator);
        Ok(())
    }

    /// `IntAuth_iN | IntAuth_rN | IKE_AUTH_MID`; `None` if there was no IKE_INTERMEDIATE exchange.
    /// IKE_AUTH follows the last one, and IKE_SA_INIT had message ID 0.
    pub fn finish(&self) -> Option<Vec<u8>> {
        let (initiator, responder) = (self.initiator.as_ref()?, self.responder.as_ref()?);
        let message_id = self.exchanges.checked_add(1)?;
        Some([initiator.expose(), responder.expose(), &message_id.to_be_bytes()].concat())
    }
}
