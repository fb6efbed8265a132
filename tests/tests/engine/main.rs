//! The engine against itself: two endpoints, sometimes more, on a virtual clock. One module per topic,
//! one test per scenario.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod collisions;
mod crossing;
mod crossing_shards;
mod defaults;
mod handshake;
mod parked;
mod refusals;
mod rekey_child;
mod rekey_ike;
mod sa_init;
mod scenarios;
mod shards;
