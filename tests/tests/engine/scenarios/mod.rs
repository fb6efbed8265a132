//! Collisions of two ends' exchanges by name, message by message: the scenarios of the table beside
//! `ike_sa/collision.rs` (those that strongSwan's exchange tests go through), as runs of two endpoints.
//!
//! Scenarios with IKE_FOLLOWUP_KE exchanges are not among them.

mod child;
mod ike;
mod scene;
