//! Data planes and a kernel to test with.

mod faulty;
mod recording;
mod sim;
mod tracer;

pub use faulty::{Fault, Faulty};
pub use recording::{RecordedSa, Recording};
pub use sim::{Packet, SimKernel, Verdict, judge};
pub use tracer::Tracer;
