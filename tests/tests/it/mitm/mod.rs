//! A man in the middle who tries everything.
//!
//! Two ends that share a secret are joined by somebody who changes messages of IKE_SA_INIT, and of
//! IKE_INTERMEDIATE with the keys that protect them. What counts:
//!
//! * **Every copy changed alike**, retransmissions too: no IKE SA is ever established at the
//!   initiator, and none at the responder ([`init`], [`intermediate`]).
//! * **The first copy changed**, the genuine ones let through afterwards: the SA comes about, both ends
//!   agree on it, and what they made it of is what the genuine messages say ([`once`]).
//!
//! RFC 7296 alone does less: the initiator's AUTH does not cover the IKE_SA_INIT response, so that the
//! responder of a changed one establishes the SA, and closes it when the initiator complains.
//! [`classic`] shows that, and that downgrade prevention ends it. Two things neither covers, by design:
//! what is outside the messages (addresses, ports, the non-ESP marker), and the padding of an Encrypted
//! payload, which RFC 9242 leaves out of IntAuth.
//!
//! [`kci`] is the attack the draft is about: with the signing key of one end it succeeds against RFC 7296,
//! and fails against downgrade prevention.

//! [`quantum`] is what it can do to PPKs with the keys of the messages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod change;
mod classic;
mod init;
mod intermediate;
mod kci;
mod once;
mod quantum;
mod stage;
