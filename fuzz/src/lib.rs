//! What the fuzz targets do with their input, apart from libFuzzer: so that seeds and found inputs
//! also run as plain tests (`tests/tests/fuzz_inputs.rs`, which takes these files in).
//!
//! * [`message`]: datagrams and payload chains, decoded and encoded again.
//! * [`esp`]: ESP packets to and from a userspace data plane.
//! * [`fragments`]: fragments, genuine and not, to one endpoint.
//! * [`fragment_ack`]: acknowledgements of fragments, genuine and not, and fragments to acknowledge.
//! * [`endpoint_script`]: two endpoints, an attacker, and operators who do as the input says.
//! * [`configuration`]: configuration files of either syntax.
//! * [`stream`]: TCP streams of IKE and ESP, taken apart.
//! * [`seeds`]: inputs to begin with.

mod input;

pub mod configuration;
pub mod endpoint_script;
pub mod esp;
pub mod fragment_ack;
pub mod fragments;
pub mod message;
pub mod seeds;
pub mod stream;
