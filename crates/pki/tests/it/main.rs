//! Certificates made by OpenSSL, good and bad, against everything this crate decides.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod anchors;
mod answerer;
mod answers;
mod chains;
mod combinations;
mod common;
mod constraints;
mod credentials;
mod files;
mod hash_and_url;
mod identities;
mod in_band;
mod issued;
mod judges;
mod lists;
mod mutated;
mod outside;
mod outside_curves;
mod paths;
mod peers;
mod pkits;
mod policies;
mod policy_trees;
mod pss;
mod revocation;
mod same_ca;
mod signers;
mod standing;
#[path = "../suites/mod.rs"]
mod suites;
mod trust_now;
