//! A request that comes again, with a cookie (RFC 7296 §2.6).

use std::sync::Arc;

use crate::wire::Message;
use crate::wire::header::HEADER_LEN;
use crate::wire::payload::Payload;
use crate::wire::registry::{NotifyType, PayloadType};

/// Octet of a message that has the type of its first payload (RFC 7296 §3.1).
const FIRST_PAYLOAD: usize = 16;
/// Octets of a Notify payload without an SPI in front of its data (RFC 7296 §3.10).
const NOTIFY_HEADER: usize = 8;
/// The longest cookie, in octets (RFC 7296 §2.6).
const LONGEST: usize = 64;

/// A request as it was before the initiator put a cookie in front, and this cookie. What is left has the same octets but for
/// what names the first payload and the length. `None` unless the cookie comes first, is the only one, has a permitted
/// length, and stands in a payload as [`with_cookie`] makes it.
//= https://www.rfc-editor.org/rfc/rfc7296#section-2.6
//# the initiator MUST then retry the
//# IKE_SA_INIT request, and include the COOKIE notification containing
//# the received data as the first payload, and all other payloads
//# unchanged.
pub(crate) fn without_cookie<'a>(
    request: &[u8],
    message: &Message<'a>,
) -> Option<(Arc<[u8]>, &'a [u8])> {
    let cookie = |payload: &Payload<'a>| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => Some(notify.data),
        _ => None,
    };
    let (first, others) = message.payloads.split_first()?;
    let found = cookie(first).filter(|data| (1..=LONGEST).contains(&data.len()))?;
    if others.iter().any(|other| cookie(other).is_some()) {
        return None;
    }
    let (header, body) = request.split_at_checked(HEADER_LEN)?;
    let (&[next, flags, _, _, protocol, spi_size, _, _], _) = body.split_first_chunk()?;
    if [flags, protocol, spi_size] != [0; 3] {
        return None;
    }
    let rest = body.get(NOTIFY_HEADER + found.len()..)?;
    Some((whole([header, rest].concat(), next)?, found))
}

/// `request`, which has no cookie, as it is when the initiator has put `cookie` in front.
fn with_cookie(request: &[u8], cookie: &[u8]) -> Option<Arc<[u8]>> {
    let (header, rest) = request.split_at_checked(HEADER_LEN)?;
    let first = *header.get(FIRST_PAYLOAD)?;
    let [high, low] = u16::try_from(NOTIFY_HEADER + cookie.len()).ok()?.to_be_bytes();
    let [kind, of_kind] = NotifyType::COOKIE.0.to_be_bytes();
    let notify = [first, 0, high, low, 0, 0, kind, of_kind];
    whole([header, &notify, cookie, rest].concat(), PayloadType::NOTIFY.0)
}

/// The message `octets` with `first` as the type of its first payload and with its right length.
fn whole(mut octets: Vec<u8>, first: u8) -> Option<Arc<[u8]>> {
    let total = u32::try_from(octets.len()).ok()?;
    *octets.get_mut(FIRST_PAYLOAD)? = first;
    octets.get_mut(24..28)?.copy_from_slice(&total.to_be_bytes());
    Some(octets.into())
}

/// The other forms of `request` that its initiator may take for answered: without a cookie, and with each of `cookies`.
pub(crate) fn other_forms(request: &[u8], cookies: &[Vec<u8>]) -> Vec<Arc<[u8]>> {
    let Ok(message) = Message::decode(request) else {
        debug_assert!(false, "a request that was decoded once cannot be decoded");
        return Vec::new();
    };
    let bare = without_cookie(request, &message).map(|(bare, _)| bare);
    let with = |cookie: &Vec<u8>| with_cookie(bare.as_deref().unwrap_or(request), cookie);
    let mut forms: Vec<Arc<[u8]>> = Vec::new();
    for form in cookies.iter().filter_map(with).chain(bare.clone()) {
        if *form != *request && !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}
