//! Tests of the engine's parts that need no second end: vectors, captures, proposals and selection.
#![expect(clippy::unwrap_used, reason = "test code")]

mod bug_classes_selection;
mod captured_sas;
mod epoch;
mod nist_kdf;
mod ppk_keys;
mod proposals;
mod psk_auth;
mod selection_properties;
mod vectors;
