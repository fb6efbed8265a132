//! ESP in user space with the devices, routes and sockets of a real kernel.
#![cfg(all(feature = "tun", target_os = "linux"))]

#[path = "../common/mod.rs"]
mod common;

mod device;
mod plain;
mod queues;
