//! What may come between a CREATE_CHILD_SA and the last of its IKE_FOLLOWUP_KE exchanges (RFC 9370
//! §2.2.4): a peer by hand that has the keys, at either end of the chain.

mod answered;
mod asked;
mod collisions;
mod put_off;
mod stage;
