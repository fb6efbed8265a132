//! Tests of the daemon as a whole. One binary, so that what they share is built once.

mod certificates;
mod common;
mod config;
mod config_mistakes;
mod control;
mod credentials;
mod daemons;
mod demo;
mod eap;
mod fetch;
mod metrics;
mod packets;
mod pki;
mod ppk;
mod program;
mod readme;
mod remote_access;
mod secrets;
mod service;
mod settings;
mod shards;
mod shunts;
mod tcp;
mod vici;
mod vici_load;
