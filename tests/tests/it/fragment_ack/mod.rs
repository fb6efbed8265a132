//! Fragment acknowledgement (draft-antony-ipsecme-ikev2-fragment-acknowledgment).
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

mod abuse;
mod floods;
mod losses;
mod negotiation;
mod stage;
