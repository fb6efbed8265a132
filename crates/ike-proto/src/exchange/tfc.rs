//! Padding against traffic analysis (RFC 4303 §2.7). It is permitted by default. Either end may announce that it
//! accepts no padded packets (RFC 7296 §1.3.1).

use super::Payloads;
use crate::dataplane::{Mode, TfcPadding};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;

/// This end's announcement for a child of `mode`. In tunnel mode the inner packet has its length. In transport
/// mode no data plane here can find it.
//= https://www.rfc-editor.org/rfc/rfc7296#section-1.3.1
//# The ESP_TFC_PADDING_NOT_SUPPORTED notification asserts that the
//# sending endpoint will not accept packets that contain Traffic Flow
//# Confidentiality (TFC) padding over the Child SA being negotiated.
pub(crate) fn payload(mode: Mode) -> Option<Payload<'static>> {
    let refused = Notify::new(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED, &[]);
    (mode == Mode::Transport).then_some(Payload::Notify(refused))
}

/// True if the sender of a message about a child accepts padded packets.
pub(crate) fn is_taken(payloads: &Payloads<'_, '_>) -> bool {
    payloads.notify(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED).is_none()
}

/// The padding that results from `wanted` for a child of `mode`, if the peer accepts padded packets.
pub(crate) fn agreed(wanted: TfcPadding, mode: Mode, taken: bool) -> TfcPadding {
    if taken && mode == Mode::Tunnel { wanted } else { TfcPadding::None }
}
