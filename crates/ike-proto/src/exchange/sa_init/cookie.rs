//! A request that comes again, with a cookie (RFC 7296 §2.6).

use std::sync::Arc;

use crate::wire::Message;
use crate::wire::header::HEADER_LEN;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// The longest cookie, in octets (RFC 7296 §2.6).
const LONGEST: usize = 64;

/// The request as it was before the initiator put a cookie in front: the same octets but for what names the first payload and
/// the length. `None` unless the cookie comes first, is the only one, and has a permitted length.
//= https://www.rfc-editor.org/rfc/rfc7296#section-2.6
//# the initiator MUST then retry the
//# IKE_SA_INIT request, and include the COOKIE notification containing
//# the received data as the first payload, and all other payloads
//# unchanged.
pub(crate) fn without_cookie(request: &[u8]) -> Option<Arc<[u8]>> {
    let message = Message::decode(request).ok()?;
    let is_cookie = |payload: &Payload<'_>| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => Some(notify.data.len()),
        _ => None,
    };
    let (first, others) = message.payloads.split_first()?;
    let length = is_cookie(first)?;
    if !(1..=LONGEST).contains(&length) || others.iter().any(|other| is_cookie(other).is_some()) {
        return None;
    }
    let (header, body) = request.split_at_checked(HEADER_LEN)?;
    let (next, size) = (*body.first()?, u16::from_be_bytes([*body.get(2)?, *body.get(3)?]));
    let rest = body.get(usize::from(size)..)?;
    let mut octets = [header, rest].concat();
    let total = u32::try_from(octets.len()).ok()?;
    *octets.get_mut(16)? = next;
    octets.get_mut(24..28)?.copy_from_slice(&total.to_be_bytes());
    Some(octets.into())
}
