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
        //= https://www.rfc-editor.org/rfc/rfc9242#section-3.3.2
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::registry::PrfId;

    /// Shows what it was given: `key(message)`.
    #[derive(Debug)]
    struct Shown;

    impl Prf for Shown {
        fn id(&self) -> PrfId {
            PrfId::HMAC_SHA2_256
        }

        fn output_len(&self) -> usize {
            32
        }

        fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
            Secret::new([key, b"(", &parts.concat(), b")"].concat())
        }
    }

    /// An IKE header and a generic header whose lengths are those of the encrypted message.
    fn front(mark: u8) -> Vec<u8> {
        let mut front = vec![mark; HEADER_LEN + GENERIC_HEADER];
        front[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&[0xff; 4]);
        front[HEADER_LEN + 2..].copy_from_slice(&[0xff; 2]);
        front
    }

    /// The same with the lengths that RFC 9242 §3.3.2 has for `inner` octets.
    fn adjusted(mark: u8, inner: u8) -> Vec<u8> {
        let mut front = vec![mark; HEADER_LEN + GENERIC_HEADER];
        front[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&[0, 0, 0, 32 + inner]);
        front[HEADER_LEN + 2..].copy_from_slice(&[0, 4 + inner]);
        front
    }

    /// Two exchanges, as the figures of RFC 9242 §3.3.2 have them: each end's messages under its own SK_p in one chain,
    /// the initiator's first.
    ///
    /// Fault: in `finish`, swap the two; or, in `absorb`, take the other chain, leave out `before`, or set one length
    /// alone.
    #[test]
    fn each_direction_is_a_chain_of_its_own() {
        let (i1, r1) = (Secret::copy_from(b"pi1"), Secret::copy_from(b"pr1"));
        let (i2, r2) = (Secret::copy_from(b"pi2"), Secret::copy_from(b"pr2"));
        let mut covered = IntAuth::default();
        assert_eq!(covered.finish(), None, "there was no such exchange");
        covered.absorb(&Shown, &i1, true, &front(1), b"request").unwrap();
        covered.absorb(&Shown, &r1, false, &front(2), b"an answer").unwrap();
        covered.absorb(&Shown, &i2, true, &front(3), b"").unwrap();
        covered.absorb(&Shown, &r2, false, &front(4), b"x").unwrap();
        let chain = |parts: &[&[u8]]| parts.concat();
        let first = chain(&[b"pi1(", &adjusted(1, 7), b"request)"]);
        let initiator = chain(&[b"pi2(", &first, &adjusted(3, 0), b")"]);
        let first = chain(&[b"pr1(", &adjusted(2, 9), b"an answer)"]);
        let responder = chain(&[b"pr2(", &first, &adjusted(4, 1), b"x)"]);
        // IKE_SA_INIT has 0, the two exchanges 1 and 2, IKE_AUTH 3.
        let wanted = chain(&[&initiator, &responder, &[0, 0, 0, 3]]);
        assert_eq!(covered.finish(), Some(wanted));
    }

    #[test]
    fn what_cannot_be_covered_is_said() {
        let key = Secret::copy_from(b"key");
        let mut covered = IntAuth::default();
        let short = vec![0; HEADER_LEN + GENERIC_HEADER - 1];
        assert_eq!(covered.absorb(&Shown, &key, true, &short, b""), Err(NotCovered));
        let long = vec![0; usize::from(u16::MAX) - GENERIC_HEADER + 1];
        assert_eq!(covered.absorb(&Shown, &key, true, &front(0), &long), Err(NotCovered));
        assert_eq!(covered.finish(), None);
        let longest = &long[1..];
        assert_eq!(covered.absorb(&Shown, &key, true, &front(0), longest), Ok(()));
    }
}
