//! The ways in which other IKE daemons were broken, one named test or more for each class that an
//! engine can have at this stage. Those of the codecs alone are in ike-proto's own tests.
//!
//! | class | what | tests |
//! |--|--|--|
//! | 3 | notify data and identities reach a log | [`logs`] |
//! | 5, 7, 11, 17 | numbers, proposals, lengths and loops | [`strangers`] |
//! | 7 | key exchange methods that were never offered | [`never_offered`] |
//! | 9 | a mandatory payload is missing, there twice, or elsewhere | [`payloads`] |
//! | 5, 15, 21 | too much of everything | [`floods`] |
//! | 13, 15 | fragments | [`fragments`] |
//! | 15, 18 | floods of them, and who gets through | [`overload`] |
//! | 19 | cookies | [`cookies`] |
//! | 21, 23 | wrong state, deletes | [`states`] |
//! | 25, 43 | identities and secrets | [`identities`] |
//! | 27, 29, 31, 35 | signatures, their parameters, whose key it is, certificates | [`signatures`] |
//! | 37 | the integrity check, and altered responses | [`integrity`], [`twins`] |
//! | 39 | amplification | [`amplification`] |
//! | 41 | stopping at every stage of parsing | [`stages`] |
//! | 45 | a data plane that fails | [`planes`] |

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod amplification;
mod cookies;
mod floods;
mod fragments;
mod identities;
mod integrity;
mod logs;
mod never_offered;
mod overload;
mod payloads;
mod planes;
mod signatures;
mod stages;
mod states;
mod strangers;
mod twins;
