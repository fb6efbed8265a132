//! The engine with its peers on a simulated network, a folder for each part of the protocol. One program, so that what
//! these tests share is linked once.

mod additional_ke;
mod auth;
mod bug_classes;
mod child_options;
mod followup;
mod fragment_ack;
mod links;
mod mitm;
mod mobike;
mod ppk;
mod qcd;
mod redirect;
mod resumption;
mod survival;
mod tcp;
