//! One IKE SA: its window of requests, its timers, and what it decides when exchanges cross.

pub(crate) mod collision;
pub(crate) mod reassembly;
pub(crate) mod timer;
pub(crate) mod window;
